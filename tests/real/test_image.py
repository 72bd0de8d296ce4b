"""The image that the Dockerfile makes, unchanged: built, run as nobody, scraped.

`make test-image`, some minutes as root on Debian with buildah, podman, runc and debootstrap. The
base is bootstrapped from Debian's packages under the name that the Dockerfile wants, with Debian's
Python. `FLOPWATCH_IMAGE_BASE=pull` takes the real one, a path what debootstrap has left there. What
was made is removed at the end.
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.manifests import LEVELS, Manifest, one, pod, render

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
    "--security-opt", "no-new-privileges",
]  # fmt: skip


@contextlib.contextmanager
def daemon(workshop: Workshop, words: list[str]) -> Iterator[Container]:
    """A daemon in a container, on loopback; `words` are options, the image, and its arguments."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = f"flopwatch-{port}"
    process = subprocess.Popen(
        [*workshop.podman(), "run", "--rm", "--name", name, "--no-healthcheck", *LIMITS, *words,
         "--listen", f"127.0.0.1:{port}"]
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


@pytest.fixture(scope="module")
def container(workshop: Workshop, image: str) -> Iterator[Container]:
    with daemon(workshop, [*HARDENED, image, "run"]) as running:
        yield running


def mounts_of(pid: int) -> list[str]:
    """Return what is mounted in a process's namespace, a line each."""
    return Path(f"/proc/{pid}/mountinfo").read_text("ascii").splitlines()


def page(port: int, path: str) -> str:
    """Return a page of the daemon; nothing while there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def as_podman_runs(spec: dict[str, Any], host: Path) -> list[str]:
    """Return podman's options for a pod of the manifests; the host's paths lie below `host`.

    `/sys` and devices are the machine's own.
    """
    (container,) = spec["containers"]
    context = spec["securityContext"] | container["securityContext"]
    words = ["--user", f"{context['runAsUser']}:{context['runAsGroup']}"]
    if context.get("privileged", False):
        words.append("--privileged")  # which is all capabilities, whatever else is said of them
    else:
        words += [f"--cap-drop={name}" for name in context["capabilities"]["drop"]]
        words += [f"--cap-add={name}" for name in context["capabilities"].get("add", [])]
    if context["readOnlyRootFilesystem"]:
        words += ["--read-only", "--read-only-tmpfs=false"]
    if not context["allowPrivilegeEscalation"]:
        words += ["--security-opt", "no-new-privileges"]
    words += ["--pid", "host"] * spec.get("hostPID", False)
    words += [f"--env={env['name']}={env['value']}" for env in container["env"] if "value" in env]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for mount in container["volumeMounts"]:
        path = volumes[mount["name"]].get("hostPath", {}).get("path", f"/pod/{mount['name']}")
        place = path if path.startswith(("/sys", "/dev")) else f"{host}{path}"
        words.append(
            f"--volume={place}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"
        )
    return words


def host_of(folder: Path, manifests: Sequence[Manifest]) -> Path:
    """Return a folder with what the manifests mount: the ConfigMap, and root's own folders."""
    modes = {"pod/state": 0o777, "pod/config": 0o755, "run/flopwatch": 0o755,
             "var/lib/kubelet/pod-resources": 0o750}  # fmt: skip
    for path, mode in modes.items():
        (folder / path).mkdir(parents=True)
        (folder / path).chmod(mode)
    (folder / "pod/config/config.yaml").write_text(
        one(manifests, "ConfigMap")["data"]["config.yaml"], "utf-8"
    )
    return folder


def open_to(workshop: Workshop, options: list[str], socket_path: str) -> bool:
    """Tell whether a container with such rights can connect to a socket."""
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({socket_path!r})"
    done = subprocess.run(
        [*workshop.podman(), "run", "--rm", "--no-healthcheck", *LIMITS, *options,
         "--entrypoint", "python", IMAGE, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_runs(workshop: Workshop, image: str, tmp_path: Path, level: str) -> None:
    """The daemon runs with the rights, files and configuration of a level, and no others."""
    manifests = render(level)
    host = host_of(tmp_path / "host", manifests)
    (container,) = pod(manifests)["containers"]
    with daemon(workshop, [*as_podman_runs(pod(manifests), host), image, *container["args"]]) as it:
        text = page(it.port, "/metrics")
        assert "host_cpu_seconds_total{" in text
        assert "flopwatch_config_last_reload_successful 1" in text
        assert ("nic_" in text) is (level in {"overlays/fabric", "overlays/deep"})
        (root,) = [line.split() for line in mounts_of(it.pid) if line.split()[4] == "/"]
        assert "ro" in root[5].split(",")
    assert (host / "pod/state/state").is_dir()


def test_only_root_may_ask_the_kubelet(workshop: Workshop, image: str, tmp_path: Path) -> None:
    """User 0 without a capability gets to a socket in a folder of root's; 65532 does not."""
    manifests = render("overlays/basic")
    host = host_of(tmp_path / "host", manifests)
    path = "/var/lib/kubelet/pod-resources/kubelet.sock"
    with socket.socket(socket.AF_UNIX) as kubelet:
        # The path of a socket may have 107 characters.
        with contextlib.chdir(f"{host}/var/lib/kubelet/pod-resources"):
            kubelet.bind("kubelet.sock")
        Path(f"{host}{path}").chmod(0o755)
        kubelet.listen()
        options = as_podman_runs(pod(manifests), host)
        assert open_to(workshop, options, path)
        nobody = ["65532:65532" if word == "0:65532" else word for word in options]
        assert nobody != options
        assert not open_to(workshop, nobody, path)


def test_a_job_with_the_group_may_push(workshop: Workshop, image: str, tmp_path: Path) -> None:
    """The socket is open to pods with the daemon's group, by a read-only mount; else not."""
    manifests = render("overlays/basic", "components/push-socket")
    host = host_of(tmp_path / "host", manifests)
    (container,) = pod(manifests)["containers"]
    job = [
        "--user",
        "1000:1000",
        "--cap-drop=ALL",
        f"--volume={host}/run/flopwatch:/run/flopwatch:ro",
    ]
    with daemon(workshop, [*as_podman_runs(pod(manifests), host), image, *container["args"]]):
        there = (host / "run/flopwatch/push.sock").stat()
        assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (0, 65532, 0o660)
        assert open_to(workshop, [*job, "--group-add", "65532"], "/run/flopwatch/push.sock")
        assert not open_to(workshop, job, "/run/flopwatch/push.sock")


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


def test_what_is_no_python_came_along(workshop: Workshop, container: Container) -> None:
    """The status page's files, and tables and mappings of engines, are in the wheel."""
    assert "<html" in page(container.port, "/status")
    inside = [*workshop.podman(), "exec", container.name]
    assert "H100" in call(*inside, "flopwatch", "roofline")
    call(
        *inside, "python", "-c", "from exporter.engines import load_engines; assert load_engines()"
    )


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
    (root,) = [line.split() for line in mounts_of(container.pid) if line.split()[4] == "/"]
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
