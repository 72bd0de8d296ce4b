"""Reads MLflow's file store: one line for each value of a metric, and a small file about the run.

`mlruns/EXPERIMENT/RUN/metrics/KEY` holds lines `MILLISECONDS VALUE STEP`; a key with slashes is a
path. `meta.yaml` names the run, and is read by line: it is flat. (MLflow 3 writes to this store
only with MLFLOW_ALLOW_FILE_STORE.)
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from exporter.samples import Malformed

LONGEST = 256
"""Bytes of a line, at most."""

_LINE = re.compile(rb"([0-9]{1,16}) ([-+.0-9A-Za-z]{1,32})(?: ([0-9]{1,15})(?: .*)?)?")
_META = re.compile(r"(run_name|run_id|run_uuid|status|lifecycle_stage|start_time|end_time): (.*)")
_ENDS: dict[str, Literal["ended", "failed"]] = {"3": "ended", "4": "failed", "5": "failed"}
"""How a run has ended, by RunStatus: finished, failed, killed."""


class Point(NamedTuple):
    """One value of a metric; `wall` is Unix seconds."""

    wall: float
    value: float
    step: int


def read_point(line: bytes) -> Point:
    """Return what a line says. Raises `Malformed`."""
    match = _LINE.fullmatch(line.strip())
    try:
        if match is not None and len(line) <= LONGEST:
            return Point(int(match[1]) / 1000, float(match[2]), int(match[3] or 0))
    except ValueError:
        pass
    raise Malformed(f"not a time, a value and a step: {line[:60]!r}")


class Meta(NamedTuple):
    """What `meta.yaml` says of a run: a deleted one is not `active`; moments are Unix seconds."""

    name: str
    active: bool
    started: float | None = None
    ended: float | None = None
    end: Literal["", "ended", "failed"] = ""


def read_meta(text: str) -> Meta:
    """Return a run's name. Raises `Malformed` if there is neither a name nor an identity."""
    matches = filter(None, map(_META.fullmatch, text.splitlines()))
    told = {match[1]: match[2].strip().strip("'\"") for match in matches}
    name = told.get("run_name") or told.get("run_id") or told.get("run_uuid")
    if not name:
        raise Malformed("meta.yaml: neither run_name nor run_id")
    return Meta(
        name,
        told.get("lifecycle_stage", "active") == "active",
        _moment(told.get("start_time", "")),
        _moment(told.get("end_time", "")),
        _ENDS.get(told.get("status", ""), ""),
    )


def _moment(text: str) -> float | None:
    return int(text) / 1000 if re.fullmatch(r"[0-9]{1,15}", text) else None
