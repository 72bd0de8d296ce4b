"""Who goes first on busy cores: what stamps times does, and what computes does not."""

from __future__ import annotations

import contextlib
import os

import psutil


def hurry(pid: int) -> None:
    """Let all threads of a process go before others; where that is not allowed, do nothing."""
    for thread in psutil.Process(pid).threads():
        _first(thread.id)


def hurry_helpers(pid: int) -> None:
    """Let all threads but the main one go before others: those that send what it has made."""
    for thread in psutil.Process(pid).threads():
        if thread.id != pid:
            _first(thread.id)


def _first(thread: int) -> None:
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
