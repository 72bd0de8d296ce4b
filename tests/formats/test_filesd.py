"""Lists of targets in Prometheus' format: what is read, and what is said of broken ones."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.filesd import FileTarget, targets
from exporter.samples import Malformed

GROUPS = [
    {"targets": ["10.0.0.5:8000", "gpu-7.rack:8001"], "labels": {"job": "vllm"}},
    {
        "targets": ["[fd00::1]:9000"],
        "labels": {
            "__scheme__": "https",
            "__metrics_path__": "/v1/metrics",
            "__param_model": "a b/c",
            "__flopwatch_name": "chat",
            "__flopwatch_engine": "nim",
            "__flopwatch_model_name": "llama",
            "__flopwatch_gpus": "0, 3",
            "__flopwatch_allow_destructive_read": "true",
        },
    },
]
YAML = """
- targets: [10.0.0.5:8000, 'gpu-7.rack:8001']
  labels: {job: vllm}
- targets:
  - "[fd00::1]:9000"
  labels:
    __scheme__: https
    __metrics_path__: /v1/metrics
    __param_model: a b/c
    __flopwatch_name: chat
    __flopwatch_engine: nim
    __flopwatch_model_name: llama
    __flopwatch_gpus: 0, 3
    __flopwatch_allow_destructive_read: true
"""


@pytest.mark.parametrize("text", [YAML, json.dumps(GROUPS), json.dumps(GROUPS, indent="\t")])
def test_both_spellings_say_the_same(text: str) -> None:
    """Addresses, Prometheus' own labels, and ours."""
    first, second, third = targets(text, is_json=text != YAML)
    assert [first.url, second.url, third.url] == [
        "http://10.0.0.5:8000/metrics",
        "http://gpu-7.rack:8001/metrics",
        "https://[fd00::1]:9000/v1/metrics?model=a+b%2Fc",
    ]
    assert first[5:] == FileTarget("", 0, "", "", 0)[5:]
    assert third[5:] == ("chat", "nim", "llama", (0, 3), True)


@pytest.mark.parametrize(
    ("labels", "url"),
    [({}, "http://h:80/metrics"), ({"__scheme__": "https"}, "https://h:443/metrics")],
)
def test_a_target_without_a_port_has_that_of_its_scheme(labels: dict[str, str], url: str) -> None:
    """As a browser would go there."""
    (one,) = targets(json.dumps([{"targets": ["h"], "labels": labels}]), is_json=True)
    assert one.url == url


def test_ours_may_be_written_without_underscores() -> None:
    """Whoever does not share the file with Prometheus need not care."""
    (one,) = targets("- {targets: [a:1], labels: {flopwatch_engine: vllm}}", is_json=False)
    assert one.engine == "vllm"


@pytest.mark.parametrize("text", ["[]", "[ ]\n"])
@pytest.mark.parametrize("is_json", [True, False])
def test_a_file_may_have_no_targets(text: str, is_json: bool) -> None:
    """That is said by an empty list."""
    assert targets(text, is_json=is_json) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: empty; a file without targets holds []"),
        ("# soon\n", "line 1: empty"),
        ("a: 1", "line 1: a list of groups of targets is wanted"),
        ("- targets: [a:1]\n- 5", "line 2: a group with `targets` and `labels` is wanted"),
        ("- targets: [a:1]\n-\n  target: [a:1]", "line 3: unknown key 'target', did you mean"),
        ("- targets: a:1", "line 1: `targets` is to be a list"),
        ("- labels: {}", "line 1: `targets` is to be a list"),
        ("- targets: [a:1]\n- targets: ['http://a:1']", "line 2: 'http://a:1' is not an address"),
        ("- targets: ['a:0']", "line 1: 'a:0' is not an address"),
        ("- targets: ['a:70000']", "line 1: 'a:70000' is not an address"),
        ("- targets: ['a:1/metrics']", "line 1: 'a:1/metrics' is not an address"),
        ("- targets: ['a b:1']", "line 1: 'a b:1' is not an address"),
        ("- targets: [[a]]", "line 1: ['a'] is not an address"),
        ("- targets: [{a: 1}]", "line 1: {'a': '1'} is not an address"),
        ("- targets: [a:1]\n  labels: [b]", "line 1: `labels` is to be a mapping"),
        ("- targets: [a:1]\n  labels: {b: {c: d}}", "line 1: label b: a text"),
        ("- targets: [a:1]\n  labels: {b: [c]}", "line 1: label b: a text is wanted"),
        ("- {targets: [a:1], labels: {__scheme__: ftp}}", "line 1: label __scheme__: http or"),
        (
            "- {targets: [a:1], labels: {__metrics_path__: m}}",
            "line 1: label __metrics_path__: 'm'",
        ),
        ("- {targets: [a:1], labels: {__flopwatch_nam: m}}", "label __flopwatch_nam is not known,"),
        ("- {targets: [a:1], labels: {__flopwatch_name: 'a b'}}", "label __flopwatch_name: 'a b'"),
        ("- {targets: [a:1], labels: {__flopwatch_gpus: all}}", "label __flopwatch_gpus: 'all'"),
        ("- {targets: [a:1, b:1], labels: {__flopwatch_name: x}}", "2 targets cannot all be named"),
        ("- targets: [a:1]\n  targets: [b:1]", "line 2: key 'targets' is given twice"),
        ("- targets: [a:1\n- x", "line 2: "),
        ("- targets:\n\t- a:1", "line 2: "),
        ("- *a", "line 1: "),
        ("- [[[[[[]]]]]]", "line 1: nested deeper than a group of targets is"),
        ("[" * 5000, "line 1: "),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    """The whole file is refused, for the first mistake in it."""
    with pytest.raises(Malformed) as caught:
        targets(text, is_json=False)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: not JSON: Expecting value"),
        ('[\n {"targets": ["a:1"]},\n {"targets": ["a:1"]\n]', "line 4: not JSON: "),
        (
            '[\n\n {"targets": ["a:1"]},\n\n {"targets": ["a"], "label": 1}\n]',
            "line 5: unknown key",
        ),
        ('[{"targets": [5]}]', "line 1: 5 is not an address"),
        ("[" * 200_000, "line 1: not JSON"),
        ("null", "line 1: empty"),
    ],
)
def test_what_is_wrong_in_json_is_told_with_its_line(text: str, said: str) -> None:
    """Also where the JSON is sound and its content is not."""
    with pytest.raises(Malformed) as caught:
        targets(text, is_json=True)
    assert said in str(caught.value)


def test_aliases_do_not_make_a_small_file_a_large_one() -> None:
    """A hundred bytes of YAML can mean millions of targets; more than ten thousand are refused."""
    text = "- targets: &a [" + "x:1," * 2000 + "]\n" + "- targets: *a\n" * 20
    with pytest.raises(Malformed, match="line 6: more than 10000 targets"):
        targets(text, is_json=False)


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_read_or_refused(text: str, is_json: bool) -> None:
    """Nothing but `Malformed` comes out."""
    with contextlib.suppress(Malformed):
        targets(text, is_json=is_json)


@pytest.mark.parametrize("is_json", [True, False])
def test_a_key_that_is_given_twice_is_an_error_in_both_forms(is_json: bool) -> None:
    """JSON took the last one silently."""
    text = '[\n {"targets": ["a:1"]},\n {"targets": ["b:1"], "targets": ["c:1"]}]'
    with pytest.raises(Malformed, match=r"line 3: key 'targets' is given twice"):
        targets(text, is_json=is_json)
    with pytest.raises(Malformed, match=r"key 'job' is given twice"):
        targets('[{"targets": ["a:1"], "labels": {"job": "x", "job": "y"}}]', is_json=is_json)


@pytest.mark.parametrize("is_json", [True, False])
def test_a_byte_order_mark_is_passed_over(is_json: bool) -> None:
    """Some editors put one before a text; JSON refused it."""
    (found,) = targets('\ufeff[{"targets": ["a:1"]}]', is_json=is_json)
    assert found.url == "http://a:1/metrics"


def test_a_label_of_the_wrong_type_is_not_shown() -> None:
    """It may be a secret."""
    with pytest.raises(Malformed, match="label __param_token: a text is wanted") as caught:
        targets('[{"targets": ["a:1"], "labels": {"__param_token": 12345}}]', is_json=True)
    assert "12345" not in str(caught.value)
