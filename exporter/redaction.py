"""Takes secrets out of texts that people and other programs get to see.

Everything that leaves the daemon as text, other than samples, goes through here: the log, the
status document, problems of the configuration, the support bundle. What is recognised: names and
passwords in addresses, values in their queries, authorization headers, what a name such as
`password` is set to, password hashes, private keys, and tokens of well-known forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

HIDDEN = "***"

_NAMES = (
    r"password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|secret[_-]?key|private[_-]?key|credentials?|authorization|cookie"
)
_ASSIGNED = re.compile(
    rf"""(?i)((?<![\w.-])(?:[\w.-]{{0,128}}[_.-])?(?<!per[_-])(?<!first[_-])(?<!output[_-])(?:{_NAMES})["']?\s*[=:]\s*["']?)"""
    r"""(?!\*\*\*)([^\s"'&,;}\])]+)"""
)
_OPTION = re.compile(rf"(?i)((?<![\w-])--?(?:[\w-]{{0,64}}-)?(?:{_NAMES})\s+)(?!-)(\S+)")
_USER = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,15}://)[^\s/?#'\"<>]+@")
_QUERY = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,15}://[^\s?#'\"<>]*\?)([^\s#'\"<>]+)")
_VALUE = re.compile(r"=[^&;]*")
_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)(\s+)(?=\S*[\d+/=._-]|\S{20})\S{6,}")
_HASH = re.compile(r"\$(?:2[abxy]|5|6|y|argon2\w*|apr1)\$[./A-Za-z0-9$=,+]{19,}[./A-Za-z0-9]")
_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|nvapi-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_HINTS = re.compile(rf"(?i)://|\$|PRIVATE KEY|{_NAMES}|bearer|basic|digest|negotiate")


def redacted(text: str) -> str:
    """Return a text without what looks like a secret; most texts come back as they are."""
    if _HINTS.search(text) is None and _KNOWN.search(text) is None:
        return text
    text = _KEY.sub(HIDDEN, text)
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _QUERY.sub(_without_values, text)
    text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    text = _ASSIGNED.sub(_assigned, text)
    text = _OPTION.sub(rf"\1{HIDDEN}", text)
    text = _HASH.sub(HIDDEN, text)
    return _KNOWN.sub(HIDDEN, text)


def _without_values(match: re.Match[str]) -> str:
    query = _VALUE.sub(f"={HIDDEN}", match[2]) if "=" in match[2] else HIDDEN
    return match[1] + query


def _assigned(match: re.Match[str]) -> str:
    # `Authorization: Bearer ***` has said enough; so has a number of tokens.
    if match[2].lower() in {"bearer", "basic", "digest", "negotiate"} or match[2].isdigit():
        return match[0]
    return match[1] + HIDDEN


def redacted_document(document: Any) -> Any:
    """Return a document as JSON values without what looks like a secret."""
    if isinstance(document, str):
        return redacted(document)
    if isinstance(document, Mapping):
        return {key: redacted_document(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [redacted_document(value) for value in document]
    if document is None or isinstance(document, bool | int | float):
        return document
    return redacted(str(document))


def without(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that takes known secrets out of a text, and what looks like one.

    Secrets of fewer than six characters are not looked for: they are in every text.
    """
    known = sorted({one for one in secrets if len(one) >= 6}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def clean(text: str) -> str:
        return redacted(text if pattern is None else pattern.sub(HIDDEN, text))

    return clean
