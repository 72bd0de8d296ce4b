"""What was promised: service level objectives, read from the configuration's sections.

`inference_sla` and `training_sla` hold sentences such as `ttft_p95: "< 500ms"`; `sla` holds the
precise form. Both become `Objective`s: a share of events that must be good, and what good means.
Whether that is kept is left to `derive.serving.sla`. Standard library only.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeVar

Kind = Literal["latency", "throughput", "availability", "error_rate", "retry_success", "training"]

WINDOWS = ("1m", "5m", "30m", "1h")
PAGING_BURN = 6.0
"""The lowest burn rate that pages anybody; a target that cannot burn so fast cannot page."""


@dataclass(frozen=True)
class Objective:
    """One promise: the share `target` of events is good.

    An event is a request (`latency`, `error_rate`), a gap between tokens (signal `itl`), a second
    with demand (`throughput`), a probe (`availability`), a retry (`retry_success`), or what happens
    to a training job (`training`: its first step, its end, its recovery). `threshold`
    is in seconds or tokens per second, None where an event itself is good or bad. A percentile is
    a share: "p95 < 500 ms" is 95 % of requests within 0.5 s.
    """

    sla: str
    name: str
    kind: Kind
    signal: str
    target: float
    threshold: float | None = None
    tier: str = ""
    per: Literal["all", "model", "server"] = "all"
    models: tuple[str, ...] = ()
    """Patterns as of a shell; empty: all. The same for `servers`."""
    servers: tuple[str, ...] = ()
    statement: str = ""
    minimum_events: int = 20
    """With fewer in a window nothing is said about it."""
    window: str = "5m"
    """The window whose compliance is the state."""
    windows: tuple[str, ...] = ("5m", "1h")
    """The windows whose compliance is told."""
    excluded_outcomes: tuple[str, ...] = ("cancelled", "client_abort")
    """Patterns of outcomes that do not count: the client's doing."""
    excluded_codes: tuple[str, ...] = ("4??",)
    """Patterns of HTTP status codes that do not count; 429 does unless it is named itself."""
    demand: Literal["waiting", "active", "always"] = "waiting"
    """Which seconds count for throughput."""
    probe: Literal["auto", "health", "completion"] = "auto"
    """Which probes count for uptime; auto: completions where there are such, else health."""
    burn_alerts: bool = True
    """Whether burn rates are told, on which alerts rest."""

    def selects(self, model_name: str, server: str) -> bool:
        """Tell whether a model on a server is meant."""
        return _meant(model_name, self.models) and _meant(server, self.servers)

    def allowance(self, amount: float) -> float:
        """Return how much of an amount, seconds or requests, may be bad: of 99.9 % a thousandth."""
        return float((1 - Decimal(repr(self.target))) * Decimal(repr(amount)))

    def describe(self) -> str:
        """Return the objective in words, as it is evaluated."""
        name = "/".join(filter(None, (self.sla, self.tier, self.name)))
        share = f"{float(Decimal(repr(self.target)) * 100):.15g} %"
        good = (_OF_JOBS.get(self.signal) or _GOOD[self.kind]).format(signal=self.signal)
        if self.threshold is not None:
            unit = "tokens/s" if self.kind == "throughput" else "s"
            side = "at least" if self.kind == "throughput" else "at most"
            good = good.replace("THRESHOLD", f"{side} {self.threshold:.15g} {unit}")
        where = "".join(
            f"; {what} {', '.join(patterns)}"
            for what, patterns in (("models", self.models), ("servers", self.servers))
            if patterns
        )
        each = "" if self.per == "all" else f"; for each {self.per}"
        if self.kind == "throughput" and self.per != "server":
            each += "; of each node here, alerts add up the tokens of all nodes"
        return f"{name}: {share} of {good}{where}{each}; from {self.minimum_events} events on"


_GOOD: Mapping[Kind, str] = {
    "latency": "{signal} THRESHOLD",
    "throughput": "seconds with demand: {signal} THRESHOLD",
    "availability": "probes succeed",
    "error_rate": "requests do not fail",
    "retry_success": "retries succeed",
    "training": "{signal}",
}
_OF_JOBS = {
    "job_start_latency": "jobs: from submission to the first step THRESHOLD",
    "job_failure_rate": "jobs end without failing",
    "checkpoint_recovery_time": "failures: until the first step after it THRESHOLD",
}


def _meant(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


class SlaError(ValueError):
    """A section of objectives cannot be used. `problems` holds a key path and a reason each."""

    def __init__(self, problems: Iterable[tuple[tuple[str, ...], str]]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("; ".join(f"{'.'.join(path)}: {reason}" for path, reason in self.problems))


class _Topic(NamedTuple):
    """What an objective can be about: which side of its number is good, and the number's unit."""

    kind: Kind
    signal: str
    sign: Literal["<", ">"]
    unit: Literal["time", "rate", "share"]
    target: float | None = None  # where neither the name nor the number says how many

    @property
    def example(self) -> str:
        """A statement that can be used."""
        return {"time": "< 500ms", "rate": "> 10,000 tokens/s"}.get(
            self.unit, "> 99.9%" if self.sign == ">" else "< 0.1%"
        )


_LATENCY = {
    signal: _Topic("latency", signal, "<", "time")
    for signal in ("ttft", "tpot", "itl", "e2e", "queue")
}
_THROUGHPUT = {
    "min_tps": _Topic("throughput", "output_tokens", ">", "rate", 0.99),
    "min_output_tps": _Topic("throughput", "output_tokens", ">", "rate", 0.99),
    "min_input_tps": _Topic("throughput", "input_tokens", ">", "rate", 0.99),
}
_AVAILABILITY = {
    "uptime": _Topic("availability", "uptime", ">", "share"),
    "error_rate": _Topic("error_rate", "error_rate", "<", "share"),
    "retry_success_rate": _Topic("retry_success", "retry_success_rate", ">", "share"),
}
_INFERENCE = {
    "latency": _LATENCY,
    "throughput": _THROUGHPUT,
    "availability": _AVAILABILITY,
}
_SERVING = _LATENCY | _THROUGHPUT | _AVAILABILITY
_TRAINING = {
    "job_start_latency": _Topic("training", "job_start_latency", "<", "time", 0.95),
    "job_failure_rate": _Topic("training", "job_failure_rate", "<", "share"),
    "checkpoint_recovery_time": _Topic("training", "checkpoint_recovery_time", "<", "time", 0.95),
}
# The precise form names what is measured, not a sentence about it.
_SIGNALS = {topic.signal: topic for topic in _SERVING.values()}


_T = TypeVar("_T")
_Path = tuple[str, ...]
_Problems = list[tuple[_Path, str]]


class _WrongError(ValueError):
    """One value cannot be used; the text is the reason, `below` the key in it that is to blame."""

    def __init__(self, reason: str, *below: str) -> None:
        super().__init__(reason)
        self.below = below


def read_inference(document: object) -> tuple[Objective, ...]:
    """Return the objectives of an `inference_sla` section. Raises `SlaError`."""
    problems: _Problems = []
    found: list[Objective] = []
    for path, section in _entries((), document, problems, _INFERENCE):
        one = _Collector("inference_sla", "", _INFERENCE[path[-1]], problems)
        for at, value in _entries(path, section, problems):
            one.add(at, value)
        found += one.found
    return _all(found, problems)


def read_training(document: object) -> tuple[Objective, ...]:
    """Return the objectives of a `training_sla` section. Raises `SlaError`."""
    problems: _Problems = []
    one = _Collector("training_sla", "", _TRAINING, problems)
    for at, value in _entries((), document, problems):
        one.add(at, value)
    return _all(one.found, problems)


def read_slas(document: object) -> tuple[Objective, ...]:
    """Return the objectives of the section `sla`, the precise form. Raises `SlaError`.

    Options may stand with an SLA, a tier or an objective; the innermost wins.
    """
    problems: _Problems = []
    found: list[Objective] = []
    for path, body in _entries((), document, problems):
        if path[-1] in {"inference_sla", "training_sla"}:
            problems.append((path, "this is the name of a section of its own, at the top"))
        found += _sla(path, body, problems)
    return _all(found, problems)


def home_of(key: str) -> str:
    """Return the section to which a key belongs that stands at the top; empty: to none."""
    if key in _INFERENCE:
        return "inference_sla"
    homes = {f"inference_sla.{name}": table for name, table in _INFERENCE.items()}
    for home, table in (homes | {"training_sla": _TRAINING}).items():
        try:
            _topic(key, table)
        except _WrongError:
            continue
        return home
    return ""


def _all(found: list[Objective], problems: _Problems) -> tuple[Objective, ...]:
    if problems:
        raise SlaError(problems)
    return tuple(found)


def _sla(path: _Path, body: object, problems: _Problems) -> list[Objective]:
    """Return the objectives of one SLA; the common ones hold for each tier without its own."""
    before = len(problems)
    options, rest = _options(path, body, problems, ("objectives", "tiers"))
    common = dict(_entries((*path, "objectives"), rest.get("objectives"), problems))
    tiers = [
        (at, _options(at, tier, problems, ("objectives",)))
        for at, tier in _entries((*path, "tiers"), rest.get("tiers"), problems)
    ]
    found: list[Objective] = []
    for at, (its, more) in tiers or [((*path, ""), ({}, {}))]:
        one = _Collector(path[-1], at[-1], _SERVING, problems, {**options, **its})
        own = dict(_entries((*at, "objectives"), more.get("objectives"), problems))
        names = {key[-1] for key in own}
        for key, value in {
            **{k: v for k, v in common.items() if k[-1] not in names},
            **own,
        }.items():
            one.add(key, value)
        if not one.found and len(problems) == before:
            problems.append((at if tiers else path, "has no objectives"))
        found += one.found
    return found


class _Collector:
    """Collects the objectives of one SLA, or of one tier of it, and what is wrong with others."""

    def __init__(
        self,
        sla: str,
        tier: str,
        table: Mapping[str, _Topic],
        problems: _Problems,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.found: list[Objective] = []
        self._sla = sla
        self._tier = tier
        self._table = table
        self._problems = problems
        self._options = options or {}

    def add(self, path: _Path, value: object) -> None:
        """Add the objective that an entry states to those found, or to the problems."""
        own: dict[str, Any] = {}
        before = len(self._problems)
        if isinstance(value, dict) and self._table is _SERVING:
            own, value = _options(path, value, self._problems, _PRECISE)
        if len(self._problems) > before:
            return
        try:
            self.found.append(self._new(path[-1], value, own))
        except _WrongError as wrong:
            self._problems.append(((*path, *wrong.below), str(wrong)))

    def _new(self, name: str, value: object, own: Mapping[str, Any]) -> Objective:
        promise = (
            _precise(name, value) if isinstance(value, dict) and self._table is _SERVING
            else _stated(name, value, self._table)
        )  # fmt: skip
        named = replace(promise, sla=self._sla, tier=self._tier, name=name)
        new = _complete(named, self._options, own)
        for old in self.found:
            if replace(old, name="", statement="") == replace(new, name="", statement=""):
                raise _WrongError(f"says the same as {old.name!r}")
        return new


def _complete(promise: Objective, common: Mapping[str, Any], own: Mapping[str, Any]) -> Objective:
    """Return a promise with its options; what is not stated follows from the target."""
    longest = 1 / (1 - promise.target)
    pages = longest > PAGING_BURN + 1e-9
    if own.get("burn_alerts") and not pages:
        raise _WrongError(
            f"its burn rate is {longest:.3g} at most and pages begin at {PAGING_BURN:.0f}: leave"
            " this out, or promise more than"
            f" {100 * (1 - 1 / PAGING_BURN):.4g} %, for example a p95",
            "burn_alerts",
        )
    # One failed probe of twenty tells; one slow request of twenty says nothing about a p99.
    few = 20 if promise.kind == "availability" else max(20, math.ceil(longest - 1e-6))
    chosen = {"minimum_events": few, **common, **own}
    if promise.kind == "training":  # some jobs in a day: each is judged, and none burns a budget
        chosen |= {"minimum_events": 1, "window": "1h", "windows": ("1h",), "burn_alerts": False}
    chosen["burn_alerts"] = chosen.get("burn_alerts", True) and pages
    if "window" in chosen and chosen["window"] not in chosen.get("windows", promise.windows):
        chosen["windows"] = (chosen["window"], *chosen.get("windows", promise.windows))
    return replace(promise, **chosen)


# ---------------------------------------------------------------- keys


def _entries(
    path: _Path, value: object, problems: _Problems, known: Iterable[str] | None = None
) -> Iterator[tuple[_Path, Any]]:
    """Yield path and value of each entry; nothing after a colon is an empty mapping.

    Entries that are not `known` become problems.
    """
    if value is None:
        return
    if not isinstance(value, dict):
        problems.append((path, f"a mapping of keys is wanted, not {_shown(value)}"))
        return
    for key, one in value.items():
        at = (*path, str(key))
        if not isinstance(key, str) or _NAME.fullmatch(key) is None:
            problems.append((at, "a name of letters, digits, . _ and - is wanted"))
        elif known is not None and key not in known:
            problems.append((at, f"unknown key{_near(key, known)}"))
        else:
            yield at, one


def _options(
    path: _Path, body: object, problems: _Problems, others: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options among the entries, checked, and the others as they are."""
    chosen: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for at, value in _entries(path, body, problems, (*others, *_OPTIONS)):
        if at[-1] in others:
            rest[at[-1]] = value
        elif value is not None:
            try:
                chosen[at[-1]] = _OPTIONS[at[-1]](value)
            except _WrongError as wrong:
                problems.append((at, str(wrong)))
    return chosen, rest


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(one, str) and one for one in value):
        return tuple(value)
    raise _WrongError(f"a list of names or patterns is wanted, not {_shown(value)}")


def _codes(value: object) -> tuple[str, ...]:
    """Return patterns of status codes; `4xx` is the class, and each code in it."""
    codes = _texts(
        [str(one) if type(one) is int else one for one in value]
        if isinstance(value, list)
        else value
    )
    for code in codes:
        if re.fullmatch(r"[1-5]([0-9]{2}|xx|\?\?)", code) is None:
            raise _WrongError(f"{code!r} is not a status code such as 429, or a class such as 4xx")
    return tuple(code.replace("x", "?") for code in codes)


def _word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = _near(value, words) if isinstance(value, str) else ""
        raise _WrongError(f"one of {', '.join(words)} is wanted, not {_shown(value)}{near}")

    return read


def _windows(value: object) -> tuple[str, ...]:
    chosen = _texts(value)
    if not chosen or len(set(chosen)) < len(chosen):
        raise _WrongError(f"different windows of {', '.join(WINDOWS)} are wanted")
    return tuple(map(_word(*WINDOWS), chosen))


def _count(value: object) -> int:
    if type(value) is int and 1 <= value <= 1_000_000_000:
        return value
    raise _WrongError(f"a whole number from 1 on is wanted, not {_shown(value)}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _WrongError(f"true or false is wanted, not {_shown(value)}")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRECISE = ("signal", "target", "threshold")
_OPTIONS: Mapping[str, Callable[[object], Any]] = {
    "models": _texts,
    "servers": _texts,
    "per": _word("all", "model", "server"),
    "windows": _windows,
    "window": _word(*WINDOWS),
    "minimum_events": _count,
    "excluded_outcomes": _texts,
    "excluded_codes": _codes,
    "demand": _word("waiting", "active", "always"),
    "probe": _word("auto", "health", "completion"),
    "burn_alerts": _flag,
}
OPTIONS = tuple(_OPTIONS)
"""What may be said of an SLA, a tier or an objective, beside what is promised."""


# ---------------------------------------------------------------- statements

_FORM = re.compile(r"([<>]=?|≤|≥|=+)?\s*([^\s%A-Za-z\u00b5\u03bc/]*)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?|[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")

_TIMES = {
    **dict.fromkeys(("us", "\u00b5s", "microseconds"), Decimal("0.000001")),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), Decimal("0.001")),
    **dict.fromkeys(("s", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hour", "hours"), Decimal(3600)),
}
_RATES = dict.fromkeys(("tokens/s", "token/s", "tokens/second", "tokens per second"), Decimal(1))
_SHARES = {"%": Decimal(1), "percent": Decimal(1)}
_UNITS = {"time": _TIMES, "rate": _RATES, "share": _SHARES}
_MEANT = {
    **dict.fromkeys(("msec", "msecs", "millis", "millisec"), "ms"),
    **dict.fromkeys(("sec", "secs"), "s"),
    "mins": "min",
    **dict.fromkeys(("usec", "micros"), "us"),
    **dict.fromkeys(("hr", "hrs"), "h"),
    **dict.fromkeys(("tps", "tok/s", "toks/s", "t/s"), "tokens/s"),
    **dict.fromkeys(("pct", "percentage"), "%"),
}


def _stated(name: str, value: object, table: Mapping[str, _Topic]) -> Objective:
    """Return the objective of an entry such as `ttft_p95: "< 500ms"`."""
    topic, target = _topic(name, table)
    number = _amount(_sentence(value, topic), topic)
    statement = str(value).strip()
    if topic.unit != "share":
        return Objective(
            "", name, topic.kind, topic.signal, target, float(number), statement=statement
        )
    good = number if topic.sign == ">" else 100 - number
    return Objective("", name, topic.kind, topic.signal, float(good / 100), statement=statement)


def _topic(name: str, table: Mapping[str, _Topic]) -> tuple[_Topic, float]:
    """Return what an objective's name means, and the share in it. Raises `_WrongError`."""
    stem, mark, digits = name.rpartition("_p")
    topic = table.get(name)
    if topic is not None and topic.unit == "time" and topic.target is None:
        raise _WrongError(f"says nothing about how many; write for example {name}_p95")
    if topic is not None:
        return topic, topic.target or math.nan
    if mark and (topic := table.get(stem)) is not None and topic.unit == "time":
        return topic, _percentile(stem, digits)
    known = [f"{key}_p95" if one.unit == "time" else key for key, one in table.items()]
    if mark and digits[:1].isdigit() and (near := difflib.get_close_matches(stem, table, 1)):
        raise _WrongError(f"unknown objective, did you mean '{near[0]}_p{digits}'?")
    raise _WrongError(f"unknown objective{_near(name, known) or ', there are ' + ', '.join(known)}")


def _percentile(stem: str, digits: str) -> float:
    if re.fullmatch(r"[0-9]{1,2}([._][0-9]{1,3})?", digits) and float(digits.replace("_", ".")):
        return float(Decimal(digits.replace("_", ".")) / 100)
    if re.fullmatch(r"[1-9][0-9]{2,4}", digits) and not digits.startswith("100"):
        meant = f"{stem}_p{digits[:2]}.{digits[2:]}"
        raise _WrongError(f"unknown percentile 'p{digits}', did you mean {meant!r}?")
    if digits == "100":
        raise _WrongError(f"p100 leaves no error budget; write for example '{stem}_p99.9'")
    raise _WrongError(f"unknown percentile 'p{digits}', write for example '{stem}_p95'")


def _sentence(value: object, topic: _Topic) -> tuple[str, str]:
    """Return number and unit of a statement whose operator is right. Raises `_WrongError`."""
    if not isinstance(value, str):
        raise _WrongError(f"a text such as {topic.example!r} is wanted, not {_shown(value)}")
    sign, number, unit = _split(value)
    right = f"'{topic.sign} {value.strip().removeprefix(sign).strip()}'"
    if not sign and number:
        raise _WrongError(f"{_shown(value)} has no operator; write {right}")
    if not sign or not number:
        raise _WrongError(f"{_shown(value)} is not a statement such as {topic.example!r}")
    if {"≤": "<", "≥": ">"}.get(sign, sign[0]) != topic.sign:
        side = "below" if topic.sign == "<" else "above"
        raise _WrongError(
            f"{_shown(value)}: {topic.signal} is good {side} its threshold; write {right}"
        )
    return number, unit


def _split(text: str) -> tuple[str, str, str]:
    """Return operator, number and unit of a statement, each as it stands or empty."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return "", "", text
    # Keyboards write the Greek letter, older character sets the micro sign; both look the same.
    return match[1] or "", match[2], match[3].replace("\u03bc", "\u00b5")


def _amount(sentence: tuple[str, str], topic: _Topic) -> Decimal:
    """Return the number of a statement in base units: seconds, tokens/s, percent."""
    text, unit = sentence
    value = _decimal(text, f"{text} {unit}".strip())
    scale = _UNITS[topic.unit].get(unit)
    if scale is None:
        raise _WrongError(_unit_problem(text, unit, topic))
    if topic.unit == "share":
        return _share(value, topic.sign, "" if topic.signal == "target" else f"{topic.sign} ")
    if value <= 0:
        raise _WrongError(f"{text} {unit}: a threshold is above 0")
    return value * scale


def _decimal(text: str, shown: str) -> Decimal:
    if _NUMBER.fullmatch(text) is not None and len(text) <= 30:
        return Decimal(text.replace(",", ""))
    if text[:1] == "-" and _NUMBER.fullmatch(text[1:]) is not None:
        raise _WrongError(f"{shown}: a number above 0 is wanted")
    if re.fullmatch(r"[0-9]{1,9},[0-9]{1,9}", text) is not None:
        choices = text.replace(",", ".")
        if text[0] != "0":
            choices += f" or {int(text.replace(',', '')):,}"
        raise _WrongError(f"{text} is not a number: commas separate thousands; write {choices}")
    raise _WrongError(f"{_shown(shown)} does not begin with a number")


def _unit_problem(text: str, unit: str, topic: _Topic) -> str:
    units = _UNITS[topic.unit]
    if not unit:
        proposal, long = {
            "time": (f"{text}ms", "milliseconds"),
            "rate": (f"{text} tokens/s", "tokens in a second"),
            "share": (f"{text}%", "percent"),
        }[topic.unit]
        return f"{text} has no unit; write {proposal} if you mean {long}"
    near = difflib.get_close_matches(unit.lower(), units, 1)
    meant = _MEANT.get(unit.lower()) or next(iter(near), "")
    hint = f", did you mean {meant!r}?" if meant in units else f", there are {', '.join(units)}"
    return f"unknown unit {_shown(unit)}{hint}"


def _share(percent: Decimal, sign: str, mark: str = "") -> Decimal:
    """Return a percentage that leaves an error budget, and promises something.

    `mark` is what a proposal begins with.
    """
    digits = f"{percent:f}"
    if percent > 100:
        near = re.fullmatch(r"99[0-9]{1,4}", digits) is not None
        hint = f", did you mean {digits[:2]}.{digits[2:]} %?" if near else ""
        raise _WrongError(f"{digits} % is beyond 100 %{hint}")
    good = float((percent if sign == ">" else 100 - percent) / 100)
    if good == 1:
        better = "> 99.9%" if sign == ">" else "< 0.1%"
        raise _WrongError(f"{digits} % leaves no error budget; write for example '{better}'")
    if good == 0:
        raise _WrongError(f"{digits} % promises nothing")
    if good < 0.5:
        raise _WrongError(_inverted(percent, sign, mark))
    return percent


def _inverted(percent: Decimal, sign: str, mark: str) -> str:
    """Return why a share of less than half is refused: most likely its other side is meant."""
    likely = [100 - percent]
    if sign == ">" and 50 <= 100 * percent < 100:  # 0.95 %, which is 95 % of one
        likely.append(100 * percent)
    choices = " or ".join(f"'{mark}{one.normalize():f}%'" for one in likely)
    bad = "less than half good" if sign == ">" else "more than half bad"
    return f"{percent:f} % would be kept with {bad}; write {choices}"


def _precise(name: str, body: Mapping[str, Any]) -> Objective:
    """Return the objective of an entry with signal, target and threshold."""
    topic = _below("signal", _signal, body.get("signal"))
    target = _below("target", _target, body.get("target"))
    _agree(name, topic, target)
    threshold = _below("threshold", lambda value: _threshold(value, topic), body.get("threshold"))
    said = ", ".join(f"{key} {body[key]}" for key in _PRECISE if body.get(key) is not None)
    return Objective("", "", topic.kind, topic.signal, target, threshold, statement=said)


def _agree(name: str, topic: _Topic, target: float) -> None:
    """Refuse a name that is a promise itself, and another one than its entry states."""
    try:
        named, share = _topic(name, _SERVING)
    except _WrongError:
        return
    if named.signal != topic.signal:
        raise _WrongError(f"its name says {named.signal}; name it otherwise", "signal")
    if named.unit == "time" and share != target:
        raise _WrongError(f"its name says {100 * share:.6g} %; name it otherwise", "target")


def _below(key: str, read: Callable[[object], _T], value: object) -> _T:
    """Return what `read` makes of the value of a key; what is wrong is wrong there."""
    try:
        return read(value)
    except _WrongError as wrong:
        raise _WrongError(str(wrong), key) from None


def _signal(value: object) -> _Topic:
    if value is None:
        raise _WrongError("this key is needed")
    topic = _SIGNALS.get(value) if isinstance(value, str) else None
    if topic is None:
        near = _near(value, _SIGNALS) if isinstance(value, str) else ""
        known = near or f", there are {', '.join(_SIGNALS)}"
        raise _WrongError(f"unknown signal {_shown(value)}{known}")
    return topic


def _target(value: object) -> float:
    if value is None:
        raise _WrongError("this key is needed")
    if not isinstance(value, str):
        share = isinstance(value, float) and 0 < value < 1
        hint = f"; write {100 * value:.6g}%" if share else ""  # type: ignore[operator]
        raise _WrongError(f"a share such as 95% is wanted, not {_shown(value)}{hint}")
    sign, number, unit = _split(value)
    if sign and sign not in {">", ">=", "≥"}:
        percent = _share(_decimal(number, value), ">") if unit in _SHARES else None
        hint = "" if percent is None else f"; write '{percent:f}%'"
        raise _WrongError(f"{_shown(value)}: a target is the least share of good events{hint}")
    return float(_amount((number, unit), _Topic("latency", "target", ">", "share")) / 100)


def _threshold(value: object, topic: _Topic) -> float | None:
    if topic.unit == "share":
        if value is not None:
            raise _WrongError(f"{topic.signal} has no threshold: an event is good or bad")
        return None
    if value is None:
        raise _WrongError("this key is needed")
    if isinstance(value, str) and not _split(value)[0]:
        value = f"{topic.sign} {value}"
    return float(_amount(_sentence(value, topic), topic))


def _shown(value: object) -> str:
    """Return a value as a message shows it: not a page of it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out very long numbers
        return "a number of more than 4000 digits"
    return text if len(text) <= 80 else f"{text[:80]}…"
