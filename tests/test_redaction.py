"""What leaves the daemon as text holds no secret, whatever way it leaves."""

from __future__ import annotations

import io
import logging
import time

import pytest

from exporter.config import ConfigError
from exporter.redaction import redacted, redacted_document, without

SECRETS = [
    "http://alice:hunter2x@host:8000/metrics",
    "https://hunter2x@host/metrics",
    "postgres://alice:hunter2x@db/grafana: refused",
    "http://host/metrics?token=hunter2x",
    "http://host/metrics?a=hunter2x&b=hunter2x&c",
    "http://host/metrics?hunter2x",
    "Authorization: Bearer hunter2x-hunter2x",
    "authorization: Basic aHVudGVyMnhodW50ZXIyeA== hunter2",
    "{'Authorization': 'Bearer hunter2x.abc'}",
    "password=hunter2x",
    "VLLM_API_KEY=hunter2x",
    "vllm serve m --api-key hunter2x --port 8000",
    "vllm serve m --api-key=hunter2x --port 8000",
    '{"hf_token": "hunter2x"}',
    "aws_secret_access_key: hunter2x",
    "Cookie: session=hunter2x",
    "-----BEGIN EC PRIVATE KEY-----\nhunter2x\n-----END EC PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nhunter2x",
]
KNOWN_FORMS = [
    "$2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq",
    "hf_abcdefghijABCDEFGHIJabcdefghij",
    "sk-proj-abcdefghijABCDEFGHIJ",
    "ghp_abcdefghijABCDEFGHIJabcdefghij012345",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]
INNOCENT = [
    "push.token_file: /etc/flopwatch/tokens: No such file or directory",
    "http://10.0.0.1:8000/metrics: 404: not what a metrics page answers",
    "tokens: 1234 of 5678, 12.5 tokens a second",
    "max_tokens=128",
    "start vLLM with --custom-histogram-buckets '{\"time_to_first_token\": [0.001, 0.005]}'",
    "time_per_output_token: 0.05 s, inter_token_latency=0.04",
    "source=nvml GPU-0: timeout after 2.0 s",
    "a Bearer token is wanted: Authorization: Bearer ...",
    "basic_auth_users without TLS: passwords cross the network unencrypted",
    "key: input should be a valid string",
    "sources.host.intervall: unknown key, did you mean 'interval'?",
    "the unix socket /run/flopwatch/push.sock",
    "cost: $2.50 an hour",
    "training.runs.0.flops_per_token: a number such as 5e10 or 50G is wanted, not 'much'",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_taken_out(text: str) -> None:
    assert "hunter2x" not in redacted(text)


@pytest.mark.parametrize("text", KNOWN_FORMS)
def test_a_token_of_a_known_form_is_taken_out(text: str) -> None:
    assert redacted(f"it is {text}, is it?") == "it is ***, is it?"


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_none_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("text", [*SECRETS, *KNOWN_FORMS])
def test_twice_is_as_once(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


def test_a_document_is_cleaned_at_any_depth() -> None:
    document = {"a": [{"detail": "http://u:hunter2x@h"}, 1, None], "b": ("x", True)}
    assert redacted_document(document) == {
        "a": [{"detail": "http://***@h"}, 1, None], "b": ["x", True]
    }  # fmt: skip


def test_known_secrets_are_taken_out_wherever_they_are() -> None:
    clean = without(["correct horse", "x", ""])
    assert clean("run=correct horse x") == "run=*** x"


def test_problems_of_the_configuration_repeat_no_secret() -> None:
    error = ConfigError("--server: 'http://u:hunter2x@h:1/' is not an address")
    assert "hunter2x" not in str(error)
    assert "hunter2x" not in error.problems[0]


def test_the_log_repeats_no_secret() -> None:
    """Neither what is logged, nor a traceback below it."""
    from exporter.__main__ import log_formatter

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_formatter())
    logger = logging.Logger("t")  # noqa: LOG001 - one that nobody else has
    logger.addHandler(handler)
    try:
        int("http://u:hunter2x@h/ is refused")
    except ValueError:
        logger.exception("cannot read %s", "http://h/metrics?token=hunter2x")

    assert "hunter2x" not in stream.getvalue()
    assert "Traceback" in stream.getvalue()


@pytest.mark.parametrize("piece", ["a_", "a-", "--a ", "://a?a", "a.", "bearer ", "$2y$", "token"])
def test_a_hostile_text_takes_no_time(piece: str) -> None:
    """Linear in its length: 200 kB within a second or so, where squares take minutes."""
    began = time.process_time()
    redacted("://" + piece * (200_000 // len(piece)))
    assert time.process_time() - began < 3
