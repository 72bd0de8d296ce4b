"""A page of metrics that a job shows itself, over HTTP."""

from __future__ import annotations

import socket

import pytest

from exporter.clock import SystemClock
from exporter.fetch import HttpFetcher
from exporter.samples import Drop, Fault, SourceError
from exporter.sources.training_page import TrainingPageSource
from exporter.training import Step, TrainingLedger
from tests.servers import Server, reply, request


class Job:
    """A job with a page, and what the daemon knows of it."""

    def __init__(self) -> None:
        self.page = b""
        self.server = Server(self.answer)
        self.ledger = TrainingLedger()
        clock = SystemClock()
        fetcher = HttpFetcher(self.server.url(), timeout=5, clock=clock)
        self.source = TrainingPageSource("job", fetcher, self.ledger, clock)

    def answer(self, connection: socket.socket) -> None:
        while True:
            request(connection)
            connection.sendall(reply(self.page))

    def shows(self, page: str) -> list[Fault | Drop]:
        self.page = page.encode()
        return self.source.read()

    def steps(self, run: str = "job") -> list[Step]:
        runs = {one.name: one for one in self.ledger.runs(0.0)}
        return [told.step for told in runs[run].tracks["page", None].recent]


@pytest.fixture
def job() -> Job:
    return Job()


def test_the_steps_of_a_page_go_to_the_ledger(job: Job) -> None:
    """Tokens are counted between two pages; a run that no label names is called as the source."""
    page = "# TYPE train_step gauge\ntrain_step {}\ntrain_loss 2\ntrain_tokens_total {}\n"
    assert job.shows(page.format(7, 700)) == []
    assert job.shows(page.format(9, 900)) == []
    first, second = job.steps()
    assert (first.step, first.loss, first.tokens) == (7, 2.0, None)
    assert (second.step, second.steps, second.tokens) == (9, 2, 100.0)
    job.source.close()
    job.server.close()


def test_a_page_of_something_else_says_that_no_run_is_there(job: Job) -> None:
    with pytest.raises(SourceError, match="no metrics of a training run"):
        job.shows("process_cpu_seconds_total 3\n")


def test_what_makes_no_sense_is_told_and_the_rest_kept(job: Job) -> None:
    (fault,) = job.shows("train_step 1\ntrain_step_time_seconds -1\ntrain_loss 2\n")
    assert isinstance(fault, Fault)
    assert "job: step 1: seconds = -1" in fault.detail
    assert job.ledger.refused() == {("page", "nonsense"): 1}
    assert job.steps()[0].loss == 2.0


def test_a_name_that_no_run_can_have_is_refused_with_its_field(job: Job) -> None:
    (fault,) = job.shows(f'train_step{{run="{"x" * 200}"}} 1\ntrain_loss{{run="{"x" * 200}"}} 1\n')
    assert isinstance(fault, Fault)
    assert "run: a name of 1 to 128" in fault.detail
