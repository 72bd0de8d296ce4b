"""NCCL's topology files: what clouds ship, what NCCL dumps, and what is neither."""

from __future__ import annotations

import pytest

from exporter.formats.nccl_topology import Described, read_topology, topology_file
from exporter.samples import Malformed

CLOUD = b"""<!-- an Azure-like machine: two GPUs and two NICs on each of two switches -->
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
  <cpu numaid="-1" affinity="ffff0000" arch="x86_64">
    <pci busid="FFFF:FF:02.0" class="0x060400">
      <pci busid="ffff:ff:03.0" class="0x060400">
        <pci busid="0002:00:00.0" class="0x030200"/>
      </pci>
      <pci busid="0102:00:00.0" class="0x020700"/>
    </pci>
  </cpu>
</system>
"""
DUMP = b"""<system version="1">
  <cpu host_hash="0x1" numaid="1" arch="x86_64">
    <pci busid="0000:15:00.0" class="0x060400" vendor="0x1000">
      <pci busid="0000:1b:00.0" class="0x030200" vendor="0x10de">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:03:00.0" count="18"/></gpu>
      </pci>
      <pci busid="0000:18:00.0" class="0x020700">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>
      </pci>
    </pci>
    <nic><net name="eth0" dev="1" speed="1000"/></nic>
  </cpu>
</system>
"""


def test_a_file_as_clouds_ship_it() -> None:
    assert read_topology(CLOUD) == [
        Described("0001:00:00.0", "cpu0", 0, ("ffff:ff:01.0",)),
        Described("0101:00:00.0", "cpu0", 0, ("ffff:ff:01.0",)),
        Described("0002:00:00.0", "cpu1", None, ("ffff:ff:02.0", "ffff:ff:03.0")),
        Described("0102:00:00.0", "cpu1", None, ("ffff:ff:02.0",)),
    ]


def test_a_file_as_nccl_dumps_it() -> None:
    """GPUs and NICs stand inside the nodes of their devices, which are no switches for that."""
    assert read_topology(DUMP) == [
        Described("0000:1b:00.0", "cpu0", 1, ("0000:15:00.0",)),
        Described("0000:18:00.0", "cpu0", 1, ("0000:15:00.0",)),
    ]


BOMB = b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><system>&c;</system>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "line 1: no element found"),
        (b"GPU0\tGPU1", "line 1: syntax error"),
        (b"<system>\n<cpu>\n</system>", "line 3: mismatched tag"),
        (b"<graphs/>", "no <system>"),
        (b"<system/>", "without devices"),
        (b'<system><pci busid="0000:01:00.0"/></system>', "below no <cpu>"),
        (b'<system><cpu>\n<pci busid="x"/></cpu></system>', "line 2: busid 'x' is not a PCI"),
        (b"<system><cpu><pci/></cpu></system>", "busid '' is not a PCI"),
        (b"<a>" * 40, "nested too deep"),
        (BOMB, "a document type declaration"),
        (b"\xff\xfe\x00", "line 1: "),
        (b" " * (1 << 20) + b"<system/>", "longer than 1 MiB"),
        (
            b"<system><cpu>" + b'<pci busid="0000:01:00.0"/>' * 5000 + b"</cpu></system>",
            "more than 4096 devices",
        ),
    ],
)
def test_what_is_no_such_file_is_an_error_with_its_line(text: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        read_topology(text)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml\n", "/opt/microsoft/ndv4-topo.xml"),
        ("# NCCL_TOPO_FILE=/old\nNCCL_TOPO_FILE = /a\n  NCCL_TOPO_FILE=/b  \n", "/b"),
        ("NCCL_DEBUG=INFO\nNCCL_TOPO_FILE=\n", None),
        ("NCCL_TOPO_FILE=relative.xml", None),
        ("", None),
    ],
)
def test_the_file_that_nccl_is_told_to_use(text: str, file: str | None) -> None:
    assert topology_file(text) == file


@pytest.mark.parametrize("cut", range(0, len(CLOUD), 29))
def test_a_file_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(Malformed):
        read_topology(CLOUD[:cut])
