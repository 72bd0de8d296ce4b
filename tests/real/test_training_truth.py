"""A real PyTorch run of two ranks, observed in four ways at once, and with faults injected.

`FLOPWATCH_TORCH_PYTHON=/path/to/python make test-real`, some three minutes, where that Python has
torch and tensorboard (docs/verification.md says which). What the daemon says is held against the
job's own account of each step (`train.py`, `truth.*.jsonl`), and MFU against a count by hand.

The accelerator is this machine's CPU. Its peak is stated: what the same model reaches while it goes
forward and backward in a run before, so that what is lost to anything else stands out.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.real.pages import Page
from tests.real.priority import hurry
from tests.real.training_job import CONFIG, RANKS, Truth, flops_per_token, need_torch, train
from tests.test_daemon import Daemon, free_port, ready

pytestmark = pytest.mark.real

STEPS = 100
RUN = {"run": "tiny"}
PATH = "/metrics?collect[]=training&collect[]=profile&collect[]=exporter"
OFF = {"enabled": False}
WITHIN = 0.02
POINTS = 0.02


class Watch:
    """A daemon and its pages while a job runs; the last one that tells of throughput is kept."""

    def __init__(self, folder: Path, name: str, sources: dict[str, object], **more: object) -> None:
        settings = {
            "push": {"socket": False},
            "sources": {
                "nvml": OFF, "kmsg": OFF, "host": OFF, "network": OFF, "process": OFF,
                "inference": OFF, "serving": OFF, **sources,
            },
            **more,
        }  # fmt: skip
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(settings))
        port = free_port()
        command = [sys.executable, "-m", "exporter", "run", "--config", str(file)]
        self.name = name
        self.daemon = Daemon([*command, "--listen", f"127.0.0.1:{port}"], port)
        self.url = f"http://127.0.0.1:{port}"
        self.daemon.wait_for("/-/ready", ready)
        hurry(self.daemon.process.pid, "watches")
        self.page: Page | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            with contextlib.suppress(OSError):
                page = self.now()
                if page.series.get("train_tokens_per_second_per_gpu"):
                    self.page = page

    def now(self) -> Page:
        """Return the page as it is."""
        return Page(0.0, self.daemon.get(PATH)[1], "")

    def last(self) -> Page:
        """Return the last page that told of throughput; fail if there was none."""
        if self.page is None:
            pytest.fail(f"{self.name} told nothing: {self.now().body}", pytrace=False)
        return self.page

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.daemon.stop()
        self.daemon.process.communicate()


class Observed(NamedTuple):
    """A run, the last page of each daemon while it went on, and its pages afterwards."""

    truth: Truth
    pages: dict[str, Page]
    after: dict[str, Page]

    def said(self, name: str) -> Truth:
        """Return the truth of the steps that the last page of a daemon is about."""
        return self.truth.until(self.pages[name].value("train_step", **RUN) or 0)

    def losses(self, name: str = "push") -> dict[str, float]:
        """Return the share of the peak that is lost to each cause."""
        found: dict[str, float] = {}
        for labels, share in self.pages[name].all("train_mfu_loss_ratio", **RUN):
            found[labels["cause"]] = found.get(labels["cause"], 0.0) + share
        return found


def statement(peak: float) -> dict[str, object]:
    """Return what the configuration states of the run and of this machine."""
    return {
        "accelerators": [{"name": "this-cpu", "peak_flops": {"fp32": f"{peak / 1e9:.6f}G"}}],
        "training": {
            "interval": "0.5s",
            "runs": [{**KNOWN, "accelerator": "this-cpu"}],
        },
    }


KNOWN = {
    "name": "tiny", "world_size": RANKS, "sequence_length": 256, "global_batch": 8,
    "precision": "fp32", "recompute": "none", "model_config": str(CONFIG),
}  # fmt: skip


def sources(folder: Path, name: str) -> dict[str, object]:
    """Return the one source by which a daemon is to learn of the run below a folder."""
    log = {"interval": "0.5s", "files": [{"path": f"{folder}/train.log", "run": "tiny"}]}
    events = {
        "path": f"{folder}/tensorboard", "kind": "tensorboard", "run": "tiny", "interval": "0.5s",
    }  # fmt: skip
    traces = {"interval": "0.5s", "directories": [{"path": f"{folder}/traces", "run": "tiny"}]}
    return {
        "log": {"logs": log}, "unknown": {"logs": log}, "push": {},
        "tensorboard": {"training_files": [events]}, "trace": {"profiles": traces},
    }[name]  # fmt: skip


@pytest.fixture(scope="module")
def peak(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return what a rank of the job reaches while it goes forward and backward, in FLOP/s."""
    need_torch()
    truth = train(tmp_path_factory.mktemp("peak"), steps=40, port=free_port())
    return truth.computing


Run = Callable[..., Observed]


@pytest.fixture(scope="module")
def observe(tmp_path_factory: pytest.TempPathFactory, peak: float) -> Run:
    """Return what runs the job while daemons watch it, each in one way."""

    def run(*options: str, names: tuple[str, ...] = ("push",)) -> Observed:
        folder = tmp_path_factory.mktemp("run")
        out = folder / "out"
        (out / "traces").mkdir(parents=True)
        (out / "tensorboard").mkdir()
        watches: dict[str, Watch] = {}
        try:
            for name in names:
                stated = statement(peak)
                if name == "unknown":
                    stated = {"training": {"interval": "0.5s", "runs": [KNOWN]}}
                watches[name] = Watch(folder, name, sources(out, name), **stated)
            url = watches["push"].url
            truth = train(out, *options, steps=STEPS, url=url, port=free_port())
            after = {name: watch.now() for name, watch in watches.items()}
            if "trace" in watches:
                text = watches["trace"].daemon.wait_for(PATH, _has_both_traces, 200)
                after["trace"] = Page(0.0, text, "")
            pages = {name: one.last() for name, one in watches.items() if name != "trace"}
            return Observed(truth, pages, after)
        finally:
            for watch in watches.values():
                watch.close()

    return run


def _has_both_traces(_: int, text: str) -> bool:
    return text.count("\ntrain_profile_step_seconds{") == RANKS


# ---------------------------------------------------------------- four ways


@pytest.fixture(scope="module")
def four(observe: Run) -> Observed:
    """Return a run that was profiled all along, and observed in four ways."""
    return observe(
        "--profile", "--push", "2", names=("log", "tensorboard", "push", "trace", "unknown")
    )


LIVE = ("log", "tensorboard", "push")


@pytest.mark.parametrize("name", LIVE)
def test_throughput_and_time_of_a_step_are_the_jobs_own(four: Observed, name: str) -> None:
    page, truth = four.pages[name], four.said(name)
    assert len(truth.ranks[0]) > STEPS * 0.8
    tgs = page.value("train_tokens_per_second_per_gpu", **RUN)
    median = page.value("train_step_median_seconds", **RUN)
    print(f"{name}: TGS {tgs:.1f} of {truth.tgs:.1f}, step {median:.5f} of {truth.median:.5f}")
    assert tgs == pytest.approx(truth.tgs, rel=WITHIN)
    assert median == pytest.approx(truth.median, rel=WITHIN)


def test_the_four_ways_agree(four: Observed) -> None:
    tgs = {name: four.pages[name].value("train_tokens_per_second_per_gpu", **RUN) for name in LIVE}
    trace = four.after["trace"]
    seconds = trace.value("train_profile_step_seconds", run="tiny", rank="0")
    assert seconds is not None
    assert trace.value("train_profile_steps", run="tiny", rank="0") == STEPS - 2
    tgs["trace"] = four.truth.ranks[0][0].tokens / seconds
    print({name: round(value or 0, 1) for name, value in tgs.items()})
    values = [value for value in tgs.values() if value is not None]
    assert len(values) == 4
    assert max(values) / min(values) - 1 < WITHIN


def test_a_trace_of_the_cpu_has_no_kernels_and_no_overlap(four: Observed) -> None:
    page = four.after["trace"]
    for rank in ("0", "1"):
        assert page.value("train_profile_kernels", run="tiny", rank=rank) == 0
    assert "train_profile_communication_overlap_ratio" not in page.series
    assert "train_communication_overlap_ratio" not in page.series


@pytest.mark.parametrize("name", LIVE)
def test_mfu_is_what_a_hand_makes_of_it(four: Observed, peak: float, name: str) -> None:
    page, truth = four.pages[name], four.said(name)
    mfu = page.value("train_mfu_ratio", convention="causal", peak="fp32", **RUN)
    tgs = page.value("train_tokens_per_second_per_gpu", **RUN)
    assert tgs is not None
    stated = float(f"{peak / 1e9:.6f}") * 1e9
    assert mfu == pytest.approx(flops_per_token() * tgs / stated, rel=1e-9)
    assert mfu == pytest.approx(flops_per_token() * truth.tgs / stated, rel=WITHIN)
    counted = page.value("train_flops_per_token", convention="causal", **RUN)
    assert counted == flops_per_token()
    parameters = page.value("train_parameters", kind="total", **RUN)
    assert parameters == int((four.truth.folder / "parameters").read_text("utf-8"))


def test_without_the_accelerators_peak_there_is_no_mfu(four: Observed) -> None:
    page = four.pages["unknown"]
    for name in ("train_mfu_ratio", "train_hfu_ratio", "train_mfu_loss_ratio"):
        assert name not in page.series
    assert page.value("train_mfu_withheld", reason="unknown_accelerator", **RUN) == 1
    tgs = page.value("train_tokens_per_second_per_gpu", **RUN)
    assert tgs == pytest.approx(four.said("unknown").tgs, rel=WITHIN)


def test_what_the_ranks_pushed_is_what_they_did(four: Observed) -> None:
    page, truth = four.pages["push"], four.said("push")
    for rank in range(RANKS):
        for phase in ("forward", "backward", "optimizer"):
            told = page.value("train_phase_seconds_total", run="tiny", rank=str(rank), phase=phase)
            own = sum(row.phases[phase] for row in truth.ranks[rank])
            assert told == pytest.approx(own, rel=0.1), "the first step is in one of them only"


# ---------------------------------------------------------------- what was injected


@pytest.fixture(scope="module")
def calm(observe: Run) -> Observed:
    """Return a run in which nothing is wrong; rank 0 tells of it."""
    return observe("--push", "1")


@pytest.fixture(scope="module")
def pause(calm: Observed) -> str:
    """Return what is a quarter of a step that is longer by it, in seconds."""
    return f"{calm.truth.seconds / 3:.4f}"


def account(seen: Observed, peak: float) -> dict[str, float]:
    """Return the losses that follow from the job's own account of rank 0."""
    truth = seen.said("push")
    computing = sum(truth.share(phase) for phase in ("forward", "backward", "optimizer"))
    return {
        "data": truth.share("data"),
        "communication": truth.share("communication"),
        "kernels": max(0.0, computing - flops_per_token() * truth.tgs / peak),
    }


def moved(before: dict[str, float], after: dict[str, float], dilution: float) -> dict[str, float]:
    """Return by how much each cause has moved.

    The step is longer, so what has stayed as it was is a smaller share of it.
    """
    return {cause: share - before.get(cause, 0.0) * dilution for cause, share in after.items()}


def check(before: Observed, after: Observed, cause: str, share: float, peak: float) -> None:
    """Hold what has moved against what was injected.

    Neighbours on a busy machine make it compute faster or slower from one run to the next; where
    the job's own account has that, too, it is the machine's doing.
    """
    dilution = before.said("push").seconds / after.said("push").seconds
    found = moved(before.losses(), after.losses(), dilution)
    own = moved(account(before, peak), account(after, peak), dilution)
    print(
        f"{cause}: injected {share:.4f}, moved {found[cause]:.4f};",
        {one: round(value, 4) for one, value in after.losses().items()},
        "others", {one: round(value, 4) for one, value in found.items() if one != cause},
        "of which by the account", {one: round(value, 4) for one, value in own.items()},
    )  # fmt: skip
    assert found.pop(cause) == pytest.approx(share, rel=0.1)
    others = {one: value - own.get(one, 0.0) for one, value in found.items()}
    assert {one: value for one, value in others.items() if abs(value) > POINTS} == {}
    assert abs(after.losses()["unexplained"]) < 0.10
    mfu = after.pages["push"].value("train_mfu_ratio", convention="causal", peak="fp32", **RUN)
    assert mfu is not None
    assert mfu + sum(after.losses().values()) == pytest.approx(1, abs=1e-6)


def test_nothing_is_unexplained_while_nothing_is_wrong(calm: Observed) -> None:
    print(calm.losses())
    assert abs(calm.losses()["unexplained"]) < 0.10


def test_a_stall_of_the_loader_is_found(
    observe: Run, calm: Observed, pause: str, peak: float
) -> None:
    stalled = observe("--push", "1", "--stall", pause)
    waited = statistics.fmean(row.phases["data"] for row in stalled.said("push").ranks[0])
    usual = statistics.fmean(row.phases["data"] for row in calm.said("push").ranks[0])
    check(calm, stalled, "data", (waited - usual) / stalled.said("push").seconds, peak)


def test_a_wait_in_the_collective_is_found(
    observe: Run, calm: Observed, pause: str, peak: float
) -> None:
    """Rank 1 sleeps before it takes part; rank 0, which tells, waits for it."""
    late = observe("--push", "1", "--wait", pause)
    # By the account of the one that sleeps, so that the other's waiting is what is judged.
    check(calm, late, "communication", late.said("push").share("other", rank=1), peak)


def test_where_the_late_rank_tells_too_it_is_named(observe: Run, pause: str) -> None:
    """It waits least; the run's time is lost to what it does itself, and not to communication."""
    both = observe("--push", "2", "--wait", pause)
    slept = both.said("push").share("other", rank=1)
    losses = both.losses()
    assert losses["framework"] == pytest.approx(slept, rel=0.1)
    page = both.pages["push"]
    waits = [page.value("train_rank_wait_ratio", run="tiny", rank=str(n)) or 0 for n in range(2)]
    assert waits[0] - waits[1] == pytest.approx(slept, rel=0.1)
