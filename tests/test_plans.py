"""What the settings ask for: which sources there are, and who gives way to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.app import App
from exporter.config import parse
from exporter.nvml.inventory import gpus_on_bus, has_gpus
from exporter.plans import Estate, plan
from exporter.sources.fallback import Fallback
from tests.fakes import FakeClock


def names(text: str, *, gpus: bool = False) -> list[str]:
    return [one.name for one in plan(parse(text, "test"), Estate(FakeClock(), gpus=gpus))]


def card(root: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> Path:
    """Put a device on the PCI bus of a machine whose files are below `root`."""
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    return device


def test_gpu_sources_run_where_there_are_gpus() -> None:
    """`auto` follows the machine; true and false do not ask."""
    assert {"nvml", "kmsg", "derive:hardware"}.isdisjoint(names(""))
    assert {"nvml", "kmsg", "derive:hardware"} <= set(names("", gpus=True))
    assert "nvml" not in names("sources: {nvml: {enabled: false}}", gpus=True)
    assert "nvml" in names("sources: {nvml: {enabled: true}}")


@pytest.mark.parametrize(("preferred", "behind"), [("", ["dcgm"]), ("preferred: true, ", ["nvml"])])
def test_one_of_two_readers_gives_way(preferred: str, behind: list[str]) -> None:
    """By default DCGM fills the gaps of NVML; the operator may turn that round."""
    text = (
        "sources: {nvml: {enabled: true}, dcgm: {" + preferred + "enabled: true,"
        " address: '127.0.0.1:5555'}}"
    )
    made = {one.name: one.make() for one in plan(parse(text, "test"), Estate(FakeClock()))}
    assert [name for name in ("nvml", "dcgm") if isinstance(made[name], Fallback)] == behind


def test_three_readers_stand_in_line() -> None:
    """A dcgm-exporter's page comes last of three and looks at both before it."""
    text = "sources: {nvml: {enabled: true}, dcgm: {enabled: true}, dcgm_page: {enabled: true}}"
    last = next(
        one for one in plan(parse(text, "test"), Estate(FakeClock())) if one.name == "dcgm_page"
    )
    assert last.fingerprint.endswith("behind nvml behind dcgm")


def test_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    """NVIDIA's display and 3D controllers count; their audio, other makers and functions do not."""
    card(tmp_path, "0000:18:00.0")
    card(tmp_path, "0000:2a:00.0", kind="0x030000")
    card(tmp_path, "0000:2a:00.1", kind="0x040300")
    card(tmp_path, "0000:05:00.0", vendor="0x1a03")
    (card(tmp_path, "0000:18:00.4") / "physfn").mkdir()
    (card(tmp_path, "0000:99:00.0") / "vendor").unlink()
    assert gpus_on_bus(tmp_path) == 2
    assert has_gpus(tmp_path)


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    """No device, no driver: nothing is asked, and no child process is started."""
    assert gpus_on_bus(tmp_path) == 0


def test_a_driver_without_a_pci_device_is_noticed(tmp_path: Path) -> None:
    """Boards with an integrated GPU have the driver's files and nothing on the bus."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert has_gpus(tmp_path)


def test_a_gpu_that_appears_later_is_noticed_and_never_given_up(tmp_path: Path) -> None:
    """The driver is installed while the daemon runs; later the last GPU falls off the bus."""
    config = tmp_path / "flopwatch.yaml"
    root = tmp_path / "root"
    root.mkdir()
    if has_gpus(root):
        pytest.skip("this machine has a GPU driver of its own")
    config.write_text(
        f"root: {root}\n"
        "sources: {host: {enabled: false}, network: {enabled: false}, process: {enabled: false},"
        " nvml: {enabled: false}, derived: {enabled: false}}\n"
    )
    app = App(config)
    app.start()
    try:
        assert [s.name for s in app.view().sources] == []
        device = card(root, "0000:18:00.0")
        app.notice_gpus()
        assert [s.name for s in app.view().sources] == ["kmsg"]
        (device / "vendor").unlink()
        app.notice_gpus()
        assert app.reload() == ()
        assert [s.name for s in app.view().sources] == ["kmsg"]
    finally:
        app.stop()
