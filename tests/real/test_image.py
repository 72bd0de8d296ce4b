"""The image that the Dockerfile makes, unchanged: built, run as nobody, scraped.

`make test-image`, some minutes as root on Debian with buildah, podman, runc and debootstrap. The
base is bootstrapped from Debian's packages under the name that the Dockerfile wants, with Debian's
Python. `FLOPWATCH_IMAGE_BASE=pull` takes the real one, a path what debootstrap has left there. What
was made is removed at the end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("buildah", "podman", "runc", "debootstrap")
IMAGE = "localhost/flopwatch:test"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"


class Workshop(NamedTuple):
    """Where images are kept, and wheels for a build without a network."""

    folder: Path

    def storage(self) -> list[str]:
        return [
            "--storage-driver", "vfs",
            "--root", str(self.folder / "store"), "--runroot", str(self.folder / "run"),
        ]  # fmt: skip

    def buildah(self, *words: str) -> str:
        return call("buildah", *self.storage(), *words, env={"BUILDAH_ISOLATION": "chroot"})

    def podman(self) -> list[str]:
        return ["podman", *self.storage(), "--runtime", "runc", "--cgroup-manager", "cgroupfs"]

    def inspect(self, image: str) -> dict[str, Any]:
        return dict(json.loads(call(*self.podman(), "image", "inspect", image))[0])


class Container(NamedTuple):
    """A daemon in a container, as the host sees it."""

    process: subprocess.Popen[bytes]
    name: str
    port: int
    pid: int


def call(*words: str, env: dict[str, str] | None = None) -> str:
    """Return what a command prints; its complaint where it fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=os.environ | (env or {}), check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def base_name() -> str:
    """Return the name of the base that the Dockerfile wants."""
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    said = dict(re.findall(r"^ARG (\w+)=(.*)$", dockerfile, re.MULTILINE))
    return f"docker.io/library/python:{said['PYTHON_VERSION']}-slim-{said['DEBIAN_VERSION']}"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}")
    made = Workshop(tmp_path_factory.mktemp("image"))
    yield made
    subprocess.run([*made.podman(), "rm", "--all", "--force"], capture_output=True, check=False)
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def base(workshop: Workshop) -> str:
    """The base image; Debian's own under its name where nothing is pulled."""
    name, told = base_name(), os.environ.get("FLOPWATCH_IMAGE_BASE", "")
    if told == "pull":
        workshop.buildah("pull", "-q", name)
        return name
    tree = Path(told or workshop.folder / "rootfs")
    if not told:
        call("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tree))
    # As the real one: `python` is there, and pip may install into it.
    (tree / "usr/bin/python").unlink(missing_ok=True)
    (tree / "usr/bin/python").symlink_to("python3")
    for mark in tree.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    container = workshop.buildah("from", "scratch")
    workshop.buildah("add", "-q", container, str(tree), "/")
    workshop.buildah("commit", "-q", "--format", "docker", "--rm", container, name)
    return name


@pytest.fixture(scope="module")
def image(workshop: Workshop, base: str) -> str:
    """The Dockerfile as it stands; wheels come from a folder, by the hashes of the lock files."""
    version = call(*workshop.podman(), "run", "--rm", *LIMITS, base, "python3", "-c",
                   "import sys; print('%d.%d' % sys.version_info[:2])")  # fmt: skip
    wheels = workshop.folder / "wheels"
    for lock in ("build", "requirements"):
        call(sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "--only-binary",
             ":all:", "--python-version", version, "-d", str(wheels), "-r",
             f"deploy/{lock}.lock")  # fmt: skip
    settings = workshop.folder / "pip.conf"
    settings.write_text("[global]\nno-index = true\nfind-links = /wheelhouse\n", "utf-8")
    workshop.buildah(
        "bud", "--pull-never", "--format", "docker", "-v", f"{wheels}:/wheelhouse:ro",
        "-v", f"{settings}:/etc/pip.conf:ro", "-t", IMAGE, ".",
    )  # fmt: skip
    return IMAGE


LIMITS = ["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000", "--network", "host"]
"""What this needs to run where the host's own limits are low."""
HARDENED = [
    "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--no-healthcheck",
]  # fmt: skip


@pytest.fixture(scope="module")
def container(workshop: Workshop, image: str) -> Iterator[Container]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = "flopwatch-test"
    process = subprocess.Popen(
        [*workshop.podman(), "run", "--rm", "--name", name, *LIMITS, *HARDENED, image,
         "run", "--listen", f"127.0.0.1:{port}"]
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not (page(port, "/-/ready")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.2)
        pid = call(*workshop.podman(), "inspect", "--format", "{{.State.Pid}}", name)
        yield Container(process, name, port, int(pid))
    finally:
        subprocess.run([*workshop.podman(), "rm", "-f", name], capture_output=True, check=False)
        process.wait(30)


def page(port: int, path: str) -> str:
    """Return a page of the daemon; nothing while there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_the_image_is_small(workshop: Workshop, base: str, image: str) -> None:
    """The size is printed, and what we add to the base is not more than it has to be."""
    whole, below = workshop.inspect(image)["Size"], workshop.inspect(base)["Size"]
    added = (whole - below) / 1e6
    print(
        f"\nimage {whole / 1e6:.0f} MB, of which the base {below / 1e6:.0f} MB, ours {added:.0f} MB"
    )
    assert 10 < added < 100


def test_the_image_says_what_it_is(workshop: Workshop, image: str) -> None:
    """User, labels, port and health check are in its configuration."""
    said = workshop.inspect(image)
    assert said["Config"]["User"] == "65532:65532"
    assert said["Config"]["Entrypoint"] == ["flopwatch"]
    assert "9810/tcp" in said["Config"]["ExposedPorts"]
    assert said["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert said["Config"]["Labels"]["org.opencontainers.image.base.name"] == base_name()
    assert said["Healthcheck"]["Test"][0] == "CMD"


def test_the_page_is_served(container: Container) -> None:
    """/metrics answers, with the daemon's own series and the host's."""
    text = page(container.port, "/metrics")
    print(f"\n{len(text.splitlines())} lines of /metrics")
    assert "flopwatch_build_info{" in text
    assert "host_cpu_seconds_total{" in text


def test_the_daemon_is_nobody(container: Container) -> None:
    """User and group 65532, no capability, no way to more, no file that can be written."""
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{container.pid}/status").read_text("ascii").splitlines()
        if ":\t" in line
    )
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65532"}
    assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0000000000000000"}
    assert status["NoNewPrivs"] == "1"
    mounts = Path(f"/proc/{container.pid}/mountinfo").read_text("ascii").splitlines()
    (root,) = [line.split() for line in mounts if line.split()[4] == "/"]
    assert "ro" in root[5].split(",")


def test_the_health_check_holds(workshop: Workshop, container: Container, image: str) -> None:
    """Its command succeeds in the container while the daemon lives on its usual port, else not."""
    command = workshop.inspect(image)["Healthcheck"]["Test"][1:]
    inside = [*workshop.podman(), "exec", container.name]
    call(*inside, *[word.replace("9810", str(container.port)) for word in command])
    elsewhere = [*inside, *[word.replace("9810", "1") for word in command]]
    assert subprocess.run(elsewhere, capture_output=True, check=False).returncode != 0


def test_what_is_optional_is_there(workshop: Workshop, container: Container) -> None:
    """The kubelet's protocol and passwords work; nothing can be installed."""
    inside = [*workshop.podman(), "exec", container.name, "python", "-c"]
    call(*inside, "import grpc, bcrypt, pynvml, exporter")
    done = subprocess.run([*inside, "import pip"], capture_output=True, check=False)
    assert b"No module named 'pip'" in done.stderr


def test_the_daemon_ends_when_told(workshop: Workshop, container: Container) -> None:
    """SIGTERM, which is how a pod is ended, is an end without an error."""
    os.kill(container.pid, signal.SIGTERM)
    assert container.process.wait(15) == 0
