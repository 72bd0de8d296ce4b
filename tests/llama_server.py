"""A real llama.cpp server with a tiny random model; run as `python -m tests.llama_server DIR`.

Writes DIR/tiny.gguf (a byte-level vocabulary, random weights, nothing downloaded), serves it on a
free port of 127.0.0.1 and prints the port. Ends when its standard input is closed.
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 128, 2, 4, 2, 2048
VOCABULARY = 5 + 256 + 53 * 26


def vocabulary() -> tuple[list[str], list[gguf.TokenType], list[str]]:
    """Return tokens, their types and merges: specials, 256 bytes, pairs of letters.

    Bytes from 0x80 on get ASCII names: random weights would else emit text that is not UTF-8,
    which this server answers with an error inside the stream.
    """
    special = ["<unk>", "<s>", "</s>", "<|a|>", "<|b|>"]
    printable = set(range(33, 127))
    moved = iter(range(256, 512))
    singles = []
    for byte in range(256):
        if byte >= 128:
            singles.append(f"[x{byte:02x}]")
        else:
            singles.append(chr(byte) if byte in printable else chr(next(moved)))
    firsts = [*string.ascii_letters, "\u0120"]  # the last one is how this vocabulary spells a space
    merges = [f"{a} {b}" for a in firsts for b in string.ascii_lowercase]
    tokens = [*special, *singles, *(merge.replace(" ", "") for merge in merges)]
    types = [gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * (len(tokens) - 5)
    return tokens, types, merges


def write_model(path: Path) -> None:
    """Write a Llama of a few hundred thousand random weights."""
    tokens, types, merges = vocabulary()
    assert len(tokens) == VOCABULARY
    writer = gguf.GGUFWriter(str(path), "llama")
    head = HIDDEN // HEADS
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    dice = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        weights = dice.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        writer.add_tensor(f"{name}.weight", weights)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))

    matrix("token_embd", len(tokens), HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm")
        matrix(block + "attn_q", HIDDEN, HIDDEN)
        matrix(block + "attn_k", head * KV_HEADS, HIDDEN)
        matrix(block + "attn_v", head * KV_HEADS, HIDDEN)
        matrix(block + "attn_output", HIDDEN, HIDDEN)
        ones(block + "ffn_norm")
        matrix(block + "ffn_gate", INNER, HIDDEN)
        matrix(block + "ffn_up", INNER, HIDDEN)
        matrix(block + "ffn_down", HIDDEN, INNER)
    ones("output_norm")
    matrix("output", len(tokens), HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    model = Path(sys.argv[1]) / "tiny.gguf"
    write_model(model)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.port = int(sys.argv[2])
    parameters.n_parallel, parameters.n_ctx, parameters.n_gpu_layers = 4, 4 * CONTEXT, 0
    parameters.warmup = False
    parameters.endpoint_metrics = True
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    assert "127.0.0.1" in server.listening_address
    print("listening", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
