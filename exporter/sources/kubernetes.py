"""Which pods have which GPUs, by the kubelet of this node.

The kubelet is asked each `every` seconds, and sooner once when a GPU or an instance has appeared:
it limits how often it may be asked. What it says is held against the GPUs on the board at each
read. A kubelet that does not answer costs labels only: its last answer holds for `keep` seconds.

    gpu_allocation_info{gpu="0",uuid="GPU-5a1c...",namespace="ml",pod="train-0",container="main"} 1
    gpu_allocation_share_ratio{gpu="0",uuid="GPU-5a1c...",namespace="ml",pod="train-0",...} 1
    gpu_allocation_info{gpu="7",uuid="GPU-77e0...",namespace="",pod="",container=""} 1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.derive.allocation import Gpus, Pods, Wanted, allocated
from exporter.formats.podresources import Claimed, Device
from exporter.kubelet import Answer, Kubelet
from exporter.samples import Fault, Malformed, Remembered, Sample, SourceError

NAME = "kubernetes"

_DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

_AGAIN = 2.0
"""Seconds between two askings, at least, whatever appears."""


class _Heard(NamedTuple):
    """What the kubelet said last, and when."""

    answer: Answer
    taken: float


class _Told(NamedTuple):
    """What was said last, and of what."""

    answer: Answer
    gpus: Gpus
    finished: frozenset[tuple[str, str]]
    named: Mapping[Claimed, str]
    items: Sequence[Sample | Fault]


class KubernetesSource:
    """Asks a kubelet. `gpus` returns those on the board, `finished` pods known to be over.

    `claims` returns the UUIDs of claimed devices, those of some that are asked about among them;
    it is told which UUIDs there are.
    Which pods came when stands in `memories`; `recall` brings what a former daemon has left there.
    """

    name = NAME
    group = c.ALLOCATION

    def __init__(
        self,
        kubelet: Kubelet,
        gpus: Callable[[], Gpus],
        clock: Clock,
        wanted: Wanted,
        *,
        every: float,
        keep: float,
        finished: Callable[[], Collection[tuple[str, str]]] = tuple,
        claims: Callable[
            [Collection[Claimed], Collection[str]], Mapping[Claimed, str]
        ] = lambda _wanted, _there: {},
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
    ) -> None:
        self._kubelet = kubelet
        self._gpus = gpus
        self._clock = clock
        self._wanted = wanted
        self._every = every
        self._keep = keep
        self._finished = finished
        self._claims = claims
        self._named: Mapping[Claimed, str] = {}
        self._unnamed: Exception | None = None
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._pods = Pods()
        self._known: frozenset[str] = frozenset()
        self._asked: float | None = None
        self._heard: _Heard | None = None
        self._there: tuple[tuple[Device, ...], float] | None = None
        self._told: _Told | None = None
        self._problem: Exception | None = None

    def read(self) -> Iterator[Sample | Fault]:
        """Ask if it is time to, and yield who has what.

        Raises what the kubelet's door raises, once the last answer is too old.
        """
        gpus = self._gpus()
        if self._asked is None and (fault := self._take_over()) is not None:
            yield fault
        if self._is_due(gpus):
            self._ask(gpus)
        heard, age = self._heard, self._age()
        if self._problem is not None:
            if heard is None or age > self._keep:
                raise self._problem
            yield Fault.of("kubelet", self._problem)
        if heard is None:
            return
        yield c.GPU_ALLOCATION_AGE_SECONDS(age)
        if heard.answer.problem is not None:
            yield Fault.of("allocatable", heard.answer.problem)
        if self._unnamed is not None:
            yield Fault.of("claims", self._unnamed)
        yield from self._rows(heard.answer, gpus)

    def _rows(self, answer: Answer, gpus: Gpus) -> Sequence[Sample | Fault]:
        """Return who has what; worked out anew only if something about it is new."""
        finished, told = frozenset(self._finished()), self._told
        if not gpus.known:
            return ()
        if (
            told is not None
            and told.answer[:2] == answer[:2]
            and told.finished == finished
            and told.named == self._named
            and told.gpus.same(gpus)
        ):
            return told.items
        found = allocated(
            answer.containers, answer.allocatable, gpus, self._wanted,
            pods=self._pods, finished=finished, named=self._named,
        )  # fmt: skip
        items: list[Sample | Fault] = [*found.samples(gpus), *found.faults()]
        self._told = _Told(answer, gpus, finished, self._named, items)
        return items

    def _is_due(self, gpus: Gpus) -> bool:
        if self._asked is None:
            return True
        waited = self._clock.monotonic() - self._asked
        return waited >= self._every or (waited >= _AGAIN and not gpus.known <= self._known)

    def _ask(self, gpus: Gpus) -> None:
        self._asked = self._clock.monotonic()
        self._known = gpus.known
        try:
            answer = self._kubelet.ask()
        except (OSError, SourceError, Malformed) as error:
            self._problem = error
            return
        now = self._clock.monotonic()
        self._heard, self._problem = _Heard(self._completed(answer, now), now), None
        self._pods.look((one.namespace, one.pod) for one in answer.containers)
        self._memories[self.name] = Remembered(self._pods.memory(), self._clock.monotonic())
        self._name(answer, gpus)

    def _completed(self, answer: Answer, now: float) -> Answer:
        """Return it with what there is as it was said last, if it is not said this time."""
        if answer.allocatable is not None:
            self._there = answer.allocatable, now
        elif self._there is not None and now - self._there[1] <= self._keep:
            return answer._replace(allocatable=self._there[0])
        return answer

    def _name(self, answer: Answer, gpus: Gpus) -> None:
        """Find out which GPUs the claimed devices are."""
        claimed = {
            one
            for container in answer.containers
            for one in container.claimed
            if self._wanted.takes(one.driver)
        }
        self._unnamed = None
        if claimed:
            try:
                self._named = self._claims(claimed, gpus.known)
            except (OSError, SourceError, Malformed) as error:
                self._unnamed = error

    def _take_over(self) -> Fault | None:
        """Learn from a predecessor which pods came when; return what hindered it."""
        try:
            self._recall()
            former = self._memories.get(self.name)
            if isinstance(former, Remembered):
                self._pods.restore(former.plain)
        except (OSError, SourceError, *_DAMAGED) as error:
            self._pods = Pods()
            return Fault("memory", "malformed", f"not taken over: {type(error).__name__}: {error}")
        return None

    def _age(self) -> float:
        return 0.0 if self._heard is None else self._clock.monotonic() - self._heard.taken

    def close(self) -> None:
        """Nothing is held between two askings."""
