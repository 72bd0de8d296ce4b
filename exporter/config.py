"""The configuration file: what may be set, and a clear line for each thing that is wrong.

Every key has a default, so that an empty file and no file at all run. Unknown keys are errors:
a misspelt key that is silently ignored costs an operator an afternoon. Durations carry a unit
(`5s`, `500ms`): bare numbers were taken for milliseconds elsewhere (NVIDIA/dcgm-exporter 311).
Secrets are never in the file; they are read from files that it names.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import string
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from exporter.objectives import (
    Objective,
    SlaError,
    home_of,
    read_inference,
    read_slas,
    read_training,
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|)")
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds one line each: file, key, reason."""

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(printable(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


def printable(text: str) -> str:
    """Return one line of text for people: control characters of names are shown escaped."""
    if text.isprintable():
        return text
    escaped = (char.encode("unicode_escape").decode("ascii") for char in text)
    return "".join(
        char if char.isprintable() else code for char, code in zip(text, escaped, strict=True)
    )


def _duration(value: object) -> object:
    if isinstance(value, str):
        if (match := _DURATION.fullmatch(value.strip())) is not None:
            return float(match[1]) * _UNITS[match[2]]
        raise ValueError(f"{value!r} is not a duration such as 500ms, 5s, 1m")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a duration such as 500ms, 5s, 1m is wanted")  # noqa: TRY004 - for pydantic
    raise ValueError(f"{value} has no unit; write {value}s if you mean seconds")


def _size(value: object) -> object:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) is not None:
        return int(match[1]) * _SIZES[match[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is not a size such as 64KiB, 16MiB")


_RATES = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_RATE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)\s*([GTPE]?)")
_LEAST_RATE, _HIGHEST_RATE = 1e9, 1e21


def _rate(value: object) -> object:
    """Return operations or bytes a second; YAML takes 989e12 for text."""
    if isinstance(value, str) and (match := _RATE.fullmatch(value.strip())) is not None:
        number = float(match[1]) * _RATES[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(f"a number such as 989e12 or 989T is wanted, not {_shown(value)}")
    if not _LEAST_RATE <= number <= _HIGHEST_RATE:
        raise ValueError(
            f"{_shown(value)} is not between 1G and 1000E a second; if you mean TFLOP/s or TB/s,"
            " write 989T"
        )
    return float(number)


_WORK = re.compile(r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)\s*([MGTP]?)")


def _work(value: object) -> object:
    """Return operations for a token; YAML takes 5e10 for text."""
    if isinstance(value, str) and (match := _WORK.fullmatch(value.strip())) is not None:
        return float(match[1]) * {**_RATES, "M": 1e6}[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"a number such as 5e10 or 50G is wanted, not {_shown(value)}")


Rate = Annotated[float, BeforeValidator(_rate)]
"""Operations or bytes a second, written as a number or with G, T, P or E behind it."""

Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds, written with a unit."""

Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written as a number or with a unit of 1024."""


def _path(value: str) -> str:
    try:
        usable = value != "" and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, written as "\ud800"
        usable = False
    if not usable:
        raise ValueError(f"{value!r} is not a path")
    return value


def _switch(value: object) -> object:
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError(f"true, false or auto is wanted, not {_shown(value)}")


Switch = Annotated[bool | Literal["auto"], BeforeValidator(_switch)]
"""On, off, or as the machine is."""


def _list(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError(f"a list is wanted, not {_kind(value)}")


def _list_or_none(value: object) -> object:
    return None if value is None else _list(value)


PathText = Annotated[str, AfterValidator(_path)]
"""A path that the system can be asked for; whether it is there is another matter."""

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]


Port = Annotated[int, Field(ge=1, le=65535)]

Gpu = Annotated[int, Field(ge=0, le=1023)]
"""The index of a GPU, as its label `gpu` has it."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, document: object) -> object:
        """Take a key with nothing after its colon for one that is not there: Helm writes them."""
        if not isinstance(document, dict):
            return document
        known = _keys(cls)
        return {
            key: value for key, value in document.items() if value is not None or key not in known
        }


def _keys(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as they are written in the file."""
    return [field.alias or name for name, field in section.model_fields.items()]


class _Rated(_Section):
    """What every source has: how often it is read, how long a read may take, its cap."""

    interval: Duration = Field(default="5s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="2s", ge=0.05, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)


class _Timed(_Rated):
    """A source that runs unless it is switched off."""

    enabled: bool = True


class _Detected(_Rated):
    """A source that runs where there is something for it to read."""

    enabled: Switch = "auto"


class HostSettings(_Timed):
    """The machine: CPU, memory, pressure."""


class NetworkSettings(_Timed):
    """InfiniBand, RoCE and Ethernet ports."""

    exclude_interfaces: str | None = None

    @field_validator("exclude_interfaces")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except (re.error, OverflowError) as error:
                raise ValueError(f"not a regular expression: {error}") from None
            except RecursionError:
                raise ValueError("not a regular expression: nested too deep") from None
        return value


class ProcessSettings(_Timed):
    """The daemon's own process."""

    interval: Duration = Field(default="15s", ge=0.1, le=3600)  # type: ignore[assignment]


def page_url(value: str) -> str:
    """Return the address of a metrics page if it is one. Raises `ValueError`."""
    if re.fullmatch(r"https?://[^\s/?#@]+([/?][^\s#]*)?", value) is None:
        raise ValueError(
            "an http:// or https:// address without user name or password is wanted,"
            " such as http://127.0.0.1:8000/metrics"
        )
    try:
        parts = urlsplit(value)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(f"{str(error)[:1].lower()}{str(error)[1:]}") from None
    if not named:
        raise ValueError(f"{value!r} names no host or the port 0")
    return value


class NvmlSettings(_Detected):
    """GPUs, through the driver's management library."""

    interval: Duration = Field(default="1s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="2s", ge=0.2, le=600)  # type: ignore[assignment]
    end_after: Duration = Field(default="5m", ge=10, le=86400)  # type: ignore[assignment]
    expected: int = Field(default=0, ge=0, le=1024)
    detail: bool = False
    links: bool = False
    processes: bool = True


class DcgmSettings(_Timed):
    """GPUs, through DCGM's library: a host engine at `address`, or one in our own process."""

    enabled: bool = False
    interval: Duration = Field(default="1s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="5s", ge=0.2, le=600)  # type: ignore[assignment]
    address: str | None = None
    library: str = ""
    everything: bool = False
    preferred: bool = False


class DcgmPageSettings(_Section):
    """GPUs, through the page of a dcgm-exporter."""

    enabled: bool = False
    interval: Duration = Field(default="15s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)
    timeout: Duration = Field(default="5s", ge=0.05, le=600)  # type: ignore[assignment]
    url: str = "http://127.0.0.1:9400/metrics"
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False
    preferred: bool = False

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return page_url(value)


class KernelLogSettings(_Detected):
    """The kernel log, where the driver reports its errors (XID)."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    device: PathText = "dev/kmsg"


class DerivedSettings(_Detected):
    """What is computed from readings: peaks, memory traffic, an estimate of FLOP/s."""

    interval: Duration = Field(default="500ms", ge=0.1, le=3600)  # type: ignore[assignment]
    precision_hint: Literal["bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp64_tensor"] = "bf16"


class ServerSettings(_Section):
    """One inference server whose metrics page is read."""

    name: Name
    url: str
    engine: str = "auto"
    model_name: str | None = None
    # `model_config` itself is what pydantic calls the options of a class.
    model_file: PathText | None = Field(default=None, alias="model_config")
    enabled: bool = True
    interval: Duration | None = Field(default=None, ge=0.1, le=3600)
    timeout: Duration | None = Field(default=None, ge=0.05, le=600)
    max_series: int | None = Field(default=None, ge=1, le=1_000_000)
    allow_destructive_read: bool = False
    gpus: Annotated[tuple[Gpu, ...] | None, BeforeValidator(_list_or_none)] = None
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False
    follow_redirects: Literal["same-host", "none", "any"] = "same-host"
    probe: bool | None = None
    health_url: str | None = None
    completion: bool | None = None
    completion_url: str | None = None

    @field_validator("url", "health_url", "completion_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return None if value is None else page_url(value)


class ProbeSettings(_Section):
    """Requests of our own, that tell whether servers answer."""

    enabled: bool = True
    interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="5s", ge=0.05, le=600)  # type: ignore[assignment]
    completion: bool = False
    completion_interval: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    completion_timeout: Duration = Field(default="30s", ge=0.05, le=600)  # type: ignore[assignment]


class InferenceSettings(_Section):
    """Inference servers, and what holds for all of them unless they say otherwise."""

    enabled: bool = True
    interval: Duration = Field(default="5s", ge=0.1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="2s", ge=0.05, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)
    max_body: Size = Field(default="16MiB", ge=1024, le=1 << 30)  # type: ignore[assignment]
    max_line: Size = Field(default="1MiB", ge=256, le=1 << 30)  # type: ignore[assignment]
    max_label: Size = Field(default="1KiB", ge=16, le=1 << 20)  # type: ignore[assignment]
    max_page_series: int = Field(default=20_000, ge=1, le=10_000_000)
    engines_directory: PathText | None = None
    local: Switch = "auto"
    ports: Annotated[tuple[Port, ...], BeforeValidator(_list)] = (
        3000, 4000, 8000, 8002, 8080, 8081, 23333, 30000,
    )  # fmt: skip
    files: Annotated[tuple[PathText, ...], BeforeValidator(_list)] = ()
    discovery_interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_servers: int = Field(default=64, ge=1, le=1000)
    allow_destructive_read: bool = False
    probe: ProbeSettings = ProbeSettings()
    servers: Annotated[tuple[ServerSettings, ...], BeforeValidator(_list)] = ()

    @model_validator(mode="after")
    def _one_of_each_name(self) -> InferenceSettings:
        seen: set[str] = set()
        for server in self.servers:
            if server.name in seen:
                raise ValueError(f"two servers are named {server.name!r}")
            seen.add(server.name)
        return self


class ServingSettings(_Timed):
    """What is computed from inference servers: percentiles, rates, over rolling windows."""

    # A server with two windows has some 150; a node may have 64 of them.
    max_series: int = Field(default=20_000, ge=1, le=1_000_000)
    windows: Annotated[tuple[Literal["1m", "5m", "30m", "1h"], ...], BeforeValidator(_list)] = (
        "5m",
        "1h",
    )
    refresh: Duration = Field(default="10s", ge=1.0, le=60.0)  # type: ignore[assignment]


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A share of 1."""

EventRate = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Events in a second."""


class DiagnosisThresholds(_Section):
    """Where the decision tree divides: shares of 1, and events in a second (`_rate`)."""

    low_utilization: Share = 0.70
    high_utilization: Share = 0.95
    full_memory: Share = 0.90
    high_communication: Share = 0.30
    low_communication: Share = 0.10
    idle_utilization: Share = 0.05
    data_loading: Share = 0.10
    exposed_communication: Share = 0.15
    bubble: Share = 0.15
    checkpoint: Share = 0.05
    clock_loss: Share = 0.10
    throttled: Share = 0.10
    skew: Share = 0.10
    memory_bandwidth: Share = 0.60
    tensor_active: Share = 0.50
    memory_stalled: Share = 0.05
    framework: Share = 0.15
    small_messages: Share = 0.50
    pcie_width: Share = 0.99
    link_error_rate: EventRate = 0.01
    congestion_rate: EventRate = 100.0
    pcie_error_rate: EventRate = 0.1

    @model_validator(mode="after")
    def _in_order(self) -> DiagnosisThresholds:
        for low, high in (
            ("low_utilization", "high_utilization"),
            ("low_communication", "high_communication"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} is above {high}")
        return self


class DiagnosisSettings(_Rated):
    """Which bottleneck a run has: how long it is looked at, how long an answer must stand."""

    enabled: Switch = "auto"
    window: Duration = Field(default="60s", ge=5, le=3600)  # type: ignore[assignment]
    hold: Duration = Field(default="30s", ge=0, le=3600)  # type: ignore[assignment]
    thresholds: DiagnosisThresholds = DiagnosisThresholds()


class BaselineSettings(_Section):
    """A throughput that a run's is compared with."""

    tokens_per_second_per_gpu: float = Field(gt=0, allow_inf_nan=False)
    gpus: int = Field(ge=1, le=10_000_000)
    kind: Literal["weak", "strong"]


Positive = Annotated[int, Field(ge=1, le=10_000_000)]


class TrainingRunSettings(_Section):
    """What is stated of the training runs whose name fits a pattern."""

    name: str = Field(min_length=1, max_length=128)
    world_size: Positive | None = None
    sequence_length: Positive | None = None
    global_batch: Positive | None = None
    micro_batches: Positive | None = None
    pipeline_parallel: Positive | None = None
    virtual_stages: Positive | None = None
    precision: Literal["bf16", "fp16", "fp8", "fp4", "tf32", "fp32"] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    # `model_config` itself is what pydantic calls the options of a class.
    model_file: PathText | None = Field(default=None, alias="model_config")
    flops_per_token: (
        Annotated[float, BeforeValidator(_work), Field(gt=0, allow_inf_nan=False)] | None
    ) = None
    baseline: BaselineSettings | None = None
    reporter: Switch = "auto"
    gpus: Annotated[tuple[Gpu, ...] | None, BeforeValidator(_list_or_none)] = None
    accelerator: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class TrainingSettings(_Timed):
    """Training runs: what is derived of them, and what is stated of some."""

    # A run of eight ranks has some 180 series; a node may have 64 of them.
    max_series: int = Field(default=20_000, ge=1, le=1_000_000)
    runs: Annotated[tuple[TrainingRunSettings, ...], BeforeValidator(_list)] = ()


_LOG_NAMES = frozenset({"file", "folder", "job", "pod", "namespace", "container"})


class LogSettings(_Section):
    """Log files of training jobs."""

    path: PathText
    run: str | None = Field(default=None, min_length=1, max_length=128)
    framework: Literal[
        "auto", "megatron", "nemo", "torchtitan", "transformers", "deepspeed", "composer",
        "nanotron", "maxtext", "plain",
    ] = "auto"  # fmt: skip
    rank: int | None = Field(default=None, ge=0, le=1_000_000)
    logging_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    tokens_per_second: Literal["run", "gpu"] | None = None

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("an absolute path is wanted (below root); * and ? may be used")
        return value

    @field_validator("run")
    @classmethod
    def _has_known_parts(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.isprintable():
            raise ValueError("printable characters are wanted")
        known = ", ".join(f"{{{name}}}" for name in sorted(_LOG_NAMES))
        try:
            parts = list(string.Formatter().parse(value))
        except ValueError as error:
            raise ValueError(f"{error}; {known} stand for parts of the path") from None
        for _, name, spec, conversion in parts:
            if name is not None and (name not in _LOG_NAMES or spec or conversion):
                raise ValueError(f"{{{name}}} is none of {known}")
        return value


class LogsSettings(_Timed):
    """Logs of training jobs that are followed."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_files: int = Field(default=256, ge=1, le=10_000)
    files: Annotated[tuple[LogSettings, ...], BeforeValidator(_list)] = ()

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, document: object) -> object:
        """Take a list for that of the files."""
        return {"files": document} if isinstance(document, list | tuple) else document


RunName = Annotated[str, Field(min_length=1, max_length=128)]
"""What a training run is called."""


class TrainingFilesSettings(_Rated):
    """A directory in which training jobs leave what they write for other tools."""

    path: PathText
    kind: Literal["auto", "tensorboard", "trainer_state", "mlflow", "wandb", "textfile"] = "auto"
    run: RunName | None = None
    name: Name | None = None
    enabled: bool = True

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("an absolute path is wanted")
        return value


class TrainingPageSettings(_Section):
    """A page of metrics that a training job itself shows."""

    url: str
    run: RunName | None = None
    name: Name | None = None
    enabled: bool = True
    interval: Duration = Field(default="5s", ge=0.1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="2s", ge=0.05, le=600)  # type: ignore[assignment]
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return page_url(value)


def _socket(value: object) -> object:
    if value is False or value == "auto":
        return value
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"auto, false or an absolute path is wanted, not {_shown(value)}")
    return _path(value)


def _group(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
    name = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]+", value) is not None
    if value is None or number or name:
        return value
    raise ValueError(f"the name or number of a group is wanted, not {_shown(value)}")


class PushSettings(_Section):
    """What jobs may tell the daemon themselves, and how."""

    enabled: bool = True
    loopback: bool = True
    socket: Annotated[str | Literal[False], BeforeValidator(_socket)] = "auto"
    socket_group: Annotated[str | int | None, BeforeValidator(_group)] = None
    token_file: PathText | None = None
    max_body: Size = Field(default="1MiB", ge=1024, le=64 << 20)  # type: ignore[assignment]
    max_records: int = Field(default=1_000, ge=1, le=100_000)


class RanksSettings(_Detected):
    """The ranks of training jobs on this machine, by the environment of their processes."""

    interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    names: dict[str, Annotated[str, Field(min_length=1, max_length=128)]] = {}


class DirectorySettings(_Section):
    """A directory into which files are dropped, and the run that they belong to."""

    path: PathText
    run: RunName | None = None
    ignore: Annotated[tuple[str, ...], BeforeValidator(_list)] = ()

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("an absolute path is wanted")
        return value

    @field_validator("run")
    @classmethod
    def _is_printable(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("a name of printable characters is wanted")
        return value


class _Watched(_Rated):
    """A source that watches directories; without one it does not run."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="10s", ge=0.05, le=600)  # type: ignore[assignment]
    directories: Annotated[tuple[DirectorySettings, ...], BeforeValidator(_list)] = ()
    max_age: Duration = Field(default="7d", ge=60, le=3650 * 86400)  # type: ignore[assignment]


class ProfilesSettings(_Watched):
    """Directories with profiles of training runs, and what reading one may cost."""

    memory: Size = Field(default="160MiB", ge=64 << 20, le=1 << 40)  # type: ignore[assignment]
    timeout: Duration = Field(default="1h", ge=1, le=86400)  # type: ignore[assignment]
    max_size: Size = Field(default="8GiB", ge=1024, le=1 << 50)  # type: ignore[assignment]
    max_expanded: Size = Field(default="32GiB", ge=1024, le=1 << 50)  # type: ignore[assignment]


class NcclSettings(_Watched):
    """Directories with dumps of NCCL Inspector and outputs of nccl-tests and perftest."""


class SourcesSettings(_Section):
    """All sources."""

    nvml: NvmlSettings = NvmlSettings()
    dcgm: DcgmSettings = DcgmSettings()
    dcgm_page: DcgmPageSettings = DcgmPageSettings()
    kmsg: KernelLogSettings = KernelLogSettings()
    derived: DerivedSettings = DerivedSettings()
    host: HostSettings = HostSettings()
    network: NetworkSettings = NetworkSettings()
    process: ProcessSettings = ProcessSettings()
    inference: InferenceSettings = InferenceSettings()
    serving: ServingSettings = ServingSettings()
    logs: LogsSettings = LogsSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    nccl: NcclSettings = NcclSettings()
    ranks: RanksSettings = RanksSettings()
    training_files: Annotated[tuple[TrainingFilesSettings, ...], BeforeValidator(_list)] = ()
    training_pages: Annotated[tuple[TrainingPageSettings, ...], BeforeValidator(_list)] = ()


Precision = Literal["fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
"""What peaks may be given for."""


class AcceleratorSettings(_Section):
    """What the operator states of a product: its dense peaks, and the bandwidth of its memory."""

    name: str = Field(min_length=1, max_length=128)
    peak_flops: dict[Precision, Rate] = Field(default_factory=dict)
    memory_bandwidth: Rate | None = None

    @model_validator(mode="after")
    def _has_figures(self) -> AcceleratorSettings:
        if not self.peak_flops and self.memory_bandwidth is None:
            raise ValueError("peak_flops or memory_bandwidth is needed")
        return self


class ReloadSettings(_Section):
    """How a changed file is noticed. SIGHUP always works."""

    watch: Duration = Field(default="10s", ge=0, le=3600)  # type: ignore[assignment]
    http: bool = False


def _objectives(read: Callable[[object], tuple[Objective, ...]]) -> PlainValidator:
    """Return a validator of a section of objectives; its default is no objective."""
    return PlainValidator(lambda value: read(None if value == () else value))


class Settings(_Section):
    """The whole file."""

    listen: str = ":9810"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    root: PathText = "/"
    gzip_level: int = Field(default=1, ge=1, le=9)
    reload: ReloadSettings = ReloadSettings()
    release: Duration = Field(default="60s", ge=1, le=86400)  # type: ignore[assignment]
    compat: Annotated[
        tuple[Literal["dcgm", "dcgm-4.9", "nvidia_smi"], ...], BeforeValidator(_list)
    ] = ()
    state_directory: PathText | None = None
    state_interval: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    push: PushSettings = PushSettings()
    sources: SourcesSettings = SourcesSettings()
    diagnosis: DiagnosisSettings = DiagnosisSettings()
    training: TrainingSettings = TrainingSettings()
    accelerators: Annotated[tuple[AcceleratorSettings, ...], BeforeValidator(_list)] = ()
    inference_sla: Annotated[tuple[Objective, ...], _objectives(read_inference)] = ()
    training_sla: Annotated[tuple[Objective, ...], _objectives(read_training)] = ()
    sla: Annotated[tuple[Objective, ...], _objectives(read_slas)] = ()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All that was promised."""
        return (*self.inference_sla, *self.training_sla, *self.sla)

    @property
    def serving_objectives(self) -> tuple[Objective, ...]:
        """What was promised of inference servers."""
        return (*self.inference_sla, *self.sla)

    @field_validator("accelerators")
    @classmethod
    def _of_different_names(
        cls, value: tuple[AcceleratorSettings, ...]
    ) -> tuple[AcceleratorSettings, ...]:
        seen: set[str] = set()
        for one in value:
            if one.name in seen:
                raise ValueError(f"two accelerators are named {one.name!r}")
            seen.add(one.name)
        return value

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        address(value)
        return value

    @field_validator("root", "state_directory")
    @classmethod
    def _is_absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("an absolute path is wanted")
        return value


def address(listen: str) -> tuple[str, int]:
    """Return host ("" for all addresses) and port of `host:port`, `[v6]:port` or `:port`.

    Raises `ValueError`.
    """
    host, colon, port = listen.rpartition(":")
    if colon and re.fullmatch(r"[0-9]{1,5}", port) is not None and int(port) <= 65535:
        if host == "" or _HOST_NAME.fullmatch(host) is not None:
            return host, int(port)
        if host.startswith("[") and host.endswith("]") and _is_v6(host[1:-1]):
            return host[1:-1], int(port)
    raise ValueError(f"{listen!r} is not an address such as :9810 or 127.0.0.1:9810")


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return text.isprintable()  # the zone after a % may be anything


def load(path: Path | None) -> Settings:
    """Return the settings in a YAML file; without a file, the defaults.

    Raises `ConfigError` naming file, key and reason for each problem.
    """
    if path is None:
        return Settings()
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Settings:
    """Return the settings in `text`; `name` is what problems call the file."""
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader, below
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ConfigError(f"{name}{where}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deep") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: a mapping of keys is wanted, not {_kind(document)}")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise ConfigError(
            *(f"{name}: {key}: {reason}" for key, reason in _problems(error))
        ) from None


def setting(key: str, value: object, origin: str) -> Any:
    """Return the checked value of a top-level key that was given elsewhere than in a file.

    `origin` is what problems call that place. Raises `ConfigError`.
    """
    try:
        return getattr(Settings.model_validate({key: value}), key)
    except ValidationError as error:
        raise ConfigError(*(f"{origin}: {reason}" for _, reason in _problems(error))) from None


class _Loader(yaml.SafeLoader):
    """A safe loader that tells where a value is wrong, and that a key is given twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # What the library lets through when a text does not fit its tag: `2024-13-45`,
            # `!!int "abc"`, `!!bool perhaps`, `!!timestamp soon`, `!!int ""`.
            kind = node.tag.rpartition(":")[2]
            article = "an" if kind[:1] in "aeiou" else "a"
            problem = f"{_shown(node.value)} is not {article} {kind}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                problem = "a key must be a word"
            elif key in seen:
                problem = f"key {_shown(key)} is given twice"
            else:
                seen.add(key)
                continue
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        return super().construct_mapping(node, deep)


def _problems(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield key and reason of each problem."""
    for problem in error.errors(include_url=False):
        where = [at for at in problem["loc"] if at != "[key]"]  # pydantic's word for "this key"
        key = ".".join(map(str, where)) or "(top)"
        if isinstance(wrong := problem.get("ctx", {}).get("error"), SlaError):
            yield from ((".".join((key, *path)), reason) for path, reason in wrong.problems)
            continue
        match problem["type"]:
            case "extra_forbidden":
                reason = "unknown key" + _suggestion(where)
            case "missing":
                reason = "this key is needed"
            case "model_type":
                reason = f"a mapping of keys is wanted, not {_kind(problem['input'])}"
            case "value_error":
                reason = str(problem["ctx"]["error"])
            case _:
                reason = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
                if not isinstance(problem["input"], dict | list):
                    reason += f", not {_shown(problem['input'])}"
        yield key, reason


_ENTRIES: dict[str, type[_Section]] = {
    "servers": ServerSettings,
    "directories": DirectorySettings,
    "accelerators": AcceleratorSettings,
    "runs": TrainingRunSettings,
    "training_files": TrainingFilesSettings,
    "training_pages": TrainingPageSettings,
}
"""What the entries of a list are, by its key."""


def _suggestion(where: list[int | str]) -> str:
    """Return a hint at the key that was probably meant."""
    if len(where) == 1 and (home := home_of(str(where[0]))):
        return f" at the top; it belongs into {home}: indent it below"
    model: Any = Settings
    for part in where[:-1]:
        if isinstance(part, str):
            field = model.model_fields.get(part)
            if field is None:
                return ""
            model = _ENTRIES.get(part, field.annotation)
    near = difflib.get_close_matches(str(where[-1]), _keys(model), 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else f"the value {_shown(value)}"


def _shown(value: object) -> str:
    """Return a value as a message shows it: not a page of it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out very long numbers
        return "a number of more than 4000 digits"
    return text if len(text) <= 200 else f"{text[:200]}…"
