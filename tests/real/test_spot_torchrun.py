"""A torch job under torchrun, on a machine that is taken away: two ranks, gloo, real processes.

`FLOPWATCH_TORCH_PYTHON` names a Python with torch, beside which torchrun lies.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.metadata import PATHS, metadata
from tests.sources.test_cloud_notices import NOTICES
from tests.test_daemon import free_port
from tests.test_spot_daemon import TRAINING, Launch, has, launch, until

__all__ = ["launch"]  # the fixture

pytestmark = pytest.mark.real
ROOT = Path(__file__).parent.parent.parent
STEPS = 120


def torchrun(folder: Path, port: int, notices: Path, **more: str) -> subprocess.Popen[str]:
    python = os.environ.get("FLOPWATCH_TORCH_PYTHON")
    if not python:
        pytest.skip("needs FLOPWATCH_TORCH_PYTHON, a Python with torch")
    environment = {
        **os.environ, **more, "FLOPWATCH_URL": f"http://127.0.0.1:{port}",
        "FLOPWATCH_NOTICES": str(notices), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [
        str(Path(python).with_name("torchrun")), "--nproc-per-node=2", "--max-restarts=1",
        f"--master-port={free_port()}", str(ROOT / "tests/real/spot_torch.py"), str(folder),
        str(STEPS),
    ]  # fmt: skip
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("stop", ["1", "0"])
def test_torchrun_s_ranks_save_together_and_go_on_where_they_were(
    launch: Launch,
    tmp_path: Path,
    stop: str,
) -> None:
    """The agent that is ended does not begin again here. One that is not does so in vain.

    That attempt leaves after a step, unless gloo does not find its ranks: they may look for those
    of the attempt before, and torch ends them.
    """
    notices, calm = tmp_path / "notices.json", tmp_path / "calm.json"
    calm.write_text("{}")
    with metadata("aws") as mock:
        daemon = launch(
            f"provider: aws, endpoint: {mock.url}",
            more=TRAINING.format(file=notices, promise="< 2 minutes"),
        )
        daemon.wait_for("/metrics", has('spot_interruption_notice{provider="aws"} 0'))
        job = torchrun(tmp_path, daemon.port, notices, STOP_AGENT=stop)
        until((tmp_path / "going").exists, 120)
        mock.say(PATHS["aws"], NOTICES["aws"])
        out, _ = job.communicate(timeout=120)
        assert job.returncode != 0
        saved = re.findall(r"^rank (\d) saved (\d+)", out, re.MULTILINE)
        attempts = len(saved) // 2
        assert attempts == 1 or (attempts, stop) == (2, "0")
        assert len(saved) == 2 * attempts
        assert len({step for _, step in saved}) == attempts  # both ranks, the same step each time
        last = max(int(step) for _, step in saved)

        again = torchrun(tmp_path, daemon.port, calm)
        out, _ = again.communicate(timeout=120)
        assert again.returncode == 0
        assert sorted(re.findall(r"begins after (\d+)", out)) == [str(last)] * 2
        recoveries = f'train_interruption_recoveries_total{{run="torch-spot"}} {attempts}'
        page = daemon.wait_for("/metrics", has(recoveries))
    assert f'\ntrain_steps_total{{run="torch-spot"}} {STEPS}\n' in page
    assert '\ntrain_repeated_steps_total{run="torch-spot"} 0\n' in page
    assert "\ntrain_runs_failed_total 0\n" in page
