"""The configuration file: what may be set, and a clear line for each thing that is wrong.

Every key has a default, so that an empty file and no file at all run. Unknown keys are errors:
a misspelt key that is silently ignored costs an operator an afternoon. Durations carry a unit
(`5s`, `500ms`): bare numbers were taken for milliseconds elsewhere (NVIDIA/dcgm-exporter 311).
Secrets are never in the file; they are read from files that it names.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from exporter.config.cluster import JobsSettings, KubernetesSettings, SlurmSettings
from exporter.config.ethtool import EthtoolSettings
from exporter.config.fabric import (
    FabricSettings,
    NcclEnvironmentSettings,
    TopologySettings,
)
from exporter.config.money import (
    CostSettings,
    HoursSettings,
    OpenCostSettings,
)
from exporter.config.node import (
    DcgmPageSettings,
    DcgmSettings,
    DerivedSettings,
    HostSettings,
    KernelLogSettings,
    NetworkSettings,
    NvmlSettings,
    ProcessSettings,
)
from exporter.config.notices import NotifySettings, ReceiverSettings, SpotSettings
from exporter.config.serving import (
    InferenceSettings,
    ServerSettings,
    ServingSettings,
)
from exporter.config.training import (
    BaselineSettings,
    DiagnosisSettings,
    DirectorySettings,
    LogSettings,
    LogsSettings,
    NcclSettings,
    ProfilesSettings,
    PushSettings,
    RanksSettings,
    TrainingFilesSettings,
    TrainingPageSettings,
    TrainingRunSettings,
    TrainingSettings,
)
from exporter.config.values import (
    HOST_NAME,
    AbsolutePath,
    ConfigError,
    Duration,
    Rate,
    Section,
    as_list,
    keys_of,
    kind_of,
    page_url,
    printable,
    shown,
)
from exporter.config.web import WebSettings
from exporter.objectives import (
    Objective,
    SlaError,
    home_of,
    read_inference,
    read_slas,
    read_training,
)

__all__ = [
    "LARGEST_DOCUMENT",
    "AcceleratorSettings",
    "BaselineSettings",
    "ConfigError",
    "DcgmPageSettings",
    "DirectorySettings",
    "InferenceSettings",
    "LogSettings",
    "Precision",
    "ProfilesSettings",
    "ReceiverSettings",
    "ServerSettings",
    "Settings",
    "TrainingFilesSettings",
    "TrainingPageSettings",
    "TrainingRunSettings",
    "address",
    "load",
    "load_document",
    "load_yaml",
    "page_url",
    "parse",
    "plain",
    "printable",
    "setting",
    "validated",
]

Model = TypeVar("Model", bound=Section)

LARGEST_DOCUMENT = 1 << 20
"""Bytes of a YAML file other than the configuration: reading ten times as many takes a minute."""


class SourcesSettings(Section):
    """All sources."""

    nvml: NvmlSettings = NvmlSettings()
    dcgm: DcgmSettings = DcgmSettings()
    dcgm_page: DcgmPageSettings = DcgmPageSettings()
    kmsg: KernelLogSettings = KernelLogSettings()
    derived: DerivedSettings = DerivedSettings()
    host: HostSettings = HostSettings()
    network: NetworkSettings = NetworkSettings()
    ethtool: EthtoolSettings = EthtoolSettings()
    process: ProcessSettings = ProcessSettings()
    topology: TopologySettings = TopologySettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    jobs: JobsSettings = JobsSettings()
    slurm: SlurmSettings = SlurmSettings()
    inference: InferenceSettings = InferenceSettings()
    serving: ServingSettings = ServingSettings()
    logs: LogsSettings = LogsSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    nccl: NcclSettings = NcclSettings()
    spot: SpotSettings = SpotSettings()
    nccl_environment: NcclEnvironmentSettings = NcclEnvironmentSettings()
    ranks: RanksSettings = RanksSettings()
    opencost: OpenCostSettings = OpenCostSettings()
    training_files: Annotated[tuple[TrainingFilesSettings, ...], BeforeValidator(as_list)] = ()
    training_pages: Annotated[tuple[TrainingPageSettings, ...], BeforeValidator(as_list)] = ()


Precision = Literal["fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
"""What peaks may be given for."""


class AcceleratorSettings(Section):
    """What the operator states of a product: its dense peaks, and the bandwidth of its memory."""

    name: str = Field(min_length=1, max_length=128)
    peak_flops: dict[Precision, Rate] = Field(default_factory=dict)
    memory_bandwidth: Rate | None = None

    @model_validator(mode="after")
    def _has_figures(self) -> AcceleratorSettings:
        if not self.peak_flops and self.memory_bandwidth is None:
            raise ValueError("peak_flops or memory_bandwidth is needed")
        return self


class ReloadSettings(Section):
    """How a changed file is noticed. SIGHUP always works."""

    watch: Duration = Field(default="10s", ge=0, le=3600)  # type: ignore[assignment]
    http: bool = False


def _objectives(read: Callable[[object], tuple[Objective, ...]]) -> PlainValidator:
    """Return a validator of a section of objectives; its default is no objective."""
    return PlainValidator(lambda value: read(None if value == () else value))


class Settings(Section):
    """The whole file."""

    listen: str = ":9810"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    root: AbsolutePath = "/"
    gzip_level: int = Field(default=1, ge=1, le=9)
    reload: ReloadSettings = ReloadSettings()
    start_jitter: Duration = Field(default="10s", ge=0, le=3600)  # type: ignore[assignment]
    release: Duration = Field(default="60s", ge=1, le=86400)  # type: ignore[assignment]
    compat: Annotated[
        tuple[Literal["dcgm", "dcgm-4.9", "nvidia_smi"], ...], BeforeValidator(as_list)
    ] = ()
    state_directory: AbsolutePath | None = None
    state_interval: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    history: bool = True
    push: PushSettings = PushSettings()
    web: WebSettings = WebSettings()
    sources: SourcesSettings = SourcesSettings()
    notify: NotifySettings = NotifySettings()
    diagnosis: DiagnosisSettings = DiagnosisSettings()
    fabric: FabricSettings = FabricSettings()
    training: TrainingSettings = TrainingSettings()
    cost: CostSettings = CostSettings()
    accelerators: Annotated[tuple[AcceleratorSettings, ...], BeforeValidator(as_list)] = ()
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


def address(listen: str) -> tuple[str, int]:
    """Return host ("" for all addresses) and port of `host:port`, `[v6]:port` or `:port`.

    Raises `ValueError`.
    """
    host, colon, port = listen.rpartition(":")
    if colon and re.fullmatch(r"[0-9]{1,5}", port) is not None and int(port) <= 65535:
        if host == "" or HOST_NAME.fullmatch(host) is not None:
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
    return parse(_text(path), str(path))


def parse(text: str, name: str) -> Settings:
    """Return the settings in `text`; `name` is what problems call the file."""
    document = load_yaml(text, name)
    return validated(Settings, {} if document is None else document, name)


def validated(model: type[Model], document: object, name: str) -> Model:
    """Return what a document of `model` says; `name` is what problems call its file.

    Raises `ConfigError` naming file, key and reason for each problem.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: a mapping of keys is wanted, not {kind_of(document)}")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(
            *(f"{name}: {key}: {reason}" for key, reason in _problems(error, model))
        ) from None


def plain(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON values, for people; objectives are told in words."""
    told: dict[str, Any] = settings.model_dump(mode="python", warnings=False)
    for key in ("inference_sla", "training_sla", "sla"):
        told[key] = [objective.describe() for objective in getattr(settings, key)]
    return told


def load_document(path: Path) -> object:
    """Return what a YAML file other than the configuration holds.

    Raises `ConfigError` naming file and line.
    """
    return load_yaml(_text(path, LARGEST_DOCUMENT), str(path))


def load_yaml(text: str, name: str, *, literal_keys: bool = False) -> object:
    """Return what a YAML text holds; `name` is what problems call it.

    With `literal_keys` a key is the text that stands there: YAML takes `0123` for 83 and `on` for
    true. Raises `ConfigError` with the line of what is wrong, a key that is given twice included.
    """
    try:
        return yaml.load(text, Loader=_LiteralLoader if literal_keys else _Loader)  # noqa: S506 - safe ones, below
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ConfigError(f"{name}{where}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deep") from None


def _text(path: Path, most: int = -1) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1 if most >= 0 else -1)
        if 0 <= most < len(data):
            raise ConfigError(f"{path}: larger than {most} bytes")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


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
            problem = f"{shown(node.value)} is not {article} {kind}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                problem = "a key must be a word"
            elif key in seen:
                problem = f"key {shown(key)} is given twice"
            else:
                seen.add(key)
                continue
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        return super().construct_mapping(node, deep)


class _LiteralLoader(_Loader):
    """One whose keys are words, whatever else they could be."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                key_node.tag = self.DEFAULT_SCALAR_TAG
        return super().construct_mapping(node, deep)


def _problems(error: ValidationError, model: type[Section] = Settings) -> Iterator[tuple[str, str]]:
    """Yield key and reason of each problem."""
    for problem in error.errors(include_url=False):
        where = [at for at in problem["loc"] if at != "[key]"]  # pydantic's word for "this key"
        key = ".".join(map(str, where)) or "(top)"
        if isinstance(wrong := problem.get("ctx", {}).get("error"), SlaError):
            yield from ((".".join((key, *path)), reason) for path, reason in wrong.problems)
            continue
        match problem["type"]:
            case "extra_forbidden":
                reason = "unknown key" + _suggestion(where, model)
            case "missing":
                reason = "this key is needed"
            case "model_type":
                reason = f"a mapping of keys is wanted, not {kind_of(problem['input'])}"
            case "value_error":
                reason = str(problem["ctx"]["error"])
            case _:
                reason = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
                secret = not _SECRETS.isdisjoint(where)
                if not secret and not isinstance(problem["input"], dict | list):
                    reason += f", not {shown(problem['input'])}"
        yield key, reason


_SECRETS = frozenset(("basic_auth_users", "key"))
"""Keys whose values are not repeated in a message."""

_ENTRIES: dict[str, type[Section]] = {
    "servers": ServerSettings,
    "directories": DirectorySettings,
    "accelerators": AcceleratorSettings,
    "runs": TrainingRunSettings,
    "training_files": TrainingFilesSettings,
    "training_pages": TrainingPageSettings,
    "alertmanagers": ReceiverSettings,
    "webhooks": ReceiverSettings,
    "hours": HoursSettings,
}
"""What the entries of a list are, by its key."""


def _suggestion(where: list[int | str], model: Any) -> str:
    """Return a hint at the key that was probably meant."""
    if model is Settings and len(where) == 1 and (home := home_of(str(where[0]))):
        return f" at the top; it belongs into {home}: indent it below"
    for part in where[:-1]:
        if isinstance(part, str):
            field = model.model_fields.get(part)
            if field is None:
                return ""
            model = _ENTRIES.get(part, _section_of(field.annotation))
    near = difflib.get_close_matches(str(where[-1]), keys_of(model), 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _section_of(annotation: Any) -> Any:
    """Return the section of `Section | None`, and anything else as it is."""
    sections = [one for one in get_args(annotation) if isinstance(one, type)]
    return next((one for one in sections if issubclass(one, Section)), annotation)
