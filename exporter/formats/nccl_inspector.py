"""A line of NCCL Inspector's dump: one finished collective, or one transfer between two ranks.

The profiler plug-in of NCCL 2.28 and later writes a JSON object for each line (format v4.0:
`header`, `metadata`, and `coll_perf` or `p2p_perf`). GB are 1e9 bytes. It dumps what it has at its
own interval and does not write down every operation of a busy communicator.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from exporter.samples import Malformed

_LONGEST = 64


class Operation(NamedTuple):
    """A collective or a transfer, on one rank of one communicator.

    `size` is bytes, `seconds` its time, `bandwidth` bus bandwidth in bytes per second, `wall` when
    it was written down (Unix seconds). `process` tells the writers apart. All ranks of a
    communicator give one collective the same `sequence`; `timing` is whose clock took the time
    (kernel_gpu, kernel_cpu, collective_cpu).
    """

    name: str
    rank: int
    ranks: int
    nodes: int
    communicator: str
    process: str
    size: int
    seconds: float
    bandwidth: float | None
    wall: float
    transfer: bool
    sequence: int | None = None
    timing: str = ""


def is_dump(first: bytes) -> bool:
    """Tell whether a file that begins like this is such a dump."""
    return first.lstrip()[:1] == b"{" and (b"coll_perf" in first or b"p2p_perf" in first)


def read(line: bytes) -> Operation | None:
    """Return what a line tells, `None` if it is of another kind (a proxy's work).

    Raises `Malformed`.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from None
    if not isinstance(record, dict):
        raise Malformed("an object is wanted")
    header, metadata = _part(record, "header"), _part(record, "metadata")
    for key, prefix in (("coll_perf", "coll"), ("p2p_perf", "p2p")):
        if key in record:
            return _operation(header, metadata, _part(record, key), prefix)
    return None


def _part(record: dict[str, Any], key: str) -> dict[str, Any]:
    part = record.get(key)
    if not isinstance(part, dict):
        raise Malformed(f"{key}: an object is wanted")
    return part


def _operation(
    header: dict[str, Any], metadata: dict[str, Any], told: dict[str, Any], prefix: str
) -> Operation:
    name = told.get(prefix)
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _LONGEST:
        raise Malformed(f"{prefix}: a name is wanted")
    bandwidth = told.get(f"{prefix}_busbw_gbs")
    return Operation(
        name=name,
        rank=int(_number(header, "rank")),
        ranks=int(_number(header, "n_ranks")),
        nodes=int(_number(header, "nnodes")) if "nnodes" in header else 1,
        communicator=f"{header.get('id')}"[:_LONGEST],
        process=f"{metadata.get('hostname')}:{metadata.get('pid')}"[:_LONGEST],
        size=int(_number(told, f"{prefix}_msg_size_bytes")),
        seconds=_number(told, f"{prefix}_exec_time_us") / 1e6,
        bandwidth=None if bandwidth is None else _number(told, f"{prefix}_busbw_gbs") * 1e9,
        wall=_number(metadata, "dump_timestamp_us") / 1e6,
        transfer=prefix == "p2p",
        sequence=int(_number(told, f"{prefix}_sn")) if f"{prefix}_sn" in told else None,
        timing=f"{told.get(f'{prefix}_timing_source', '')}"[:_LONGEST],
    )


def _number(part: dict[str, Any], key: str) -> float:
    value = part.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{key}: a number is wanted")
    if not math.isfinite(value) or not 0 <= value < 1 << 62:
        raise Malformed(f"{key}: {value} makes no sense")
    return value
