"""An inference server: its own metrics page, read and put into our words.

One source for each server. The engine is recognised by its page unless it is configured. How to
fetch is `fetch`'s matter, how to read a page that of `formats.exposition`, what the names mean that
of `engines`; here is only the order of things and what to tell an operator when there is nothing to
be had. Percentiles, rates and costs are derived elsewhere.

A scraper will see, among others:

    llm_server_info{engine="vllm",server="a",version=""} 1
    llm_ttft_seconds_bucket{model_name="m",model_version="",engine="vllm",server="a",le="0.1"} 31
    llm_tokens_total{model_name="m",model_version="",direction="output",…} 14939
    llm_active_requests{model_name="m",model_version="",engine="vllm",server="a"} 4
    llm_source_info{engine="vllm",server="a",metric="llm_e2e_seconds",quality="exact",…} 1
    llm_scrape_duration_seconds{server="a"} 0.0052
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.engines import Engine, Translator, detect
from exporter.fetch import Response
from exporter.formats.exposition import Limits, Page, Reader
from exporter.samples import (
    EMPTY_SHAPE,
    Batch,
    Brought,
    Drop,
    Fault,
    Malformed,
    Shape,
    SourceError,
)

_LOOK_AGAIN = 10
"""Every how many reads a server that was refused is looked at again: about every ten minutes."""


class Fetch(Protocol):
    """What gets the page."""

    def get(self) -> Response:
        """Return the page, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class InferenceSource:
    """Reads one inference server.

    `server` is its name in labels. `engine` is the name of one of `engines`, or `auto`.
    `model_name` stands in where the page names no model (llama.cpp). Engines whose page changes by
    being read need `allow_destructive_read`: without it one that is configured is never read, and
    one that `auto` finds is read this once and then at each tenth read (the runner backs off and
    asks about once a minute): perhaps another engine is there by then. Raises `ValueError` for an
    engine that is not there.
    """

    def __init__(
        self,
        server: str,
        fetch: Fetch,
        engines: Sequence[Engine],
        *,
        clock: Clock,
        engine: str = "auto",
        model_name: str | None = None,
        allow_destructive_read: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.name = f"inference:{server}"
        self.group = c.SERVING
        self._server = server
        self._fetch = fetch
        self._clock = clock
        self._model_name = model_name
        self._may_destroy = allow_destructive_read
        self._limits = limits if limits is not None else Limits()
        self._engines = _chosen(engines, engine)
        self._configured = engine != "auto"
        self._refusal = ""
        self._rest = 0
        self._translator: Translator | None = None
        self._reader = self._wide()
        self._page_shape = self._whole_shape = EMPTY_SHAPE
        if self._configured and not self._refused(self._engines[0]):
            self._take(self._engines[0])

    def read(self) -> Brought:
        """Fetch the page once and translate it.

        Raises `SourceError` (denied), mostly before anything is fetched, where reading would
        destroy; what the fetcher raises; `SourceError` (unavailable) if the server has no metrics
        of a known engine; `Malformed` if the page is none.
        """
        if self._refusal and (self._configured or self._rest > 0):
            self._rest -= 1
            raise SourceError("denied", self._refusal)
        begun = self._clock.monotonic()
        response = self._fetch.get()
        duration = self._clock.monotonic() - begun
        translator, page = self._understood(response)
        self._refusal = ""
        batch, others = self._timed(translator.translate(page), duration)
        others += [Drop(reason, number) for reason, number in page.dropped.items() if number]
        if page.damaged:
            others.append(Fault.of("page", Malformed("; ".join(self._losses(page)))))
        return Brought(batch, others)

    def close(self) -> None:
        """Close the connection."""
        self._fetch.close()

    def _timed(self, brought: Brought, duration: float) -> tuple[Batch, list[Fault | Drop]]:
        """Add how long the server took; the shape is another one only where the page's is."""
        page = brought.batch
        if page.shape is not self._page_shape:
            self._page_shape = page.shape
            metrics = (c.LLM_SCRAPE_DURATION_SECONDS, *page.shape.metrics)
            self._whole_shape = Shape(metrics, ((self._server,), *page.shape.labels))
        return Batch(self._whole_shape, (duration, *page.values)), list(brought.others)

    def _understood(self, response: Response) -> tuple[Translator, Page]:
        """Return the page as read for its engine, which may be another one than the last time."""
        _expect_metrics(response)
        page = self._reader.read(response.body)
        translator = self._translator
        if translator is None or not translator.engine.offers(page.shape):
            translator = self._recognised(response.body)
            page = self._reader.read(response.body)
        return translator, page

    def _recognised(self, body: bytes) -> Translator:
        """Find the engine of a page and keep what reads it."""
        page = self._wide().read(body)
        engine = detect(self._engines, page.shape)
        if engine is None:
            others = next(filter(None, (e.repeats(page.shape) for e in self._engines)), "")
            hint = f"; it repeats those of other servers (label {others})" if others else ""
            raise SourceError("unavailable", f"up, but no metrics of {self._wanted()}{hint}")
        if self._refused(engine):
            self._rest = _LOOK_AGAIN - 1
            raise SourceError("denied", self._refusal)
        return self._take(engine)

    def _losses(self, page: Page) -> Iterator[str]:
        """Yield what is missing of a page, and why."""
        limits = self._limits
        why = {
            "malformed": "make no sense",
            "labels": f"have a label of more than {limits.max_label_bytes} bytes (max_label), or"
            f" more than {limits.max_labels} labels",
            "cap": f"are beyond {limits.max_series} lines (max_page_series), or longer than"
            f" {limits.max_line_bytes} bytes (max_line)",
        }
        if page.partial:
            yield "it ends in the middle of a line"
        for reason, told in why.items():
            if number := page.dropped.get(reason):
                yield f"lines that are not read: {number} {told}"

    def _wanted(self) -> str:
        if not self._configured:
            names = ", ".join(engine.name for engine in self._engines)
            return f"an engine that is known here ({names})"
        (engine,) = self._engines
        return f"{engine.name} ({engine.hint})" if engine.hint else engine.name

    def _refused(self, engine: Engine) -> bool:
        """Tell whether an engine may not be read, and keep what is to be said of it."""
        if not engine.destructive or self._may_destroy:
            return False
        self._refusal = (
            f"{engine.name}: reading its page resets averages that others may read;"
            " allow_destructive_read: true permits it"
        )
        return True

    def _take(self, engine: Engine) -> Translator:
        self._translator = Translator(engine, self._server, self._model_name)
        self._reader = Reader(engine.wanted, self._limits)
        return self._translator

    def _wide(self) -> Reader:
        names = [name for engine in self._engines for name in engine.telling]
        return Reader(names, self._limits)


def _chosen(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """Return the engines that may be behind a page."""
    chosen = tuple(engine for engine in engines if name in ("auto", engine.name))
    if not chosen:
        known = ", ".join(engine.name for engine in engines)
        raise ValueError(f"engine {name!r} is not known (auto, {known})")
    return chosen


def _expect_metrics(response: Response) -> None:
    """Raise, with a hint, for the pages that come in place of metrics."""
    start = response.body[:64].lstrip()[:1]
    if not start and not response.body.strip():
        raise SourceError("unavailable", "up, but no metrics: the page is empty")
    if start == b"<":
        raise Malformed("a web page, not metrics: the path is another one")
    if start in (b"{", b"[") or "json" in response.content_type:
        raise Malformed("JSON, not metrics (TensorRT-LLM's metrics are at /prometheus/metrics)")
