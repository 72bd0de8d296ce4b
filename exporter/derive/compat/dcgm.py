"""How dcgm-exporter speaks: labels, and the last XID as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter import catalogue as c
from exporter import foreign as f
from exporter.derive.compat.plan import Board, Dialect, Gpu, Key, Labels, Latest, Place, Plan
from exporter.derive.compat.rows import NEW_ROWS, OLD_ROWS, Row
from exporter.samples import Metric

_ROWS: Mapping[str, Sequence[Row]] = {"dcgm": OLD_ROWS, "dcgm-4.9": NEW_ROWS}
_XID: Mapping[str, Metric] = {
    "dcgm": f.DCGM["DCGM_FI_DEV_XID_ERRORS"],
    "dcgm-4.9": f.DCGM_49["DCGM_FI_DEV_XID_ERROR"],
}
_OWN_LABELS: Mapping[str, Labels] = {
    "dcgm": f.DCGM_LABELS[-2:],
    "dcgm-4.9": f.DCGM_49_LABELS[-2:],
}
"""The labels for the host's name and the driver's version."""

_ENTITY = len(f.DCGM_LABELS) - 2


def dialect(name: str, wanted: Sequence[str], hostname: str) -> Dialect:
    """Return one of the two sets of DCGM, where all of `wanted` are told.

    A family that both have is told by the first of them, with the labels of both.
    """
    before = wanted[: wanted.index(name)]
    told = {family for other in before for family in f.SETS[other].values()}
    spoken = [_OWN_LABELS[other] for other in wanted if other in _OWN_LABELS]
    words = _Words(_XID[name], hostname, frozenset(spoken))
    natives = (c.GPU_XID_LAST_TIMESTAMP_SECONDS, c.GPU_XID_ERRORS_TOTAL, c.GPU_XID_INFO)
    return Dialect(
        name,
        tuple(row for row in _ROWS[name] if row.family not in told),
        {_XID[name]: ("the code with the latest `gpu_xid_last_timestamp_seconds`", natives)},
        words.labels,
        words.add,
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """`spoken` are the labels for host and version in the sets that are told."""

    xid: Metric
    hostname: str
    spoken: frozenset[Labels]

    def labels(self, family: Metric, gpu: Gpu, mig: str) -> Labels:
        """Return the labels of a GPU or an instance; what is not known of it is empty."""
        info = gpu.info
        version = info.get("driver_version", "")
        values = {
            name: value
            for names in self.spoken
            for name, value in zip(names, (self.hostname, version), strict=True)
        }
        own = [name for name in family.labels[_ENTITY:] if name not in f.XID_LABELS]
        return (
            gpu.gpu, gpu.uuid, info.get("pci_bus_id", "").upper(), f"nvidia{gpu.gpu}",
            info.get("name", ""), gpu.profiles.get(mig, ""), mig,
            *(values.get(name, "") for name in own),
        )  # fmt: skip

    def add(self, board: Board, plan: Plan) -> None:
        """Add the last XID of each GPU whose XIDs are watched.

        An XID of a PCI address where nobody knows a GPU has no row: it could not say which.
        """
        names = {labels[0]: labels[1] for labels, _ in board.series(c.GPU_XID_INFO)}
        watched = {key for key, _, _ in board.xids(c.GPU_XID_ERRORS_TOTAL) if key[1]}
        seen: dict[Key, list[tuple[Place, int, Labels]]] = {key: [] for key in watched}
        for key, xid, place in board.xids(c.GPU_XID_LAST_TIMESTAMP_SECONDS):
            if key[1]:
                said = (xid, names.get(xid, "Unknown Error"))
                labels = (*self.labels(self.xid, board.gpu(key), ""), *said)
                seen.setdefault(key, []).append((place, int(xid), labels))
        for key, choices in sorted(seen.items()):
            none = (*self.labels(self.xid, board.gpu(key), ""), "0", "No Error")
            plan.entries.append(Latest(self.xid, none, tuple(choices)))
