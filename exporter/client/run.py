"""A training run as its script tells of it: steps, phases, checkpoints, how it began and ended.

    run = Run("llama-70b", sequence_length=8192, global_batch=512)
    for batch in run.data(loader):
        with run.step(tokens=4194304) as step:
            with step.phase("forward"):
                ...

Numbers are plain: `int`, `float`, or what counts as one (`numpy.float32`). A tensor is left out and
told once: to read its value would make the GPU wait, which is the script's to decide (`.item()`,
where it is done anyway). Everything is counted on this side of the queue; what is sent, and whether
anybody listens, costs the script nothing.
"""

from __future__ import annotations

import functools
import json
import logging
import numbers
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Callable, NamedTuple

from .address import from_environment
from .environment import find_gpu, find_group, find_place, whole
from .nccl import settings_of
from .sender import Record, Sender, log

PHASES = frozenset((
    "data", "forward", "backward", "communication", "optimizer", "checkpoint", "evaluation",
    "bubble", "other",
))  # fmt: skip
OF_THE_RUN = frozenset((
    "tokens", "samples", "loss", "gradient_norm", "learning_rate", "tgs", "skipped",
    "expert_imbalance", "dropped_tokens",
))  # fmt: skip
"""Numbers of a step that one rank tells for all, unless tokens and samples are told by each."""
OF_A_RANK = frozenset(("communication", "flops", "mfu", "energy", "memory_bytes"))
SHARED = frozenset(("tokens", "samples"))
NUMBERS = OF_THE_RUN | OF_A_RANK
FACTS = frozenset((
    "framework", "model", "config", "flops_per_token", "active_parameters",
    "attention_flops_per_token", "sequence_length",
    "document_length", "global_batch", "micro_batch", "micro_batches", "data_parallel",
    "tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel",
    "expert_parallel", "schedule", "precision", "recompute", "trainable", "adapter_parameters",
    "first_trainable",
    "last_step",
))  # fmt: skip

_clock = time.perf_counter
_PLAIN = (int, float)


def quietly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let nothing that goes wrong in a method reach the script."""

    @functools.wraps(method)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return method(*values, **named)
        except Exception as error:
            log.debug("flopwatch: %s: %r", method.__name__, error)
            return None

    return call


class Phase:
    """A part of a step. They may be nested: each counts the time that no inner one has."""

    __slots__ = ("_name", "_step")

    def __init__(self, step: Step, name: str) -> None:
        self._step = step
        self._name = name

    def __enter__(self) -> Phase:
        now, step, name = _clock(), self._step, self._name
        stack, phases = step._stack, step.phases
        if stack:
            outer = stack[-1]
            phases[outer] = phases.get(outer, 0.0) + now - step._mark
        stack.append(name)
        step._mark = now
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        now, step = _clock(), self._step
        stack, phases = step._stack, step.phases
        if stack:
            name = stack.pop()
            phases[name] = phases.get(name, 0.0) + now - step._mark
            step._mark = now


class Step:
    """A step under way. One that ends by an exception is not told."""

    __slots__ = ("_began", "_mark", "_run", "_stack", "number", "numbers", "phases")

    def __init__(self, run: Run, number: int | None, numbers: dict[str, Any]) -> None:
        self._run = run
        self._stack: list[str] = []
        self._began = self._mark = 0.0
        self.number = number
        self.numbers = numbers
        self.phases: dict[str, float] = {}

    def __enter__(self) -> Step:
        self._run._under_way = self
        self._began = self._mark = _clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        run = self._run
        run._under_way = None
        if kind is None:
            try:
                run._end_step(self, _clock() - self._began)
            except Exception as failure:
                log.debug("flopwatch: step: %r", failure)

    def phase(self, name: str) -> Phase:
        """Return a context whose time is that of a phase: data, forward, backward ..."""
        return Phase(self, name if type(name) is str else "other")

    def note(self, **numbers: Any) -> None:
        """Tell numbers that are known only within the step: `step.note(loss=0.7)`."""
        self.numbers.update(numbers)


class _Checkpoint:
    """Saving a checkpoint: a moment of the run, and a phase of the step that it lies in."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = _clock()
        self._phase: Phase | None = None

    def __enter__(self) -> _Checkpoint:
        step = self._run._under_way
        if step is not None:
            self._phase = step.phase("checkpoint")
            self._phase.__enter__()
        self._began = _clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        seconds = _clock() - self._began
        if self._phase is not None:
            self._phase.__exit__(kind, error, trace)
        if kind is None:
            self._run.log_checkpoint(seconds=seconds)


class _Data:
    """A loader whose time counts as the phase `data` of the step that follows."""

    def __init__(self, run: Run, loader: Iterable[Any]) -> None:
        self._run = run
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        run, batches = self._run, iter(self._loader)
        while True:
            began = _clock()
            try:
                batch = next(batches)
            except StopIteration:
                return
            run._data += _clock() - began
            yield batch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]


class _Wanted(NamedTuple):
    """What was said of a rank; see `Run`."""

    rank: int | None
    world_size: int | None
    scope: str
    reports: bool | None
    gpu: int | None
    submitted: float | None


class Run:
    """A training run, or one rank of it.

    `name` is the run's, the same over restarts and on all ranks (default: `$FLOPWATCH_RUN`,
    `$SLURM_JOB_NAME`, else "run"). `rank` and `world_size` come from torchrun, Slurm or MPI, else
    from a process group that exists, unless they are given.
    `step` is the number of the last step that was done before (of a checkpoint).
    `scope` is "run" if tokens and samples are those of all ranks, told by rank 0, or "rank" if each
    rank tells its own. `reports` says whether this rank tells what is the run's (default: rank 0).
    `gpu` is the index of the GPU on this node, `submitted` when the job was queued, in Unix seconds
    (default: `$FLOPWATCH_SUBMITTED`). `url` is `unix:///path` or `http://node:9810` (default:
    `$FLOPWATCH_URL`, else the socket of this node, else its loopback), `token` or `token_file` what
    that daemon wants (default: `$FLOPWATCH_TOKEN`, `$FLOPWATCH_TOKEN_FILE`). NCCL's settings are
    told as the environment has them now (`nccl.PATTERNS`). Further keywords are
    facts: `sequence_length`, `global_batch`, `model`, `config`, `precision` ...

    As a context it tells how it ended; else an exception that ends the script is noticed, and the
    end of the interpreter.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        step: int = 0,
        scope: str = "run",
        reports: bool | None = None,
        gpu: int | None = None,
        submitted: float | None = None,
        url: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        enabled: bool = True,
        **facts: Any,
    ) -> None:
        self._under_way: Step | None = None
        self._data = 0.0
        self._last = step
        self._logged: float | None = None
        self._stepped = False
        self._over = False
        self._reports = False
        self._sender: Sender | None = None
        self._pid = os.getpid()
        self._hook: Callable[..., Any] | None = None
        if enabled:
            wanted = _Wanted(rank, world_size, scope, reports, gpu, submitted)
            self._begin(name, wanted, (url, token, token_file), facts)

    @quietly
    def _begin(
        self,
        name: str | None,
        wanted: _Wanted,
        where: tuple[str | None, str | None, str | None],
        facts: dict[str, Any],
    ) -> None:
        rank, world_size, scope, reports, gpu, submitted = wanted
        place = find_place(os.environ)
        if place.rank is None:
            place = find_group(sys.modules)
        self._rank = place.rank if rank is None else rank
        self._scope = scope
        self._reports = self._rank in (None, 0) if reports is None else reports
        self._name = str(
            name or os.environ.get("FLOPWATCH_RUN") or os.environ.get("SLURM_JOB_NAME") or "run"
        )
        # No two starts of a job have the same; the milliseconds also order them for people.
        self._attempt = f"{int(time.time() * 1000):x}-{os.getpid()}"
        self._sender = Sender(*from_environment(*where), render=self._render, farewell=self._leave)
        if submitted is None:
            submitted = whole(os.environ.get("FLOPWATCH_SUBMITTED"))
        if gpu is None:
            gpu = find_gpu(os.environ, place.local_rank)
        own: Record = {"world_size": place.world_size if world_size is None else world_size}
        if gpu is not None and self._rank is not None:
            own["local_ranks"] = {str(self._rank): gpu}
        if submitted is not None:
            own["submitted"] = float(submitted)
        # Also that there are none: an attempt before this one, or what the processes began with,
        # may have had some.
        nccl = settings_of(os.environ)
        if self._rank is None:
            own["nccl"] = nccl
        else:
            own["nccl_ranks"] = {str(self._rank): nccl}
        self._sender.know({"kind": "facts", "run": self._name, **own})
        self.know(**facts)
        self._watch_for_the_end()
        if self._reports:
            if submitted is not None:
                self._tell("submitted", wall=float(submitted))
            self._tell("started")

    # ------------------------------------------------------------ steps

    def step(self, number: int | None = None, **numbers: Any) -> Step:
        """Return the context of one optimizer step: `with run.step(tokens=n) as step:`.

        `number` is the step's (default: one more than the last). Its time is what passes inside,
        and what `data` waited before it.
        """
        return Step(self, number, numbers)

    def _end_step(self, step: Step, seconds: float) -> None:
        sender = self._sender
        if sender is None:
            return
        data, phases = self._data, step.phases
        if data:
            self._data = 0.0
            seconds += data
            phases["data"] = phases.get("data", 0.0) + data
        number = step.number
        if number is None:
            number = self._last + 1
        self._last = number
        told = step.numbers
        for value in told.values():
            if type(value) not in _PLAIN:
                told = self._plain(told)
                break
        sender.put((number, time.time(), seconds, told, phases))
        if not self._stepped:
            self._notice_first()

    @quietly
    def log_step(
        self,
        number: int | None = None,
        *,
        seconds: float | None = None,
        phases: Mapping[str, float] | None = None,
        steps: int = 1,
        wall: float | None = None,
        **numbers: Any,
    ) -> None:
        """Tell a step that has ended, or the mean of the last `steps` of them.

        Without `seconds` its time is what has passed since the last call, by the number of steps;
        at the first call it is not known. `wall` is when it ended (default: now).
        """
        now = _clock()
        if seconds is None and self._logged is not None:
            seconds = (now - self._logged) / steps
        self._logged = now
        self._last = self._last + steps if number is None else number
        told = self._plain(numbers)
        if steps != 1:
            told["steps"] = steps
        if self._sender is not None:
            ended = time.time() if wall is None else wall
            self._sender.put((self._last, ended, seconds, told, dict(phases or {})))
            if not self._stepped:
                self._notice_first()

    def data(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return a loader whose waiting counts as the phase `data` of the step that follows."""
        return _Data(self, loader)

    # ------------------------------------------------------------ what happens to the run

    def checkpoint(self) -> _Checkpoint:
        """Return a context in which a checkpoint is saved; its time is what holds the loop up."""
        return _Checkpoint(self)

    @quietly
    def log_checkpoint(self, *, seconds: float | None = None) -> None:
        """Tell that a checkpoint was saved, which held the loop up for `seconds`."""
        if self._reports:
            self._tell("checkpoint_saved", step=self._last, seconds=seconds)

    @quietly
    def resume(self, step: int, *, seconds: float | None = None) -> None:
        """Tell that the run goes on from a checkpoint of `step`, loaded in so many seconds."""
        self._last = step
        if self._reports:
            self._tell("checkpoint_loaded", step=step, seconds=seconds)

    @quietly
    def know(self, **facts: Any) -> None:
        """Tell facts that are known only later. A later one takes the place of an earlier."""
        if self._sender is None:
            return
        unknown = sorted(set(facts) - FACTS)
        if unknown:
            self._sender.say_once(
                logging.WARNING, "facts", "flopwatch knows no fact %s", ", ".join(unknown)
            )
        kept = {name: value for name, value in facts.items() if name in FACTS and value is not None}
        if "config" in kept:
            kept["config"] = _plain_config(kept["config"])
        self._sender.know({"kind": "facts", "run": self._name, **kept})

    @quietly
    def fail(self, reason: str = "") -> None:
        """Tell that the run has failed. Any rank may; nothing more is told afterwards."""
        self._finish("failed", str(reason))

    @quietly
    def interrupt(self, reason: str = "") -> Record | None:
        """Tell that the run stops because its machine is taken away, and is to go on elsewhere.

        That is no failure. A checkpoint may still be told; how the script ends is not. Return what
        was told, for `go_on`; `None` if it is not for this rank to tell.
        """
        if self._over or self._sender is None or self._pid != os.getpid():
            return None
        self._over = True
        if not self._reports:
            return None
        told: Record | None = self._tell("interrupted", detail=str(reason)[:512], step=self._last)
        return told

    @quietly
    def go_on(self, interrupted: Record) -> None:
        """Tell of an interruption of this run at whatever machine, as `interrupt` returned it."""
        if self._sender is not None and self._reports:
            self._sender.tell({**interrupted, "run": self._name})

    @quietly
    def end(self) -> None:
        """Tell that the run has ended as it should. Nothing more is told afterwards."""
        self._finish("ended", "")

    def _finish(self, kind: str, detail: str) -> None:
        if self._over or self._sender is None or self._pid != os.getpid():
            return
        self._over = True
        if kind == "failed" or self._reports:
            self._tell(kind, detail=detail[:512], step=self._last if self._stepped else None)
        if sys.excepthook is self._hook:
            sys.excepthook = self._former_hook
        self._sender.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.end()
        else:
            self.fail(kind.__name__)

    @property
    def dropped(self) -> int:
        """How many steps were lost because nobody took them in time."""
        return 0 if self._sender is None else self._sender.dropped

    # A run that is copied into another process (a worker of a loader) tells nothing there.
    def __reduce__(self) -> tuple[Callable[[], Run], tuple[()]]:
        return _silent, ()

    def __copy__(self) -> Run:
        return self

    def __deepcopy__(self, memo: object) -> Run:
        return self

    # ------------------------------------------------------------ inside

    def _notice_first(self) -> None:
        self._stepped = True
        if self._reports:
            self._tell("first_step", step=self._last)

    @quietly
    def _tell(self, kind: str, **more: Any) -> Record | None:
        if self._sender is None:
            return None
        moment = {
            "kind": "moment", "run": self._name, "moment": kind, "wall": time.time(),
            "rank": self._rank, "attempt": self._attempt, **more,
        }  # fmt: skip
        told = {name: value for name, value in moment.items() if value is not None}
        self._sender.tell(told)
        return told

    def _plain(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers among what was told. Nothing is asked of a tensor."""
        kept: dict[str, Any] = {}
        for name, value in told.items():
            if type(value) in _PLAIN:
                kept[name] = value
            elif not isinstance(value, bool) and isinstance(value, numbers.Real):
                kept[name] = float(value)
            elif value is not None and self._sender is not None:
                self._sender.say_once(
                    logging.WARNING, name,
                    "flopwatch: %s is a %s and is not told: give a plain number",
                    name, type(value).__name__,
                )  # fmt: skip
        return kept

    def _render(self, put: tuple[int, float, float | None, dict[str, Any], Any]) -> Record:
        """Return the record of a step; runs in the sender's thread."""
        number, wall, seconds, told, phases = put
        record: Record = {
            "run": self._name, "step": number, "attempt": self._attempt, "wall": round(wall, 3),
        }  # fmt: skip
        if self._rank is not None:
            record["rank"] = self._rank
        if self._scope != "run":
            record["scope"] = self._scope
        if seconds is not None:
            record["seconds"] = round(seconds, 6)
        for name, value in told.items():
            if name == "steps" or self._is_ours(name):
                record[name] = value
        if phases:
            found: dict[str, float] = {}
            record["phases"] = found
            for name, spent in phases.items():
                known = name if name in PHASES else "other"
                found[known] = round(found.get(known, 0.0) + spent, 6)
        return record

    def _is_ours(self, name: str) -> bool:
        if name in OF_A_RANK or (name in SHARED and self._scope == "rank"):
            return True
        if name in OF_THE_RUN:
            return self._reports
        if self._sender is not None:
            self._sender.say_once(
                logging.WARNING, name, "flopwatch knows no %s of a step: it is not told", name
            )
        return False

    def _leave(self) -> None:
        """Say how it ended, if nobody has: the interpreter ends without an exception."""
        self.end()

    def _watch_for_the_end(self) -> None:
        self._former_hook = former = sys.excepthook
        run = weakref.ref(self)

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> Any:
            this = run()
            if this is not None:
                this.fail(kind.__name__)
            return former(kind, error, trace)

        self._hook = sys.excepthook = hook


def _plain_config(config: Any) -> dict[str, Any]:
    """Return what of a `config.json` JSON can hold: of long tables (labels, say) nothing."""
    kept: dict[str, Any] = {}
    for name, value in dict(config).items():
        try:
            if len(json.dumps(value)) <= 2000:
                kept[str(name)] = value
        except (TypeError, ValueError, RecursionError):
            continue
    return kept


def _silent() -> Run:
    return Run(enabled=False)
