"""Writes the lock files of the image: `make lock`, which brings uv, the resolver that knows them.

Versions are the newest that pyproject.toml permits; hashes are of all files of a version, so that
one file holds for each Python and each platform.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("kubernetes", "web")
"""What the image has besides what flopwatch always needs."""

_HEADS = {
    "requirements": "# What the image holds besides flopwatch itself: versions and hashes for"
    " Python 3.11 to 3.14 and all\n# platforms, written by `make lock`.\n",
    "build": "# What the wheel of flopwatch is built with, written by `make lock`.\n",
}


def resolve(*words: str, given: str = "") -> str:
    """Return requirements with all that they need, by version and hash."""
    uv = Path(sys.executable).parent / "uv"
    done = subprocess.run(  # noqa: S603 - the resolver of this environment
        [uv, "pip", "compile", *words, "--universal", "--generate-hashes", "--python-version=3.11",
         "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"],
        input=given, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    """Write both files."""
    extras = [f"--extra={extra}" for extra in EXTRAS]
    made = {
        "requirements": resolve("pyproject.toml", *extras),
        "build": resolve("-", given="setuptools>=77\n"),
    }
    for name, text in made.items():
        (ROOT / f"deploy/{name}.lock").write_text(_HEADS[name] + text, "utf-8")


if __name__ == "__main__":
    main()
