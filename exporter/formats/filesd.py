"""Reads lists of targets as Prometheus' file-based discovery has them, in YAML or JSON.

    - targets: ["10.0.0.5:8000", "10.0.0.6:8000"]
      labels: {__metrics_path__: /v1/metrics, __flopwatch_engine: vllm}

Of the labels these count: `__scheme__`, `__metrics_path__`, `__param_NAME` as Prometheus takes
them, and ours, `__flopwatch_name`, `_engine`, `_model_name`, `_gpus` (`"0,1"`) and
`_allow_destructive_read` (`"true"`), with or without the leading underscores. Prometheus itself
drops labels that begin with two of them, so that one file serves both. All others are passed over.
The format is at prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlencode

import yaml

from exporter.samples import Malformed

MAX_TARGETS = 10_000
"""More in one file are an accident."""

_ADDRESS = re.compile(
    r"(?P<host>(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_PATH = re.compile(r"/[\x21\x24-\x3e\x40-\x7e]*")
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_GPUS = re.compile(r"[0-9]{1,4}(?:\s*,\s*[0-9]{1,4})*")
_OURS = "flopwatch_"
_KEYS = ("name", "engine", "model_name", "gpus", "allow_destructive_read")
_PORTS = {"http": 80, "https": 443}
_PARAM = "__param_"
_BYTE_ORDER_MARK = "\ufeff"
_EMPTY = "empty; a file without targets holds []"


class FileTarget(NamedTuple):
    """One target: where its page is, and what the labels say of it. `line` is that of its group."""

    host: str
    port: int
    scheme: str
    path: str
    line: int
    name: str | None = None
    engine: str = "auto"
    model_name: str | None = None
    gpus: tuple[int, ...] | None = None
    allow_destructive_read: bool = False

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"


class _Group(NamedTuple):
    line: int
    content: Any


def targets(text: str, *, is_json: bool) -> tuple[FileTarget, ...]:
    """Return all targets of a file. Raises `Malformed`, with the line, if it is not sound."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    groups = _from_json(text) if is_json else _from_yaml(text)
    found: list[FileTarget] = []
    for group in groups:
        found += _targets_of(group)
        if len(found) > MAX_TARGETS:
            _refuse(group.line, f"more than {MAX_TARGETS} targets")
    return tuple(found)


def _refuse(line: int, reason: str) -> NoReturn:
    raise Malformed(f"line {line}: {reason}")


def _from_json(text: str) -> Iterator[_Group]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        _refuse(error.lineno, f"not JSON: {error.msg}")
    except (RecursionError, ValueError):
        _refuse(1, "not JSON: nested too deep, or a number too long")
    _expect_list(document)
    # Once more, element by element, for the line of each.
    decoder, at = json.JSONDecoder(object_pairs_hook=_once), text.index("[") + 1
    line, counted = 1, 0
    for _ in document:
        at = _skip(text, at)
        line, counted = line + text.count("\n", counted, at), at
        try:
            content, at = decoder.raw_decode(text, at)
        except _TwiceError as error:
            _refuse(line, str(error))
        yield _Group(line, content)


class _TwiceError(Exception):
    """A key is given twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise _TwiceError(f"key {key!r} is given twice")
        content[key] = value
    return content


def _skip(text: str, at: int) -> int:
    """Return where the next element of a list begins."""
    while text[at] in " \t\r\n,":
        at += 1
    return at


def _from_yaml(text: str) -> Iterator[_Group]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _refuse(1 if mark is None else mark.line + 1, str(error.problem or error.context))
    except yaml.YAMLError as error:
        _refuse(1, " ".join(str(error).split()))
    except RecursionError:
        _refuse(1, "nested too deep")
    if node is None:
        _refuse(1, _EMPTY)
    if not isinstance(node, yaml.SequenceNode):
        _refuse(node.start_mark.line + 1, "a list of groups of targets is wanted")
    for one in node.value:
        yield _Group(one.start_mark.line + 1, _plain(one, 4))


def _plain(node: yaml.Node, depth: int) -> Any:
    """Return a node's content, no deeper than a group can be: aliases cannot make it large.

    Texts stay as they are written: a label `8000` is the text, as Prometheus takes it.
    """
    line = node.start_mark.line + 1
    if depth == 0:
        _refuse(line, "nested deeper than a group of targets is")
    match node:
        case yaml.MappingNode():
            content: dict[Any, Any] = {}
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else None
                if name is None or name in content:
                    _refuse(key.start_mark.line + 1, f"key {name!r} is given twice or is no word")
                content[name] = _plain(value, depth - 1)
            return content
        case yaml.SequenceNode():
            return [_plain(value, depth - 1) for value in node.value]
        case _:
            return None if node.tag.endswith(":null") else node.value


def _expect_list(document: object) -> None:
    if document is None:
        _refuse(1, _EMPTY)
    if not isinstance(document, list):
        _refuse(1, "a list of groups of targets is wanted")


def _targets_of(group: _Group) -> Iterator[FileTarget]:
    line, content = group
    if not isinstance(content, dict):
        _refuse(line, "a group with `targets` and `labels` is wanted")
    for key in content:
        if key not in ("targets", "labels"):
            _refuse(line, f"unknown key {key!r}{_hint(key, ('targets', 'labels'))}")
    addresses, labels = content.get("targets"), content.get("labels")
    if not isinstance(addresses, list):
        _refuse(line, "`targets` is to be a list of host:port")
    common = _common(line, {} if labels is None else labels)
    if common.name is not None and len(addresses) > 1:
        _refuse(line, f"{len(addresses)} targets cannot all be named {common.name!r}")
    for address in addresses:
        host, port = _address(line, address, common.scheme)
        yield common._replace(host=host, port=port)


def _address(line: int, text: object, scheme: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    port = 0 if match is None else int(match["port"] or _PORTS[scheme])
    if match is None or not 0 < port < 65536:
        _refuse(line, f"{text!r} is not an address such as 10.0.0.5:8000")
    return match["host"], port


def _common(line: int, labels: object) -> FileTarget:
    """Return what the labels of a group say, as a target without an address."""
    if not isinstance(labels, Mapping):
        _refuse(line, "`labels` is to be a mapping of texts")
    for key, value in labels.items():
        if not isinstance(value, str):
            # Not what it holds: that may be a secret.
            _refuse(line, f"label {key}: a text is wanted, not of type {type(value).__name__}")
    scheme = labels.get("__scheme__", "http")
    if scheme not in _PORTS:
        _refuse(line, f"label __scheme__: http or https is wanted, not {scheme!r}")
    path = labels.get("__metrics_path__", "/metrics")
    if _PATH.fullmatch(path) is None:
        _refuse(line, f"label __metrics_path__: {path!r} is not a path such as /metrics")
    params = {k.removeprefix(_PARAM): v for k, v in labels.items() if k.startswith(_PARAM)}
    query = f"?{urlencode(params)}" if params else ""
    return FileTarget("", 0, scheme, path + query, line, **_ours(line, labels))


def _ours(line: int, labels: Mapping[str, str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for label, text in labels.items():
        key = label.lstrip("_")
        if not key.startswith(_OURS):
            continue
        key = key.removeprefix(_OURS).rstrip("_")
        if key not in _KEYS:
            _refuse(line, f"label {label} is not known{_hint(key, _KEYS)}")
        said[key] = _value(line, label, key, text)
    return said


def _value(line: int, label: str, key: str, text: str) -> object:
    match key:
        case "name" if _NAME.fullmatch(text) is None:
            _refuse(
                line, f"label {label}: {text!r} is not a name (A-Z a-z 0-9 . _ : -, at most 64)"
            )
        case "gpus":
            if _GPUS.fullmatch(text.strip()) is None:
                _refuse(line, f"label {label}: {text!r} is not a list of GPUs such as 0,1")
            return tuple(int(one) for one in text.split(","))
        case "allow_destructive_read":
            if text not in ("true", "false"):
                _refuse(line, f"label {label}: true or false is wanted, not {text!r}")
            return text == "true"
    return text


def _hint(word: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word), known, 1)
    return f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
