"""Settings of training runs: who tells of them, what is stated and what is derived."""

from __future__ import annotations

import re
import string
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from exporter.config.values import (
    AbsolutePath,
    Detected,
    Duration,
    Gpu,
    Name,
    PathText,
    Rated,
    RunName,
    Section,
    Size,
    Switch,
    Timed,
    as_list,
    as_list_or_none,
    as_path,
    as_work,
    page_url,
    shown,
)

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A share of 1."""

EventRate = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Events in a second."""


class DiagnosisThresholds(Section):
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
    bus_bandwidth: Share = 0.50
    collective_waiting: Share = 0.30
    sharp_unused: Share = 0.50
    nccl_settings: Share = 0.50
    rail_imbalance: Share = 0.30
    pcie_width: Share = 0.99
    paused: Share = 0.05
    pausing: Share = 0.01
    far_nics: Share = 0.01
    link_error_rate: EventRate = 0.01
    congestion_rate: EventRate = 100.0
    pause_frame_rate: EventRate = 500.0
    pause_storm_rate: EventRate = 0.001
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


class DiagnosisSettings(Rated):
    """Which bottleneck a run has: how long it is looked at, how long an answer must stand."""

    enabled: Switch = "auto"
    window: Duration = Field(default="60s", ge=5, le=3600)  # type: ignore[assignment]
    hold: Duration = Field(default="30s", ge=0, le=3600)  # type: ignore[assignment]
    thresholds: DiagnosisThresholds = DiagnosisThresholds()


class BaselineSettings(Section):
    """A throughput that a run's is compared with."""

    tokens_per_second_per_gpu: float = Field(gt=0, allow_inf_nan=False)
    gpus: int = Field(ge=1, le=10_000_000)
    kind: Literal["weak", "strong"]


Positive = Annotated[int, Field(ge=1, le=10_000_000)]


class TrainingRunSettings(Section):
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
        Annotated[float, BeforeValidator(as_work), Field(gt=0, allow_inf_nan=False)] | None
    ) = None
    baseline: BaselineSettings | None = None
    reporter: Switch = "auto"
    gpus: Annotated[tuple[Gpu, ...] | None, BeforeValidator(as_list_or_none)] = None
    accelerator: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class TrainingSettings(Timed):
    """Training runs: what is derived of them, and what is stated of some."""

    # A run of eight ranks has some 180 series; a node may have 64 of them.
    max_series: int = Field(default=20_000, ge=1, le=1_000_000)
    runs: Annotated[tuple[TrainingRunSettings, ...], BeforeValidator(as_list)] = ()


_LOG_NAMES = frozenset({"file", "folder", "job", "pod", "namespace", "container"})


class LogSettings(Section):
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


class LogsSettings(Timed):
    """Logs of training jobs that are followed."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_files: int = Field(default=256, ge=1, le=10_000)
    files: Annotated[tuple[LogSettings, ...], BeforeValidator(as_list)] = ()

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, document: object) -> object:
        """Take a list for that of the files."""
        return {"files": document} if isinstance(document, list | tuple) else document


class TrainingFilesSettings(Rated):
    """A directory in which training jobs leave what they write for other tools."""

    path: AbsolutePath
    kind: Literal["auto", "tensorboard", "trainer_state", "mlflow", "wandb", "textfile"] = "auto"
    run: RunName | None = None
    name: Name | None = None
    enabled: bool = True


class TrainingPageSettings(Section):
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
        raise ValueError(f"auto, false or an absolute path is wanted, not {shown(value)}")
    return as_path(value)


def _group(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
    name = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]+", value) is not None
    if value is None or number or name:
        return value
    raise ValueError(f"the name or number of a group is wanted, not {shown(value)}")


class PushSettings(Section):
    """What jobs may tell the daemon themselves, and how."""

    enabled: bool = True
    loopback: bool = True
    socket: Annotated[str | Literal[False], BeforeValidator(_socket)] = "auto"
    socket_group: Annotated[str | int | None, BeforeValidator(_group)] = None
    token_file: PathText | None = None
    max_body: Size = Field(default="1MiB", ge=1024, le=64 << 20)  # type: ignore[assignment]
    max_records: int = Field(default=1_000, ge=1, le=100_000)


class RanksSettings(Detected):
    """The ranks of training jobs on this machine, by the environment of their processes."""

    interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    names: dict[str, Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        default_factory=dict
    )


class DirectorySettings(Section):
    """A directory into which files are dropped, and the run that they belong to."""

    path: AbsolutePath
    run: RunName | None = None
    ignore: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()


class _Watched(Rated):
    """A source that watches directories; without one it does not run."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="10s", ge=0.05, le=600)  # type: ignore[assignment]
    directories: Annotated[tuple[DirectorySettings, ...], BeforeValidator(as_list)] = ()
    max_age: Duration = Field(default="7d", ge=60, le=3650 * 86400)  # type: ignore[assignment]


class ProfilesSettings(_Watched):
    """Directories with profiles of training runs, and what reading one may cost."""

    memory: Size = Field(default="160MiB", ge=64 << 20, le=1 << 40)  # type: ignore[assignment]
    timeout: Duration = Field(default="1h", ge=1, le=86400)  # type: ignore[assignment]
    max_size: Size = Field(default="8GiB", ge=1024, le=1 << 50)  # type: ignore[assignment]
    max_expanded: Size = Field(default="32GiB", ge=1024, le=1 << 50)  # type: ignore[assignment]


class NcclSettings(_Watched):
    """Directories with dumps of NCCL Inspector and outputs of nccl-tests and perftest."""
