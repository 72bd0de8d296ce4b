"""Which inference server a container is, by its command, its image and its pod's labels.

A command line is sure; an image or a label is only a reason to ask for the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from exporter.discovery.commands import KINDS, Command, Kind, recognise
from exporter.formats.podlist import Container

_IMAGES = (
    ("nim", r"nvcr\.io/nim/.+"),
    ("vllm", r"(?:.*/)?vllm[^/]*/vllm[^/]*|(?:.*/)?vllm-[^/]*|(?:.*/)?llm-d(?:-[^/]*)?"),
    ("sglang", r"(?:.*/)?lmsysorg/sglang|(?:.*/)?sglang[^/]*"),
    ("tgi", r"(?:.*/)?text-generation-inference"),
    ("triton", r"(?:.*/)?tritonserver[^/]*"),
    ("trtllm", r"(?:.*/)?tensorrt-llm(?:/release)?|(?:.*/)?trtllm[^/]*"),
    ("llamacpp", r"(?:.*/)?llama\.cpp|(?:.*/)?llama-server"),
    ("lmdeploy", r"(?:.*/)?lmdeploy"),
    ("litellm", r"(?:.*/)?litellm[^/]*"),
    ("dynamo", r"(?:.*/)?ai-dynamo/[^/]+"),
)
_PATTERNS = tuple((engine, re.compile(pattern)) for engine, pattern in _IMAGES)
_KINDS: Mapping[str, Kind] = {kind.engine: kind for kind in KINDS}

_NAMES = (
    "flopwatch.io/engine", "engine", "app.kubernetes.io/name", "app.kubernetes.io/component", "app",
)  # fmt: skip
_LLM_D = "llm-d.ai/inferenceServing"


def command_of(container: Container) -> Command | None:
    """Return the server that a container's command and arguments start.

    `None` if they start none, or leave that to the image.
    """
    words = container.words
    if len(words) > 2 and words[0].rpartition("/")[2] in {"sh", "bash"}:
        # `sh -c "exec vllm serve ..."`: the last word is a line of a shell's.
        line = words[2].replace("\\\n", " ").split()
        words = tuple(line[1:] if line[:1] == ["exec"] else line)
    return recognise(words)


def kind_of(container: Container, labels: Mapping[str, str]) -> Kind | None:
    """Return the engine that an image or its pod's labels speak of, `None` if they speak of none.

    Of several containers the labels mean whichever.
    """
    repository = container.image.partition("@")[0]
    head, slash, last = repository.rpartition("/")
    repository = f"{head}{slash}{last.partition(':')[0]}"
    for engine, pattern in _PATTERNS:
        if pattern.fullmatch(repository) is not None:
            return _KINDS[engine]
    for name in _NAMES:
        if labels.get(name) in _KINDS:
            return _KINDS[labels[name]]
    return _KINDS["vllm"] if labels.get(_LLM_D) == "true" else None
