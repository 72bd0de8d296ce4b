"""Our reading of traces with known truth, beside that of traceinsight on the same files.

Run by hand: `FLOPWATCH_TORCH_PYTHON=/path/to/python make test-real`, where that Python has
traceinsight (`pip install traceinsight` in a virtual environment of its own; it brings pandas).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exporter.profiling.reading import read_profile
from tests.trace_truth import events_of, scenario, truth_of, write

pytestmark = pytest.mark.real
RANKS = 6
ASK = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
times = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
overlaps = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
print("ANSWER " + json.dumps([times, overlaps]))
"""


def asked(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what traceinsight says of the traces in a folder: times, and overlaps."""
    python = os.environ.get("FLOPWATCH_TORCH_PYTHON")
    if not python:
        pytest.skip("needs FLOPWATCH_TORCH_PYTHON, a Python with traceinsight")
    command = [python, "-c", ASK, str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = next(line for line in output.splitlines() if line.startswith("ANSWER "))
    times, overlaps = json.loads(answer.removeprefix("ANSWER "))
    return times, overlaps


def test_both_agree_with_the_truth_within_one_percent(tmp_path: Path) -> None:
    """Idle, computing, the span, and the share of communication that computing hides."""
    truths = []
    for rank in range(RANKS):
        found = scenario(100 + rank)
        write(tmp_path / f"rank{rank}.pt.trace.json.gz", events_of(found, cpu=50), rank=rank)
        truths.append(truth_of(found))
    times, overlaps = asked(tmp_path)
    print("\nrank | what | truth | ours | traceinsight")
    for rank, truth in enumerate(truths):
        path = tmp_path / f"rank{rank}.pt.trace.json.gz"
        ours = read_profile(str(path), str(tmp_path), 1 << 28, 1 << 30)["summary"]
        theirs = next(row for row in times if row["rank"] == rank)
        overlap = next(row for row in overlaps if row["rank"] == rank)["comp_comm_overlap_pctg"]
        computing = ours["matmul"] + ours["memory_bound"]
        for what, wanted, our, their in (
            ("span", truth.span, ours["seconds"] * 1e6, theirs["kernel_time(us)"]),
            ("computing", truth.computing, computing * 1e6, theirs["compute_time(us)"]),
            ("idle", truth.idle, ours["idle"] * 1e6, theirs["idle_time(us)"]),
            ("overlap %", 100 - 100 * truth.exposed / truth.communication,
             100 * ours["overlap"], overlap),
        ):  # fmt: skip
            print(f"{rank} | {what} | {wanted:.2f} | {our:.2f} | {their}")
            assert our == pytest.approx(wanted, rel=0.01)
            assert their == pytest.approx(wanted, rel=0.01)
