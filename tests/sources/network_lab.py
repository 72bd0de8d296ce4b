"""Trees of `/sys` for the tests of network ports: recorded ones, made-up ones, files that fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.files import Files
from exporter.samples import Drop, Fault, Sample
from exporter.sources.network import NetworkSource

TREES = Path(__file__).parent.parent / "data" / "sysfs"
CLASS = "sys/class/infiniband"
PORT = f"{CLASS}/mlx5_0/ports/1"
DESCRIBING = {
    "nic_device_info", "nic_expected_up", "nic_port_state", "nic_port_physical_state",
    "nic_state_changes_total",
}  # fmt: skip

Values = dict[tuple[str, ...], object]


class Failing(Files):
    """Files of which some, known by the end of their path, fail or say what they are told to."""

    def __init__(self, answers: Mapping[str, int | bytes]) -> None:
        super().__init__()
        self.answers = dict(answers)
        self.asked: list[str] = []

    def read(self, path: str) -> bytes:
        self.asked.append(path)
        for end, answer in self.answers.items():
            if end in f"{path}$":
                if isinstance(answer, bytes):
                    return answer
                raise OSError(answer, "made by the test", path)
        return super().read(path)

    def names(self, path: str) -> list[str]:
        answer = self.answers.get(f"{path.rpartition('/')[2]}/")
        if isinstance(answer, int):
            raise OSError(answer, "made by the test", path)
        return super().names(path)


def values(items: Iterable[Sample | Fault | Drop]) -> Values:
    """Return the samples by name and labels; there must be nothing else among the items."""
    found: Values = {}
    for item in items:
        assert isinstance(item, Sample), item
        found[item.metric.name, *item.labels] = item.value
    return found


def read(root: Path, **options: object) -> Values:
    """Read a tree once."""
    source = NetworkSource(root, **options)  # type: ignore[arg-type]
    found = values(source.read())
    source.close()
    return found


def told(found: Values, device: str | None = None) -> Values:
    """Return the counters and what is known of the link; not what describes the port."""
    return {
        key: value
        for key, value in found.items()
        if key[0] not in DESCRIBING and (device is None or key[1] == device)
    }


def sort(items: Iterable[Sample | Fault | Drop]) -> tuple[Values, list[Fault]]:
    """Return the samples of a read, and its faults."""
    everything = list(items)
    return (
        values(item for item in everything if isinstance(item, Sample)),
        [item for item in everything if isinstance(item, Fault)],
    )


def tree(root: Path, texts: Mapping[str, str]) -> Path:
    """Write files below `root`; a text that begins with "->" is a link."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text.removeprefix("->"))
        else:
            path.write_text(f"{text}\n")
    return root


def active(port: str, *, layer: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)") -> Values:
    """Return the texts of a port that is up."""
    return {f"{port}/state": "4: ACTIVE", f"{port}/rate": rate, f"{port}/link_layer": layer}


def port_of(device: str, number: int = 1) -> str:
    """Return the folder of an RDMA port below the root."""
    return f"{CLASS}/{device}/ports/{number}"


def expected(found: Values, device: str, port: str = "1") -> tuple[object, str]:
    """Return whether a port ought to be up, and why."""
    ((reason, value),) = [
        (key[3], value)
        for key, value in found.items()
        if key[0] == "nic_expected_up" and key[1:3] == (device, port)
    ]
    return value, reason
