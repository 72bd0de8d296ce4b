"""What a GPU kernel does, told by its name.

Kernels carry the names of C++ templates or of a compiler's; there is no register of them. The
patterns are of names that cuBLAS, cuDNN, CUTLASS, NCCL, RCCL, PyTorch and Triton give. What matches
none is `other`.
"""

from __future__ import annotations

import re

CLASSES = ("matmul", "attention", "norm", "elementwise", "other", "communication", "copy")
"""What kernels are told apart by; a class's place here is its number on a timeline."""

NUMBER = {name: at for at, name in enumerate(CLASSES)}

_COPY = re.compile(r"mem(?:cpy|set)\b", re.IGNORECASE)
_PATTERNS = (
    ("communication", re.compile(
        r"nccl|rccl|oneccl|msccl|nvshmem|deep_?ep::|cross_device_reduce|multimem_"
        r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    )),
    # A compiler's fused kernel names all that went into it; its kind says what it is itself.
    ("norm", re.compile(r"triton_(?:per|red|poi)_.*norm")),
    ("elementwise", re.compile(r"triton_(?:per|red|poi|for)_")),
    ("attention", re.compile(r"fmha|flash|attention|attn|sdpa|(?:^|[^a-z])mha_")),
    ("norm", re.compile(r"(?:layer|rms|batch|group|instance)_?norm|ln_(?:fwd|bwd)|bn_[fb]w")),
    ("matmul", re.compile(
        r"gemm|gemv|cutlass|cublas|xmma|nvjet|wgmma|matmul|cijk_|splitk|grouped_mm|triton_tem_"
        r"|(?:^|_)(?:b|add)?mm(?:_|$)|convolv|conv[123]d|fprop|dgrad|wgrad|winograd"
    )),
    ("elementwise", re.compile(
        r"elementwise|pointwise|softmax|reduce|dropout|multi_tensor|foreach|adam|fill|copy|cast"
        r"|convert|cat_?array|index|gather|scatter|embedding|transpose|permute|gelu|silu|relu"
        r"|swiglu|rope|rotary|add|mul"
    )),
)  # fmt: skip

_LONGEST = 96
_CLUTTER = re.compile(r"\(anonymous namespace\)::|^(?:void|int|float) ")


def class_of(name: str) -> str:
    """Return which of `CLASSES` a kernel of this name is."""
    if _COPY.match(name):
        return "copy"
    low = name[:4096].lower()
    # What stands in a template's arguments says what is computed on, not what the kernel does.
    for text in (_CLUTTER.sub("", low).partition("<")[0], low):
        for kind, pattern in _PATTERNS:
            if pattern.search(text):
                return kind
    return "other"


def short(name: str) -> str:
    """Return a kernel's name without return type, template arguments and parameters."""
    plain = _CLUTTER.sub("", _CLUTTER.sub("", name[:4096]))
    if not _COPY.match(plain):
        plain = re.split(r"[<(]", plain, maxsplit=1)[0]
    plain = "".join(char for char in plain.strip() if char.isprintable())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
