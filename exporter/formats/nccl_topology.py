"""NCCL's topology files (`NCCL_TOPO_FILE`), which clouds ship for their virtual machines.

A hypervisor shows PCI devices without the switches that they hang on; the file says what is real:

    <system version="1">
      <cpu numaid="0" affinity="..." arch="x86_64">
        <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
          <pci busid="0001:00:00.0" class="0x030200"/>
          <pci busid="0101:00:00.0" class="0x020700"/>
        </pci>
      </cpu>
    </system>

One node is one switch; what NCCL dumps itself (`NCCL_TOPO_DUMP_FILE`) has GPUs and NICs inside the
nodes of their devices. Documents with a type declaration are refused: nobody writes one, and
entities are a way to make a reader run out of memory.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.parsers import expat

from exporter.samples import Malformed

LONGEST = 1 << 20
"""Bytes of a file that are taken at most."""

MOST_DEVICES = 4096
DEEPEST = 32

_ADDRESS = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_NAMED = re.compile(r"^[ \t]*NCCL_TOPO_FILE[ \t]*=[ \t]*(/\S{1,1023})[ \t]*$", re.MULTILINE)
_NODE = re.compile(r"\d{1,4}")


class Described(NamedTuple):
    """A device of a file: its address in small letters, the CPU above it and its NUMA node (None
    where the file says -1), and the switches on the way down to it.
    """

    address: str
    cpu: str
    numa_node: int | None
    switches: tuple[str, ...]


def read_topology(data: bytes) -> list[Described]:
    """Return the devices of a file, at least one.

    Raises `Malformed` naming the line, where it is not such a file.
    """
    if len(data) > LONGEST:
        raise Malformed(f"longer than {LONGEST >> 20} MiB")
    tree = _Tree()
    try:
        tree.parser.Parse(data, True)  # noqa: FBT003 - expat's own
    except expat.ExpatError as error:
        raise Malformed(f"line {error.lineno}: {expat.ErrorString(error.code)}") from None
    if not tree.seen_system:
        raise Malformed("not an NCCL topology file: it has no <system>")
    if not tree.found:
        raise Malformed("an NCCL topology file without devices")
    return tree.found


def topology_file(text: str) -> str | None:
    """Return which file NCCL's own configuration (`/etc/nccl.conf`) names; None if it names none.

    Images of clouds set `NCCL_TOPO_FILE` there. A later line counts more.
    """
    named = _NAMED.findall(text)
    return named[-1] if named else None


class _Tree:
    """What has been read of a file: the nodes that are open, and the devices that are closed."""

    def __init__(self) -> None:
        self.found: list[Described] = []
        self.seen_system = False
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse
        self._cpus = 0
        self._cpu: tuple[str, int | None] | None = None
        self._open: list[tuple[str, bool]] = []
        self._depth = 0

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong("nested too deep")
        if name == "system":
            self.seen_system = True
        elif name == "cpu":
            said = attributes.get("numaid", "")
            self._cpu = (f"cpu{self._cpus}", int(said) if _NODE.fullmatch(said) else None)
            self._cpus += 1
        elif name == "pci":
            self._device(attributes)

    def _device(self, attributes: dict[str, str]) -> None:
        address = attributes.get("busid", "").lower()
        if not _ADDRESS.fullmatch(address):
            raise self._wrong(f"busid {address[:32]!r} is not a PCI address")
        if self._cpu is None:
            raise self._wrong("a <pci> that is below no <cpu>")
        if self._open:
            self._open[-1] = (self._open[-1][0], True)
        self._open.append((address, attributes.get("class", "").startswith("0x0604")))

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name == "cpu":
            self._cpu = None
        elif name == "pci":
            address, is_switch = self._open.pop()
            if is_switch or self._cpu is None:
                return
            if len(self.found) >= MOST_DEVICES:
                raise self._wrong(f"more than {MOST_DEVICES} devices")
            above = tuple(one for one, _ in self._open)
            self.found.append(Described(address, *self._cpu, above))

    def _refuse(self, *_: object) -> None:
        raise self._wrong("a document type declaration")

    def _wrong(self, what: str) -> Malformed:
        return Malformed(f"line {self.parser.CurrentLineNumber}: {what}")
