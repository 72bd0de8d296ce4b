"""A fake `libnvidia-ml.so.1`: built with gcc, told by profiles, loaded by the real bindings.

`SOURCES.md` has the grammar of profiles and control files and says where the values come from.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PROFILES = HERE / "profiles"
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# What an old driver (460 series) has not got yet, as far as an exporter would ask for it.
OLD_DRIVER = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetIrqNum",
    "nvmlDeviceGetPowerSource",
    "nvmlDeviceGetPcieLinkMaxSpeed",
    "nvmlDeviceGetPcieSpeed",
    "nvmlDeviceGetAdaptiveClockInfoStatus",
    "nvmlDeviceGetBusType",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetFanSpeedRPM",
    "nvmlDeviceGetMinMaxFanSpeed",
    "nvmlDeviceGetTargetFanSpeed",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlGpmMetricsGet",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
)


def build(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile the library into `directory` and return its path.

    The functions named in `without` are hidden, so that the bindings do not find them: an older
    driver. Needs gcc; a warning is an error.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library, script = directory / LIBRARY, directory / "fake_nvml.map"
    hidden = "".join(f" {name};" for name in without)
    script.write_text(f"{{ global: nvml*; local:{hidden} *; }};\n", "utf-8")
    sources = [str(HERE / name) for name in ("rules.c", "call.c", "fake_nvml.c")]
    link = [f"-Wl,--version-script={script}", "-o", str(library), *sources, "-lm"]
    command = [shutil.which("gcc") or "cc", *FLAGS, *WARNINGS, *link]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return library


def profile(name: str) -> Path:
    """Return the path of a profile by its name."""
    return PROFILES / f"{name}.profile"


def environment(
    library: Path,
    profile: Path,
    *,
    control: Path | None = None,
    log: Path | None = None,
    busy_us: int = 0,
    fast: bool = True,
    epoch: float | None = None,
) -> dict[str, str]:
    """Return the environment in which a child process finds the fake library.

    `epoch` (seconds of the monotonic clock, default now) is when counters stand at their base; it
    is passed on so that they go on growing over a restart of the child, as a driver's do.
    """
    chosen = {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML_PROFILE": str(profile),
        "FAKE_NVML_EPOCH": repr(time.monotonic() if epoch is None else epoch),
        "FAKE_NVML_BUSY_US": str(busy_us),
        "FAKE_NVML_FAST": "1" if fast else "0",
    }
    if control is not None:
        chosen["FAKE_NVML_CONTROL"] = str(control)
    if log is not None:
        chosen["FAKE_NVML_LOG"] = str(log)
    return chosen


class Control:
    """The control file: its lines win over the profile's, in all processes, from the next call.

    Each change replaces the whole file at once, so that no call sees half of it. A file that is
    there already is taken over with its lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text("utf-8").splitlines() if path.exists() else []

    def set(self, *lines: str) -> None:
        """Let the file hold these lines and no others."""
        self.lines = list(lines)
        self._write()

    def add(self, *lines: str) -> None:
        """Add lines; of two for the same thing the later one wins."""
        self.lines += lines
        self._write()

    def remove(self, *lines: str) -> None:
        """Take lines away again, each as it was written."""
        self.lines = [line for line in self.lines if line not in lines]
        self._write()

    def clear(self) -> None:
        """Leave the profile alone with its values."""
        self.set()

    def _write(self) -> None:
        parts = self.path.with_suffix(f".{os.getpid()}.tmp")
        parts.write_text("".join(f"{line}\n" for line in self.lines), "utf-8")
        parts.replace(self.path)


@dataclass(frozen=True)
class Answer:
    """What one line says: values in the driver's order and unit, or a fault.

    `values` holds numbers, byte strings, and for a wave the triple low, high, period. Growth is
    left out: these are the values at the epoch. `fault` is "hang", "crash" or "!code".
    """

    values: tuple[int | float | bytes | tuple[float, float, float], ...] = ()
    kind: str = ""
    fault: str = ""
    rates: tuple[float, ...] = ()

    @property
    def value(self) -> int | float | bytes | tuple[float, float, float]:
        """The first value."""
        return self.values[0]


@dataclass(frozen=True)
class _Line:
    layer: int
    device: str
    name: str
    args: tuple[tuple[int, int], ...]
    right: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A `mig`, `process` or `event` line: of which device, and its words by their key."""

    layer: int
    kind: str
    device: str
    words: dict[str, str]


@dataclass
class Profile:
    """What a profile, or a control file, says: for tests that must state the driver's value."""

    devices: int = 0
    gone: set[int] = field(default_factory=set)
    lines: list[_Line] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, *paths: Path) -> Profile:
        """Read a profile, and what is written over it, in that order.

        Raises ValueError for a line that is not in the grammar.
        """
        one = cls()
        for layer, path in enumerate(paths):
            for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
                try:
                    one._line(layer, words(text))
                except (ValueError, IndexError) as error:
                    raise ValueError(f"{path.name}:{number}: {text}") from error
        return one

    def _line(self, layer: int, tokens: list[str]) -> None:
        if not tokens:
            return
        if "=" not in tokens:
            self.rows.append(_row(layer, tokens))
            return
        at = tokens.index("=")
        left, right = tokens[:at], tokens[at + 1 :]
        if left == ["devices"]:
            self.devices = int(right[0])
        elif left == ["gone"]:
            self.gone = {int(token) for token in right}
        elif left not in (["clock"], ["epoch"]):
            self.lines.append(_rule(layer, left, right))

    def migs(self, device: int) -> list[dict[str, str]]:
        """Return the instances of a GPU: gi, ci, profile, uuid, memory, reserved, used, free."""
        return self._of("mig", device)

    def processes(self, device: int) -> list[dict[str, str]]:
        """Return the processes on a GPU: pid, memory, gi, ci, type, sm, mem, enc, dec."""
        return self._of("process", device)

    def _of(self, kind: str, device: int) -> list[dict[str, str]]:
        mine = [row for row in self.rows if row.kind == kind and row.device in (str(device), "*")]
        last = max((row.layer for row in mine), default=0)
        return [row.words for row in mine if row.layer == last and row.words]

    def names(self) -> Iterator[str]:
        """Yield the names of the functions that lines speak of."""
        return (line.name for line in self.lines if line.name.startswith("nvml"))

    def function(self, device: int | str, name: str, *args: int) -> Answer | None:
        """Return what a device (or "system") answers to a function; None: not supported."""
        best: tuple[int, _Line] | None = None
        for line in self.lines:
            score = _score(line, str(device), name, args)
            if score is not None and (best is None or score >= best[0]):
                best = (score, line)
        return None if best is None else _answer(best[1], device, args)

    def field(self, device: int, number: int, scope: int = 0) -> Answer | None:
        """Return the value of a field."""
        return self.function(device, f"field#{number}", scope)

    def gpm(self, device: int, metric: int, instance: int | None = None) -> Answer | None:
        """Return the value of a GPM metric, of the whole GPU or of a GPU instance."""
        if instance is None:
            return self.function(device, f"gpm#{metric}")
        return self.function(device, f"gpmmig#{metric}", instance)


def words(line: str) -> list[str]:
    """Split a line: words and quoted strings, up to a `#`. A quoted one keeps its first quote."""
    found, at = [], 0
    while at < len(line):
        if line[at].isspace():
            at += 1
        elif line[at] == "#":
            break
        elif line[at] == '"':
            text, at = _quoted(line, at + 1)
            found.append('"' + text)
        else:
            end = at
            while end < len(line) and not line[end].isspace():
                end += 1
            found.append(line[at:end])
            at = end
    return found


def _quoted(line: str, at: int) -> tuple[str, int]:
    text = ""
    while line[at] != '"':
        if line[at] == "\\" and line[at + 1] == "x":
            text += chr(int(line[at + 2 : at + 4], 16))
            at += 4
        elif line[at] == "\\":
            text += "\n" if line[at + 1] == "n" else line[at + 1]
            at += 2
        else:
            text += line[at]
            at += 1
    return text, at + 1


def _range(text: str) -> tuple[int, int]:
    if text == "*":
        return 0, 2**31 - 1
    low, _, high = text.partition("-")
    return int(low, 0), int(high or low, 0)


def _row(layer: int, tokens: list[str]) -> Row:
    kind, device, *rest = tokens
    if kind not in ("mig", "process", "event"):
        raise ValueError(kind)
    found: dict[str, str] = {}
    if rest == ["none"]:
        return Row(layer, kind, device, found)
    if kind == "mig":
        found = {"gi": rest.pop(0), "ci": rest.pop(0)}
        if "attributes" in rest:
            at = rest.index("attributes")
            found["attributes"] = " ".join(rest[at + 1 : at + 10])
            del rest[at : at + 10]
    if kind != "event":
        found |= dict(zip(rest[::2], (word.lstrip('"') for word in rest[1::2]), strict=True))
    return Row(layer, kind, device, found)


def _rule(layer: int, left: list[str], right: list[str]) -> _Line:
    device, name, *args = left
    if name in ("field", "gpm", "samples"):
        number, *args = args
        instance = args[:1] == ["mig"]
        if instance:
            args = args[1:]
        if name == "field" and not args:
            args = ["0"]
        name = f"{name}{'mig' if instance else ''}#{number}"
    line = _Line(layer, device, name, tuple(_range(arg) for arg in args), tuple(right))
    _answer(line, 0, ())  # a right side that cannot be read is found here, not where it is used
    return line


def _score(line: _Line, device: str, name: str, args: tuple[int, ...]) -> int | None:
    if line.device != device and (line.device != "*" or device == "system"):
        return None
    star = line.name == "*" and "#" not in name
    if (line.name != name and not star) or len(line.args) > len(args):
        return None
    score = 100000 * line.layer + 10000 * (line.device == device) + 1000 * (line.name == name)
    for (low, high), arg in zip(line.args, args, strict=False):
        if not low <= arg <= high:
            return None
        score += 8 if low == high else 1 if high == 2**31 - 1 else 4
    return score


KINDS = ("f64", "u32", "ul", "u64", "i64", "i32", "u16")


def _answer(line: _Line, device: int | str, args: tuple[int, ...]) -> Answer:
    right = list(line.right)
    if right[0] in ("hang", "crash") or right[0].startswith("!"):
        return Answer(fault=right[0])
    if right[0] in ("none", "sleep"):
        return Answer()
    kind = right.pop(0) if right[0] in KINDS else ""
    values: list[int | float | bytes | tuple[float, float, float]] = []
    rates: list[float] = []
    steps: dict[str, float] = {"$i": int(device) if device != "system" else 0}
    steps["$a"] = args[-1] if args else 0
    while right:
        token = right.pop(0)
        if token.startswith("+"):
            _modify(token, values, rates, steps)
            continue
        rates.append(0.0)
        values.append(_value(token, right, steps, device))
    return Answer(tuple(values), kind, "", tuple(rates))


def _value(
    token: str, right: list[str], steps: dict[str, float], device: int | str
) -> int | float | bytes | tuple[float, float, float]:
    if token.startswith('"'):
        text = token[1:].replace("$i", str(device))
        if "$x" in text:
            text = text.replace("$x", f"{int(device):02x}")
        return text.encode("latin-1")
    if token == "wave":
        low, high, period = (float(right.pop(0)) for _ in range(3))
        return low, high, period
    if token == "$i":
        return int(steps["$i"])
    readers: tuple[Callable[[str], int | float], ...] = (lambda text: int(text, 0), float)
    for read in readers:
        try:
            return read(token)
        except ValueError:
            continue
    raise ValueError(token)


def _modify(
    token: str,
    values: list[int | float | bytes | tuple[float, float, float]],
    rates: list[float],
    steps: dict[str, float],
) -> None:
    if token.endswith("/s"):
        rates[-1] = float(token[1:-2])
        return
    name, _, factor = token[1:].partition("*")
    last = values[-1]
    if not isinstance(last, int | float) or math.isnan(last):
        raise ValueError(token)
    more = steps[name] * float(factor or 1)
    values[-1] = last + int(more) if isinstance(last, int) else last + more
