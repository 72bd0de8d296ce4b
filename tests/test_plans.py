"""What the settings ask for: which sources there are, and who gives way to whom."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.app import App
from exporter.clock import SystemClock
from exporter.config import ConfigError, Settings, parse
from exporter.discovery import Target
from exporter.nvml.inventory import gpus_on_bus, has_gpus
from exporter.plans import Estate, Plan, plan
from exporter.plans.demo import Lent
from exporter.plans.gpus import accelerators
from exporter.runner import Schedule
from exporter.samples import Gate, Item, Released, Remembered, Sample, Snapshot, SourceError
from exporter.sources.fallback import Fallback
from exporter.training import Step
from tests.fakes import FakeClock
from tests.servers import Server, reply, serving


def names(text: str, *, gpus: bool = False) -> list[str]:
    return [one.name for one in plan(parse(text, "test"), Estate(FakeClock(), gpus=gpus))]


def derivation(interval: str, *servers: str, serving: str = "5s") -> Plan:
    """Return what works out windows and objectives, of servers that are read so often."""
    listed = "".join(
        f"{{name: s{at}, url: 'http://s{at}:1/metrics', interval: {each}}}, "
        for at, each in enumerate(servers)
    )
    inference = f"{{interval: {interval}, servers: [{listed}]}}"
    text = f"sources: {{inference: {inference}, serving: {{interval: {serving}}}}}"
    found = plan(parse(text, "test"), Estate(FakeClock()))
    return next(one for one in found if one.name == "derive:serving")


def test_no_reading_of_a_server_is_passed_over() -> None:
    """What came between the last reading looked at and the last one is lost at a restart."""
    assert derivation("2s", "null").schedule.interval == 2
    assert derivation("5s", "null", "1s").schedule.interval == 1
    assert derivation("5s", "1s", serving="500ms").schedule.interval == 0.5
    assert derivation("30s", "null").schedule.interval == 5
    one, same, faster = (derivation(often, "null") for often in ("30s", "20s", "1s"))
    assert one.fingerprint == same.fingerprint != faster.fingerprint


def test_it_is_looked_whose_processes_are_where_the_driver_lists_them() -> None:
    """And for jobs where either tells of them."""
    both = {"jobs", "slurm"}
    directory = "slurm: {job_mapping_directory: /run/jobs}"
    assert both.isdisjoint(names(""))
    assert both <= set(names("", gpus=True))
    assert both.isdisjoint(names("sources: {nvml: {processes: false}}", gpus=True))
    assert both & set(
        names(f"sources: {{nvml: {{processes: false}}, {directory}}}", gpus=True)
    ) == {"slurm"}
    assert both.isdisjoint(names("sources: {jobs: {enabled: false}}", gpus=True))
    assert both <= set(names("sources: {jobs: {enabled: true}}"))


def test_pods_are_known_in_a_pod_that_was_given_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is mounted is the permission; elsewhere only where that is asked for."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    token = tmp_path / "token"
    text = f"sources: {{inference: {{kubernetes: {{token_file: {token}%s}}}}}}"
    assert "pods" not in names(text % "")
    with pytest.raises(ConfigError, match="api_url is needed outside of a pod"):
        names(text % ", enabled: true")
    assert "pods" in names(text % ", enabled: true, source: kubelet")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert "pods" not in names(text % "")
    token.write_text("t")
    assert "pods" in names(text % "")
    assert "pods" not in names(text % ", enabled: false")


def test_a_peak_of_ones_own_starts_only_what_uses_it_anew() -> None:
    """The table of products is that of the settings; no reader of GPUs is disturbed."""
    own = "accelerators: [{name: NVIDIA H100 80GB HBM3, peak_flops: {bf16: 800T}}]"
    before, after = (
        {
            one.name: one.fingerprint
            for one in plan(parse(text, "f"), Estate(FakeClock(), gpus=True))
        }
        for text in ("", own)
    )
    anew = [name for name in before if before[name] != after[name]]
    assert anew == ["derive:hardware", "derive:training"]
    found = accelerators(parse(own, "f")).find("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert found.peaks["bf16"] == 800 * 10**12


def card(root: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> Path:
    """Put a device on the PCI bus of a machine whose files are below `root`."""
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    return device


def test_gpu_sources_run_where_there_are_gpus() -> None:
    """`auto` follows the machine; true and false do not ask."""
    assert {"nvml", "kmsg", "derive:hardware"}.isdisjoint(names(""))
    assert {"nvml", "kmsg", "derive:hardware"} <= set(names("", gpus=True))
    assert "nvml" not in names("sources: {nvml: {enabled: false}}", gpus=True)
    assert "nvml" in names("sources: {nvml: {enabled: true}}")


@pytest.mark.parametrize("reader", ["nvml", "dcgm", "dcgm_page"])
def test_whoever_reads_gpus_gets_their_log_and_peaks_as_well(reader: str) -> None:
    """`auto` of the kernel log and of derived values also follows a reader that was asked for."""
    text = f"sources: {{{reader}: {{enabled: true}}}}"
    assert {reader, "kmsg", "derive:hardware"} <= set(names(text))
    refused = text[:-1] + ", kmsg: {enabled: false}, derived: {enabled: false}}"
    assert {"kmsg", "derive:hardware"}.isdisjoint(names(refused))


@pytest.mark.parametrize(("preferred", "behind"), [("", ["dcgm"]), ("preferred: true, ", ["nvml"])])
def test_one_of_two_readers_gives_way(preferred: str, behind: list[str]) -> None:
    """By default DCGM fills the gaps of NVML; the operator may turn that round."""
    text = (
        "sources: {nvml: {enabled: true}, dcgm: {" + preferred + "enabled: true,"
        " address: '127.0.0.1:5555'}}"
    )
    made = {one.name: one.make() for one in plan(parse(text, "test"), Estate(FakeClock()))}
    assert [name for name in ("nvml", "dcgm") if isinstance(made[name], Fallback)] == behind


def test_three_readers_stand_in_line() -> None:
    """A dcgm-exporter's page comes last of three and looks at both before it."""
    text = "sources: {nvml: {enabled: true}, dcgm: {enabled: true}, dcgm_page: {enabled: true}}"
    last = next(
        one for one in plan(parse(text, "test"), Estate(FakeClock())) if one.name == "dcgm_page"
    )
    assert last.fingerprint.endswith("behind nvml behind dcgm")


def test_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    """NVIDIA's display and 3D controllers count; their audio, other makers and functions do not."""
    card(tmp_path, "0000:18:00.0")
    card(tmp_path, "0000:2a:00.0", kind="0x030000")
    card(tmp_path, "0000:2a:00.1", kind="0x040300")
    card(tmp_path, "0000:05:00.0", vendor="0x1a03")
    (card(tmp_path, "0000:18:00.4") / "physfn").mkdir()
    (card(tmp_path, "0000:99:00.0") / "vendor").unlink()
    assert gpus_on_bus(tmp_path) == 2
    assert has_gpus(tmp_path)


@pytest.mark.parametrize("file", ["vendor", "class"])
@pytest.mark.parametrize("content", [b"", b"N/A (no PMA)\n", b"\xff\xfe", b"\0", "folder", "error"])
def test_45_one_odd_file_on_the_bus_costs_no_other_gpu(
    tmp_path: Path, file: str, content: bytes | str
) -> None:
    """A file that is empty, has other words, is no text, no file, or fails when it is read
    (node_exporter 3265, 966, 1130): its device is no GPU, and the others are counted."""
    card(tmp_path, "0000:18:00.0")
    odd = card(tmp_path, "0000:2a:00.0") / file
    card(tmp_path, "0000:3b:00.0")
    odd.unlink()
    if isinstance(content, bytes):
        odd.write_bytes(content)
    elif content == "folder":
        odd.mkdir()
    else:
        odd.symlink_to("/proc/self/mem")  # reading its beginning is an I/O error
    assert gpus_on_bus(tmp_path) == 2


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    """No device, no driver: nothing is asked, and no child process is started."""
    assert gpus_on_bus(tmp_path) == 0


def test_a_driver_without_a_pci_device_is_noticed(tmp_path: Path) -> None:
    """Boards with an integrated GPU have the driver's files and nothing on the bus."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert has_gpus(tmp_path)


def test_a_gpu_that_appears_later_is_noticed_and_never_given_up(tmp_path: Path) -> None:
    """The driver is installed while the daemon runs; later the last GPU falls off the bus."""
    config = tmp_path / "flopwatch.yaml"
    root = tmp_path / "root"
    root.mkdir()
    if has_gpus(root):
        pytest.skip("this machine has a GPU driver of its own")
    config.write_text(
        f"root: {root}\n"
        "sources: {host: {enabled: false}, network: {enabled: false}, process: {enabled: false},"
        " nvml: {enabled: false}, derived: {enabled: false}, inference: {enabled: false},"
        " ranks: {enabled: false}, topology: {enabled: false}, ethtool: {enabled: false},"
        " nccl_environment: {enabled: false}}\n"
        "diagnosis: {enabled: false}\n"
        "fabric: {enabled: false}\n"
        "cost: {enabled: false}\n"
        "push: {enabled: false}\n"
        "history: false\n"
    )
    app = App(config)
    app.start()
    try:
        assert [s.name for s in app.view().sources] == []
        device = card(root, "0000:18:00.0")
        app.notice_gpus()
        assert [s.name for s in app.view().sources] == ["kmsg"]
        (device / "vendor").unlink()
        app.notice_gpus()
        assert app.reload() == ()
        assert [s.name for s in app.view().sources] == ["kmsg"]
    finally:
        app.stop()


# ---- letting go -----------------------------------------------------------------------------


class Holder:
    """A source with handles, in this process; it counts its reads on from its memory."""

    name = "nvml"
    group = "gpu"

    def __init__(self, memory: object) -> None:
        self.count = memory if isinstance(memory, int) else 0
        self.closed = False

    def read(self) -> Iterable[Item]:
        self.count += 1
        yield c.GPU_DEVICES_PRESENT(self.count)

    def memory(self) -> object:
        return self.count

    def close(self) -> None:
        self.closed = True


def test_a_release_shows_in_the_demo() -> None:
    """Its source runs in this process: it is closed, refuses, and another goes on later."""
    made: list[Holder] = []
    memories: dict[str, object] = {}
    clock = FakeClock()

    def make(memory: object) -> Holder:
        made.append(Holder(memory))
        return made[-1]

    def lent() -> Lent:
        return Lent("nvml", "gpu", make, clock, memories)

    one = lent()
    assert one.release(1) is True
    assert made == []
    clock.advance(1)
    assert list(one.read()) == [c.GPU_DEVICES_PRESENT(1)]
    assert list(one.read()) == [c.GPU_DEVICES_PRESENT(2)]

    assert one.release(60) is True
    assert made[0].closed
    clock.advance(20)
    with pytest.raises(Released, match="another 40 s"):
        one.read()
    assert len(made) == 1
    clock.advance(40)
    assert list(one.read()) == [c.GPU_DEVICES_PRESENT(3)]
    one.close()
    assert made[1].closed
    assert list(lent().read()) == [c.GPU_DEVICES_PRESENT(4)], "after a reload"


class Stuck(Holder):
    """Cannot be closed before `gate` is set, nor does it let go until then."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__(None)
        self._gate = gate

    def close(self) -> None:
        self._gate.wait(30)

    def release(self, seconds: float) -> bool:
        return self._gate.is_set()


def test_a_release_asks_those_who_are_leaving_too() -> None:
    """One that a reload has replaced, or taken away, still has its handles until it has ended."""
    first, second = threading.Event(), threading.Event()
    second.set()
    wanted = [first]

    def plans(_: Settings, estate: Estate) -> list[Plan]:
        schedule = Schedule(0.1, 0.1)
        return [
            Plan("nvml", "gpu", schedule, str(id(gate)), functools.partial(Stuck, gate))
            for gate in wanted
        ]

    app = App(None, plans=plans)
    app.start()
    try:
        wanted[:] = [second]
        assert app.reload() == ()
        assert app.release(0.1) == {"nvml": False}, "replaced"
        pause = threading.Event()
        for _ in range(600):
            if [source.state for source in app.view().sources] == ["stuck"]:
                break
            pause.wait(0.05)
        assert [source.state for source in app.view().sources] == ["stuck"]
        wanted[:] = []
        assert app.reload() == ()
        assert app.release(0.1) == {"nvml": False}, "taken away"

        first.set()
        for _ in range(600):
            if app.release(0.1) == {}:
                break
            pause.wait(0.05)
        assert app.release(0.1) == {}
    finally:
        first.set()
        app.stop()


def test_a_folder_that_may_not_be_looked_at_has_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path.exists raises where a folder may not be searched; the daemon starts all the same."""
    card(tmp_path, "0000:18:00.0")

    def denied(_: Path) -> bool:
        raise PermissionError("no search permission")

    monkeypatch.setattr(Path, "exists", denied)
    assert gpus_on_bus(tmp_path) == 1
    assert has_gpus(tmp_path)


OFF = "{name: a, url: 'http://h:1/m', enabled: false}"
PROMISED = "inference_sla: {latency: {ttft_p95: '< 500ms'}}\n"


# ---- servers that are found ------------------------------------------------------------------


def inference_plans(estate: Estate, text: str = "") -> dict[str, Plan]:
    settings = parse(f"sources: {{inference: {{{text}}}}}", "test")
    return {p.name: p for p in plan(settings, estate) if p.name.startswith("inference:")}


def local(port: int, identity: str) -> Target:
    url = f"http://127.0.0.1:{port}/metrics"
    return Target(f"local:{port}", url, "local", identity=identity)


def test_only_the_server_that_changed_is_started_anew() -> None:
    """Another process at a port is another source; the others do not notice."""
    estate = Estate(FakeClock())
    estate.found.publish([local(8000, "7@1"), local(8001, "8@1")])
    before = inference_plans(estate)
    estate.found.publish([local(8000, "7@1"), local(8001, "9@5"), local(8002, "10@5")])
    after = inference_plans(estate)
    assert list(after) == ["inference:local:8000", "inference:local:8001", "inference:local:8002"]
    same = [name for name in before if before[name].fingerprint == after[name].fingerprint]
    assert same == ["inference:local:8000"]


def test_changing_how_servers_are_found_restarts_none_of_them() -> None:
    """Nor does saying by hand which GPUs one works on."""
    estate = Estate(FakeClock())
    estate.found.publish([local(8001, "8@1")])
    servers = "servers: [{name: a, url: 'http://h:1/metrics'%s}]"
    before = inference_plans(estate, servers % "")
    after = inference_plans(
        estate, servers % ", gpus: [0]" + ", ports: [1], max_servers: 9, discovery_interval: 1m"
    )
    assert {n: p.fingerprint for n, p in before.items()} == {
        n: p.fingerprint for n, p in after.items()
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://localhost:18700/metrics", "http://127.0.0.1:18700/metrics"),
        ("http://h:80/metrics", "http://h/metrics"),
        ("http://H:1/metrics?x=1", "http://h.:1/metrics?x=1"),
        ("http://h:1", "http://h:1/"),
    ],
)
def test_a_page_that_is_configured_twice_is_refused(one: str, other: str) -> None:
    """Both were read, and all sums were doubled; one that is switched off is read by nobody."""
    text = "servers: [{name: a, url: '%s'}, {name: x, url: 'http://h:7/'}, {name: b, url: '%s'%s}]"
    with pytest.raises(ConfigError, match=r"servers\.2\.url: .*servers\.0\.url \(b, a\)"):
        inference_plans(Estate(FakeClock()), text % (one, other, ""))
    inference_plans(Estate(FakeClock()), text % (one, other, ", enabled: false"))
    inference_plans(Estate(FakeClock()), text % (one, other + "?y=2", ""))


def test_what_was_found_counts_only_where_it_is_still_looked_for() -> None:
    """A reload that switches a place off does not wait for the next look."""
    estate = Estate(FakeClock())
    estate.found.publish([local(8001, "8@1"), Target("f", "http://f:1/metrics", "file")])
    assert list(inference_plans(estate)) == ["inference:local:8001"]
    assert list(inference_plans(estate, "local: false")) == []
    assert list(inference_plans(estate, "local: false, files: [/t]")) == ["inference:f"]
    estate.found.publish([Target("f", "http://f:1/metrics", "file", engine="mine")])
    assert list(inference_plans(estate, "files: [/t]")) == [], "its engine is no more"


def test_a_server_that_is_switched_off_is_not_found_either() -> None:
    """Whoever switches it off does not want it under another name."""
    estate = Estate(FakeClock())
    estate.found.publish([local(8001, "8@1")])
    off = "servers: [{name: a, url: 'http://localhost:8001/metrics', enabled: false}]"
    assert inference_plans(estate, off) == {}


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", True),
        ("sources: {inference: {local: false, files: [/t]}}", True),
        ("sources: {inference: {local: false, servers: [{name: a, url: 'http://h:1/m'}]}}", True),
        ("sources: {inference: {local: false}}", False),
        (f"sources: {{inference: {{local: false, servers: [{OFF}]}}}}", False),
        ("sources: {inference: {enabled: false, files: [/t]}}", False),
        ("sources: {serving: {enabled: false}}", False),
        (f"{PROMISED}sources: {{inference: {{local: false}}}}", True),
        (f"{PROMISED}sources: {{inference: {{enabled: false}}}}", True),
        (
            "training_sla: {job_failure_rate: '< 5%'}\nsources: {inference: {enabled: false}}",
            False,
        ),
    ],
)
def test_what_is_derived_from_servers_runs_where_there_may_be_one(text: str, runs: bool) -> None:
    """It runs before the first server is found; and where something was promised of servers."""
    planned = plan(parse(text, "test"), Estate(FakeClock()))
    assert ("derive:serving" in [one.name for one in planned]) == runs


def test_a_server_that_is_found_does_not_restart_what_is_derived_from_servers() -> None:
    """Its windows of an hour would begin anew."""
    estate = Estate(FakeClock())

    def derived() -> list[str]:
        planned = plan(parse("", "test"), estate)
        return [one.fingerprint for one in planned if one.name == "derive:serving"]

    before = derived()
    estate.found.publish([local(8000, "7@1"), local(8001, "8@1")])
    assert derived() == before != []


@pytest.mark.parametrize("news", ["gpu", "server"])
def test_a_refused_configuration_is_not_forgotten_when_something_is_found(
    news: str, tmp_path: Path
) -> None:
    """A GPU or a server that appeared had set flopwatch_config_last_reload_successful to 1."""
    config = tmp_path / "flopwatch.yaml"
    root = tmp_path / "root"
    root.mkdir()
    if news == "gpu" and has_gpus(root):
        pytest.skip("this machine has a GPU driver of its own")
    good = f"root: {root}\nsources: {{host: {{enabled: false}}, nvml: {{enabled: false}}}}\n"
    config.write_text(good)
    estates: list[Estate] = []

    def plans(_: Settings, estate: Estate) -> list[Plan]:
        estates.append(estate)
        return []

    app = App(config, plans=plans)
    app.start()
    try:
        config.write_text("nonsense: 1\n")
        assert app.reload() != ()
        planned = len(estates)
        if news == "gpu":
            card(root, "0000:18:00.0")
            app.notice_gpus()
        else:
            estates[0].found.publish([local(8000, "7@1")])
            assert app.servers_changed()
            app.notice_servers()
            assert not app.servers_changed()
        assert len(estates) == planned + 1
        assert (
            "flopwatch_config_last_reload_successful 0"
            in app.exposition.page((None, False, False)).decode()
        )
    finally:
        app.stop()


def test_broken_mappings_keep_the_servers_that_are_read(tmp_path: Path) -> None:
    """The directory of mappings is broken when a server appears: told, and the daemon goes on."""
    mappings = tmp_path / "engines"
    mappings.mkdir()
    config = tmp_path / "flopwatch.yaml"
    config.write_text(
        "sources: {host: {enabled: false}, network: {enabled: false}, process: {enabled: false},"
        " inference: {engines_directory: " + str(mappings) + ", discovery_interval: 1h,"
        " servers: [{name: a, url: 'http://127.0.0.1:1/metrics'}]}}\n"
    )
    estates: list[Estate] = []

    def plans(settings: Settings, estate: Estate) -> list[Plan]:
        estates.append(estate)
        return plan(settings, estate)

    app = App(config, plans=plans)
    app.start()
    try:
        (mappings / "x.yaml").write_text("nonsense")
        while not app.settled():  # discovery has looked once, and will not for an hour
            app.notice_servers()
            threading.Event().wait(0.02)
        estates[0].found.publish([local(8000, "7@1")])
        app.notice_servers()
        names = [source.name for source in app.view().sources]
        assert "inference:a" in names
        assert "inference:local:8000" not in names
        assert not app.servers_changed(), "it is not tried again each second"
        (mappings / "x.yaml").unlink()
        estates[0].found.publish([local(8000, "7@2")])
        app.notice_servers()
        assert "inference:local:8000" in [source.name for source in app.view().sources]
    finally:
        app.stop()


# ---------------------------------------------------------------- a model's own configuration

CONFIG = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def serving_plan(path: Path, more: str = "") -> Plan:
    """Return the plan of serving for one server whose model is described by a file."""
    server = f"{{name: a, url: 'http://x:1/metrics', model_config: '{path}'{more}}}"
    text = f"sources: {{inference: {{servers: [{server}]}}}}"
    (found,) = [
        one
        for one in plan(parse(text, "test"), Estate(FakeClock()))
        if one.name == "derive:serving"
    ]
    return found


def test_another_model_behind_a_server_makes_serving_anew(tmp_path: Path) -> None:
    """A reload sees that the file has changed, though its path has not."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    first, again = serving_plan(path), serving_plan(path)
    assert first.fingerprint == again.fingerprint
    first.make().close()
    path.write_text(json.dumps({**CONFIG, "num_hidden_layers": 4}))
    assert serving_plan(path).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model_type": "mamba"}', "config.json: model_type: 'mamba' has state-space layers"),
        ("{", "config.json:1:2: not JSON"),
        (None, "config.json: No such file or directory"),
    ],
)
def test_a_bad_model_config_is_told_with_key_and_file(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        serving_plan(path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"sources.inference.servers.0.model_config: {tmp_path}/")
    assert said in problem
    with pytest.raises(ConfigError):
        serving_plan(path, ", interval: 1s")
    # A server that is switched off may have a file that is not there yet.
    text = f"{{name: a, url: 'http://x:1/metrics', model_config: '{path}', enabled: false}}"
    assert names(f"sources: {{inference: {{servers: [{text}]}}}}") == names("{}")


def test_model_config_is_a_key_like_any_other() -> None:
    """Empty it is as good as absent; misspelt it is told; what the code calls it is no key."""
    server = "sources: {{inference: {{servers: [{{name: a, url: 'http://x:1/metrics', {}}}]}}}}"
    (one,) = parse(server.format("model_config: "), "f").sources.inference.servers
    assert one.model_file is None
    for key in ("model_confg", "model_file"):
        with pytest.raises(ConfigError) as caught:
            parse(server.format(f"{key}: /x"), "f")
        assert "unknown key" in caught.value.problems[0]
    with pytest.raises(ConfigError, match="did you mean 'model_config'"):
        parse(server.format("model_confg: /x"), "f")


# ---------------------------------------------------------------- probes and what is remembered


def test_each_server_is_probed_unless_it_says_otherwise() -> None:
    """Health by default, completions where they are wanted, of all or of one server."""
    text = """
sources:
  inference:
    probe: {completion: %s}
    servers:
      - {name: a, url: "http://127.0.0.1:1/metrics"}
      - {name: b, url: "http://127.0.0.1:2/metrics", probe: false}
      - {name: c, url: "http://127.0.0.1:3/metrics", completion: %s}
      - {name: d, url: "http://127.0.0.1:4/metrics", enabled: false}
"""
    off = [name for name in names(text % ("false", "true")) if name.startswith("probe")]
    assert off == ["probe:a", "probe:c", "probe:c:completion"]
    on = [name for name in names(text % ("true", "false")) if name.startswith("probe")]
    assert on == ["probe:a", "probe:a:completion", "probe:c"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_probes_token_goes_to_the_servers_own_host_only(kept: bool, tmp_path: Path) -> None:
    """At another port of it too (Triton), at another host not."""
    (tmp_path / "token").write_text("secret-1")
    with serving(reply()) as server:
        host = "127.0.0.1" if kept else "localhost"
        text = f"""
sources:
  inference:
    servers:
      - name: a
        url: http://127.0.0.1:1/metrics
        token_file: {tmp_path}/token
        health_url: http://{host}:{server.port}/up?x=1
"""
        plans = plan(parse(text, "test"), Estate(FakeClock()))
        probe = next(one for one in plans if one.name == "probe:a").make()
        list(probe.read())
        list(probe.read())
        probe.close()
    assert server.requests[0].startswith("GET /up?x=1 ")
    assert ("secret-1" in server.requests[0]) is kept


class Probed:
    """A server's probe as it is planned, the server, and what its page says."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.estate = Estate(FakeClock(1000.0))
        self.slot = self.estate.board.enroll("page", c.SERVING, 2.0, 12.0, 1000.0)

    def tell(self, engine: str) -> None:
        """Let the page say whose it is."""
        now = self.estate.clock.monotonic()
        batch, drops = Gate(10).admit([c.LLM_SERVER_INFO(1, engine, "a", "")])
        self.slot.publish(Snapshot("page", c.SERVING, now, now, 0.01, batch), drops)

    def ask(self, times: int = 1, path: str = "/metrics", **found: str) -> str:
        """Plan the probe, read it, and return what the server was asked."""
        target = Target("a", self.server.url(path), "local", **found)  # type: ignore[arg-type]
        self.estate.found.publish([target])
        plans = plan(parse("", "test"), self.estate)
        probe = next(one for one in plans if one.name == "probe:a").make()
        for _ in range(1 + times):
            with contextlib.suppress(SourceError):
                list(probe.read())
        probe.close()
        asked = [line.split()[1] for line in self.server.requests]
        self.server.requests.clear()
        return " ".join(asked)


@pytest.fixture
def probed() -> Iterator[Probed]:
    with serving([reply()] * 99) as server:
        yield Probed(server)


def test_a_litellm_is_asked_nothing_before_it_is_known_and_the_same_while_it_is_down(
    probed: Probed,
) -> None:
    """Its `/health` calls each model behind it; it was asked while the page was stale."""
    assert probed.ask() == ""
    probed.tell("litellm")
    assert probed.ask() == "/health/liveliness"
    probed.estate.clock.advance(3600)  # type: ignore[attr-defined]
    assert probed.estate.board.view(4600.0).samples(c.LLM_SERVER_INFO) == []
    assert probed.ask(2) == "/health/liveliness /health/liveliness"
    assert probed.ask(path="/other") == "", "a server at another address may be anything"
    assert probed.ask(identity="8@2") == "", "and so may another process"
    probed.tell("triton")
    assert probed.ask(identity="8@2") == "/v2/health/ready"


def test_a_server_whose_process_is_seen_is_asked_at_once(probed: Probed) -> None:
    """Its command line is enough, and knows better: Triton passes on the page of a vLLM."""
    assert probed.ask(kind="litellm", identity="7@1") == "/health/liveliness"
    probed.tell("vllm")
    assert probed.ask(kind="triton", identity="7@1") == "/v2/health/ready"


def test_the_engine_of_a_server_outlives_the_daemon(probed: Probed) -> None:
    """As JSON, and without the address: that may hold a secret."""
    probed.tell("litellm")
    probed.ask(path="/metrics?token=s3cret")
    kept = probed.estate.memories["engine:a"]
    assert "s3cret" not in json.dumps(kept)
    heir = Probed(probed.server)
    heir.estate.memories["engine:a"] = Remembered(*json.loads(json.dumps(kept)))
    assert heir.ask(path="/metrics?token=s3cret") == "/health/liveliness"


def test_what_servers_that_are_gone_have_left_is_forgotten() -> None:
    """An hour after; what others remember, and what is young, stays."""
    clock = FakeClock(10_000.0)
    estate = Estate(clock)
    estate.memories.update(
        old=Remembered(1, 10_000.0 - 3601), young=Remembered(2, 9_999.0), driver={"n": 1}
    )
    plan(parse("", "test"), estate)
    assert set(estate.memories) == {"young", "driver"}


def test_the_state_file_is_read_first_and_written_last() -> None:
    """Whoever remembers something starts after it and ends before it; the default has none."""
    assert "state" not in names("")
    plans = plan(parse("state_directory: /var/lib/flopwatch", "test"), Estate(FakeClock()))
    assert plans[0].name == "state"
    assert [one.name for one in plans if one.turn == 2] == ["state"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        ("{", "not JSON"),
        ('{"model_type": "mamba"}', "model_type: 'mamba'"),
    ],
)
def test_a_run_s_model_that_cannot_be_counted_is_told_with_its_key(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    """The file is not there, is no JSON, or describes layers that nobody here can count."""
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    settings = parse(f"training: {{runs: [{{name: a, model_config: {file}}}]}}", "f")
    with pytest.raises(ConfigError, match=r"training\.runs\.0\.model_config") as caught:
        plan(settings, Estate(FakeClock()))
    assert reason in str(caught.value)


def test_what_is_stated_of_a_run_reaches_its_derivation(tmp_path: Path) -> None:
    """The daemon counts a model that only the configuration describes."""
    estate = Estate(FakeClock())
    settings = parse(
        "accelerators: [{name: mine, peak_flops: {bf16: 1e15}}]\n"
        'training: {runs: [{name: "a*", world_size: 2, flops_per_token: 5.0e10}]}',
        "f",
    )
    (one,) = [one for one in plan(settings, estate) if one.name == "derive:training"]
    source = one.make()
    for n in range(1, 12):
        step = Step(run="abc", step=n, seconds=1.0, tokens=20_000)
        estate.training.tell("push", [step], estate.clock.monotonic())
    found = {(s.metric.name, *s.labels): s.value for s in source.read() if isinstance(s, Sample)}
    assert found["train_mfu_ratio", "abc", "causal", "bf16"] == pytest.approx(0.5)
    source.close()


def test_without_a_reader_of_runs_nothing_is_derived_of_them() -> None:
    """Pushes are refused and no log is named."""
    assert "derive:training" not in names("push: {enabled: false}")
    assert "derive:training" in names("")
    assert "derive:training" not in names("training: {enabled: false}")


def test_what_was_promised_of_jobs_is_judged_though_nobody_reads_any() -> None:
    """Else the promise would be silently forgotten."""
    quiet = (
        "push: {enabled: false}\nsources: {inference: {enabled: false}, ranks: {enabled: false}}\n"
    )

    def names(text: str) -> set[str]:
        return {one.name for one in plan(parse(text, "test"), Estate(FakeClock()))}

    assert "derive:training" not in names(quiet)
    assert "derive:training" in names(f"{quiet}training_sla: {{job_failure_rate: '< 5%'}}")


def test_ports_are_read_as_it_is_stated(tmp_path: Path) -> None:
    """Raw counters, a device that is left alone, one that ought to be there; each device in a job
    of its own, whose threads end with the source."""
    for name in ("mlx5_0", "mlx5_1"):
        port = tmp_path / "sys/class/infiniband" / name / "ports/1"
        (port / "hw_counters").mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "hw_counters/out_of_sequence").write_text("7\n")
    text = (
        f"root: {tmp_path}\nsources: {{network: {{raw: true, exclude_devices: mlx5_1,"
        " expected_ports: [mlx5_2, '!mlx5_0']}}"
    )
    (one,) = [
        one for one in plan(parse(text, "test"), Estate(SystemClock())) if one.name == "network"
    ]
    source = one.make()
    found = {(s.metric.name, *s.labels): s.value for s in source.read() if isinstance(s, Sample)}
    source.close()
    assert found["nic_raw_total", "mlx5_0", "1", "out_of_sequence", "hw_counters"] == 7
    assert found["nic_expected_up", "mlx5_0", "1", "stated"] == 0
    assert found["nic_device_missing", "mlx5_2"] == 1
    assert not any(key[1] == "mlx5_1" for key in found)


def test_ports_that_are_read_seldom_have_a_rate_all_the_same() -> None:
    """A window of half a minute holds one reading of them, which is no rate."""
    text = "sources: {{network: {{interval: {}}}}}"
    often, seldom = (
        next(
            one.fingerprint
            for one in plan(parse(text.format(every), "f"), Estate(FakeClock(), gpus=True))
            if one.name == "derive:fabric"
        )
        for every in ("5s", "60s")
    )
    assert often.endswith(" 30.0")
    assert seldom.endswith(" 180.0")


@pytest.mark.parametrize(
    ("said", "has", "asked"),
    [
        ("auto", "address token", True),
        ("auto", "address", False),
        ("auto", "token", False),
        ("false", "address token", False),
        ("true", "address", True),
    ],
)
def test_pods_are_asked_for_where_the_daemon_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, has: str, asked: bool
) -> None:
    """`auto` is where there are an API server and a token, as in a pod that is given one."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if "address" in has:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    if "token" in has:
        (tmp_path / "token").write_text("t")
    settings = f"{{enabled: {said}, token_file: {tmp_path}/token}}"

    found = names(f"sources: {{inference: {{local: false, kubernetes: {settings}}}}}")

    assert ("pods" in found) is asked
