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
_FRAME = re.compile(r"(?:elementwise|reduce|foreach|multi_tensor|device)\w*kernel|Kernel2?$")
_WORD = re.compile(r"[A-Za-z_][\w:]*")
_TYPES = frozenset({
    "float", "double", "int", "bool", "char", "short", "long", "unsigned", "true", "false", "void",
    "const", "half", "Half", "BFloat16", "__nv_bfloat16", "__half", "array", "TensorListMetadata",
})  # fmt: skip


def class_of(name: str) -> str:
    """Return which of `CLASSES` a kernel of this name is."""
    if _COPY.match(name):
        return "copy"
    low = name[:4096].lower()
    # What stands in a template's arguments says what is computed on, not what the kernel does; but
    # CUTLASS runs everything in the same frame.
    frame = _CLUTTER.sub("", low).partition("<")[0]
    for text in (low if "cutlass::" in frame else frame, low):
        for kind, pattern in _PATTERNS:
            if pattern.search(text):
                return kind
    return "other"


def short(name: str) -> str:
    """Return a kernel's name without return type, template arguments and parameters.

    Of the arguments the first that is a name of something stays where the kernel is but a frame for
    it: `cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>`, `elementwise_kernel<CUDAFunctor_add>`.
    """
    plain = _CLUTTER.sub("", _CLUTTER.sub("", name[:4096]))
    if not _COPY.match(plain):
        frame, _, arguments = plain.partition("<")
        inner = _inner(arguments) if _FRAME.search(frame) else ""
        plain = frame.partition("(")[0].strip() + (f"<{inner}>" if inner else "")
    plain = "".join(char for char in plain.strip() if char.isprintable())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _inner(arguments: str) -> str:
    for argument in _WORD.findall(arguments[:512]):
        last = argument.rpartition("::")[2]
        if last not in _TYPES:
            return str(last)
    return ""
