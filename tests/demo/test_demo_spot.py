"""The made-up cloud, as the real source reads it."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.clouds import Service
from exporter.clouds.aws import Aws
from exporter.demo import Demo
from exporter.notices import NoticeBoard
from exporter.samples import Fault, Metric, Sample
from exporter.sources.spot import SpotSource
from tests.fakes import FakeClock


def values(source: SpotSource) -> dict[Metric, float]:
    """Read, without a fault; return the values by family."""
    items = list(source.read())
    assert not [one for one in items if isinstance(one, Fault)]
    return {one.metric: one.value for one in items if isinstance(one, Sample)}  # type: ignore[misc]


@pytest.mark.parametrize(("scenario", "notice"), [("default", 0), ("spot-notice", 1)])
def test_the_cloud_announces_what_the_scenario_says(
    tmp_path: Path, scenario: str, notice: int
) -> None:
    """A spot instance, and in one scenario an end two minutes after the notice."""
    clock = FakeClock()
    demo = Demo(tmp_path, clock=clock, scenario=scenario)
    thread = threading.Thread(target=demo.metadata.serve_forever)
    thread.start()
    try:
        cloud = Aws(Service(demo.metadata.url, clock))
        source = SpotSource(cloud, NoticeBoard(), clock)
        before = values(source)
        assert before[c.SPOT_INTERRUPTION_NOTICE] == 0
        assert cloud.identify()[1:3] == ("spot", "p5.48xlarge")
        demo.step(31)
        clock.advance(31)
        after = values(source)
        assert after[c.SPOT_INTERRUPTION_NOTICE] == notice
        deadline = after.get(c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS)
        assert deadline == (clock.time() + 119 if notice else None)
    finally:
        demo.close()
        thread.join()


def test_without_a_token_nothing_is_told(tmp_path: Path) -> None:
    """As with IMDSv2: a client that has not learned of tokens sees nothing in the demo either."""
    demo = Demo(tmp_path)
    thread = threading.Thread(target=demo.metadata.serve_forever)
    thread.start()
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{demo.metadata.url}/latest/meta-data/instance-type")
    finally:
        demo.close()
        thread.join()
