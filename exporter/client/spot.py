"""Lets a training loop save what it has, and leave, before its machine is taken away.

    from exporter.client import Run
    from exporter.client.spot import Guard

    run = Run("llama-70b")
    guard = Guard(save, run=run, marker="/checkpoints/interrupted.json")
    guard.resumed(step)              # after a checkpoint was loaded
    for step in range(step + 1, last + 1):
        train()
        guard.check(step)            # saves and ends the script when it is time to

What ends a machine is learned from SIGTERM, and from the daemon, which asks the cloud: by the file
that it writes, else by its port. No metadata service is asked from here. Nothing is done inside the
signal handler: other ranks wait in the middle of a step there, and a checkpoint needs all of them.
"""

from __future__ import annotations

import functools
import http.client
import inspect
import json
import logging
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, NamedTuple

from .address import Line, Secrets, from_environment
from .run import Run

log = logging.getLogger("flopwatch")

FILE = "/run/flopwatch/notices.json"
"""Where the daemon writes what is announced (`notify.file`)."""

TERMINATED = 143
"""The exit code of a process that SIGTERM ended: launchers start such a one again."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_MOST = 1 << 20
_PAGE = "/spot"
_TIMEOUT = 2.0
_ENDS = frozenset(("terminate", "stop", "reboot", "redeploy", "retire"))
"""Work on the host after which the job's processes are no more."""
_FRESH = 60.0
_LATEST = 1e11
"""Seconds: no time is later, and whoever says so is not believed (nor `NaN`)."""
_SOON = 300.0
"""Seconds before such work at which a job leaves; it may be announced days ahead."""


class Notice(NamedTuple):
    """Why the job is to leave, and until when (Unix seconds; `None`: nobody said)."""

    reason: str
    deadline: float | None


class Guard:
    """Watches for the end of this machine.

    `save` is called with the seconds that are left (`None`: nobody knows), once, when it is time;
    not if they are fewer than `needs`, which a checkpoint is known to take. `grace` is what a
    SIGTERM leaves until SIGKILL (Kubernetes: 30), `margin` what is to stay free at the end.
    `agree` turns "this rank is to leave" into "all ranks are" (an all-reduce of the maximum): it is
    called at each `check`, and a checkpoint that all ranks write together needs it; where it is
    time and there is a `needs`, once more: if one rank has too little time, none begins. `marker`
    is a file beside the checkpoints by which the run's next start knows of the interruption.
    `code` is the exit code. Under torchrun, `stop_agent` ends the agent of this node too, which
    would start the job here again.

    `file` and `url` say where the daemon tells of notices (`$FLOPWATCH_NOTICES`,
    `$FLOPWATCH_URL`). Signals are only watched if this is made in the main thread. Raises
    `TypeError` for a `save` that cannot be called so.
    """

    def __init__(
        self,
        save: Callable[[float | None], Any],
        *,
        run: Run | None = None,
        marker: str | os.PathLike[str] | None = None,
        grace: float = 30.0,
        margin: float = 3.0,
        needs: float = 0.0,
        agree: Callable[[bool], Any] | None = None,
        code: int = TERMINATED,
        stop_agent: bool = False,
        signals: tuple[int, ...] = (signal.SIGTERM,),
        file: str | None = None,
        url: str | None = None,
        every: float = 1.0,
    ) -> None:
        _can_be_called(save)
        self._save = save
        self._run = run
        self._marker = None if marker is None else Path(marker)
        self._grace, self._margin, self._needs = grace, margin, needs
        self._agree = agree
        self._code = code
        self._stop_agent = stop_agent
        self._pid = os.getpid()
        self._notice: Notice | None = None
        self._left = False
        self._resuming: dict[str, Any] | None = None
        self._ending = threading.Event()
        self._former: dict[int, Any] = {}
        self._watch = _Watch(file, url)
        self._catch(signals)
        self._thread = threading.Thread(
            target=self._work, args=(every,), name="flopwatch-spot", daemon=True
        )
        self._thread.start()

    # ------------------------------------------------------------ for the loop

    @property
    def notice(self) -> Notice | None:
        """Why this rank is to leave, if it is."""
        return self._notice if os.getpid() == self._pid else None

    @property
    def due(self) -> bool:
        """Whether this rank is to leave, as far as it knows itself."""
        return self.notice is not None

    @property
    def seconds_left(self) -> float | None:
        """What is left until the end, less the margin; `None` where nobody has said."""
        notice = self.notice
        if notice is None or notice.deadline is None:
            return None
        return max(0.0, notice.deadline - time.time() - self._margin)

    def check(self, step: int | None = None) -> None:
        """Save and end the script if it is time to; to be called by every rank after each step.

        Raises `SystemExit`, and whatever `save` raises.
        """
        if step is not None and self._run is not None:
            self._run._last = max(self._run._last, step)
        if self._resuming is not None:
            self._unmark()
        due = self.due
        if self._agree is not None:
            due = bool(self._agree(due))
        if due:
            hurried = self._hurried
            if self._agree is not None and self._needs > 0.0:
                # A checkpoint of some ranks is none, and would wait for the others.
                hurried = bool(self._agree(hurried))
            self._leave(hurried=hurried)

    def leave(self) -> None:
        """Save and end the script now. A second call ends it at once: nothing is saved twice.

        Raises `SystemExit`, and whatever `save` raises.
        """
        self._leave(hurried=self._hurried)

    @property
    def _hurried(self) -> bool:
        """Whether what is left is known to be too little for a checkpoint."""
        left = self.seconds_left
        return left is not None and left < self._needs

    def _leave(self, *, hurried: bool) -> None:
        if self._left:
            raise SystemExit(self._code)
        self._left = True
        notice = self.notice or Notice("another rank is to leave", None)
        log.warning("flopwatch: the job leaves: %s", notice.reason)
        if self._run is not None:
            told = self._run.interrupt(notice.reason)
            if self._resuming is None:  # else it has not gone on since the former interruption
                self._mark(told)
        if hurried:
            log.warning("flopwatch: there is no time for a checkpoint, none is begun")
        else:
            began = time.perf_counter()
            self._save(self.seconds_left)
            if self._run is not None:
                self._run.log_checkpoint(seconds=time.perf_counter() - began)
        if self._stop_agent and "TORCHELASTIC_RUN_ID" in os.environ:
            os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(self._code)

    def resumed(self, step: int, *, seconds: float | None = None) -> None:
        """Tell that the run goes on from a checkpoint of `step`, loaded in so many seconds.

        If it was interrupted, here or elsewhere, that is told too, so that the time from then until
        the next step is known as its recovery.
        """
        if self._run is None:
            return
        told = self._read_marker()
        if told is not None:
            self._run.go_on(told)
        if step > 0 or told is not None:
            self._run.resume(step, seconds=seconds)
        self._resuming = told

    def close(self) -> None:
        """Watch no more, and leave signals as they were."""
        self._ending.set()
        self._let_go()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ inside

    def _catch(self, signals: tuple[int, ...]) -> None:
        try:
            for number in signals:
                self._former[number] = signal.signal(number, self._on_signal)
        except ValueError as error:  # not the main thread
            log.warning("flopwatch: signals are not watched: %s", error)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=functools.partial(_leave_alone, weakref.ref(self)))

    def _let_go(self) -> None:
        """Leave signals as they were."""
        try:
            for number, former in self._former.items():
                if signal.getsignal(number) == self._on_signal:
                    # None: a handler that is not Python's, which nobody can set again.
                    signal.signal(number, signal.SIG_DFL if former is None else former)
        except ValueError as error:  # not the main thread
            log.warning("flopwatch: signals are still watched: %s", error)
        else:
            self._former = {}

    def _on_signal(self, number: int, _frame: object) -> None:
        if os.getpid() != self._pid:
            # A worker that was forked (of a loader) ends as it would without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        name = signal.Signals(number).name
        self._hear(Notice(f"signal {name}", time.time() + self._grace))

    def _hear(self, notice: Notice) -> None:
        """Keep what leaves the least time, and the first reason."""
        former = self._notice
        if former is None:
            self._notice = notice
        elif notice.deadline is not None:
            earliest = min(notice.deadline, former.deadline or notice.deadline)
            self._notice = former._replace(deadline=earliest)

    def _work(self, every: float) -> None:
        while not self._ending.is_set():
            try:
                notice = self._watch.look()
            except Exception as error:  # whatever a file may hold, the next one may be good
                log.debug("flopwatch: notices: %r", error)
                notice = None
            if notice is not None:
                self._hear(notice)
            self._ending.wait(every)

    @property
    def _speaks(self) -> bool:
        return self._run is not None and self._run._reports

    def _mark(self, told: dict[str, Any] | None) -> None:
        """Leave a word for the next start; without it the recovery is known on this node alone."""
        if told is None or self._marker is None:
            return
        new = self._marker.with_name(f".{self._marker.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps({"flopwatch_interrupted": told}), "utf-8")
            new.replace(self._marker)
        except OSError as error:
            log.warning("flopwatch: %s: %s", self._marker, error)

    def _unmark(self) -> None:
        """Forget an interruption: a step was done after it.

        Not sooner: a launcher may start the run again on the machine that is about to go.
        """
        self._resuming = None
        if self._speaks and self._marker is not None:
            try:
                self._marker.unlink()
            except OSError as error:
                log.debug("flopwatch: %s: %s", self._marker, error)

    def _read_marker(self) -> dict[str, Any] | None:
        if self._marker is None:
            return None
        try:
            with self._marker.open("rb") as file:
                told = json.loads(file.read(_MOST))["flopwatch_interrupted"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            log.warning("flopwatch: %s: %s", self._marker, error)
            return None
        return told if isinstance(told, dict) else None


def _leave_alone(guard: weakref.ref[Guard]) -> None:
    """Let a process that was forked (a worker of a loader) end as it would without us.

    By the system: a handler in Python has to wait for whatever the worker computes.
    """
    this = guard()
    if this is not None:
        this._let_go()


def _can_be_called(save: Callable[..., Any]) -> None:
    """Raise `TypeError` for what cannot be called with the seconds that are left.

    Else that would be found out when the machine is taken away.
    """
    try:
        signature = inspect.signature(save)
    except ValueError:  # nobody can tell
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(f"save is called with the seconds that are left: {error}") from None


class _Watch:
    """Looks for what the daemon tells of this machine: a file, or its port where there is none."""

    def __init__(self, file: str | None, url: str | None) -> None:
        self._file = Path(file or os.environ.get("FLOPWATCH_NOTICES", "") or FILE)
        self._line: Line | None = None
        try:
            where, _ = from_environment(url, None, None)
            self._line = Line(where, Secrets(), _TIMEOUT)
        except ValueError as error:
            log.warning("flopwatch: %s", error)
        self._seen: object = None
        self._found: Any = None

    def look(self) -> Notice | None:
        """Return what ends this machine, if anything does.

        Of a file that the daemon does not write any more, work on the host that is past may have
        been called off.
        """
        found: Any = None
        try:
            found = self._from_file()
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            log.debug("flopwatch: %s: %s", self._file, error)
        now = time.time()
        if found is not None and not _is_stale(found, now):
            return _ending_in(found, now)
        try:
            told = self._from_daemon()
            if isinstance(told, dict) and (found is None or told.get("provider")):
                return _ending_in(told, now)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            log.debug("flopwatch: the daemon tells no notices: %s", error)
        return _ending_in(found, now, stale=True)

    def _from_file(self) -> Any:
        """Return what is in the file, `None` if that is of another run of the machine."""
        about = self._file.stat()
        seen = (about.st_ino, about.st_mtime_ns, about.st_size)
        if seen != self._seen:
            with self._file.open("rb") as file:
                found = json.loads(file.read(_MOST))
            self._found, self._seen = (None if _is_old(found, time.time()) else found), seen
        return self._found

    def _from_daemon(self) -> Any:
        if self._line is None:
            return None
        status, body = self._line.get(_PAGE)
        return json.loads(body) if status == 200 else None


def _is_old(found: Any, now: float) -> bool:
    """Tell whether it was announced to another run of the machine.

    A container with a kernel of its own (Kata, gVisor) has another boot id than the daemon: a file
    that was written just now counts, since the daemon writes it each ten seconds.
    """
    if not isinstance(found, dict) or found.get("boot") in ("", None, _boot()):
        return False
    return _time(found.get("written")) is None or _is_stale(found, now)


def _is_stale(found: Any, now: float) -> bool:
    """Tell whether the daemon has written this too long ago to be still there."""
    written = _time(found.get("written")) if isinstance(found, dict) else None
    return written is not None and now - written > _FRESH


def _boot() -> str:
    try:
        return Path(_BOOT).read_text("ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _ending_in(found: Any, now: float, *, stale: bool = False) -> Notice | None:
    """Return the notice that ends this machine first; what makes no sense is none."""
    notices = found.get("notices") if isinstance(found, dict) else None
    lead = _time(found.get("usual_lead_seconds")) if isinstance(found, dict) else None
    endings = []
    for one in notices if isinstance(notices, list) else ():
        if isinstance(one, dict) and _ends(one, now, stale=stale):
            deadline, seen = _time(one.get("deadline")), _time(one.get("seen"))
            if deadline is None and seen is not None and lead is not None:
                deadline = seen + lead
            reason = f"{one.get('kind')}: {one.get('action')}"
            endings.append(Notice(reason[:200], deadline))
    return min(endings, key=lambda one: one.deadline or now, default=None)


def _ends(one: dict[str, Any], now: float, *, stale: bool) -> bool:
    if one.get("kind") == "interruption":
        return True
    if one.get("kind") != "maintenance" or str(one.get("action")) not in _ENDS:
        return False
    deadline = _time(one.get("deadline"))
    if deadline is None:
        return not stale
    return deadline - now <= _SOON and not (stale and deadline < now)


def _time(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if good and -_LATEST < value < _LATEST else None
