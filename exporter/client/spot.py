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

import http.client
import json
import logging
import os
import signal
import threading
import time
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
    called at each `check`, and a checkpoint that all ranks write together needs it. `marker` is a
    file beside the checkpoints by which the run's next start knows of the interruption.
    `code` is the exit code. Under torchrun, `stop_agent` ends the agent of this node too, which
    would start the job here again.

    `file` and `url` say where the daemon tells of notices (`$FLOPWATCH_NOTICES`,
    `$FLOPWATCH_URL`). Signals are only watched if this is made in the main thread.
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
        due = self.due
        if self._agree is not None:
            due = bool(self._agree(due))
        if due:
            self.leave()

    def leave(self) -> None:
        """Save and end the script now. A second call ends it at once: nothing is saved twice.

        Raises `SystemExit`, and whatever `save` raises.
        """
        if self._left:
            raise SystemExit(self._code)
        self._left = True
        notice = self.notice or Notice("another rank is to leave", None)
        log.warning("flopwatch: the job leaves: %s", notice.reason)
        if self._run is not None:
            self._mark(self._run.interrupt(notice.reason))
        left = self.seconds_left
        if left is None or left >= self._needs:
            began = time.perf_counter()
            self._save(left)
            if self._run is not None:
                self._run.log_checkpoint(seconds=time.perf_counter() - began)
        else:
            log.warning("flopwatch: %.0f s are left, no checkpoint is begun", left)
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
        if told is not None and self._speaks and self._marker is not None:
            try:
                self._marker.unlink()
            except OSError as error:
                log.debug("flopwatch: %s: %s", self._marker, error)

    def close(self) -> None:
        """Watch no more, and leave signals as they were."""
        self._ending.set()
        for number, former in self._former.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, former)
        self._former = {}

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
            notice = self._watch.look()
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
        """Return what ends this machine, if anything does."""
        try:
            return _ending_in(self._from_file(), time.time())
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            log.debug("flopwatch: %s: %s", self._file, error)
        try:
            return _ending_in(self._from_daemon(), time.time())
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            log.debug("flopwatch: the daemon tells no notices: %s", error)
            return None

    def _from_file(self) -> Any:
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
    written = _time(found.get("written"))
    return written is None or now - written > _FRESH


def _boot() -> str:
    try:
        return Path(_BOOT).read_text("ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _ending_in(found: Any, now: float) -> Notice | None:
    """Return the notice that ends this machine first; what makes no sense is none."""
    notices = found.get("notices") if isinstance(found, dict) else None
    lead = _time(found.get("usual_lead_seconds")) if isinstance(found, dict) else None
    endings = []
    for one in notices if isinstance(notices, list) else ():
        if isinstance(one, dict) and _ends(one, now):
            deadline, seen = _time(one.get("deadline")), _time(one.get("seen"))
            if deadline is None and seen is not None and lead is not None:
                deadline = seen + lead
            reason = f"{one.get('kind')}: {one.get('action')}"
            endings.append(Notice(reason[:200], deadline))
    return min(endings, key=lambda one: one.deadline or now, default=None)


def _ends(one: dict[str, Any], now: float) -> bool:
    if one.get("kind") == "interruption":
        return True
    if one.get("kind") != "maintenance" or one.get("action") not in _ENDS:
        return False
    deadline = _time(one.get("deadline"))
    return deadline is None or deadline - now <= _SOON


def _time(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if good else None
