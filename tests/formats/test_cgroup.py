"""Which container, pod, Slurm job or unit a process is in, by the lines of `/proc/PID/cgroup`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.formats.cgroup import Cgroup, is_slurm, live_job, read

SAMPLES = Path(__file__).parent.parent / "data" / "cgroups"

C9 = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
C1 = "1753b7cbbf62734d812936961224d5bc0cf8f45214e0d5cdd1a781a053e7c48f"
P2 = "2c48913c-b29f-11e7-9350-020968147796"

EXPECTED = {
    "empty": Cgroup(),
    "v1-malformed": Cgroup(),
    "v1-containerd-colon-form": Cgroup(
        C1, "containerd", "b41662f7-b03a-4c65-8ef9-6e4e55c3cf27", "besteffort"
    ),
    "v2-containerd-colon-form": Cgroup(
        "d4e8e05a546c86b6443f101966c618e47753ed01fa9929cae00d3b692f7a9f80", "containerd",
        "214f3ba8-4b69-4bdb-a7d5-5ecc73f04ae9", "besteffort",
    ),
    "v1-crio-systemd-besteffort": Cgroup(
        "d6d725b909f37c3e232aadfbafa950a58bfe7baa579ba8c47a12be88bb921607", "cri-o",
        "8ca306fa-3c03-47fa-97dd-19979c345572", "besteffort",
    ),
    "v1-docker-plain": Cgroup(
        "485776c9f6f2c22e2b44a2239b65471d6a02701b54d1cb5e1c55a09108a1b5b9", "docker"
    ),
    "v1-kind-docker-in-docker": Cgroup(
        "aff34703e5e1f89443e9a1bffcc80f43f74d4808a2dd22c8f88c08547b323934", "",
        "daa5c7ee-3484-4533-af39-3591564fd03e", "besteffort",
    ),
    "v1-kubepods-cgroupfs-besteffort": Cgroup(C9, "", P2, "besteffort"),
    "v1-kubepods-cgroupfs-guaranteed": Cgroup(
        "ef807430361edd74442f7c5703c8273545c501e93a80e8e4542de37ad75153b0", "",
        "87e18f63-83cb-11e7-a01d-42010a8001db", "guaranteed",
    ),
    "v1-kubepods-systemd-docker": Cgroup(C9, "docker", P2, "burstable"),
    "v1-private-cgroupns-relative": Cgroup(C9, "", P2, relative=True),
    "v1-slurm-uid": Cgroup(job="99", step="0", uid="1000"),
    "v1v2-hybrid-containerd": Cgroup(
        "6d393320601b821561e43bd46f658284cb172cf297ecc3d3665be657870d32e2", "containerd",
        "57e67067-89e4-4001-bdd4-8632d39ea02b", "burstable",
    ),
    "v2-bare-service": Cgroup(unit="sshd.service"),
    "v2-bare-session": Cgroup(uid="1000", unit="session-3.scope"),
    "v2-containerd-systemd-burstable": Cgroup(
        "e01a26336924e2fb8089bcf4cf943954fd9ea616cc5678f38f65928307979459", "containerd",
        "2d5133c0-65f3-40b2-b375-c04866d418e1", "burstable",
    ),
    "v2-crio-systemd-burstable": Cgroup(
        "80d85a3a585f1575028ebe468d83093c301eda20d37d1671ff2a0be50fc0e460", "cri-o",
        "69349abe-d645-11ea-9c4c-08002709c05c", "burstable",
    ),
    "v2-crio-systemd-static-pod": Cgroup(
        "192f5a90b165665d969bb0137b8573f2214c8f75b728ecc58dbbc7fccd64af28", "cri-o",
        "e4e6004e827fdf45941cf777618f60ce", "burstable",
    ),
    "v2-docker-systemd": Cgroup(C9, "docker"),
    # conmon watches over the container from outside of it
    "v2-podman-rootless": Cgroup(runtime="podman", uid="1000", unit="user@1000.service"),
    "v2-private-cgroupns-relative-crio": Cgroup(
        "45490e76e0878aaa4d9808f7d2eefba37f093c3efbba9838b6d8ab804d9bd814", "cri-o", relative=True
    ),
    "v2-private-cgroupns-root": Cgroup(relative=True),
    "v2-slurm-batch": Cgroup(job="1076414", step="batch", task="0"),
    "v2-slurm-extern": Cgroup(job="42", step="extern"),
    "v2-slurm-step0": Cgroup(job="840392", step="0", task="0"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_published_form_is_understood(name: str) -> None:
    """Each recorded form, field by field."""
    assert read((SAMPLES / f"{name}.txt").read_text("utf-8")) == EXPECTED[name]


def test_every_sample_has_its_expectation() -> None:
    """None lies around unread."""
    assert {file.stem for file in SAMPLES.glob("*.txt")} == EXPECTED.keys()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/kubepods.slice/kubepods-pod{u}.slice/cri-containerd-{c}.scope",
         Cgroup(C9, "containerd", P2, "guaranteed")),
        ("/kubelet.slice/kubelet-kubepods-besteffort-pod{u}.slice/cri-containerd-{c}.scope",
         Cgroup(C9, "containerd", P2, "besteffort")),
        # systemd runs in the container; CRI-O's newer form; both keep a group of their own below
        ("/kubepods.slice/kubepods-pod{u}.slice/crio-{c}.scope/container/init.scope",
         Cgroup(C9, "cri-o", P2, "guaranteed")),
        ("/kubepods.slice/kubepods-pod{u}.slice/crio-conmon-{c}.scope",
         Cgroup("", "cri-o", P2, "guaranteed")),
        # from inside a pod of the same class, as version 2 shows it to a container
        ("/../../kubepods-burstable-pod{u}.slice/cri-containerd-{c}.scope",
         Cgroup(C9, "containerd", P2, "burstable", relative=True)),
        ("/machine.slice/libpod-{c}.scope/container", Cgroup(C9, "podman")),
        ("/libpod_parent/libpod-{c}", Cgroup(C9, "podman")),
        ("/system.slice/nerdctl-{c}.scope", Cgroup(C9, "containerd")),
        ("/system.slice/node7_slurmstepd.scope/job_5/step_interactive/user/task_special",
         Cgroup(job="5", step="interactive", node="node7")),
        ("/slurm_node7/uid_0/job_5/step_1/task_2",
         Cgroup(job="5", step="1", task="2", node="node7", uid="0")),
        # slurmd in a pod, and a container in a job
        ("/kubepods/pod{u}/cri-containerd-{c}.scope/slurmstepd.scope/job_8/step_0/user/task_0",
         Cgroup(C9, "containerd", P2, "guaranteed", "8", "0", "0")),
        ("/system.slice/slurmstepd.scope/job_8/step_0/user/task_0/libpod-{c}.scope",
         Cgroup(C9, "podman", job="8", step="0", task="0")),
        ("/system.slice/vllm.service (deleted)", Cgroup(unit="vllm.service")),
        # no job of Slurm's; and a user who calls a group so
        ("/user.slice/user-7.slice/user@7.service/slurm/job_5",
         Cgroup(uid="7", unit="user@7.service")),
        ("/user.slice/user-7.slice/job_5/step_0", Cgroup(uid="7")),
    ],
    ids=[
        "guaranteed", "nested-kubelet", "systemd-inside", "conmon", "own-namespace", "podman",
        "podman-cgroupfs", "nerdctl", "slurm-two-nodes-v2", "slurm-two-nodes-v1", "slurm-in-pod",
        "pod-in-slurm", "deleted", "pretended", "not-slurm",
    ],
)  # fmt: skip
def test_a_form_of_notes_is_understood(path: str, expected: Cgroup) -> None:
    """Forms that have no recording: as the runtimes and Slurm document them."""
    line = "0::" + path.format(c=C9, u=P2.replace("-", "_"))
    assert read(line) == expected


def test_the_line_that_tells_most_counts() -> None:
    """A hybrid machine: only one hierarchy of version 1 has the job, version 2 the session."""
    text = (
        "0::/user.slice/user-5.slice/session-1.scope\n"
        "9:cpuset:/slurm/uid_5/job_3\n5:memory:/slurm/uid_5/job_3/step_batch/task_0\n"
    )
    assert read(text) == Cgroup(job="3", step="batch", task="0", uid="5")


def test_directories_of_jobs_are_known() -> None:
    """Below what Slurm calls its own, a directory for each job."""
    assert [live_job(name) for name in ("job_12", "job_", "job_x", "job_1/..", "step_1")] == [
        "12", "", "", "", ""
    ]  # fmt: skip
    assert [n for n in ("slurm", "slurm_n1", "slurmstepd.scope", "a_slurmstepd.scope", "slurmd")
            if not is_slurm(n)] == ["slurmd"]  # fmt: skip


_PART = st.sampled_from(
    ["kubepods", "besteffort", f"pod{P2}", C9, f"crio-{C9}.scope", "slurm", "uid_1", "job_2", "..",
     "slurmstepd.scope", "step_0", "a.service", "..", ":", "\x00", "é", "x" * 300]
)  # fmt: skip


@given(
    st.one_of(
        st.text(max_size=400),
        st.lists(_PART, max_size=12).map(lambda parts: "0::/" + "/".join(parts)),
    )
)
@example("0::" + "/" * 100_000)
@example("\n" * 100_000 + "0::/a.service")
@example("1:" + ":" * 9000 + "/job_1")
@example("0::/slurm/" + "job_1/" * 10_000)
def test_hostile_text_is_only_words_of_known_form(text: str) -> None:
    """Whatever a process calls its groups: nothing raises, and no field is of another form."""
    found = read(text)
    assert re.fullmatch(r"([0-9a-f]{64})?", found.container)
    assert re.fullmatch(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})?", found.pod)
    assert re.fullmatch(r"(guaranteed|burstable|besteffort)?", found.qos)
    assert all(re.fullmatch(r"([0-9]{1,10})?", one) for one in (found.job, found.task, found.uid))
    assert re.fullmatch(r"[0-9a-z]{0,32}", found.step)
    assert max(map(len, found[:-1])) <= 255
