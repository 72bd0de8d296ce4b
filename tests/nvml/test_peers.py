"""Where NVLinks lead, as the driver tells it."""

from __future__ import annotations

from pathlib import Path

from exporter import catalogue as c
from exporter.nvml.driver import FUNCTION_NOT_FOUND
from tests.nvml.test_sick_boards import Board, values

BRIDGED = (
    "* nvmlDeviceGetNvLinkRemoteDeviceType 0-17 = 0",
    *(
        f'* nvmlDeviceGetNvLinkRemotePciInfo_v2 {link} = "00000000:{bus}:00.0" 0x233010DE 0x0'
        for link in range(18)
        for bus in ["4B" if link < 12 else "8A"]
    ),
)


def peers(board: Board, reads: int = 1) -> dict[tuple[str, ...], float]:
    found = values(board.read(reads), c.TOPOLOGY_NVLINK_LINKS)
    return {labels[2:]: value for labels, value in found.items() if labels[0] == "0"}


def test_links_of_a_board_with_switches_lead_to_them(tmp_path: Path) -> None:
    assert peers(Board(tmp_path, "h200")) == {("switch", ""): 18}


def test_links_to_other_gpus_are_counted_for_each(tmp_path: Path) -> None:
    """Bridges, and boards without switches: the address is written as in gpu_info."""
    assert peers(Board(tmp_path, "h200", *BRIDGED)) == {
        ("gpu", "00000000:4b:00.0"): 12,
        ("gpu", "00000000:8a:00.0"): 6,
    }


def test_a_lost_link_is_missed_and_a_peer_without_links_stays(tmp_path: Path) -> None:
    """vLLM 16336: a B200 whose links were all down talked over PCIe, and nothing said so."""
    board = Board(tmp_path, "h200", *BRIDGED)
    board.read()
    board.change(*BRIDGED, "0 nvmlDeviceGetNvLinkState 3 = 0")
    assert peers(board, 11)["gpu", "00000000:4b:00.0"] == 11
    board.change(*BRIDGED, "0 nvmlDeviceGetNvLinkState 0-17 = 0")
    assert set(peers(board, 11).values()) == {0}


def test_ends_are_asked_for_once(tmp_path: Path) -> None:
    """What is wired does not change: later answers are not even looked at."""
    board = Board(tmp_path, "h200", *BRIDGED)
    board.read()
    board.change()
    assert sum(peers(board, 11).values()) == 18
    assert ("switch", "") not in peers(board, 11)


def test_a_link_that_comes_up_later_is_asked_then(tmp_path: Path) -> None:
    board = Board(tmp_path, "h200", *BRIDGED, "0 nvmlDeviceGetNvLinkState 0-11 = 0")
    assert peers(board) == {("gpu", "00000000:8a:00.0"): 6}
    board.change(*BRIDGED)
    assert peers(board, 11)["gpu", "00000000:4b:00.0"] == 12


def test_a_driver_that_cannot_tell_is_not_asked_for_ever(tmp_path: Path) -> None:
    """Old drivers have no such function; nothing else of the GPU is lost."""
    missing = f"* nvmlDeviceGetNvLinkRemoteDeviceType = !{FUNCTION_NOT_FOUND}"
    board = Board(tmp_path, "h200", missing)
    items = board.read(60)
    assert values(items, c.TOPOLOGY_NVLINK_LINKS) == {}
    assert values(items, c.GPU_NVLINK_LINKS_UP)
    unknown = Board(tmp_path, "h200", "* nvmlDeviceGetNvLinkRemoteDeviceType = 255")
    assert peers(unknown) == {}
