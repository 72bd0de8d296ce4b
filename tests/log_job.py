"""A program that writes a log as a training job does: `log_job.py LOG FIRST LAST [--rotate N]`.

With `--rotate N` it renames its log after each N steps and goes on in a new one; between two
renames there are at least two seconds, for nobody rotates faster.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--rotate", type=int, default=0)
    options = parser.parse_args()
    file = options.log.open("ab", buffering=0)
    for step in range(options.first, options.last + 1):
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        line = (
            f"[rank0]:[titan] {stamp},{int(now % 1 * 1000):03} - root - INFO - step: {step:2}"
            f"  loss: {10 / step:8.4f}"
            "  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: 41.19%\n"
            f"some other line about step {step} that means nothing to anybody\n"
        ).encode()
        file.write(line[:40])
        file.write(line[40:])
        time.sleep(0.005)
        if options.rotate and step % options.rotate == 0:
            time.sleep(2.0)
            options.log.rename(options.log.with_name(f"{options.log.name}.{step}"))
            file.close()
            file = options.log.open("ab", buffering=0)


if __name__ == "__main__":
    main()
