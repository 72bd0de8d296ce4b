"""The GPUs of the made-up node: power, heat, clocks, memory and faults that follow from their work.

What the GPUs do is told by `node`, as sums; here is a little physics. Power follows from activity,
temperature is a slow filter of power, clocks give way to the power limit and to heat, energy is the
integral of power. How NVIDIA's library shows all this is left to `nvml`.

Three GPUs are worth a look: GPU 2 has memory errors, GPU 5 a row of memory that waits for a reset
to be replaced, GPU 7 is badly cooled: hotter, slower, and the others wait for it.

Time advances in ticks of a sixth of a second, at which the driver samples utilization.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

PER_SECOND = 6
"""Ticks in a second."""

ADDRESSES = tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
"""PCI addresses, those of a DGX H100."""

FAULTY, MENDING, SLOW = 2, 5, 7
TOP, STEP = 1980, 15
"""Highest clock, and what clocks are multiples of, in megahertz."""

LIMIT = 700.0
"""Watts."""

HOTTEST = 85
"""Degrees Celsius that a GPU tries not to exceed, by slowing itself down."""

TOTAL, RESERVED = 81_559 * 2**20, 479 * 2**20
"""Bytes of memory, and what the driver keeps of them."""

BANDWIDTH = 3.35e12
"""Bytes of memory per second."""

# Data sheet: 989.4 Tflop/s (bf16, dense) at 1830 MHz.
_FLOPS_PER_MEGAHERTZ = 989.4e12 / 1830
# Watts. At full clock 630 W when everything multiplies from the caches (as recorded), about 400 W
# while tokens are decoded, 120 W with nothing to do.
_BOARD, _MEMORY_IDLE, _MEMORY, _LINKS = 45.0, 75.0, 70.0, 30.0
_SMS = 150.0
_LEAK = 0.6  # for each degree above 40
_SLOWDOWN = 120.0  # megahertz for each degree, beginning two degrees before the hottest
_LOWEST = 345  # megahertz, however hot
_BADLY_COOLED = 0.066  # degrees more for each watt
_UNCOOLED = 0.2
_LINK_RATE = 450e9
_TICK = 1 / PER_SECOND
_SETTLING = 1 - math.exp(-_TICK / 20)
_XID, _RESTART = 94, 20.0
OFF_THE_BUS = 79
_CONTEXTS = 20 * 2**20


class Done(NamedTuple):
    """What a GPU has done since the node was born; everything only grows."""

    flops: float = 0.0
    """Operations of the tensor cores."""
    memory: float = 0.0
    """Bytes read from and written to its memory."""
    kernels: float = 0.0
    """Seconds in which any kernel ran."""
    sms: float = 0.0
    """Seconds times the share of SMs that had work."""
    warps: float = 0.0
    """Seconds times the share of the possible warps."""
    nvlink: float = 0.0
    """Bytes sent over NVLink; as many are received."""
    sent: float = 0.0
    received: float = 0.0
    """Bytes over PCIe."""


class Sums(NamedTuple):
    """Integrals over time: seconds, seconds times a share (0..1), bytes."""

    seconds: float = 0.0
    kernels: float = 0.0
    sms: float = 0.0
    warps: float = 0.0
    tensor: float = 0.0
    memory: float = 0.0
    nvlink: float = 0.0
    sent: float = 0.0
    received: float = 0.0


class Process(NamedTuple):
    """A process on a GPU: its memory in bytes, and its share of the time that kernels run."""

    pid: int
    name: str
    memory: int
    share: float = 1.0


HELPERS = tuple(Process(61_377 + n, "text-embeddings", 2_152 * 2**20, 0.02) for n in range(8))
"""The second process on the faulty GPU. A contained memory error ends it, and the next one of these
starts in its place: a list, so that their names can be there before them."""


class Xid(NamedTuple):
    """An error as the driver tells it: the how many-th of the node, when, whose, and which."""

    number: int
    at: float
    gpu: int
    code: int
    pid: int
    process: str


class Gpu:
    """One GPU. Between two ticks nothing changes.

    `watts` is what the tensor cores draw at full speed and clock; nothing is wrong with a `sound`
    GPU. `cap` is the highest clock that an operator allows.
    """

    def __init__(
        self, index: int, dice: Random, job: Process, *, watts: float, sound: bool
    ) -> None:
        self.index = index
        self.cap = TOP
        self.address = ADDRESSES[index]
        self.uuid = f"GPU-{UUID(int=dice.getrandbits(128), version=4)}"
        self.serial = f"16538{dice.randrange(10**8):08}"
        self.processes: tuple[Process, ...] = (job,)
        self.sums = Sums()
        self.rates = Sums(seconds=1.0)
        """By how much the sums grew in the last tick, for each second."""
        self.clock = TOP
        self.power = self.memory_power = 0.0
        self.temperature, self.memory_temperature = 55.0, 52.0
        self.energy = 0.0
        self.capped = self.too_hot = 0.0
        """Seconds in which the power limit and heat held the clock down."""
        self.holding = ""
        """What does so now: `power`, `heat`, the `cap` or none."""
        self.utilization = deque([(0.0, 0)], maxlen=20 * PER_SECOND)
        """(seconds since birth, percent) of each tick that the driver still has."""
        self.corrected = self.uncorrected = 0
        self.corrected_before, self.uncorrected_before = dice.randrange(40), 0
        self.remapped, self.remap_pending = 0, False
        self._inlet = dice.uniform(26, 29)
        self._resistance = dice.uniform(0.068, 0.074)
        self._watts = watts
        if index == SLOW and not sound:
            self._resistance += _BADLY_COOLED
        self.hot = False
        """Whether its fan has failed: others cool it a little."""
        if index == MENDING and not sound:
            self.uncorrected_before, self.remapped, self.remap_pending = 2, 1, True
        self._done = Done()
        self._powers: deque[float] = deque(maxlen=PER_SECOND)

    @property
    def used(self) -> int:
        """Bytes of memory that are allocated."""
        return sum(process.memory for process in self.processes) + _CONTEXTS

    @property
    def average_power(self) -> float:
        """Watts over the last second."""
        return sum(self._powers) / max(1, len(self._powers))

    @property
    def bearable(self) -> float:
        """The clock, in megahertz, that its temperature allows."""
        return max(_LOWEST, TOP - _SLOWDOWN * max(0.0, self.temperature - HOTTEST + 2))

    def tick(self, moment: float, done: Done) -> None:
        """Let a tick pass that ends at `moment`; `done` is what has been done by then."""
        rate = Done._make([
            max(0.0, now - before) * PER_SECOND
            for now, before in zip(done, self._done, strict=True)
        ])  # fmt: skip
        self._done = done
        memory = min(1.0, rate.memory / BANDWIDTH)
        self._run(rate, memory)
        self._heat(memory)
        tensor = min(1.0, rate.flops / (_FLOPS_PER_MEGAHERTZ * self.clock))
        kernels = min(1.0, rate.kernels)
        shares = (kernels, rate.sms, rate.warps, tensor, memory)
        self.rates = Sums(1.0, *shares, rate.nvlink, rate.sent, rate.received)
        self.sums = Sums._make([a + b * _TICK for a, b in zip(self.sums, self.rates, strict=True)])
        self.utilization.append((moment, round(100 * kernels)))

    def _run(self, rate: Done, memory: float) -> None:
        """Choose the clock, and draw the power that goes with it.

        The work is given: a lower clock takes more cycles' share for it, and less voltage.
        """
        self.memory_power = _MEMORY_IDLE + _MEMORY * memory
        rest = _BOARD + self.memory_power + _LINKS * rate.nvlink / _LINK_RATE
        rest += _LEAK * max(0.0, self.temperature - 40)
        core = _SMS * rate.sms + self._watts * rate.flops / (_FLOPS_PER_MEGAHERTZ * TOP)
        affordable = TOP * min(1.0, math.sqrt((LIMIT - rest) / core) if core else 1.0)
        limits = {"power": affordable, "heat": self.bearable, "cap": self.cap}
        least = min(limits, key=limits.__getitem__)
        self.clock = int(limits[least]) // STEP * STEP
        self.holding = least if self.clock < TOP else ""
        self.too_hot += _TICK * (self.holding == "heat")
        self.capped += _TICK * (self.holding == "power")
        self.power = rest + core * (self.clock / TOP) ** 2
        self._powers.append(self.power)
        self.energy += self.power * _TICK

    def _heat(self, memory: float) -> None:
        aim = self._inlet + (self._resistance + _UNCOOLED * self.hot) * self.power
        self.temperature += (aim - self.temperature) * _SETTLING
        aim -= 6 - 8 * memory
        self.memory_temperature += (aim - self.memory_temperature) * _SETTLING


class Gpus:
    """All GPUs. `jobs` are the processes that work on them, one for each.

    At full speed and clock the tensor cores of each draw so many `watts`. If they are `sound`, no
    GPU has errors in its memory, and none is badly cooled.
    """

    def __init__(
        self, dice: Random, jobs: Sequence[Process], *, watts: float = 1250.0, sound: bool = False
    ) -> None:
        self.all = tuple(
            Gpu(index, dice, job, watts=watts, sound=sound) for index, job in enumerate(jobs)
        )
        self.xids: deque[Xid] = deque(maxlen=64)
        self._dice = dice
        self._ticks = 0
        self._helpers = 0
        self._returns = math.inf
        self._corrects = dice.expovariate(1 / 60)
        self._fails = math.inf if sound else dice.uniform(90, 180)
        self.lost: int | None = None
        """A GPU that has fallen off the bus."""
        self.all[FAULTY].processes += (HELPERS[0],)

    @property
    def next(self) -> float:
        """When the next tick ends, in seconds since the node was born."""
        return (self._ticks + 1) / PER_SECOND

    def tick(self, done: Mapping[int, Done]) -> None:
        """Let the next tick pass; `done` is what each GPU has done by its end."""
        moment = self.next
        for gpu in self.all:
            gpu.tick(moment, done[gpu.index])
        self._fail(self.all[FAULTY], moment)
        self._ticks += 1

    def lose(self, index: int | None, now: float) -> None:
        """Let a GPU fall off the bus, or come back if it is None."""
        if index is not None and index != self.lost:
            self._tell(now, index, OFF_THE_BUS, 0, "<unknown>")
        self.lost = index

    def _tell(self, at: float, gpu: int, code: int, pid: int, process: str) -> None:
        number = self.xids[-1].number + 1 if self.xids else 1
        self.xids.append(Xid(number, at, gpu, code, pid, process))

    def _fail(self, gpu: Gpu, until: float) -> None:
        """Let the faulty GPU have its memory errors: most are corrected, now and then one is not.

        That one is contained: it ends one process, and its row waits to be replaced.
        """
        dice = self._dice
        while self._corrects <= until:
            gpu.corrected += 1
            self._corrects += dice.expovariate(1 / 60)
        if self._fails <= until:
            *others, victim = gpu.processes
            self._tell(self._fails, gpu.index, _XID, victim.pid, victim.name)
            gpu.processes = tuple(others)
            gpu.uncorrected += 1
            gpu.remap_pending = True
            self._returns = self._fails + _RESTART
            self._fails += dice.uniform(900, 1800)
        if self._returns <= until:
            self._helpers += 1
            gpu.processes += (HELPERS[self._helpers % len(HELPERS)],)
            self._returns = math.inf
