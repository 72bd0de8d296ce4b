"""NCCL's own log (`NCCL_DEBUG=INFO`, best to a file by NCCL_DEBUG_FILE): whether SHARP is in use.

Lines that say so:

- `AllReduce: 268435456 Bytes -> Algo COLLNET_DIRECT proto SIMPLE ... comm 0x5581` (2.24 and later,
  with `TUNING` among NCCL_DEBUG_SUBSYS): what a collective was done with. NVLS over several nodes
  needs SHARP between them. A large all-reduce over nodes by a ring or a tree goes without.
- `comm 0x5581 rank 2 nRanks 8 nNodes 4 localRanks 2 ...`: which communicators span nodes.
- `rank 2 Connected CollNet`: it could be set up.
- `NCCL WARN SHARP group create: ... failed`, and other warnings of the plug-in: it could not.

`24 coll channels, 24 collnet channels, ...` says nothing: newer versions print the number of all
channels in both places. Nothing follows from silence.
"""

from __future__ import annotations

import re

LARGE = 1 << 20
"""Bytes from which on an all-reduce would be done by switches if they could: smaller ones need not
be."""

_MARK = re.compile(rb"NCCL (INFO|WARN|TRACE) ")
_COMMUNICATOR = re.compile(rb"\bcomm (0x[0-9a-f]{1,16}) rank \d+ nRanks \d+ nNodes (\d{1,6}) ")
_CHOICE = re.compile(
    rb"\bAllReduce: (\d{1,18}) Bytes -> Algo (\w{1,24}) proto \w+(?:.*\bcomm (0x[0-9a-f]{1,16}))?"
)
_PROCESS = re.compile(rb"(\S{1,128}:\d{1,10}):\d{1,10} \[\d{1,4}\] ")
_WORDS = re.compile(rb"-> Algo | nNodes |Connected CollNet|NCCL WARN")
_CONNECTED = re.compile(rb"\bConnected CollNet\b")
_FAILED = re.compile(
    rb"NCCL WARN .*\b(SHARP|sharp_\w+|[Cc]oll[Nn]et)\b|sharp_plugin\.c:\d+ NCCL WARN"
)
_SHARP = frozenset({b"COLLNET_DIRECT", b"COLLNET_CHAIN"})
_MOST = 4096
_LONGEST = 4096


def is_log(first: bytes) -> bool:
    """Tell whether a file that begins like this is such a log."""
    return _MARK.search(first) is not None


class Log:
    """One log as it grows. `sharp` is what it says last: in use, not in use, or nothing.

    It may be a job's own log, in which NCCL's lines stand among others.
    """

    def __init__(self) -> None:
        self.sharp: bool | None = None
        self._carry = b""
        self._nodes: dict[tuple[bytes, bytes], int] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log. Nearly all of a job's is passed over at once."""
        if b"NCCL" not in data and b"NCCL" not in self._carry + data[:3]:
            end = data.rfind(b"\n") + 1
            self._carry = (data[end:] if end else self._carry + data)[-_LONGEST:]
            return
        piece = self._carry + data
        end = piece.rfind(b"\n") + 1
        self._carry = piece[end:][-_LONGEST:]
        for found in _WORDS.finditer(piece, 0, end):
            at, to = found.span()
            start = piece.rfind(b"\n", max(0, at - _LONGEST), at) + 1
            stop = piece.find(b"\n", to, to + _LONGEST)
            self.take(piece[max(start, at - _LONGEST) : stop if stop >= 0 else to + _LONGEST])

    def restart(self) -> None:
        """Forget the line that was not complete: the log goes on elsewhere."""
        self._carry = b""

    def take(self, line: bytes) -> None:
        """Take a line; what is beyond its first bytes counts for nothing."""
        line = line[:_LONGEST]
        if b"-> Algo " in line:
            self._choose(line)
        elif b" nNodes " in line:
            self._learn(line)
        elif _CONNECTED.search(line) is not None:
            self.sharp = True
        elif b"NCCL WARN" in line and _FAILED.search(line) is not None:
            self.sharp = False

    def _learn(self, line: bytes) -> None:
        found = _COMMUNICATOR.search(line)
        if found is not None and len(self._nodes) < _MOST:
            self._nodes[_process(line), found[1]] = int(found[2])

    def _choose(self, line: bytes) -> None:
        found = _CHOICE.search(line)
        if found is None:
            return
        nodes = self._nodes.get((_process(line), found[3] or b""), 0)
        if found[2] in _SHARP or (found[2] == b"NVLS" and nodes > 1):
            self.sharp = True
        elif nodes > 1 and int(found[1]) >= LARGE:
            self.sharp = False


def _process(line: bytes) -> bytes:
    found = _PROCESS.search(line)
    return b"" if found is None else found[1]
