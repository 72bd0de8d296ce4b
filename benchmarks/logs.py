"""How fast logs of training jobs are read, beside what the machine can do with the same bytes.

    .venv/bin/python benchmarks/logs.py [--check]

In the log of which nothing matters are lines as data loaders, schedulers and web frameworks print
them. "a step in 1,000 lines" is such a log with torchtitan's or Megatron's lines in it, "all lines"
holds nothing else. "from a file" is the whole source: opening, reading, telling the ledger. The
limits are those of the same bytes in the same run: `bytes.splitlines` makes an object of each line,
`count` looks at each byte once (memchr).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import race, table
from exporter.clock import SystemClock
from exporter.formats.trainlog import LogParser, LogStream
from exporter.sources.training_logs import CHUNK, TrainingLogsSource, Watched
from exporter.training import TrainingLedger

SIZE = 16 << 20
MUST = 50.0
NOTHING = "nothing matches"
SPLIT = "bytes.splitlines"

WORDS = (
    "loaded shard from cache in 0.83 s", "GET /healthz HTTP/1.1 200 OK", "prefetch queue depth 12",
    "NCCL INFO Channel 03/0 : 7[7] -> 6[6] via P2P/CUMEM", "worker exited and was restarted",
    "tokenizing documents 1200 to 1400 of shard 17", "garbage collection took 12 ms",
    "UserWarning: The given buffer is not writable", '  File "/opt/train.py", line 214, in step',
)  # fmt: skip


def idle(dice: random.Random, at: int) -> str:
    return (
        f"2026-11-29 12:{at // 60000 % 60:02}:{at // 1000 % 60:02},{at % 1000:03} INFO"
        f" worker-{dice.randrange(64)}: {dice.choice(WORDS)} ({dice.random():.6f})\n"
    )


def titan(step: int) -> str:
    return (
        f"[rank0]:[titan] 2026-11-29 12:00:00,074 - root - INFO - step: {step:2}  loss: 10.7069"
        "  grad_norm:  2.6422  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: 41.19%\n"
    )


def megatron(step: int) -> str:
    return (
        f"[2026-01-16 07:32:24] iteration {step:8}/99999999 | consumed samples:        10240 |"
        " elapsed time per iteration (ms): 15800.0 | throughput per GPU (TFLOP/s/GPU): 490.0 |"
        " learning rate: 4.134000E-07 | global batch size:  2048 | lm loss: 1.344240E+01 |"
        " loss scale: 1.0 | grad norm: 2.870 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
    )


def log(size: int, step: Callable[[int], str] | None = None, every: int = 1000) -> bytes:
    """Return a log of about `size` bytes, in which each `every`-th line is a step's."""
    dice = random.Random(7)
    lines: list[str] = []
    length = at = 0
    while length < size:
        at += 1
        line = step(at) if step is not None and at % every == 0 else idle(dice, at)
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()


def cri(data: bytes) -> bytes:
    """Return a log as Kubernetes keeps it."""
    head = b"2026-11-29T12:00:00.123456789Z stdout F "
    return b"".join(head + line + b"\n" for line in data.splitlines())


def stream(data: bytes, **options: str) -> Callable[[], object]:
    """Return what reads a log in the pieces in which the source reads it."""
    pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]

    def read() -> object:
        one = LogStream(LogParser("bench", **options), **options)
        return sum(len(one.feed(piece)) for piece in pieces)

    return read


def source(data: bytes, folder: Path) -> Callable[[], object]:
    """Return what reads a log from a file that has just appeared."""
    path = folder / "bench.log"

    def read() -> object:
        path.unlink(missing_ok=True)
        one = TrainingLogsSource(
            [Watched(f"{folder}/*.log")], TrainingLedger(), SystemClock(), keep_every=1.0
        )
        list(one.read())
        path.write_bytes(data)
        one.look_again()
        for _ in range(len(data) // (4 << 20) + 1):
            list(one.read())
        one.close()
        return one

    return read


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when the budget is missed")
    options = parser.parse_args()
    nothing = log(SIZE)
    logs = {
        NOTHING: (nothing, stream(nothing)),
        "nothing matches, framework stated": (nothing, stream(nothing, family="torchtitan")),
    }
    for title, data in (
        ("nothing matches, Kubernetes' format", cri(nothing)),
        ("a step in 1,000 lines, torchtitan", log(SIZE, titan)),
        ("a step in 1,000 lines, Megatron", log(SIZE, megatron)),
        ("a step in 20 lines, torchtitan", log(SIZE // 4, titan, 20)),
        ("all lines are steps, torchtitan", log(SIZE // 64, titan, 1)),
        ("all lines are steps, Megatron", log(SIZE // 64, megatron, 1)),
    ):
        logs[title] = (data, stream(data))
    with tempfile.TemporaryDirectory() as folder:
        logs["nothing matches, from a file"] = (nothing, source(nothing, Path(folder)))
        results = race(
            {
                SPLIT: nothing.splitlines,
                "bytes.count of line ends": lambda: nothing.count(b"\n"),
                **{title: read for title, (_, read) in logs.items()},
            },
            rounds=9, baseline=SPLIT,
        )  # fmt: skip
    sizes = {title: len(data) for title, (data, _) in logs.items()}
    split = sizes.get(SPLIT, len(nothing)) / results[SPLIT].seconds
    rows = []
    for name, result in results.items():
        size = sizes.get(name, len(nothing))
        speed = size / result.seconds
        rows.append((
            name, f"{speed / 1e6:.0f}", f"{size / result.high / 1e6:.0f}", f"{speed / split:.2f}",
        ))  # fmt: skip
    print(f"{len(nothing)} bytes, {nothing.count(10)} lines, in pieces of {CHUNK} bytes\n")
    print(table(("log", "MB/s", "slow tenth", "of splitlines"), rows))
    speed = len(nothing) / results[NOTHING].seconds / 1e6
    kept = speed >= MUST
    print(f"\n{'kept  ' if kept else 'MISSED'} {NOTHING}: {MUST:.0f} MB/s on one core")
    return int(options.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
