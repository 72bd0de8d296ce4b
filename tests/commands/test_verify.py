"""`flopwatch verify`: the specification's three checks, through the command line."""

from __future__ import annotations

import json
import math
import random
import subprocess
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from exporter.derive.comparison import Slice, times_of
from tests.commands.captures import Job, capture
from tests.test_command import flopwatch


def verify(before: Path, after: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return flopwatch("verify", str(before), str(after), *options)


def plain(before: Path, after: Path, *options: str) -> dict[str, Any]:
    result = verify(before, after, "--json", *options)
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["passed"] == (result.returncode == 0)
    return found


def test_an_optimization_that_holds(tmp_path: Path) -> None:
    """8 s to 6.4 s a step: 1.25 times as fast, the loss within 0.01, 10 % more memory."""
    before = capture(tmp_path / "before.prom", Job(mean=8.0, loss=2.0, memory=60))
    after = capture(tmp_path / "after.prom", Job(mean=6.4, loss=2.004, memory=66, seed=2))

    result = verify(before, after)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("the optimization holds\n")
    assert [line.split()[0] for line in result.stdout.splitlines()[2:5]] == ["passed"] * 3

    found = plain(before, after)
    assert found["speedup"] == pytest.approx(1.25, rel=0.01)
    assert found["beyond_noise"] is True
    assert found["noise_ratio"] == pytest.approx(1.96 * math.hypot(0.1 / 8, 0.1 / 6.4) / 120**0.5,
                                                 rel=0.5)  # fmt: skip
    assert found["before"]["steps"] == 120
    assert found["before"]["noise_from"] == "slices"
    assert found["checks"]["loss"]["value"] == pytest.approx(0.004)
    assert found["checks"]["memory"]["value"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"mean": 8.5}, "speed"),
        ({"mean": 6.4, "loss": 2.011}, "loss"),
        ({"mean": 6.4, "loss": math.nan}, "loss"),
        ({"mean": 6.4, "memory": 73.0}, "memory"),
    ],
)
def test_what_does_not_hold_is_named_and_the_exit_code_is_1(
    tmp_path: Path, changed: dict[str, float], failed: str
) -> None:
    """Each of the three alone."""
    before = capture(tmp_path / "before.prom", Job())
    after = capture(tmp_path / "after.prom", Job(seed=2, **changed))  # type: ignore[arg-type]

    result = verify(before, after)

    assert result.returncode == 1
    assert f"it does not hold: {failed}\n" in result.stdout
    assert result.stdout.count("FAILED") == 1
    assert plain(before, after)["checks"][failed]["passed"] is False


def test_limits_are_the_users(tmp_path: Path) -> None:
    """--tolerance and --growth."""
    before = capture(tmp_path / "before.prom", Job())
    after = capture(tmp_path / "after.prom", Job(mean=7.0, loss=2.05, memory=90, seed=2))

    assert verify(before, after).returncode == 1
    assert verify(before, after, "--tolerance", "0.06", "--growth", "0.6").returncode == 0


def test_a_speed_up_within_the_noise_is_told(tmp_path: Path) -> None:
    """0.1 % with steps that vary by 25 %: it counts as above 1, and is no proof."""
    before = capture(tmp_path / "before.prom", Job(mean=8.0, spread=2.0))
    after = capture(tmp_path / "after.prom", Job(mean=7.95, spread=2.0, seed=3))

    found = plain(before, after)
    assert found["beyond_noise"] is False
    assert any("within the noise" in note for note in found["notes"])
    assert verify(before, after, "--beyond-noise").returncode == 1


def test_nothing_changed_is_mostly_within_the_noise(tmp_path: Path) -> None:
    """Of twenty comparisons of the same thing with itself, some two lie beyond."""
    from exporter.commands.verify import Wanted
    from exporter.commands.verify import verify as compared

    beyond = 0
    for seed in range(20):
        one = capture(tmp_path / f"a{seed}", Job(spread=0.5, seed=seed))
        other = capture(tmp_path / f"b{seed}", Job(spread=0.5, seed=100 + seed))
        beyond += compared(one, other, Wanted()).plain["beyond_noise"]
    assert beyond <= 4


def test_a_step_of_another_batch_is_compared_by_tokens(tmp_path: Path) -> None:
    """Four times the steps in the same time, of a quarter of the tokens: not faster."""
    before = capture(tmp_path / "before.prom", Job(mean=8.0, tokens=8e6))
    after = capture(tmp_path / "after.prom", Job(mean=2.1, tokens=2e6, seed=2))

    found = plain(before, after)
    assert found["speedup"] == pytest.approx(8 / 2.1 / 4, rel=0.01)
    assert found["checks"]["speed"]["passed"] is False
    assert any("by tokens" in note for note in found["notes"])


def test_losses_of_other_steps_and_losses_that_fluctuate_are_told(tmp_path: Path) -> None:
    """They say little about an optimization."""
    before = capture(tmp_path / "before.prom", Job(loss_spread=0.2))
    after = capture(tmp_path / "after.prom", Job(mean=7, loss_spread=0.2, first=900, seed=2))

    notes = plain(before, after)["notes"]
    assert any("of steps 121 and 1,020" in note for note in notes)
    assert any("fluctuate" in note for note in notes)


def test_two_pages_are_enough(tmp_path: Path) -> None:
    """The noise is then taken from the buckets of step times, on the careful side."""
    before = capture(tmp_path / "before.prom", Job(), pages=2, each=100)
    after = capture(tmp_path / "after.prom", Job(mean=6.4, seed=2), pages=2, each=100)

    found = plain(before, after)
    assert found["before"]["noise_from"] == "buckets"
    assert found["passed"] and found["beyond_noise"]
    assert found["before"]["standard_error_seconds"] > 0.1 / 10


def test_pages_may_be_openmetrics_too(tmp_path: Path) -> None:
    """What `curl` gives with either format, one after the other."""
    before = capture(tmp_path / "before.prom", Job())
    other = capture(tmp_path / "om.prom", Job(), openmetrics=True)

    assert other.read_text().count("# EOF") == 13
    assert plain(before, other)["speedup"] == 1


PROBLEMS = {
    "gone": (None, "No such file or directory"),
    "empty": (b"", "holds no metrics page"),
    "web": (b"<!doctype html><html></html>\n", "not a metrics page"),
    "binary": (b"\x00\x01" * 4000, "not a metrics page"),
    "other": (b"# HELP up Up.\n# TYPE up gauge\nup 1\n" * 2, "tells of no training run"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    """One line for each file, and exit code 2: nothing was compared."""
    content, reason = PROBLEMS[name]
    bad = tmp_path / name
    if content is not None:
        bad.write_bytes(content)

    result = verify(bad, capture(tmp_path / "good.prom", Job()))

    assert result.returncode == 2
    assert result.stderr.startswith(f"flopwatch: {bad}")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_is_missing_is_told_of_both_files_at_once(tmp_path: Path) -> None:
    """With the way out."""
    before = capture(tmp_path / "before.prom", Job(loss=None))
    after = capture(tmp_path / "after.prom", Job(loss=None, memory=None, mean=7))

    result = verify(before, after)
    assert result.returncode == 2
    hint = "of run 'llama-7b' (--without {} does not ask for it)"
    loss, memory = hint.format("loss"), hint.format("memory")
    assert result.stderr.splitlines() == [
        f"flopwatch: {before}: has no train_loss {loss}",
        f"flopwatch: {after}: has no train_loss {loss}",
        f"flopwatch: {after}: has no train_memory_peak_bytes {memory}",
    ]
    result = verify(before, after, "--without", "loss", "--without", "memory")
    assert result.returncode == 0
    assert "loss" not in result.stdout


def test_one_page_is_no_interval_and_a_restart_in_between_is_none(tmp_path: Path) -> None:
    """Counters began anew: what was before is not known."""
    good = capture(tmp_path / "good.prom", Job())
    one = capture(tmp_path / "one.prom", Job(), pages=1)
    assert "holds one page" in verify(good, one).stderr

    first, second = (
        capture(tmp_path / n, Job(), pages=2, each=e) for n, e in (("x", 50), ("y", 5))
    )
    torn = tmp_path / "torn.prom"
    torn.write_bytes(first.read_bytes() + second.read_bytes())
    assert "the daemon was restarted" in verify(good, torn).stderr

    still = capture(tmp_path / "still.prom", Job(), each=0)
    assert "no step of run 'llama-7b' ended" in verify(good, still).stderr


def test_of_several_runs_one_is_named(tmp_path: Path) -> None:
    """And one that is not there is told, with those that are."""
    both = capture(tmp_path / "both.prom", Job("a"), Job("b", mean=4.0))
    after = capture(tmp_path / "after.prom", Job("b", mean=3.0, seed=2))

    assert "tells of 2 runs: name one; there are --run a, --run b" in verify(both, after).stderr
    assert plain(both, after, "--run", "b")["speedup"] == pytest.approx(4 / 3, rel=0.02)
    assert "has no train_step_seconds of run 'c'" in verify(both, after, "--run", "c").stderr


@pytest.mark.parametrize("seed", range(5))
def test_the_standard_error_is_that_of_the_steps(seed: int) -> None:
    """From slices about the true one; from buckets never less."""
    dice = random.Random(seed)
    slices, times = [], []
    for _ in range(30):
        some = [max(0.1, dice.gauss(4.0, 0.8)) for _ in range(20)]
        times += some
        slices.append(Slice(20, sum(some)))
    bounds = (1.0, 2.0, 3.0, 4.0, 5.0, 7.5)
    counts = [sum(one <= bound for one in times) for bound in (*bounds, math.inf)]
    true = stdev(times) / math.sqrt(len(times))

    by_slices = times_of(slices, bounds, counts)
    by_buckets = times_of([Slice(600, sum(times))], bounds, counts)

    assert (by_slices.mean, by_buckets.mean) == pytest.approx((fmean(times), fmean(times)))
    assert by_slices.error == pytest.approx(true, rel=0.45)
    assert true * 0.98 < by_buckets.error < true * 1.5
