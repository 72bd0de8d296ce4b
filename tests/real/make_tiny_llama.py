"""Write a tiny Llama with random weights for vLLM; run with the Python that has vLLM.

    PYTHON tests/real/make_tiny_llama.py DIRECTORY [--hidden 256 --layers 2]

Nothing is downloaded: the tokenizer is trained on the standard library's own text.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path


def main() -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    target, hidden = options.target, options.hidden
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]
    tokenizer.train_from_iterator([p.read_text("utf-8", "replace") for p in library], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        model_max_length=1024,
    )  # fmt: skip
    fast.save_pretrained(target)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=hidden, intermediate_size=2 * hidden,
        num_hidden_layers=options.layers, num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128, head_dim=64,
        max_position_embeddings=1024, bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(target, safe_serialization=True)


if __name__ == "__main__":
    main()
