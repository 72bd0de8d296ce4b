"""A board for derivations of the fabric: samples of one moment, told in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from exporter import catalogue as c
from exporter.derive import Derivation, Memory
from exporter.samples import Gate, Health, Metric, Sample, SourceView, View

Told = dict[tuple[Metric, tuple[str, ...]], float]


def board(samples: Iterable[Sample]) -> View:
    """Return a board on which one source has just told these samples."""
    batch, drops = Gate(10_000).admit(list(samples))
    assert not drops
    return View((SourceView("made", "nic", "ok", Health(), batch=batch, age=0.0),), ())


def rounds(
    derivation: Derivation, samples: Callable[[float], Iterable[Sample]], *moments: float
) -> Told:
    """Return what a derivation tells at the last of some moments."""
    memory = Memory()
    told: Told = {}
    for now in moments:
        memory.begin(now)
        made = list(derivation.function(board(samples(now)), memory, now))
        assert {one.metric for one in made} <= set(derivation.outputs)
        told = {(one.metric, one.labels): float(one.value) for one in made}  # type: ignore[arg-type]
        assert len(told) == len(made)
    return told


def h100(gpu: str = "0", name: str = "NVIDIA H100 80GB HBM3") -> Sample:
    """Return who a GPU is."""
    said = {"gpu": gpu, "uuid": f"GPU-{gpu}", "name": name, "virtualization": "none"}
    return c.GPU_INFO(1, *(said.get(label, "") for label in c.GPU_INFO.labels))


def rails(number: int = 8) -> Iterator[Sample]:
    """Yield which NIC is nearest to each GPU."""
    for at in range(number):
        yield c.TOPOLOGY_GPU_BEST_NIC_INFO(1, f"{at}", f"GPU-{at}", f"mlx5_{at}", "PXB", f"{at}")
