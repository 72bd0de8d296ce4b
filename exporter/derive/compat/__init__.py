"""What other exporters would say: our readings in their names, labels and units.

For people who have dashboards and alerts already (dcgm-exporter, nvidia_gpu_exporter). Nothing is
measured here: each foreign family is made of families of ours, and what we do not know is not told
under another name either. `foreign` says what the families are, `rows` what each is made of,
`dcgm` and `nvidia_smi` what is peculiar to one exporter, `plan` how that is done each second.

    DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-5a1c...",device="nvidia0",Hostname="node7",...} 98
    DCGM_FI_DEV_FB_USED_BYTES{gpu="0",UUID="GPU-5a1c...",hostname="node7",...} 68719476736
    nvidia_smi_utilization_gpu_ratio{uuid="5a1c..."} 0.98
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import cast

from exporter import catalogue as c
from exporter import foreign as f
from exporter.derive.compat import dcgm, nvidia_smi
from exporter.derive.compat.plan import Board, Dialect, Key, Moment, Plan, planned
from exporter.derive.compat.rows import Native, Row
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.samples import Batch, Metric, Sample, Shape, View


def derivations(names: Sequence[str], hostname: str) -> tuple[Derivation, ...]:
    """Return a derivation for each of the sets, `compat:dcgm` and so on.

    `names` are keys of `foreign.SETS`; `hostname` is the node's name, for the label that holds it.
    A family of two sets is told by the first. Raises `ValueError` for a set that there is none of.
    """
    for name in names:
        if name not in f.SETS:
            raise ValueError(f"{name!r} is none of {', '.join(f.SETS)}")
    wanted = tuple(dict.fromkeys(names))
    return tuple(_derivation(_dialect(name, wanted, hostname)) for name in wanted)


def _dialect(name: str, wanted: Sequence[str], hostname: str) -> Dialect:
    if name == "nvidia_smi":
        return nvidia_smi.dialect()
    return dcgm.dialect(name, wanted, hostname)


def _derivation(dialect: Dialect) -> Derivation:
    inputs = [c.GPU_INFO, c.GPU_MIG_INFO]
    for row in dialect.rows:
        inputs += [native.metric for native in (*row.natives, *row.counters)]
        inputs += [row.instance] if row.instance is not None else []
    for _, natives in dialect.more.values():
        inputs += natives
    return Derivation(
        name=f"compat:{dialect.name}",
        group=f.COMPAT,
        inputs=tuple(dict.fromkeys(inputs)),
        outputs=(*(row.family for row in dialect.rows), *dialect.more),
        function=_Translation(dialect, frozenset(inputs)),
    )


class _Translation:
    """The function of a derivation.

    It keeps the plan of the last round, which follows from nothing but the series there are and is
    made anew when those change; what was said of the last readings, for rounds are more frequent
    than readings; and which GPU is called what.
    """

    def __init__(self, dialect: Dialect, inputs: frozenset[Metric]) -> None:
        self._dialect = dialect
        self._inputs = inputs
        self._shapes: Sequence[Shape] = ()
        self._plan = Plan()
        self._batches: Sequence[Batch] = ()
        self._said: Sequence[Sample] = ()
        self._known: dict[Key, Mapping[str, str]] = {}

    def __call__(self, view: View, memory: Memory, now: float) -> list[Sample]:
        sources = [
            source
            for source in view.sources
            if not self._inputs.isdisjoint(source.batch.shape.families)
        ]
        batches = [source.batch for source in sources]
        if not _same(batches, self._batches):
            ages = [0.0 if source.age is None else source.age for source in sources]
            self._said = self._translate(batches, [now - age for age in ages], memory, now)
            self._batches = batches
        return [*self._said, *self._dialect.health(view.sources)]

    def _translate(
        self, batches: Sequence[Batch], taken: Sequence[float], memory: Memory, now: float
    ) -> list[Sample]:
        shapes = [batch.shape for batch in batches]
        if not _same(shapes, self._shapes):
            self._plan = planned(self._dialect, Board(shapes, self._known))
            self._shapes = shapes
        # None of the families read here is a histogram.
        values = [cast("Sequence[float]", batch.values) for batch in batches]
        return self._plan.samples(Moment(values, taken, memory, now))


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def reference() -> str:
    """Return the tables of `docs/compatibility.md`: each foreign family, and ours."""
    lines: list[str] = []
    for name, families in f.SETS.items():
        dialect = _dialect(name, (name,), "")
        rows = {row.family: row for row in dialect.rows}
        lines += [f"### `{name}`", "", "| there | type | unit | here | conversion |"]
        lines.append("|---|---|---|---|---|")
        for family in families.values():
            row = rows.get(family)
            made = dialect.more[family][0] if row is None else _made_of(row)
            said = "" if row is None else row.scale.said
            lines.append(f"| `{family.name}` | {family.kind} | {family.unit} | {made} | {said} |")
        lines += ["", "Not answered:", "", "| there | why |", "|---|---|"]
        lines += [f"| `{one}` | {why} |" for one, why in f.UNANSWERED[name].items()]
        lines.append("")
    return "\n".join(lines)


def _made_of(row: Row) -> str:
    """Say what a row is made of, in the names of the catalogue."""
    said = [", else ".join(map(_series, row.natives))] if row.natives else []
    if row.weights:
        said = [f"the reasons of `{row.natives[0].metric.name}` as bits, all together"]
    if row.counters:
        said.append("growth per second of " + " plus ".join(map(_series, row.counters)))
    found = ", else ".join(said)
    if row.instance is not None:
        found += f"; of an instance `{row.instance.name}`" if found else f"`{row.instance.name}`"
    return found


def _series(native: Native) -> str:
    labels = zip(native.metric.labels[2:], native.labels, strict=True)
    inner = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"`{native.metric.name}{{{inner}}}`" if inner else f"`{native.metric.name}`"
