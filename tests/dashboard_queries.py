"""Queries of other people's dashboards, made into what Prometheus can be asked.

A file of queries has one line for each target or variable of a dashboard, as Grafana keeps it: with
variables (`$gpu`), with functions of Grafana's own for the values of a variable, and with the types
of data sources. How the lines were made is told in tests/data/dashboards/SOURCES.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# $1 in label_replace and a $ at the end of a regular expression are not variables.
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::\w+)?\})")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),)?\s*(\w+)\s*\)")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)")
_NAME_PATTERN = re.compile(r'__name__\s*=~\s*"([^"]+)"')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SERIES = re.compile(r"\b(?:DCGM_(?:FI|EXP)_\w+|nvidia_smi_\w+)\b")
_DATA_SOURCES = ("prometheus", "datasource", "loki")


def expressions(lines: Iterable[str]) -> list[str]:
    """Return the PromQL expressions of a file, each once, variables still in them.

    Of `label_values(series, label)` that is the series, of `query_result(query)` the query; a line
    that names a type of data source is none.
    """
    found: dict[str, None] = {}
    for line in map(str.strip, lines):
        if not line or line in _DATA_SOURCES:
            continue
        if (match := _LABEL_VALUES.fullmatch(line)) or (match := _QUERY_RESULT.fullmatch(line)):
            if match[1]:
                found[match[1].strip()] = None
            continue
        found[line] = None
    return list(found)


def substituted(expression: str, variables: Mapping[str, str]) -> str:
    """Return an expression with values in place of Grafana's variables.

    Raises `KeyError` for a variable that has no value: a query with a hole matches nothing, and
    would look like a panel without data.
    """
    return _VARIABLE.sub(lambda match: variables[match[1] or match[2]], expression)


def names(expression: str) -> tuple[set[str], set[str]]:
    """Return the families that an expression asks for, and the patterns of names."""
    patterns = set(_NAME_PATTERN.findall(expression))
    return set(_SERIES.findall(_TEXT.sub('""', expression))), patterns
