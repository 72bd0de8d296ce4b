"""Sources for the isolation tests; run in a real child process as `python -m tests.children`."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterable

from exporter import catalogue as c
from exporter.isolate import main
from exporter.samples import Drop, Fault, Histogram, Sample


class Good:
    """Yields a scalar that grows, a histogram, a fault and a drop, and prints as drivers do."""

    name = "good"
    group = "host"

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        print("driver banner on standard output")
        os.write(1, b"and one from C\n")

    def read(self) -> Iterable[Sample | Fault | Drop]:
        self._cpus += 1
        yield c.HOST_CPUS(self._cpus)
        yield c.HOST_LOAD_AVERAGE(0.5, "1m")
        yield c.LLM_TTFT_SECONDS(Histogram((0.1, 1.0), (1, 2, 3), 2.5), "m", "", "vllm", "s")
        yield Fault("gpu3", "io", "lost")
        yield Drop("malformed", 2)

    def close(self) -> None:
        pass


class Hangs(Good):
    """Answers twice, then never again until the file in `gate` exists."""

    def __init__(self, gate: str) -> None:
        super().__init__(0)
        self._gate = gate

    def read(self) -> Iterable[Sample | Fault | Drop]:
        pause = threading.Event()
        while self._cpus == 2 and not os.path.exists(self._gate):
            pause.wait(0.01)
        return super().read()


class Crashes(Good):
    """Dereferences a null pointer at each second read, as a broken driver would."""

    def __init__(self) -> None:
        super().__init__(0)

    def read(self) -> Iterable[Sample | Fault | Drop]:
        if self._cpus >= 1:
            ctypes.string_at(0)
        return super().read()


class Raises(Good):
    """Raises at each read."""

    def __init__(self, kind: str) -> None:
        super().__init__(0)
        self._kind = kind

    def read(self) -> Iterable[Sample | Fault | Drop]:
        raise {"denied": PermissionError("no rights"), "bug": KeyError("surprise")}[self._kind]


class Unmakeable(Good):
    """Cannot be built: its driver library is not there."""

    def __init__(self) -> None:
        raise FileNotFoundError("libdriver.so.1 not found")


class Mute(Good):
    """Closes its end of the pipe at the first read and lives on, as a confused library might."""

    def __init__(self) -> None:
        super().__init__(0)

    def read(self) -> Iterable[Sample | Fault | Drop]:
        os.closerange(3, 64)
        threading.Event().wait()
        return super().read()


TABLE = {
    "mute": Mute,
    "good": Good,
    "hangs": Hangs,
    "crashes": Crashes,
    "raises": Raises,
    "unmakeable": Unmakeable,
}

if __name__ == "__main__":
    main(sys.argv[1:], TABLE)
