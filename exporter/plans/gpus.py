"""Plans for those who read GPUs, and for what is derived from their readings alone."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.config import (
    DcgmPageSettings,
    Settings,
)
from exporter.derive import Derivation, hardware
from exporter.fetch import HttpFetcher
from exporter.isolate import Isolated
from exporter.plans.estate import AFTER_READING, Estate, Plan
from exporter.reference.accelerators import Accelerators, Own, extended
from exporter.reference.accelerators import load as load_accelerators
from exporter.runner import Schedule
from exporter.sources.dcgm_page import DcgmPageSource
from exporter.sources.derived import DerivedSource
from exporter.sources.fallback import Fallback
from exporter.sources.kmsg import KernelLogSource


def gpu_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the readers of GPUs; where two know the same, one of them only fills gaps."""
    readers = {one.name: one for one in _gpu_readers(settings, estate)}
    doors = settings.sources
    preferred = {"dcgm": doors.dcgm.preferred, "dcgm_page": doors.dcgm_page.preferred}
    order = [name for name in ("dcgm", "dcgm_page") if preferred[name]]
    order += [name for name in ("nvml", "dcgm", "dcgm_page") if name not in order]
    ranked = [readers[name] for name in order if name in readers]
    gpus = reads_gpus(settings, estate)
    for at, one in enumerate(ranked):
        yield functools.reduce(lambda plan, best: _behind(plan, best, estate), ranked[:at], one)
    kmsg = settings.sources.kmsg
    if _wanted(kmsg.enabled, gpus):
        yield Plan(
            "kmsg", c.XID, Schedule(kmsg.interval, kmsg.deadline, kmsg.max_series),
            f"{settings.root} {kmsg!r}",
            lambda: KernelLogSource(
                estate.ledger, estate.roster, estate.clock, Path(settings.root), device=kmsg.device
            ),
        )  # fmt: skip
    if _wanted(settings.sources.derived.enabled, gpus):
        yield from _derived_plans(settings, estate)


def accelerators(settings: Settings) -> Accelerators:
    """Return the table of products, with what the operator states of his own."""
    return extended(
        load_accelerators(),
        (
            Own(
                one.name,
                {str(at): peak for at, peak in one.peak_flops.items()},
                one.memory_bandwidth,
            )
            for one in settings.accelerators
        ),
    )


def reads_gpus(settings: Settings, estate: Estate) -> bool:
    """Tell whether there are GPUs: whoever asked for them to be read wants to know more of them."""
    doors = settings.sources
    return (
        estate.gpus or doors.nvml.enabled is True or doors.dcgm.enabled or doors.dcgm_page.enabled
    )


def _behind(one: Plan, better: Plan, estate: Estate) -> Plan:
    """Let a reader only fill what the better one leaves."""
    return replace(
        one,
        fingerprint=f"{one.fingerprint} behind {better.name}",
        make=lambda: Fallback(one.make(), better.name, estate.board.view, estate.clock),
    )


def _gpu_readers(settings: Settings, estate: Estate) -> Iterator[Plan]:
    clock, ledger = estate.clock, estate.ledger
    if _wanted((nvml := settings.sources.nvml).enabled, estate.gpus):
        options = {
            # What is left of the deadline is for the way to the child and back.
            "budget": nvml.deadline * 0.75, "expected": nvml.expected,
            "detail": nvml.detail or bool(settings.compat), "links": nvml.links,
            "processes": nvml.processes, "root": settings.root,
        }  # fmt: skip
        yield Plan(
            "nvml", c.GPU, Schedule(nvml.interval, nvml.deadline, nvml.max_series),
            f"{options!r} {nvml!r}",
            lambda: Isolated(
                "nvml", c.GPU, options, deadline=nvml.deadline, clock=clock,
                end_after=nvml.end_after, events=ledger.from_driver,
                memories=estate.memories, ending=estate.ending,
            ),
        )  # fmt: skip
    if (dcgm := settings.sources.dcgm).enabled:
        asked = {
            "address": dcgm.address, "library": dcgm.library, "interval": dcgm.interval,
            "everything": dcgm.everything,
        }  # fmt: skip
        yield Plan(
            "dcgm", c.GPU, Schedule(dcgm.interval, dcgm.deadline, dcgm.max_series), repr(dcgm),
            # Never ended by force: it may hold a profiling session (dcgm-exporter 84).
            lambda: Isolated(
                "dcgm", c.GPU, asked, deadline=dcgm.deadline, clock=clock, end_after=None,
                memories=estate.memories, ending=estate.ending,
            ),
        )  # fmt: skip
    if (page := settings.sources.dcgm_page).enabled:
        yield Plan(
            "dcgm_page", c.GPU, Schedule(page.interval, page.timeout + 0.5, page.max_series),
            repr(page), lambda: DcgmPageSource(_fetcher(page, clock)),
        )  # fmt: skip


def _fetcher(page: DcgmPageSettings, clock: Clock) -> HttpFetcher:
    return HttpFetcher(
        page.url,
        timeout=page.timeout,
        token_file=None if page.token_file is None else Path(page.token_file),
        ca_file=None if page.ca_file is None else Path(page.ca_file),
        insecure_skip_verify=page.insecure_skip_verify,
        clock=clock,
    )


def _derived_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    derived, board = settings.sources.derived, estate.board
    schedule = Schedule(derived.interval, derived.deadline, derived.max_series, AFTER_READING)
    nvml = settings.sources.nvml
    gap = Schedule(nvml.interval, nvml.deadline).max_age
    fingerprint = f"{derived!r} {gap} {settings.compat} {settings.accelerators!r}"
    for one in (
        hardware(accelerators(settings), precision_hint=derived.precision_hint, longest_gap=gap),
        *_foreign_names(settings.compat),
    ):
        yield Plan(
            f"derive:{one.name}", one.group, schedule, fingerprint,
            functools.partial(DerivedSource, one, board.view, estate.clock),
        )  # fmt: skip


def _foreign_names(sets: tuple[str, ...]) -> tuple[Derivation, ...]:
    """Return what translates into other exporters' names; loaded by those who want it."""
    if not sets:
        return ()
    from exporter.derive.compat import derivations

    return derivations(sets, socket.gethostname())


def _wanted(enabled: bool | Literal["auto"], gpus: bool) -> bool:  # noqa: FBT001
    return gpus if enabled == "auto" else enabled
