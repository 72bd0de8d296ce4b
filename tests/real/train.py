"""A real training job: a small Llama of two ranks on CPUs, which tells of itself in four ways.

Each rank is one process with one thread (`torchrun --nproc-per-node 2 tests/real/train.py ...`).
Rank 0 writes below `--out`: `train.log` as Megatron-LM prints, `tensorboard/` with Megatron's tags,
`traces/` of every rank where `--profile` is given, and each rank writes `truth.RANK.jsonl`, its own
account of each step that no part of flopwatch has a hand in; `parameters` is what torch counts.
Ranks below `--push` also push the phases of their steps with `exporter.client`, to FLOPWATCH_URL.

A step always waits `REST` seconds for its data: with `--hurry`, a rank that never rests would be
held up by the kernel, which keeps a twentieth of each second for others.

Faults: `--stall SECONDS` sleeps so much longer in the data loader of both ranks; `--wait SECONDS`
lets the last rank sleep before it takes part in the first all-reduce of a step, so that the others
wait for it.

This needs torch and tensorboard, and nothing of flopwatch but its client.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CONFIG = json.loads(Path(__file__).with_name("tiny_config.json").read_text("utf-8"))
"""The model, as its config.json says it."""

SEQUENCE = 256
MICRO_BATCH = 4
REST = 0.04


class Attention(nn.Module):
    """Causal attention with grouped heads; without positions, which cost nothing that counts."""

    def __init__(self) -> None:
        super().__init__()
        hidden, self.size = CONFIG["hidden_size"], CONFIG["head_dim"]
        heads, groups = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
        self.query = nn.Linear(hidden, heads * self.size, bias=False)
        self.key = nn.Linear(hidden, groups * self.size, bias=False)
        self.value = nn.Linear(hidden, groups * self.size, bias=False)
        self.out = nn.Linear(heads * self.size, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            one(x).view(batch, length, -1, self.size).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """A layer: attention and a gated network, each with its norm."""

    def __init__(self) -> None:
        super().__init__()
        hidden, width = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.first, self.second = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention = Attention()
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        normed = self.second(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    """The whole model, from tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        hidden = CONFIG["hidden_size"]
        self.embedding = nn.Embedding(CONFIG["vocab_size"], hidden)
        self.blocks = nn.Sequential(*(Block() for _ in range(CONFIG["num_hidden_layers"])))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, CONFIG["vocab_size"], bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


class Sums(Dataset):
    """Sequences in which a token follows from the one before; the loader may be made slow."""

    def __init__(self, length: int, seed: int, stall: float) -> None:
        self._length = length
        self._seed = seed
        self._stall = stall

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % MICRO_BATCH == 0:
            time.sleep(REST + self._stall)
        start = (self._seed * 7919 + index * 104_729) % CONFIG["vocab_size"]
        return (start + 17 * torch.arange(SEQUENCE + 1)) % CONFIG["vocab_size"]


class Account:
    """What a rank knows of its own step: seconds by phase, and by what was injected."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._open: list[str] = []
        self._since = time.perf_counter()
        self.phases: dict[str, float] = {}

    def _turn(self) -> None:
        """Give the time since the last turn to the innermost phase."""
        now = time.perf_counter()
        phase = self._open[-1] if self._open else "other"
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self._since
        self._since = now

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def end(self, **said: object) -> float:
        """End a step: write it down and return how long it took."""
        self._turn()
        seconds = sum(self.phases.values())
        row = {**said, "seconds": seconds, "phases": self.phases, "wall": time.time()}
        self._file.write(json.dumps(row) + "\n")
        self.phases = {}
        return seconds


class Megatron:
    """Prints as Megatron-LM does: the arguments once, then a line for each iteration."""

    def __init__(self, path: Path, steps: int, world: int) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._steps = steps
        self._batch = MICRO_BATCH * world
        arguments = {
            "data_parallel_size": world, "ffn_hidden_size": CONFIG["intermediate_size"],
            "global_batch_size": self._batch, "hidden_size": CONFIG["hidden_size"],
            "micro_batch_size": MICRO_BATCH, "num_layers": CONFIG["num_hidden_layers"],
            "pipeline_model_parallel_size": 1, "seq_length": SEQUENCE,
            "tensor_model_parallel_size": 1, "train_iters": steps, "world_size": world,
        }  # fmt: skip
        self._file.write("------------------------ arguments ------------------------\n")
        for name, value in arguments.items():
            self._file.write(f"  {name} {'.' * (48 - len(name))} {value}\n")
        self._file.write("-------------------- end of arguments ---------------------\n")

    def tell(self, step: int, seconds: float, loss: float, norm: float) -> None:
        stamp = dt.datetime.now().isoformat(" ", "microseconds")
        self._file.write(
            f" [{stamp}] iteration {step:8d}/{self._steps:8d} |"
            f" consumed samples: {step * self._batch:12d} |"
            f" elapsed time per iteration (ms): {1000 * seconds:.1f} |"
            f" learning rate: {RATE:.6E} | global batch size: {self._batch:5d} |"
            f" lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )


class Board:
    """Writes event files with Megatron's tags."""

    def __init__(self, folder: Path, world: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), flush_secs=1)
        self._world = world

    def tell(self, step: int, seconds: float, loss: float, norm: float) -> None:
        scalars = {
            "iteration-time": seconds, "batch-size": MICRO_BATCH * self._world,
            "world-size": self._world, "lm loss": loss, "grad-norm": norm, "learning-rate": RATE,
        }  # fmt: skip
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        self._writer.close()


RATE = 1e-3
RUN = "tiny"


class Pushes:
    """Pushes steps and phases, as any script may; without a run it does nothing."""

    def __init__(self, *, wanted: bool, world: int) -> None:
        self._run: Any = None
        self._step: Any = None
        if wanted:
            from exporter.client import Run

            self._run = Run(
                RUN, framework="pytorch", config=CONFIG, sequence_length=SEQUENCE,
                global_batch=MICRO_BATCH * world, data_parallel=world, tensor_parallel=1,
                pipeline_parallel=1, precision="fp32", recompute="none",
            )  # fmt: skip
        self._tokens = MICRO_BATCH * SEQUENCE * world

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        if self._run is None:
            yield
            return
        with self._run.step(tokens=self._tokens) as self._step:
            yield

    def phase(self, name: str) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._step is None else self._step.phase(name)

    def note(self, **numbers: float) -> None:
        if self._step is not None:
            self._step.note(**numbers)

    def end(self) -> None:
        if self._run is not None:
            self._run.end()


def train(options: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    account = Account(options.out / f"truth.{rank}.jsonl")
    pushes = Pushes(wanted=rank < options.push, world=world)

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        with account.phase(name), pushes.phase(name):
            yield

    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), bucket_cap_mb=100)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, foreach=True)
    injected = {"stall": options.stall, "wait": options.wait if rank == world - 1 else 0.0}

    def exchange(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average gradients. Nothing is computed meanwhile, so all of it is exposed."""
        if injected["wait"] and bucket.is_last():
            with phase("other"):
                time.sleep(injected["wait"])
        with phase("communication"):
            dist.all_reduce(bucket.buffer())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer().div_(world))
        return done

    model.register_comm_hook(None, exchange)
    tellers = []
    if rank == 0:
        parameters = sum(one.numel() for one in model.parameters())
        (options.out / "parameters").write_text(str(parameters), encoding="utf-8")
        tellers = [
            Megatron(options.out / "train.log", options.steps, world),
            Board(options.out / "tensorboard", world),
        ]
    batches = iter(DataLoader(Sums(options.steps * MICRO_BATCH, rank, options.stall), MICRO_BATCH))
    with profiler(options, rank) as profile:
        account.end(step=0)
        for step in range(1, options.steps + 1):
            with pushes.step():
                with phase("data"):
                    tokens = next(batches)
                with phase("forward"):
                    logits = model(tokens[:, :-1])
                    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                with phase("backward"):
                    loss.backward()
                with phase("optimizer"):
                    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                pushes.note(loss=loss.item(), gradient_norm=norm.item(), learning_rate=RATE)
            said = {"loss": loss.item(), "tokens": tokens[:, 1:].numel(), **injected}
            seconds = account.end(step=step, **said)
            for teller in tellers:
                teller.tell(step, seconds, said["loss"], norm.item())
            if profile is not None:
                profile.step()
    pushes.end()
    for teller in tellers:
        if isinstance(teller, Board):
            teller.close()


@contextlib.contextmanager
def profiler(options: argparse.Namespace, rank: int) -> Iterator[torch.profiler.profile | None]:
    """Record every step but the first two, as one trace for each rank."""
    if not options.profile:
        yield None
        return
    folder = options.out / "traces"
    folder.mkdir(exist_ok=True)

    def write(profile: torch.profiler.profile) -> None:
        profile.export_chrome_trace(str(folder / f"rank{rank}.pt.trace.json.gz"))

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=options.steps - 2, repeat=1),
        on_trace_ready=write,
    ) as profile:
        yield profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--stall", type=float, default=0.0)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--push", type=int, default=0, help="how many ranks push")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--hurry", action="store_true", help="go before other work on this machine")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.hurry:
        # Before torch has threads: they are to go first as well.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, os.fspath(Path(__file__).parents[2]))
    main()
