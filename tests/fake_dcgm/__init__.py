"""A fake libdcgm in C, built with gcc, and what writes the file that tells it how to behave.

The real reader loads it through ctypes, as it would the real one. See dcgm.c for what it can do.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("dcgm.c")
VARIABLE = "FAKE_DCGM"


def build(folder: Path, *defines: str) -> Path:
    """Compile the library into a folder, warnings being errors, and return its path."""
    library = folder / "libdcgm.so.4"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, *defines, "-o", str(library), str(SOURCE)], check=True)
    return library


class Control:
    """The file that says what the library does; each change is seen at the next call.

    `gpus` and `instances` are there from the beginning; lines are those of dcgm.c.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path.with_suffix(".log")
        self._lines: list[str] = []
        self.set(f"log {self.log}")

    def set(self, *lines: str) -> None:
        """Add lines; a later line about the same thing takes the place of an earlier one."""
        for line in lines:
            self.unset(_subject(line), write=False)
            self._lines.append(line)
        self._write()

    def unset(self, start: str, *, write: bool = True) -> None:
        """Take away the lines that begin so."""
        self._lines = [line for line in self._lines if not f"{line} ".startswith(f"{start} ")]
        if write:
            self._write()

    def gpu(self, number: int, index: int | None = None) -> str:
        """Add a GPU; return its identity."""
        uuid = f"GPU-{number:08d}-1234"
        self.set(f"gpu {number} {number if index is None else index} {uuid}")
        return uuid

    def value(
        self, number: int, field: int, value: float | str, *,
        micros: int | None = None, kind: str = "gpu",
    ) -> None:  # fmt: skip
        """Have a field answer a value: an int, a float or a text, as its type is."""
        form = {int: "i", float: "d", str: "s"}[type(value)]
        when = "" if micros is None else f" {micros}"
        self.unset(f"status {kind} {number} {field}", write=False)
        self.set(f"value {kind} {number} {field} {form} {value!r}{when}".replace("'", ""))

    def status(self, number: int, field: int, code: int, *, kind: str = "gpu") -> None:
        """Have a field answer a status and no value."""
        self.unset(f"value {kind} {number} {field}", write=False)
        self.set(f"status {kind} {number} {field} {code}")

    def calls(self) -> list[str]:
        """Return the names of the functions called so far."""
        return self.log.read_text().split() if self.log.exists() else []

    def _write(self) -> None:
        # Renamed into place: the library may be reading.
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self._lines))
        new.rename(self.path)


def _subject(line: str) -> str:
    """Return how a line begins that is about the same thing."""
    words = line.split()
    length = {"gpu": 2, "instance": 2, "value": 4, "status": 4, "fail": 2, "refuse": 4, "lose": 3,
              "hang": 2, "crash": 2, "apart": 3}.get(words[0], 1)  # fmt: skip
    return " ".join(words[:length])
