"""What the driver's error codes mean: XIDs of GPUs and SXIDs of NVSwitches.

The table is data, `xids.json`; this module reads it and answers questions. Codes that it does not
have are newer than the table: they are "unknown", never guessed. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FATAL = "fatal"
NONFATAL = "nonfatal"
UNKNOWN = "unknown"

_SPOKEN_XID: Mapping[str, str] = {FATAL: "critical", NONFATAL: "warning"}
# the fabric manager's guide calls non-fatal ones records: nothing is to be done about them
_SPOKEN_SXID: Mapping[str, str] = {FATAL: "critical", NONFATAL: "info"}


class Meaning(NamedTuple):
    """What a code means: a name, `critical`, `warning`, `info` or `unknown`, and what to do.

    Critical means that a reset, a reboot or a replacement is due now, so that a single hit may
    page; warning that a job died or will; info that it is for the record only.
    """

    name: str
    severity: str
    action: str


_UNKNOWN = Meaning(UNKNOWN, UNKNOWN, UNKNOWN)


@dataclass(frozen=True, slots=True)
class XidTable:
    """The meanings by code.

    `critical` are the codes whose counters exist, at 0, before anything happened. The table marks
    23 codes as critical; the ten here are those that operators page on. All 23 for each of eight
    GPUs would be a third of the GPUs' budget of series. `spoken` are the codes whose lines in the
    kernel log say themselves whether they are fatal.
    """

    xids: Mapping[int, Meaning]
    sxids: Mapping[int, str]
    critical: tuple[int, ...]
    spoken: frozenset[int]

    def meaning(self, xid: int, word: str | None = None) -> Meaning:
        """Return what an XID means; `word` is `fatal` or `nonfatal` where the line said it.

        The word wins for the codes that carry one (NVLink 5): what 145 means depends on its
        sub-code, and the driver has looked at that (NVSentinel 1357).
        """
        meaning = self.xids.get(xid, _UNKNOWN)
        if word and xid in self.spoken:
            return meaning._replace(severity=_SPOKEN_XID.get(word, meaning.severity))
        return meaning

    def switch_severity(self, sxid: int, word: str | None = None) -> str:
        """Return how severe an SXID is; every line of the switch driver may carry the word."""
        return _SPOKEN_SXID.get(word or "", self.sxids.get(sxid, UNKNOWN))


def load(path: Path | None = None) -> XidTable:
    """Return the table that comes with the package, or the one at `path`.

    Raises `OSError` if it cannot be read, `KeyError`, `TypeError` or `ValueError` if it is not
    such a table.
    """
    file = Path(__file__).with_name("xids.json") if path is None else path
    table = json.loads(file.read_text("utf-8"))
    return XidTable(
        xids={
            int(code): Meaning(name, severity, action)
            for code, (severity, action, name) in table["xids"].items()
        },
        sxids={code: severity for severity, codes in table["sxids"].items() for code in codes},
        critical=tuple(table["zero"]),
        spoken=frozenset(table["spoken"]),
    )
