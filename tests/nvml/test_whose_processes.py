"""Whose the processes on GPUs are, under the whole daemon: driver, child, cgroups, page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.job_node import POD, Node
from tests.test_daemon import Daemon

Start = Callable[..., Daemon]


def test_a_gpu_that_a_pod_and_a_job_share_is_split_on_the_page(daemon: Start, root: Path) -> None:
    """Time slicing (dcgm-exporter 474): each pod was shown the whole GPU, or a random one."""
    node = Node(root)
    for pid in (11327, 11328):
        node.process(pid, "v2-containerd-systemd-burstable")
        (root / "proc" / str(pid) / "comm").write_text("memhog\n")
    node.process(11345, "v2-slurm-step0")
    (root / "proc" / "11345" / "comm").write_text("gpu_burn\n")
    node.logs("team", "train-0", POD)
    one = daemon("h100-sxm8")
    uuid = r'uuid="GPU-[^"]+"'
    seconds = (
        rf'gpu_allocation_sm_seconds_total\{{cluster_job="840392",container="",gpu="0",'
        rf'namespace="",pod="",pod_uid="",{uuid}\}} [1-9]'
    )
    job = rf'gpu_job_info\{{cluster_job="840392",gpu="0",mig="",user="",{uuid}\}} 1'
    wanted = (seconds, job)
    page = one.wait_for("/metrics", lambda _, page: all(re.search(one, page) for one in wanted))
    memory = rf"gpu_allocation_memory_used_bytes\{{([^}}]*),{uuid}\}} (\S+)"
    assert dict(re.findall(memory, page)) == {
        f'cluster_job="",container="",gpu="0",namespace="team",pod="train-0",pod_uid="{POD}"':
            str(2690646016 + 1616904192),
        'cluster_job="840392",container="",gpu="0",namespace="",pod="",pod_uid=""': "16452157440",
    }  # fmt: skip
    assert len(re.findall(r"\ngpu_process_info\{", page)) == 3
    assert len(re.findall(r"\ngpu_up\{", page)) == 8, "no series of a GPU depends on owners"
    (root / "proc" / "11345" / "cgroup").unlink()
    for file in (root / "proc" / "11345").iterdir():
        file.unlink()
    (root / "proc" / "11345").rmdir()
    one.wait_for("/metrics", lambda _, page: "gpu_job_info{" not in page)
    assert one.stop()[0] == 0
