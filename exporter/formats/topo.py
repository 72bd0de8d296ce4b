"""What `nvidia-smi topo -m` and `nvidia-smi nvlink --status` print.

Columns are separated by tabs or spaces; NIC columns bear the device's name or a number that a
legend explains; old drivers leave out columns at the end, and captures have colours, rows that are
cut off, and no head. What is not there is not known: a cell is never guessed from another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.samples import Malformed

LONGEST = 1 << 20
"""Characters of a text that are taken at most."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d{1,3}")
_NIC = re.compile(r"NIC\d{1,3}")
_CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")
_CUT = re.compile(r"NV\d*\Z")
_OLD = {"SOC": "SYS"}
_ABOUT = re.compile("CPU Affinity|NUMA Affinity|GPU NUMA ID")
_LEGEND = re.compile(r"\s*(NIC\d{1,3}):\s+(\S+)\s*$")
_OF_GPU = re.compile(r"\s*GPU (\d{1,4}): (.*?)(?: \(UUID: ([^)\s]+)\))?\s*$")
_LINK = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,5}(?:\.\d{1,6})?) GB/s|<?[iI]nactive>?)\s*$")
_GIGABYTE = 1e9


class Affinity(NamedTuple):
    """What stands at the end of a GPU's row: lists of CPUs and of NUMA nodes, the GPU's own node.

    Empty where nothing, or `N/A`, stands there.
    """

    cpus: str = ""
    numa_nodes: str = ""
    gpu_numa_node: str = ""


class Matrix(NamedTuple):
    """A matrix. `cells` are by row and column as printed; `names` are devices by NIC column.

    A column that is a device's name itself stands in `names` too; one whose legend is missing does
    not.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    names: Mapping[str, str]
    affinity: Mapping[str, Affinity]

    def between(self, one: str, other: str) -> str | None:
        """Return the word between two, from either row; None where it is not told."""
        found = self.cells.get((one, other)) or self.cells.get((other, one))
        return None if found == "X" else found

    def of_devices(self) -> Mapping[tuple[str, str], str]:
        """Return the words by index of the GPU and name of the NIC's device."""
        return {
            (gpu.removeprefix("GPU"), self.names[nic]): word
            for gpu in self.gpus
            for nic in self.nics
            if nic in self.names and (word := self.between(gpu, nic)) is not None
        }

    def of_gpus(self) -> Mapping[tuple[str, str], str]:
        """Return the words by the indices of two GPUs, both ways."""
        return {
            (one.removeprefix("GPU"), other.removeprefix("GPU")): word
            for one in self.gpus
            for other in self.gpus
            if one != other and (word := self.between(one, other)) is not None
        }


def read_matrix(text: str) -> Matrix:
    """Return the matrix of a text. Raises `Malformed` if it holds none, or is too long."""
    lines = _lines(text)
    at, columns, about = _head(lines)
    rows = [(name, cells) for line in lines[at:] if (row := _row(line)) for name, cells in (row,)]
    if not rows:
        raise Malformed("holds no row of a topology matrix")
    if not columns:
        columns = _by_diagonal(rows)
    cells: dict[tuple[str, str], str] = {}
    affinity: dict[str, Affinity] = {}
    for name, words in rows:
        told = [_OLD.get(word, word) for word in words[: len(columns)]]
        cells |= {
            (name, column): word
            for column, word in zip(columns, told, strict=False)
            if column and _CELL.fullmatch(word)
        }
        rest = words[len(columns) :]
        if about and len(rest) == len(about) and _GPU.fullmatch(name):
            affinity[name] = _affinity(dict(zip(about, rest, strict=True)))
    known = [*columns, *(name for name, _ in rows)]
    gpus, nics = _apart(dict.fromkeys(filter(None, known)))
    return Matrix(gpus, nics, cells, _names(lines, nics), affinity)


def _lines(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise Malformed(f"longer than {LONGEST >> 20} MiB")
    # A number that the end of the text cut off is another number.
    return _CUT.sub("", _COLOUR.sub("", text)).splitlines()


def _head(lines: Sequence[str]) -> tuple[int, list[str], list[str]]:
    """Return where the rows begin, the columns of devices, and the titles of the others."""
    for at, line in enumerate(lines):
        titles = _ABOUT.findall(line)
        words = _ABOUT.sub("", line).split()
        # A row begins with its name and has cells; the head has names only.
        if words and _GPU.fullmatch(words[0]) and not any(map(_is_cell, words)):
            return at + 1, words, titles
    return 0, [], []


def _is_cell(word: str) -> bool:
    return _CELL.fullmatch(_OLD.get(word, word)) is not None


def _row(line: str) -> tuple[str, list[str]] | None:
    """Return name and words of a row; None if the line is none."""
    name, *words = line.split() or [""]
    return (name, words) if words and _is_cell(words[0]) and name[0].isalpha() else None


def _by_diagonal(rows: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Return the columns of which the rows tell without a head: where each has its X."""
    columns: list[str] = []
    for name, words in rows:
        if words.count("X") == 1:
            at = words.index("X")
            columns += [""] * (at + 1 - len(columns))
            columns[at] = name
    return columns


def _apart(names: Mapping[str, None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    gpus = tuple(name for name in names if _GPU.fullmatch(name))
    return gpus, tuple(name for name in names if name not in gpus)


def _affinity(told: Mapping[str, str]) -> Affinity:
    said = {title: "" if word == "N/A" else word for title, word in told.items()}
    return Affinity(
        said.get("CPU Affinity", ""), said.get("NUMA Affinity", ""), said.get("GPU NUMA ID", "")
    )


def _names(lines: Sequence[str], nics: Sequence[str]) -> dict[str, str]:
    legend = {found[1]: found[2] for line in lines if (found := _LEGEND.fullmatch(line))}
    plain = {nic: nic for nic in nics if not _NIC.fullmatch(nic)}
    return plain | {nic: legend[nic] for nic in nics if nic in legend}


class LinkStatus(NamedTuple):
    """The NVLinks of a GPU: bytes per second of each, None for one that is inactive."""

    gpu: int
    name: str
    uuid: str
    links: Mapping[int, float | None]

    @property
    def up(self) -> int:
        """How many are active."""
        return sum(rate is not None for rate in self.links.values())


def read_links(text: str) -> list[LinkStatus]:
    """Return what is told of each GPU; one whose links are all inactive has no link.

    Raises `Malformed` if it is told of none.
    """
    found = list(_statuses(_lines(text)))
    if not found:
        raise Malformed("holds no GPU of `nvidia-smi nvlink --status`")
    return found


def _statuses(lines: Sequence[str]) -> Iterator[LinkStatus]:
    heads = [(at, head) for at, line in enumerate(lines) if (head := _OF_GPU.fullmatch(line))]
    ends = [*(at for at, _ in heads), len(lines)][1:]
    for (at, head), end in zip(heads, ends, strict=False):
        links = {
            int(link[1]): None if link[2] is None else float(link[2]) * _GIGABYTE
            for line in lines[at + 1 : end]
            if (link := _LINK.fullmatch(line))
        }
        yield LinkStatus(int(head[1]), head[2], head[3] or "", links)
