"""Sends records to the daemon from a thread of its own, and never holds anybody up.

What is told goes into queues of limited length; when they are full the oldest is lost and counted.
The thread wakes once a second. While the daemon is away it asks less and less often; what it has
sent without an answer it sends again, which the daemon counts once. After a fork the child starts
anew with empty queues: what was in them is the parent's to send.
"""

from __future__ import annotations

import atexit
import http.client
import json
import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable

from .address import Line, Secrets

log = logging.getLogger("flopwatch")

MOST_STEPS = 4096
MOST_MOMENTS = 64
MOST_AT_ONCE = 200
INTERVAL = 1.0
LONGEST_PAUSE = 30.0
LAST_TRIES = 4
"""How often a run that has ended is told again, while its script goes on."""
TIMEOUT = 3.0
LAST_TIMEOUT = 0.8
SECONDS_TO_LEAVE = 1.0
_TURN = 8
"""Records after which the thread lets others run: a training loop waits for the interpreter."""

MOST_FACTS = 60_000

Record = dict[str, Any]


class Sender:
    """A way to one daemon.

    `render` makes a record of what was put; it runs in the thread. `farewell` is called when the
    interpreter ends, before what is left is sent.
    """

    def __init__(
        self,
        url: str,
        secrets: Secrets,
        render: Callable[[Any], Record],
        farewell: Callable[[], None],
    ) -> None:
        self._url, self._secrets, self._render, self.farewell = url, secrets, render, farewell
        self._facts: Record = {}
        self._facts_text = ""
        self._said: set[str] = set()
        self.dropped = 0
        self._begin()
        _watch(self)

    def _begin(self) -> None:
        """Start anew; also in the child of a fork, where no thread is and any lock may be held."""
        self._steps: deque[Any] = deque(maxlen=MOST_STEPS)
        self._moments: deque[Record] = deque(maxlen=MOST_MOMENTS)
        self._pending: list[str] = []
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._line: Line | None = None
        self._news = False
        self._closing = self._leaving = False

    def put(self, step: Any) -> None:
        """Take a step. Costs a microsecond."""
        steps = self._steps
        waiting = len(steps)
        if waiting == MOST_STEPS:
            self.dropped += 1
        elif waiting == MOST_STEPS // 2:
            self._wake.set()
        steps.append(step)
        if self._thread is None:
            self._start()

    def tell(self, moment: Record) -> None:
        """Take something that happened; steps do not push it out."""
        self._moments.append(moment)
        self._start()
        self._wake.set()

    def know(self, facts: Record) -> None:
        """Take facts: they are told at each new connection, since a daemon may have restarted.

        Raises `ValueError` for what is too large, and what `json` raises.
        """
        both = {**self._facts, **facts}
        text = _text(both)
        if len(text) > MOST_FACTS:
            raise ValueError(f"facts of {len(text)} characters are too much")
        self._facts, self._facts_text, self._news = both, text, True
        self._start()

    def close(self) -> None:
        """Send what there is and end the thread, without waiting for it."""
        self._closing = True
        self._wake.set()

    def flush(self, seconds: float = SECONDS_TO_LEAVE) -> None:
        """Send what there is and end the thread; wait no longer than so many seconds for it."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._leaving = True
        self.close()
        thread.join(seconds)

    def say_once(self, level: int, about: str, text: str, *values: object) -> None:
        """Log something about a matter once for each process."""
        if about not in self._said:
            self._said.add(about)
            log.log(level, text, *values)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._work, name="flopwatch", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError as error:  # no more threads, or the interpreter ends
                    self._closing = True
                    log.debug("flopwatch: nothing is told: %s", error)

    def _work(self) -> None:
        pause, tries = INTERVAL, 0
        try:
            while True:
                if not self._leaving and (tries or not self._closing):
                    self._wake.wait(pause)
                self._wake.clear()
                # Before what waits is taken: what was put before the end must be among it.
                closing, leaving = self._closing, self._leaving
                done = self._send_all(last=leaving)
                if leaving or (closing and (done or tries == LAST_TRIES)):
                    return
                tries += closing
                pause = INTERVAL if done else min(2 * pause, LONGEST_PAUSE)
        except Exception as error:
            self._closing = True
            log.debug("flopwatch: nothing is told any more: %r", error)
        finally:
            if self._line is not None:
                self._line.close()

    def _send_all(self, *, last: bool) -> bool:
        """Send all that waits; tell whether the daemon has answered, if there was something."""
        try:
            if self._line is None:
                self._line = Line(self._url, self._secrets, TIMEOUT)
            if last:
                self._line.hurry(LAST_TIMEOUT)
            while self._collect(is_new=not self._line.is_open):
                if not self._send(self._line):
                    return False
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Of a URL or a token nothing is shown.
            what = getattr(error, "strerror", None) or type(error).__name__
            self.say_once(logging.DEBUG, "away", "flopwatch: the daemon cannot be told: %s", what)
            return False
        return True

    def _collect(self, *, is_new: bool) -> bool:
        """Fill the batch that is to be sent; tell whether there is something in it."""
        batch = self._pending
        if self._news or (is_new and self._facts and (batch or self._moments or self._steps)):
            self._news = False
            if self._facts_text and self._facts_text not in batch:
                batch.insert(0, self._facts_text)
        while self._moments and len(batch) < MOST_AT_ONCE:
            self._add(self._moments.popleft())
        while self._steps and len(batch) < MOST_AT_ONCE:
            self._add(self._render(self._steps.popleft()))
            if len(batch) % _TURN == 0:
                time.sleep(0)
        return bool(batch)

    def _add(self, record: Record) -> None:
        try:
            self._pending.append(_text(record))
        except (TypeError, ValueError, RecursionError) as error:
            self.say_once(logging.WARNING, "text", "flopwatch cannot tell a record: %s", error)

    def _send(self, line: Line) -> bool:
        """Send the batch; tell whether to go on at once."""
        status, answer = line.post(('{"records":[' + ",".join(self._pending) + "]}").encode())
        if status in (200, 400, 413):
            self._pending = []
            if status != 200 or b'"refused":[]' not in answer:
                said = answer.decode("utf-8", "replace").strip()[:500]
                self.say_once(logging.WARNING, "refused", "flopwatch refuses records: %s", said)
            return True
        if status in (401, 403):
            said = answer.decode("utf-8", "replace").strip()[:200]
            self.say_once(logging.WARNING, "denied", "flopwatch answers %d: %s", status, said)
        else:
            self.say_once(logging.DEBUG, "away", "flopwatch answers %d", status)
        return False


_WATCHING: list[bool] = []
_SENDERS: weakref.WeakSet[Sender] = weakref.WeakSet()


def _text(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))


def _watch(sender: Sender) -> None:
    """See to it that a fork and the end of the interpreter find a sender."""
    if not _WATCHING:
        _WATCHING.append(True)
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_in_child)
    _SENDERS.add(sender)


def _in_child() -> None:
    for sender in list(_SENDERS):
        line = sender._line
        sender._begin()
        if line is not None:
            line.close()  # our copy of the connection; the parent's stays open


def _at_exit() -> None:
    until = time.monotonic() + SECONDS_TO_LEAVE
    for sender in list(_SENDERS):
        sender.farewell()
    for sender in list(_SENDERS):
        sender.flush(max(0.0, until - time.monotonic()))
