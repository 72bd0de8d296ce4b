"""How far devices are from each other: the published rule, and trees that are made up."""

from __future__ import annotations

import itertools
import random

import pytest

from exporter.derive.fabric.distance import RANKS, Place, address_of, distance, place_of, rank

SWITCH = "pci0000:15/0000:15:01.0/0000:16:00.0"


def far(one: str, other: str, nodes: tuple[int | None, int | None] = (0, 0)) -> str | None:
    mine, its = place_of(one, nodes[0]), place_of(other, nodes[1])
    assert mine is not None
    assert its is not None
    assert distance(mine, its) == distance(its, mine)
    return distance(mine, its)


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        # One switch: the same upstream port, different downstream ports.
        (f"{SWITCH}/0000:17:00.0/0000:18:00.0", f"{SWITCH}/0000:17:01.0/0000:1a:00.0", "PIX"),
        # Two functions of one card.
        (f"{SWITCH}/0000:17:00.0/0000:18:00.0", f"{SWITCH}/0000:17:00.0/0000:18:00.1", "PIX"),
        ("pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:01.0/0000:16:00.1", "PIX"),
        # A DGX H100: the GPU is behind a switch of its own below the NIC's.
        (
            f"{SWITCH}/0000:17:02.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0",
            f"{SWITCH}/0000:17:00.0/0000:18:00.0",
            "PXB",
        ),
        # Each behind its own switch, both below a third.
        (
            f"{SWITCH}/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0",
            f"{SWITCH}/0000:17:01.0/0000:20:00.0/0000:21:00.0/0000:22:00.0",
            "PXB",
        ),
        ("pci0000:37/0000:37:01.0/0000:38:00.0", "pci0000:37/0000:37:03.0/0000:3c:00.0", "PHB"),
        # What is part of the root complex itself has no bridge above it.
        ("pci0000:37/0000:37:01.0", "pci0000:37/0000:37:03.0/0000:3c:00.0", "PHB"),
        ("pci0000:15/0000:15:01.0/0000:18:00.0", "pci0000:37/0000:37:01.0/0000:3a:00.0", "NODE"),
    ],
)
def test_the_distance_is_that_of_the_matrix(one: str, other: str, word: str) -> None:
    """Each step of the published table, both ways."""
    assert far(one, other) == word


def test_other_sockets_are_far() -> None:
    one, other = (f"pci0000:{bus}/0000:{bus}:01.0/0000:{bus}:00.0" for bus in ("15", "97"))
    assert far(one, other, (0, 1)) == "SYS"


@pytest.mark.parametrize("nodes", [(-1, -1), (-1, 0), (0, None), (None, None)])
def test_without_a_numa_node_nothing_is_guessed(nodes: tuple[int | None, int | None]) -> None:
    """NODE and SYS are claims about NUMA nodes; a shared root complex is none."""
    assert far("pci0000:15/0000:15:01.0", "pci0000:97/0000:97:01.0", nodes) is None
    assert far("pci0000:15/0000:15:01.0", "pci0000:15/0000:15:02.0", nodes) == "PHB"


def grown(dice: random.Random, place: Place, steps: int) -> Place:
    """Return a device that hangs so many switches deeper, each of two bridges."""
    bridges = [f"0000:{dice.randrange(256):02x}:{at % 32:02x}.0" for at in range(2 * steps)]
    return place._replace(path=(*place.path[:-1], *bridges, place.path[-1]))


def test_the_way_there_is_the_way_back_for_any_tree() -> None:
    """An older rule counted components and was asymmetric for unequal depths (NCCL 246)."""
    dice = random.Random(7)
    for _ in range(500):
        top = [f"0000:10:{dice.randrange(3):02x}.0", "0000:11:00.0"]
        places = [
            Place("pci0000:10", (*top, f"0000:12:0{n}.0", f"0000:{20 + n}:00.0"), 0)
            for n in range(3)
        ]
        places = [grown(dice, place, dice.randrange(3)) for place in places]
        for one, other in itertools.combinations(places, 2):
            assert distance(one, other) == distance(other, one)
            deeper = distance(grown(dice, one, 1), other)
            assert deeper is not None
            assert RANKS[deeper] >= RANKS[distance(one, other) or "SYS"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        # A sub-function, an interface and a virtio bus hang below their card.
        (
            "pci0000:15/0000:15:01.0/0000:16:00.0/mlx5_core.sf.4",
            Place("pci0000:15", ("0000:15:01.0", "0000:16:00.0")),
        ),
        ("pci0000:00/0000:00:05.0/virtio2/net/eth0", Place("pci0000:00", ("0000:00:05.0",))),
        # Hyper-V: each card has a bus of its own, far below the ACPI tree.
        (
            "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0",
            Place("pci0001:00", ("0001:00:00.0",)),
        ),
        # Grace: the domain has more than four digits on some boards.
        (
            "pci10008:00/10008:00:00.0/10008:01:00.0",
            Place("pci10008:00", ("10008:00:00.0", "10008:01:00.0")),
        ),
        ("virtual/net/lo", None),
        ("platform/soc/usb1", None),
        ("pci0000:00", None),
        ("", None),
    ],
)
def test_a_place_ends_with_the_card(path: str, place: Place | None) -> None:
    assert place_of(path) == place


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("00010008:01:00.0", "10008:01:00.0"),
        ("0x1b", None),
        ("", None),
    ],
)
def test_an_address_is_written_as_the_kernel_does(written: str, address: str | None) -> None:
    assert address_of(written) == address


def test_words_have_an_order() -> None:
    words = ["NV18", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert [rank(word) for word in words] == [0, 1, 2, 3, 4, 5]
    assert [rank(word) for word in ("X", "NV", "NV0", "N/A", "")] == [None] * 5
