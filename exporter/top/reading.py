"""What a page and a status document tell, as the rows that are shown.

Only gauges are taken, so that one page suffices. What is missing is None, and drawn as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.commands.pages import Page
from exporter.top.rows import Frame, Gpu, Money, Port, Promise, Run, Server, Trouble

Values = Mapping[str, float]


def frame(page: Page, status: Mapping[str, Any], now: float) -> Frame:
    """Return what is to be shown, at `now` in Unix seconds."""
    about = _table(status, "flopwatch")
    sources = _rows(status, "sources")
    return Frame(
        version=_text(about.get("version")),
        uptime=_number(about.get("uptime_seconds")),
        gpus=tuple(_gpus(page)),
        runs=tuple(_runs(page, _rows(status, "diagnoses"))),
        servers=tuple(_servers(page)),
        promises=tuple(_promises(page)),
        ports=tuple(_ports(page)),
        imbalance=page.value("nic_rail_imbalance_ratio"),
        far=tuple(
            one.labels.get("gpu", "") for one in page.all("topology_gpu_nic_ok") if one.value == 0
        ),
        money=_money(page),
        sources=len(sources),
        trouble=tuple(_trouble(sources)),
        notice=_notice(page, now),
        story=_story(_table(status, "story")),
    )


# ---- GPUs -----------------------------------------------------------------------------------


def _gpus(page: Page) -> Iterator[Gpu]:
    def told(name: str, **labels: str) -> Values:
        return {one.labels.get("gpu", ""): one.value for one in page.all(name, **labels)}

    names = {one.labels.get("gpu", ""): one.labels.get("name", "") for one in page.all("gpu_info")}
    up, busy = told("gpu_up"), told("gpu_utilization_ratio")
    sm, tensor = told("gpu_sm_active_ratio"), told("gpu_tensor_active_ratio")
    dram = told("gpu_dram_active_ratio")
    used, memory = told("gpu_memory_used_bytes"), told("gpu_memory_total_bytes")
    watts = {**told("gpu_power_watts"), **told("gpu_power_watts", kind="average")}
    limit = told("gpu_power_limit_watts", limit="enforced")
    clock = told("gpu_clock_hertz", domain="sm")
    celsius = told("gpu_temperature_celsius", sensor="core")
    held, xids, work = _held(page), _xids(page), _work(page)
    for index in sorted({*names, *up}, key=_by_number):
        yield Gpu(
            index, names.get(index, ""), up.get(index) != 0, sm.get(index), tensor.get(index),
            dram.get(index), busy.get(index), used.get(index), memory.get(index), watts.get(index),
            limit.get(index), clock.get(index), celsius.get(index), held.get(index, ()),
            xids.get(index), work.get(index, ""),
        )  # fmt: skip


def _held(page: Page) -> dict[str, tuple[str, ...]]:
    """Return what holds the clock of each GPU down now."""
    found: dict[str, tuple[str, ...]] = {}
    for one in page.all("gpu_throttle_active"):
        if one.value:
            gpu = one.labels.get("gpu", "")
            found[gpu] = (*found.get(gpu, ()), one.labels.get("reason", ""))
    return found


def _xids(page: Page) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in page.all("gpu_xid_errors_total"):
        gpu = one.labels.get("gpu", "")
        found[gpu] = found.get(gpu, 0) + int(one.value)
    return found


def _work(page: Page) -> dict[str, str]:
    """Return for whom each GPU works: its pods, else a server or run, else its largest process."""
    found: dict[str, str] = {}
    largest: dict[str, float] = {}
    for one in page.all("gpu_process_memory_bytes"):
        gpu = one.labels.get("gpu", "")
        if one.value > largest.get(gpu, -1.0):
            largest[gpu], found[gpu] = one.value, one.labels.get("command", "")
    for name, label in (("train_run_gpu", "run"), ("llm_server_gpu", "server")):
        found |= {one.labels.get("gpu", ""): one.labels.get(label, "") for one in page.all(name)}
    pods: dict[str, dict[str, None]] = {}
    for one in page.all("gpu_allocation_info"):
        if pod := one.labels.get("pod", ""):
            has = pods.setdefault(one.labels.get("gpu", ""), {})
            has[f"{one.labels.get('namespace', '')}/{pod}"] = None
    for gpu, has in pods.items():
        found[gpu] = next(iter(has)) + (f" +{len(has) - 1}" if len(has) > 1 else "")
    return found


def _by_number(index: str) -> tuple[int, str]:
    return (int(index), "") if index.isascii() and index.isdecimal() else (1 << 30, index)


# ---- training -------------------------------------------------------------------------------


def _runs(page: Page, diagnoses: list[Mapping[str, Any]]) -> Iterator[Run]:
    found = {_text(one.get("run")): one for one in diagnoses}
    infos = {one.labels.get("run", ""): one.labels for one in page.all("train_run_info")}
    for run in dict.fromkeys([*infos, *page.values_of("train_step", "run")]):
        mfu, mfu_of = _mfu(page, run)
        diagnosis = found.get(run, {})
        confirmed = diagnosis.get("confirmed")
        yield Run(
            run,
            infos.get(run, {}).get("model_name", ""),
            page.value("train_stalled", run=run) == 1,
            page.value("train_step", run=run),
            page.value("train_step_median_seconds", run=run),
            page.value("train_tokens_per_second_per_gpu", run=run),
            mfu,
            mfu_of,
            _losses(page, run),
            page.value("train_goodput_ratio", run=run),
            page.value("train_loss", run=run),
            _straggler(page, run),
            _text(diagnosis.get("bottleneck")),
            confirmed if isinstance(confirmed, bool) else None,
            tuple(map(_text, _list(diagnosis.get("causes")))),
        )


def _mfu(page: Page, run: str) -> tuple[float | None, str]:
    """Return MFU by the convention that counts what is computed, and by which peak."""
    told = page.all("train_mfu_ratio", run=run, convention="causal")
    told = told or page.all("train_mfu_ratio", run=run)
    if not told:
        return None, ""
    labels = told[0].labels
    return told[0].value, f"{labels.get('convention', '')} {labels.get('peak', '')}"


def _losses(page: Page, run: str) -> tuple[tuple[str, float], ...]:
    found: dict[str, float] = {}
    for one in page.all("train_mfu_loss_ratio", run=run):
        cause = one.labels.get("cause", "")
        found[cause] = found.get(cause, 0.0) + one.value
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _straggler(page: Page, run: str) -> tuple[str, float] | None:
    scores = page.all("train_straggler_score", run=run)
    worst = max(scores, key=lambda one: one.value, default=None)
    return None if worst is None else (worst.labels.get("rank", ""), worst.value)


# ---- serving --------------------------------------------------------------------------------


def _servers(page: Page) -> Iterator[Server]:
    models: dict[tuple[str, str, str], None] = {}
    for family in ("llm_active_requests", "llm_requests_per_second"):
        for one in page.all(family):
            labels = one.labels
            if labels.get("engine"):
                name, engine = labels.get("server", ""), labels.get("engine", "")
                models[name, engine, labels.get("model_name", "")] = None
    told = {name for name, _, _ in models}
    for one in page.all("llm_server_info"):
        if (name := one.labels.get("server", "")) not in told:
            models[name, one.labels.get("engine", ""), ""] = None
    for one in page.all("llm_probe_up", kind="health"):
        if (name := one.labels.get("server", "")) not in {name for name, _, _ in models}:
            models[name, "", ""] = None
    for name, engine, model in models:
        yield _server(page, name, engine, model)


def _server(page: Page, name: str, engine: str, model: str) -> Server:
    who = {"server": name, "model_name": model}
    lately = {**who, "window": _window(page, "llm_window_seconds", name)}
    latencies = {
        (one.labels.get("signal", ""), one.labels.get("percentile", "")): one.value
        for one in page.all("llm_latency_quantile_seconds", **lately)
    }
    probe = page.value("llm_probe_up", server=name, kind="health")
    return Server(
        name, engine, model, None if probe is None else probe == 1,
        page.value("llm_stalled", **who) == 1, latencies,
        page.value("llm_requests_per_second", **lately),
        page.value("llm_input_tokens_per_second", **lately),
        page.value("llm_output_tokens_per_second", **lately),
        page.value("llm_active_requests", **who), page.value("llm_waiting_requests", **who),
        page.value("llm_kv_cache_usage_ratio", **who),
    )  # fmt: skip


def _window(page: Page, family: str, server: str) -> str:
    """Return the shortest window that is told of; the page has them in that order."""
    return next((one.labels.get("window", "") for one in page.all(family, server=server)), "5m")


def _promises(page: Page) -> Iterator[Promise]:
    infos = {
        (one.labels.get("sla", ""), one.labels.get("objective", ""), one.labels.get("tier", "")):
            one.labels.get("statement", "")
        for one in page.all("sla_objective_info")
    }  # fmt: skip
    for one in page.all("sla_state"):
        if one.value != 1:
            continue
        who = {name: value for name, value in one.labels.items() if name != "state"}
        key = who.get("sla", ""), who.get("objective", ""), who.get("tier", "")
        causes = page.all("sla_breach_cause", **who)
        cause = causes[0].labels if causes else {}
        measured, unit = _measured(page, who)
        about = " ".join(filter(None, (key[2], who.get("model_name"), who.get("server"))))
        yield Promise(
            key[0], key[1], infos.get(key, ""), about, one.labels.get("state", ""), measured,
            unit, page.value("sla_error_budget_remaining_ratio", **who),
            cause.get("cause", ""), cause.get("evidence", ""),
        )  # fmt: skip


def _measured(page: Page, who: Mapping[str, str]) -> tuple[float | None, str]:
    for name in ("seconds", "ratio", "tokens_per_second"):
        if (value := page.value(f"sla_measured_{name}", **who)) is not None:
            return value, name
    return None, ""


# ---- fabric, money, sources -----------------------------------------------------------------


def _ports(page: Page) -> Iterator[Port]:
    roles = {
        (one.labels.get("device", ""), one.labels.get("port", "")): one.labels.get("role", "")
        for one in page.all("nic_device_info")
    }
    for one in page.all("nic_up"):
        device, port = one.labels.get("device", ""), one.labels.get("port", "")
        who = {"device": device, "port": port}
        yield Port(
            device, port, roles.get((device, port), ""), one.value == 1,
            any(told.value == 1 for told in page.all("nic_expected_up", **who)),
            page.value("nic_link_rate_bytes_per_second", **who),
            page.value("nic_receive_utilization_ratio", **who),
            page.value("nic_transmit_utilization_ratio", **who),
        )  # fmt: skip


def _money(page: Page) -> Money:
    spent = page.all("cost_dollars_total")
    rows = [
        (f"run {one.labels.get('run', '')}", one.value, "this node, so far")
        for one in page.all("train_cost_dollars_total")
    ]
    rows += [
        (f"run {one.labels.get('run', '')}", one.value, "all nodes, at its end")
        for one in page.all("train_projected_cost_dollars")
    ]
    for one in page.all("llm_cost_per_million_tokens_dollars"):
        what = [one.labels.get(name, "") for name in ("direction", "method", "window")]
        rows.append((f"server {one.labels.get('server', '')}", one.value,
                     " ".join(filter(None, ("a million tokens", *what)))))  # fmt: skip
    return Money(
        page.value("cost_dollars_per_hour"), page.value("cost_idle_dollars_per_hour"),
        sum(one.value for one in spent) if spent else None, tuple(rows),
    )  # fmt: skip


def _trouble(sources: list[Mapping[str, Any]]) -> Iterator[Trouble]:
    for one in sources:
        state = _text(one.get("state"))
        faults = [fault for fault in _list(one.get("faults")) if isinstance(fault, Mapping)]
        if state in {"up", "waiting"} and not faults:
            continue
        parts = (
            f"{_text(fault.get('part')) or 'not read'}:"
            f" {_text(fault.get('detail')) or _text(fault.get('reason'))}"
            for fault in faults[:8]
        )
        yield Trouble(_text(one.get("name")), state, tuple(parts))


def _notice(page: Page, now: float) -> str:
    if not any(one.value for one in page.all("spot_interruption_notice")):
        return ""
    ends = page.all("spot_interruption_deadline_timestamp_seconds")
    if not ends:
        return "the cloud takes this machine away"
    left, action = ends[0].value - now, ends[0].labels.get("action", "")
    return f"the cloud takes this machine away ({action}) in {max(0, round(left))} s"


def _story(story: Mapping[str, Any]) -> str:
    if not story:
        return ""
    number, chapters = story.get("number"), story.get("chapters")
    left = _number(story.get("seconds_left")) or 0.0
    return f"story {number}/{chapters}: {_text(story.get('title'))} ({left:.0f} s)"


# ---- JSON of somebody else ------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [one for one in _list(document.get(key)) if isinstance(one, Mapping)]


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}
