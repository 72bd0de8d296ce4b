"""A tiny run of the real Trainer of Hugging Face: address, folder of the client, output."""

import sys
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sys.path.insert(0, sys.argv[2])
from flopwatch_client.huggingface import FlopwatchCallback


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, n: int) -> Any:
        time.sleep(0.01)
        ids = torch.full((32,), n)
        return {"input_ids": ids, "labels": ids}


model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
)
args = TrainingArguments(
    output_dir=sys.argv[3],
    run_name="tiny",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=8,
    logging_steps=2,
    save_steps=4,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    include_num_input_tokens_seen="all",
)
Trainer(
    model=model, args=args, train_dataset=Data(), callbacks=[FlopwatchCallback(url=sys.argv[1])]
).train()
