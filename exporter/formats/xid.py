r"""Lines of the kernel log in which NVIDIA's drivers report errors.

Understands one record at a time, as `/dev/kmsg` gives it or as bare text. Three things are of
interest: an XID of a GPU, an SXID of an NVSwitch, and a GPU that has fallen off the bus, which may
be said without any number. Pure functions, and one small memory for a message that comes in three
records. What cannot be understood is `None`; no text makes anything here raise.

The forms are those of the open kernel modules (`kernel_rc.c`, `osinit.c`, `error_nvswitch.c`):

    NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (0000:03:00): 14, Channel 00000001
    NVRM: Xid (PCI:0000:07:00 GPU-I:02 GPU-CI:01): 13, pid=...
    NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x... 0x...)
    NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.
    NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: ...) installed in this system has\x0a...
    nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 ...
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Entry(NamedTuple):
    """One record of the kernel log: its number, microseconds of the log's clock, and its text.

    Number and time are `None` for bare text. The clock starts at boot and stands still in suspend.
    `kernel` is False if user space wrote the record: such a record means nothing here.
    """

    sequence: int | None
    microseconds: int | None
    text: str
    kernel: bool = True


class XidLine(NamedTuple):
    """A GPU's error. `word` is `fatal` or `nonfatal` where an NVLink 5 line says so, else empty."""

    pci: str
    code: int
    word: str = ""
    sequence: int | None = None


class SxidLine(NamedTuple):
    """An NVSwitch's error. `device` is its name in the kernel, as `nvidia-nvswitch3`."""

    device: str
    code: int
    word: str = ""
    sequence: int | None = None


class FallenLine(NamedTuple):
    """A GPU has fallen off the bus; the line carries no number of an error."""

    pci: str
    sequence: int | None = None


Line = XidLine | SxidLine | FallenLine

_PCI = r"(?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_ADDRESS = re.compile(
    r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"
)
_RECORD = re.compile(rb"([0-9]{1,10}),([0-9]{1,20}),([0-9]{1,20}),[^;\n]*;([^\n]*)")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_BARE = re.compile(r"(?:<([0-9]{1,4})>)?\s*(?:\[[\w :.]{1,40}\]\s*)?")
# the comma ends the code: without it the line was cut off, perhaps within the number
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_PCI})(?: [^)\n]*)?\): ([0-9]{{1,5}}),")
# Only the driver writes all of this. A process could be named `x, Y Fatal` to look worse than it
# is, but a process name has fifteen characters at most.
_WORD = re.compile(r"\b(Fatal|Non-?fatal) XC[0-9]+ i[0-9]+ Link -?[0-9]+\b", re.IGNORECASE)
_SXID = re.compile(
    rf"(nvidia-nvswitch[0-9]{{1,4}}): SXid \((?:PCI:)?{_PCI}\): ([0-9]{{1,6}}),\s*"
    r"(?:(Fatal|Non-?fatal)\b|(Data \{|Severity [0-9]))?",
    re.IGNORECASE,
)
_FALLEN = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({_PCI}):? (?:GPU )?has fallen off the bus")
_LOST = re.compile(rf"NVRM: The NVIDIA GPU ({_PCI})")
_NEXT = re.compile(r"\s*\n\s*(?:NVRM:)?\s*")
_OFF = "fallen off the bus"
_USER = 1 << 3  # the first priority that is not the kernel's: facility 1, level 0
_FOLLOWING = 6  # records of the driver that may lie between the parts of one message


def relevant(raw: bytes) -> bool:
    """Tell, cheaply and generously, whether a record may be one of ours: most are not."""
    return b"NVRM:" in raw or b": SXid (" in raw


def entry(raw: bytes) -> Entry:
    r"""Return a record's parts; text without the prefix of `/dev/kmsg` is taken as bare text.

    The prefix begins with a priority: level and, times eight, facility. The kernel's own facility
    is 0, and it gives no writer of `/dev/kmsg` that one. Text without a priority (a log that was
    copied line by line) is believed.

    In `/dev/kmsg` everything unprintable, line feeds included, is written as `\x0a` (kernel
    documentation, ABI/testing/dev-kmsg); the lines after the first are names and values of the
    device and are left out.
    """
    found = _RECORD.match(raw)
    if found is None:
        text = raw.decode("utf-8", "replace").strip()
        prefix = _BARE.match(text)
        if prefix is None:
            return Entry(None, None, text)
        return Entry(None, None, text[prefix.end() :], _is_kernels(prefix[1] or "0"))
    priority, sequence, microseconds, escaped = found.groups()
    plain = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), escaped)
    said = plain.decode("utf-8", "replace").strip()
    return Entry(int(sequence), int(microseconds), said, _is_kernels(priority))


def canonical(address: str) -> str | None:
    """Return a PCI address as `gpu_info` has it: `00000000:18:00.0`; `None` if it is none.

    The form is NVML's bus id in lower case. A missing domain or function is 0: XID lines name the
    device only, and a GPU is function 0 of it.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{domain or '':0>8}:{bus}:{device}.{function or '0'}".lower()


def parse(record: Entry) -> Line | None:
    """Return what a record says by itself."""
    if not record.kernel:
        return None
    text, sequence = record.text, record.sequence
    if found := _XID.match(text):
        spoken = _WORD.search(text, found.end())
        return XidLine(_pci(found[1]), int(found[2]), _word(spoken and spoken[1]), sequence)
    if found := _SXID.match(text):
        # One error is three records: what it is, its severity and place, and raw data. The first
        # one counts.
        if found[4]:
            return None
        return SxidLine(found[1].lower(), int(found[2]), _word(found[3]), sequence)
    if _OFF not in (joined := _NEXT.sub(" ", text)):
        return None
    lost = _FALLEN.match(joined) or _LOST.match(joined)
    return None if lost is None else FallenLine(_pci(lost[1]), sequence)


class Joiner:
    """Reads records one after the other, and puts a message together that comes in three.

    A GPU that is found dead when the driver starts is reported in three lines, of which only the
    first has the address (NVSentinel 155, gpud 1209). The kernel keeps them as one record; a log
    that was copied line by line has three. A few lines of the same driver may stand in between.
    """

    def __init__(self) -> None:
        self._begun = ""
        self._left = 0

    def read(self, record: Entry) -> Line | None:
        """Return what the record says, by itself or as the end of what came before."""
        if not record.kernel:
            return None
        line = parse(record)
        if line is not None:
            return line
        if _LOST.match(record.text):
            self._begun, self._left = record.text, _FOLLOWING
        elif self._left and record.text.startswith("NVRM:"):
            self._left -= 1
            line = parse(record._replace(text=f"{self._begun}\n{record.text}"))
            # the words themselves may be cut: "has fallen off", "the bus and is not ..."
            self._begun += f"\n{record.text[:200]}"
            if line is not None:
                self.forget()
        return line

    def forget(self) -> None:
        """Forget a message that was begun: what follows is another part of the log."""
        self._begun, self._left = "", 0


def _is_kernels(priority: str | bytes) -> bool:
    return int(priority) < _USER


def _pci(address: str) -> str:
    return canonical(address) or address


def _word(said: str | None) -> str:
    return said.lower().replace("-", "") if said else ""
