"""Paths of containers' logs, and the jobs that pods belong to."""

from __future__ import annotations

import pytest

from exporter.formats.podlog import Pod, job_of, pod_of

UID = "7e9a1f3c-5b1e-4b5e-9d55-0a1b2c3d4e5f"


def test_paths_of_the_kubelet() -> None:
    path = f"/var/log/pods/team-a_llama-worker-3_{UID}/trainer/12.log"
    assert pod_of(path) == Pod("team-a", "llama-worker-3", "trainer", 12)
    link = f"/var/log/containers/llama-0_team-a_trainer-{'0f' * 32}.log"
    assert pod_of(link) == Pod("team-a", "llama-0", "trainer", None)
    assert pod_of("/home/me/train_1.log") is None
    assert pod_of(f"/var/log/pods/a_b_{UID}/trainer/0.log.20260101-000000") is None


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("llama-worker-3", "llama"), ("llama-master-0", "llama"), ("llama-launcher-x7k2p", "llama"),
        ("run-7b-workers-0-1-b5xkz", "run-7b"), ("pretrain-0-zx9cv", "pretrain"),
        ("llama-70b", "llama-70b"), ("single", "single"), ("worker-0", "worker"),
        ("gpt-train-eagle", "gpt-train-eagle"), ("exp-12345", "exp"),
    ],
)  # fmt: skip
def test_pods_of_a_job_share_a_name(pod: str, job: str) -> None:
    assert job_of(pod) == job
