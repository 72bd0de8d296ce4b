"""The fake driver library, asked by the real bindings in a child process."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml import HERE, OLD_DRIVER, PROFILES, Profile, build, environment, profile

ROOT = HERE.parent.parent
NAMES = sorted(path.stem for path in PROFILES.glob("*.profile"))
LOST, MISSING, UNSUPPORTED, VERSION = 15, 13, 3, 25

PREAMBLE = """
import ctypes, json, sys, threading, time
from pathlib import Path
import pynvml as n
from tests.fake_nvml import Control
control, log = Control(Path(sys.argv[1])), Path(sys.argv[2])
out = {}
def code(function, *args):
    try:
        function(*args)
    except n.NVMLError as error:
        return error.value
    return 0
def gpu(index):
    return n.nvmlDeviceGetHandleByIndex(index)
def fields(struct):
    return {name: getattr(struct, name) for name, *_ in struct._fields_}
def logged(text):
    while text not in log.read_text():
        time.sleep(0.001)
def metrics(first, second, *ids):
    got = n.c_nvmlGpmMetricsGet_t()
    got.version, got.numMetrics, got.sample1, got.sample2 = 1, len(ids), first, second
    for at, number in enumerate(ids):
        got.metrics[at].metricId = number
    n.nvmlGpmMetricsGet(got)
    return [(one.nvmlReturn, one.value) for one in got.metrics[:len(ids)]]
"""


class Lab:
    """Runs Python code in a child that has the fake library, and returns its `out`."""

    def __init__(self, library: Path, place: Path) -> None:
        self.library = library
        self.control = place / "control"
        self.log = place / "log"

    def process(self, name: str, text: str, *lines: str) -> subprocess.CompletedProcess[str]:
        if lines:
            self.control.write_text("".join(f"{line}\n" for line in lines))
        chosen = environment(self.library, profile(name), control=self.control, log=self.log)
        program = PREAMBLE + textwrap.dedent(text) + "\nprint(json.dumps(out))"
        command = [sys.executable, "-c", program, str(self.control), str(self.log)]
        chosen["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            command, env=chosen, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def run(self, name: str, text: str, *lines: str) -> dict[str, Any]:
        done = self.process(name, "n.nvmlInit()\n" + textwrap.dedent(text), *lines)
        assert (done.returncode, done.stderr) == (0, "")
        return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    tool("gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def lab(library: Path, tmp_path: Path) -> Lab:
    return Lab(library, tmp_path)


def exported(library: Path) -> set[str]:
    """Read the function names out of the library's string table."""
    return {name.decode() for name in re.findall(rb"\x00(nvml\w+)(?=\x00)", library.read_bytes())}


# ---- profiles -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_reads_without_complaint_and_names_only_functions_that_exist(
    name: str, lab: Lab
) -> None:
    """The library reads each line of each profile, and no line is for a misspelt function."""
    out = lab.run(name, "out['devices'] = n.nvmlDeviceGetCount()")
    told = Profile.read(profile(name))
    assert out["devices"] == told.devices > 0
    assert set(told.names()) <= exported(lab.library)


def test_the_library_and_the_reader_for_tests_agree_on_every_number(lab: Lab) -> None:
    """What a test states as the driver's value is what the driver answers, for each device."""
    out = lab.run(
        "h100-sxm8",
        """
        simple = ['PowerUsage', 'EnforcedPowerLimit', 'TotalEnergyConsumption', 'MinorNumber',
                  'PcieReplayCounter', 'CurrentClocksEventReasons', 'NumGpuCores']
        for i in range(8):
            h = gpu(i)
            for name in simple:
                out[f'{i} nvmlDeviceGet{name}'] = getattr(n, 'nvmlDeviceGet' + name)(h)
            for clock in range(4):
                out[f'{i} nvmlDeviceGetClockInfo {clock}'] = n.nvmlDeviceGetClockInfo(h, clock)
            out[f'{i} nvmlDeviceGetTemperature 0'] = n.nvmlDeviceGetTemperature(h, 0)
            for link in range(18):
                for kind in range(2):
                    out[f'{i} nvmlDeviceGetNvLinkErrorCounter {link} {kind}'] = (
                        n.nvmlDeviceGetNvLinkErrorCounter(h, link, kind))
        """,
        "clock = 0",
    )
    told = Profile.read(profile("h100-sxm8"))
    for question, answer in out.items():
        device, name, *args = question.split()
        stated = told.function(int(device), name, *(int(arg) for arg in args))
        assert stated is not None, question
        assert stated.value == answer, question


def test_what_a_profile_does_not_list_is_not_supported(lab: Lab) -> None:
    """A T4 has no margin temperature, a GB10 no memory, a vGPU guest no power."""
    assert lab.run("t4", "out['rc'] = code(n.nvmlDeviceGetMarginTemperature, gpu(0))")["rc"] == 3
    text = """
        out['v2'] = code(n.nvmlDeviceGetMemoryInfo, gpu(0), n.nvmlMemory_v2)
        out['v1'] = code(n.nvmlDeviceGetMemoryInfo, gpu(0))
        """
    assert lab.run("gb10", text) == {"v1": UNSUPPORTED, "v2": UNSUPPORTED}
    assert lab.run("vgpu", "out['rc'] = code(n.nvmlDeviceGetPowerUsage, gpu(0))")["rc"] == 3


def test_a_line_that_cannot_be_read_is_told_and_the_rest_stands(lab: Lab) -> None:
    """A typing error in a control file shows on stderr with its line; other lines hold."""
    done = lab.process(
        "t4",
        "n.nvmlInit(); out['power'] = n.nvmlDeviceGetPowerUsage(gpu(0))",
        "* nvmlDeviceGetName = oops",
        "* nvmlDeviceGetPowerUsage = 5",
    )
    assert json.loads(done.stdout) == {"power": 5}
    assert re.fullmatch(r"fake_nvml: \S*control:1: cannot be read\n", done.stderr)
    with pytest.raises(ValueError, match="control:1"):
        Profile.read(lab.control)


def test_control_wins_over_profile_device_over_all_and_arguments_over_none(lab: Lab) -> None:
    """The order of precedence, in the library and in the reader for tests."""
    lines = [
        "* nvmlDeviceGetClockInfo = 1",
        "* nvmlDeviceGetClockInfo 1-2 = 2",
        "* nvmlDeviceGetClockInfo 2 = 3",
        "1 nvmlDeviceGetClockInfo = 4",
        "1 nvmlDeviceGetClockInfo 3 = 5",
        "* nvmlDeviceGetClockInfo 0 = 6",
        "* nvmlDeviceGetClockInfo 0 = 7",
    ]
    text = "out['got'] = [n.nvmlDeviceGetClockInfo(gpu(i), c) for i in (0, 1) for c in range(4)]"
    got = lab.run("h100-sxm8", text, *lines)["got"]
    assert got == [7, 2, 3, 1, 4, 4, 4, 5]
    told = Profile.read(profile("h100-sxm8"), lab.control)
    asked = [told.function(i, "nvmlDeviceGetClockInfo", c) for i in (0, 1) for c in range(4)]
    assert [one.value for one in asked if one is not None] == got


# ---- struct layouts -----------------------------------------------------------------------


def test_memory_of_both_versions(lab: Lab) -> None:
    """Version 2 tells reserved memory apart; version 1 counts it as used; others are refused."""
    out = lab.run(
        "h200",
        """
        out['v2'] = fields(n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2))
        out['v1'] = fields(n.nvmlDeviceGetMemoryInfo(gpu(0)))
        out['v3'] = code(n.nvmlDeviceGetMemoryInfo, gpu(0), 0x03000028)
        out['bar1'] = fields(n.nvmlDeviceGetBAR1MemoryInfo(gpu(0)))
        """,
    )
    mib = 1024 * 1024
    assert out["v2"] == {
        "version": 0x02000028,
        "total": 143771 * mib,
        "reserved": 614 * mib,
        "free": 110796 * mib,
        "used": 32362 * mib,
    }
    assert out["v1"] == {"total": 143771 * mib, "free": 110796 * mib, "used": 32976 * mib}
    assert out["v3"] == VERSION
    assert [out["bar1"][f"bar1{key}"] // mib for key in ("Total", "Free", "Used")] == [
        262144,
        229781,
        32363,
    ]


def test_identity_and_the_three_ways_to_a_handle(lab: Lab) -> None:
    """Strings, PCI address and lookup by index, UUID and bus id all lead to one device."""
    out = lab.run(
        "h100-sxm8",
        """
        h = gpu(3)
        pci = n.nvmlDeviceGetPciInfo(h)
        out['pci'] = [pci.busIdLegacy, pci.busId, pci.domain, pci.bus, pci.device,
                      pci.pciDeviceId, pci.pciSubSystemId]
        out['texts'] = [n.nvmlDeviceGetName(h), n.nvmlDeviceGetSerial(h),
                        n.nvmlDeviceGetVbiosVersion(h), n.nvmlDeviceGetBoardPartNumber(h),
                        n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetUUID(h)]
        same = [n.nvmlDeviceGetHandleByUUID(out['texts'][5]),
                n.nvmlDeviceGetHandleByPciBusId('0000:4b:00.0')]
        out['index'] = [n.nvmlDeviceGetIndex(one) for one in same]
        out['none'] = [code(n.nvmlDeviceGetHandleByUUID, 'GPU-none'), code(gpu, 8)]
        out['capability'] = n.nvmlDeviceGetCudaComputeCapability(h)
        """,
    )
    assert out["pci"] == [
        "0000:4B:00.0",
        "00000000:4B:00.0",
        0,
        0x4B,
        0,
        0x233010DE,
        0x16C110DE,
    ]
    assert out["texts"] == [
        "NVIDIA H100 80GB HBM3",
        "1653821083903",
        "96.00.A5.00.01",
        "692-2G520-0200-000",
        "590.48.01",
        "GPU-01000100-0000-4000-8000-000000000003",
    ]
    assert out["index"] == [3, 3]
    assert out["none"] == [6, 2]
    assert out["capability"] == [9, 0]


def test_a_buffer_that_is_too_short_is_refused(lab: Lab) -> None:
    """A string needs room for its end; nothing is written where there is none."""
    out = lab.run(
        "t4",
        """
        room = ctypes.create_string_buffer(b'x' * 12, 12)
        name = n._nvmlGetFunctionPointer('nvmlDeviceGetName')
        out['rc'] = [name(gpu(0), room, ctypes.c_uint(size)) for size in (9, 10)]
        out['text'] = room.raw.decode()
        """,
    )
    assert out == {"rc": [7, 0], "text": "NVIDIA T4\0xx"}


def test_small_structs_round_trip(lab: Lab) -> None:
    """Utilization, limits, modes, margins, violation times, row remap, SRAM status."""
    out = lab.run(
        "h100-sxm8",
        """
        h = gpu(0)
        out['use'] = fields(n.nvmlDeviceGetUtilizationRates(h))
        out['encoder'] = n.nvmlDeviceGetEncoderUtilization(h)
        out['limits'] = n.nvmlDeviceGetPowerManagementLimitConstraints(h)
        out['ecc'] = n.nvmlDeviceGetEccMode(h)
        out['errors'] = [n.nvmlDeviceGetTotalEccErrors(h, k, c) for k in (0, 1) for c in (0, 1)]
        out['dram'] = n.nvmlDeviceGetMemoryErrorCounter(h, 0, 1, 2)
        out['margin'] = n.nvmlDeviceGetMarginTemperature(h)
        out['temperature'] = [n.nvmlDeviceGetTemperatureV(h, 0), n.nvmlDeviceGetTemperature(h, 0)]
        out['violation'] = fields(n.nvmlDeviceGetViolationStatus(h, 0))
        out['rows'] = n.nvmlDeviceGetRemappedRows(h)
        out['histogram'] = fields(n.nvmlDeviceGetRowRemapperHistogram(h))
        sram = n.c_nvmlEccSramErrorStatus_v1_t()
        n.nvmlDeviceGetSramEccErrorStatus(h, ctypes.byref(sram))
        out['sram'] = [value for name, value in fields(sram).items() if name != 'version']
        sram.version = 1
        out['other'] = code(n.nvmlDeviceGetSramEccErrorStatus, h, ctypes.byref(sram))
        out['old name'] = n.nvmlDeviceGetCurrentClocksThrottleReasons(h)
        """,
    )
    assert out["use"] == {"gpu": 100, "memory": 11}
    assert out["encoder"] == [0, 167000]
    assert out["limits"] == [200000, 700000]
    assert out["ecc"] == [1, 1]
    assert out["errors"] == [7, 41, 0, 2]
    assert out["dram"] == 38
    assert out["margin"] == 26
    assert out["temperature"] == [59, 59]
    assert out["violation"] == {"referenceTime": 1784016773000000, "violationTime": 3000000000}
    assert out["rows"] == [1, 1, 0, 0]
    assert list(out["histogram"].values()) == [2558, 2, 0, 0, 0]
    assert out["sram"] == [0, 1, 3, 0, 0, 2, 0, 1, 0, 0, 0, 0]
    assert out["other"] == VERSION
    assert out["old name"] == 4


def test_field_values_have_types_and_codes_of_their_own(lab: Lab) -> None:
    """One call answers many fields; a scope or an id that is not there fails alone."""
    out = lab.run(
        "h100-sxm8",
        """
        asked = [186, (185, 2), (138, 5), (138, 18), 193, 230, 999, (186, 1)]
        got = n.nvmlDeviceGetFieldValues(gpu(2), asked)
        out['got'] = [(v.nvmlReturn, v.valueType, v.value.uiVal) for v in got]
        out['ull'] = got[2].value.ullVal
        out['signed'] = got[4].value.siVal
        out['times'] = [v.timestamp > 1_700_000_000_000_000 for v in got]
        later = n.nvmlDeviceGetFieldValues
        control.add('clock = 10')
        out['grown'] = n.nvmlDeviceGetFieldValues(gpu(2), [(138, 5)])[0].value.ullVal
        """,
        "clock = 0",
    )
    codes = [code for code, _, _ in out["got"]]
    assert codes == [0, 0, 0, 3, 0, 0, 3, 3]
    assert out["got"][0] == [0, 1, 625880]
    assert out["got"][1] == [0, 1, 85830]
    assert out["got"][2][1] == 3
    assert out["ull"] == 1005000
    assert out["got"][4][1] == 5
    assert out["signed"] == -8
    assert all(out["times"])
    assert out["grown"] == 1005000 + 10 * 1048576


def test_fabric_of_both_versions_and_an_old_driver(lab: Lab) -> None:
    """Versions 2 and 3 are answered, others refused; `fabric_version` makes a driver older."""
    text = """
        two, three = n.c_nvmlGpuFabricInfo_v2_t(), n.c_nvmlGpuFabricInfo_v3_t()
        rest = (ctypes.c_uint8 * 4).from_address(ctypes.addressof(three) + 36)
        ask = n.nvmlDeviceGetGpuFabricInfoV
        out['codes'] = [code(ask, gpu(0), ctypes.byref(one)) for one in (two, three)]
        for key, one in ('two', two), ('three', three):
            out[key] = {**fields(one), 'clusterUuid': bytes(one.clusterUuid).hex()}
        two.version = 0x02000028
        out['other'] = code(ask, gpu(0), ctypes.byref(two))
        one = n.c_nvmlGpuFabricInfo_t()
        n.nvmlDeviceGetGpuFabricInfo(gpu(0), ctypes.byref(one))
        out['one'] = [bytes(one.clusterUuid).hex(), one.status, one.cliqueId, one.state]
        """
    out = lab.run("gb200", text)
    uuid = "c0ffee00111142228333444455556666"
    both = {"clusterUuid": uuid, "status": 0, "cliqueId": 4, "state": 3, "healthMask": 0x1AA}
    assert out["codes"] == [0, 0]
    assert out["two"] == {**both, "version": 0x02000024}
    assert out["three"] == {**both, "version": 0x03000028, "healthSummary": 1}
    assert out["other"] == VERSION
    assert out["one"] == [uuid, 0, 4, 3]
    assert lab.run("gb200", text, "* fabric_version = 2")["codes"] == [0, VERSION]


def test_processes_are_listed_by_kind_and_size_is_negotiated(lab: Lab) -> None:
    """Compute and graphics are apart; too small a buffer tells how many there are."""
    out = lab.run(
        "rtx2080s",
        """
        keys = ('pid', 'usedGpuMemory', 'gpuInstanceId')
        rows = lambda found: [[getattr(one, key) for key in keys] for one in found]
        h = gpu(0)
        out['compute'] = rows(n.nvmlDeviceGetComputeRunningProcesses_v3(h))
        out['second'] = rows(n.nvmlDeviceGetComputeRunningProcesses_v2(h))
        out['graphics'] = rows(n.nvmlDeviceGetGraphicsRunningProcesses_v3(h))
        out['mps'] = rows(n.nvmlDeviceGetMPSComputeRunningProcesses_v3(h))
        room = (n.c_nvmlProcessInfo_v3_t * 1)()
        count = ctypes.c_uint(1)
        ask = n._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')
        out['short'] = [ask(h, ctypes.byref(count), room), count.value]
        out['name'] = n.nvmlSystemGetProcessName(28511)
        """,
    )
    mib, none = 1024 * 1024, 0xFFFFFFFF
    assert out["compute"] == [[28511, 230 * mib, none], [28512, 370 * mib, none]]
    assert out["second"] == out["compute"]
    assert out["graphics"] == [[1720, 173 * mib, none], [4556, 3 * mib, none]]
    assert out["mps"] == []
    assert out["short"] == [7, 2]
    assert out["name"] == "ffmpeg"


def test_process_shares_come_newer_than_the_last_seen_only(lab: Lab) -> None:
    """The buffer holds three seconds; asked from the newest there is nothing until time goes on."""
    out = lab.run(
        "l40s",
        """
        def shares(after):
            found = n.nvmlDeviceGetProcessUtilization(gpu(0), after)
            return [[one.pid, one.timeStamp, one.smUtil, one.encUtil] for one in found]
        out['all'] = shares(0)
        newest = max(row[1] for row in out['all'])
        out['rc'] = code(n.nvmlDeviceGetProcessUtilization, gpu(0), newest)
        control.add('clock = 101.5')
        out['next'] = shares(newest)
        """,
        "clock = 100.5",
    )
    assert [(pid, sm, enc) for pid, _, sm, enc in out["all"]] == [(20037, 2, 24)] * 3 + [
        (20038, 6, 40)
    ] * 3
    times = [row[1] for row in out["all"][:3]]
    assert [times[1] - times[0], times[2] - times[1]] == [1000000, 1000000]
    assert out["rc"] == 6
    assert [row[:2] for row in out["next"]] == [
        [20037, times[2] + 1000000],
        [20038, times[2] + 1000000],
    ]


def test_samples_are_averages_of_sixths_of_a_second(lab: Lab) -> None:
    """The buffer is the wave to the sample; nothing newer than the newest is NOT_FOUND."""
    out = lab.run(
        "h200",
        """
        kind, found = n.nvmlDeviceGetSamples(gpu(0), 1, 0)
        out['kind'] = kind
        out['rows'] = [[one.timeStamp, one.sampleValue.uiVal] for one in found]
        out['rc'] = code(n.nvmlDeviceGetSamples, gpu(0), 1, out['rows'][-1][0])
        kind, few = n.nvmlDeviceGetSamples(gpu(0), 1, out['rows'][-7][0])
        out['few'] = [one.timeStamp for one in few]
        """,
        "0 samples 1 = u32 wave 20 80 6",
        "clock = 600",
    )
    rows = out["rows"]
    gaps = {b[0] - a[0] for a, b in itertools.pairwise(rows)}
    assert out["kind"] == 1
    assert len(rows) == 120
    assert gaps <= {166666, 166667}
    # 20 s of a wave of 6 s, counted back from a whole period: 18 s are three of them.
    assert [value for _, value in rows[-36:]] == [80] * 18 + [20] * 18
    assert sum(value for _, value in rows[-108:]) / 108 == 50
    assert out["rc"] == 6
    assert out["few"] == [time for time, _ in rows[-6:]]


# ---- GPM ----------------------------------------------------------------------------------


def test_gpm_averages_are_exact_over_any_window(lab: Lab) -> None:
    """A square wave's average over a window is its integral there, whatever the window."""
    out = lab.run(
        "h100-sxm8",
        """
        h = gpu(1)
        a, b = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
        for start, end in (0, 6), (0, 3), (3, 6), (1, 4), (2.5, 3.5), (0.7, 100.2):
            control.add(f'clock = {start}')
            n.nvmlGpmSampleGet(h, a)
            control.add(f'clock = {end}')
            n.nvmlGpmSampleGet(h, b)
            out[f'{start} {end}'] = metrics(a, b, 10, 2, 5, 7, 999)
        out['swapped'] = metrics(b, a, 2)[0][0]
        out['support'] = n.nvmlGpmQueryDeviceSupport(h).isSupportedDevice
        for one in a, b:
            n.nvmlGpmSampleFree(one)
        out['freed'] = code(n.nvmlGpmSampleFree, a)
        """,
        "* gpm 10 = wave 20 80 6",
        "* gpm 5 = nan",
        "* gpm 7 = !3",
    )
    waves = {key: row[0] for key, row in out.items() if " " in key}
    assert {code for code, _ in waves.values()} == {0}
    expected = {"0 6": 50, "0 3": 80, "3 6": 20, "1 4": 60, "2.5 3.5": 50}
    for key, average in expected.items():
        assert waves[key][1] == pytest.approx(average, abs=1e-9)
    # From 0.7 to 100.2: 2.3 s high, 3 s low, fifteen whole periods, 3 s high, 1.2 s low.
    odd = (2.3 * 80 + 3 * 20 + 90 * 50 + 3 * 80 + 1.2 * 20) / 99.5
    assert waves["0.7 100.2"][1] == pytest.approx(odd, abs=1e-9)
    assert out["0 6"][1] == [0, 95.75]
    assert out["0 6"][2][0] == 0
    assert out["0 6"][2][1] != out["0 6"][2][1]
    assert [code for code, _ in out["0 6"][3:]] == [3, 3]
    assert out["support"] == 1
    assert out["freed"] == 2


def test_gpm_counts_its_samples_and_checks_what_it_is_given(lab: Lab) -> None:
    """Samples that live are in the log; a foreign version, device or sample is refused."""
    out = lab.run(
        "h100-sxm8",
        """
        a, b, c = (n.nvmlGpmSampleAlloc() for _ in range(3))
        n.nvmlGpmSampleGet(gpu(0), a)
        n.nvmlGpmSampleGet(gpu(1), b)
        out['codes'] = [code(metrics, a, b, 2), code(metrics, a, c, 2)]
        n.nvmlGpmSampleGet(gpu(0), b)
        got = n.c_nvmlGpmMetricsGet_t()
        got.version, got.sample1, got.sample2 = 2, a, b
        out['codes'].append(code(n.nvmlGpmMetricsGet, got))
        n.nvmlGpmSampleFree(a)
        out['codes'].append(code(metrics, a, b, 2))
        """,
    )
    assert out["codes"] == [2, 2, VERSION, 2]
    live = re.findall(
        r"^nvmlGpmSample(?:Alloc|Free) - live=(\d+)$", lab.log.read_text(), re.MULTILINE
    )
    assert live == ["1", "2", "3", "2"]


def test_boards_without_gpm_say_so(lab: Lab) -> None:
    """An A100 answers the question with no, and then refuses a sample."""
    out = lab.run(
        "mixed",
        """
        out['support'] = [n.nvmlGpmQueryDeviceSupport(gpu(i)).isSupportedDevice for i in (0, 1)]
        a = n.nvmlGpmSampleAlloc()
        out['codes'] = [code(n.nvmlGpmSampleGet, gpu(i), a) for i in (0, 1)]
        """,
    )
    assert out == {"support": [0, 1], "codes": [UNSUPPORTED, 0]}


# ---- instances ----------------------------------------------------------------------------


def test_instances_have_handles_memory_processes_and_activity(lab: Lab) -> None:
    """The layout of the recorded machine, down to the GPM values of one instance."""
    out = lab.run(
        "h100-mig",
        """
        h = gpu(0)
        out['mode'] = n.nvmlDeviceGetMigMode(h)
        out['most'] = n.nvmlDeviceGetMaxMigDeviceCount(h)
        out['codes'] = [code(n.nvmlDeviceGetMigDeviceHandleByIndex, h, i) for i in range(7)]
        rows = []
        for i in range(4):
            one = n.nvmlDeviceGetMigDeviceHandleByIndex(h, i)
            memory = n.nvmlDeviceGetMemoryInfo(one, n.nvmlMemory_v2)
            parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(one)
            rows.append([n.nvmlDeviceGetGpuInstanceId(one), n.nvmlDeviceGetComputeInstanceId(one),
                         n.nvmlDeviceGetName(one), memory.total, memory.used,
                         n.nvmlDeviceGetAttributes(one).multiprocessorCount,
                         len(n.nvmlDeviceGetComputeRunningProcesses(one)),
                         n.nvmlDeviceGetIndex(parent)])
        out['rows'] = rows
        one = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)
        by = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(one))
        out['same'] = n.nvmlDeviceGetGpuInstanceId(by)
        out['is'] = [n.nvmlDeviceIsMigDeviceHandle(x).value for x in (one, h)]
        out['power'] = [code(n.nvmlDeviceGetPowerUsage, x) for x in (one, h)]
        out['use'] = code(n.nvmlDeviceGetUtilizationRates, h)
        a, b = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
        for sample, clock in (a, 1), (b, 2):
            control.set(f'clock = {clock}')
            n.nvmlGpmMigSampleGet(h, 2, sample)
        out['gpm'] = metrics(a, b, 2, 10, 12)
        out['unknown'] = code(n.nvmlGpmMigSampleGet, h, 5, a)
        """,
    )
    mib, name = 1024 * 1024, "NVIDIA H100 80GB HBM3 MIG "
    assert out["mode"] == [1, 1]
    assert out["most"] == 7
    assert out["codes"] == [0, 0, 0, 0, 6, 6, 6]
    assert out["rows"] == [
        [2, 0, name + "3g.40gb", 40448 * mib, 11091 * mib, 60, 3, 0],
        [3, 0, name + "2g.20gb", 20096 * mib, 17 * mib, 32, 0, 0],
        [9, 0, name + "1g.10gb", 9984 * mib, 9 * mib, 16, 0, 0],
        [10, 0, name + "1g.10gb", 9984 * mib, 9 * mib, 16, 0, 0],
    ]
    assert out["same"] == 2
    assert out["is"] == [1, 0]
    assert out["power"] == [UNSUPPORTED, 0]
    assert out["use"] == UNSUPPORTED
    assert out["gpm"] == [[0, 94.25], [0, 35.5], [3, 0.0]]
    assert out["unknown"] == 6


def test_a_layout_can_change_while_a_process_runs(lab: Lab) -> None:
    """A control file's instances replace the profile's; an old handle is no instance any more."""
    out = lab.run(
        "h100-mig",
        """
        h = gpu(0)
        old = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)
        control.set('mig 0 7 0 profile "1g.10gb" uuid "MIG-new" memory 10 used 4 free 6')
        new = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)
        out['new'] = [n.nvmlDeviceGetUUID(new), n.nvmlDeviceGetGpuInstanceId(new)]
        out['codes'] = [code(n.nvmlDeviceGetUUID, old),
                        code(n.nvmlDeviceGetMigDeviceHandleByIndex, h, 1)]
        control.set('mig 0 none')
        out['none'] = code(n.nvmlDeviceGetMigDeviceHandleByIndex, h, 0)
        """,
    )
    assert out == {"new": ["MIG-new", 7], "codes": [2, 6], "none": 6}
    told = Profile.read(profile("h100-mig"), lab.control)
    assert told.migs(0) == []


# ---- faults -------------------------------------------------------------------------------


def test_a_hung_device_holds_its_callers_and_no_others(lab: Lab) -> None:
    """While calls about one GPU hang the others answer; taking the line away ends the hang."""
    out = lab.run(
        "h100-sxm8",
        """
        stuck, well = gpu(1), gpu(2)
        control.set('1 * = hang')
        got = []
        thread = threading.Thread(target=lambda: got.append(n.nvmlDeviceGetPowerUsage(stuck)))
        thread.start()
        logged('nvmlDeviceGetPowerUsage 1')
        out['others'] = [n.nvmlDeviceGetPowerUsage(well) for _ in range(3)]
        out['meanwhile'] = list(got)
        control.clear()
        thread.join()
        out['after'] = got
        """,
    )
    assert out == {"others": [632150] * 3, "meanwhile": [], "after": [632050]}


def test_one_function_can_hang_and_init_too(lab: Lab) -> None:
    """A line with a function's name stops that function alone; `system` lines reach Init."""
    out = lab.run(
        "t4",
        """
        control.set('0 nvmlDeviceGetTemperature = hang', 'system nvmlInit_v2 = hang')
        out['power'] = n.nvmlDeviceGetPowerUsage(gpu(0))
        threads = [threading.Thread(target=n.nvmlDeviceGetTemperature, args=(gpu(0), 0)),
                   threading.Thread(target=n.nvmlInit)]
        for thread in threads:
            thread.start()
        logged('nvmlDeviceGetTemperature 0')
        while log.read_text().count('nvmlInitWithFlags') < 2:
            time.sleep(0.001)
        out['alive'] = [thread.is_alive() for thread in threads]
        control.clear()
        for thread in threads:
            thread.join()
        """,
    )
    assert out == {"power": 61250, "alive": [True, True]}


def test_a_crash_is_a_segmentation_fault(lab: Lab) -> None:
    """The process dies of the signal, as it does when a driver library is broken."""
    done = lab.process(
        "t4",
        "n.nvmlInit(); n.nvmlDeviceGetPowerUsage(gpu(0))",
        "* nvmlDeviceGetPowerUsage = crash",
    )
    assert done.returncode == -signal.SIGSEGV


def test_a_return_code_a_delay_and_a_device_that_is_gone(lab: Lab) -> None:
    """A code for one device, a delay before the value, and a list that gets shorter."""
    out = lab.run(
        "h100-sxm8",
        """
        handles = [gpu(i) for i in range(8)]
        control.set('3 * = !15', '4 * = sleep 0.05', '* nvmlDeviceGetTemperature = !999')
        began = time.monotonic()
        out['power'] = [code(n.nvmlDeviceGetPowerUsage, handles[i]) for i in (2, 3)]
        out['slow'] = n.nvmlDeviceGetPowerUsage(handles[4])
        out['waited'] = time.monotonic() - began >= 0.05
        out['temperature'] = code(n.nvmlDeviceGetTemperature, handles[0], 0)
        control.set('gone = 3')
        out['count'] = n.nvmlDeviceGetCount()
        out['old'] = code(n.nvmlDeviceGetPowerUsage, handles[3])
        out['closed up'] = [n.nvmlDeviceGetUUID(gpu(3))[-1], n.nvmlDeviceGetIndex(handles[4])]
        control.set('devices = 7')
        out['shorter'] = [n.nvmlDeviceGetCount(), code(n.nvmlDeviceGetPowerUsage, handles[7])]
        """,
    )
    assert out["power"] == [0, LOST]
    assert out["slow"] == 632350
    assert out["waited"] is True
    assert out["temperature"] == 999
    assert out["count"] == 7
    assert out["old"] == LOST
    assert out["closed up"] == ["4", 3]
    assert out["shorter"] == [7, LOST]


def test_a_missing_symbol_is_a_function_not_found(
    tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """An old driver's library lacks newer functions; what it has works."""
    tool("gcc")
    old = Lab(build(tmp_path / "old", OLD_DRIVER), tmp_path)
    out = old.run(
        "old-driver",
        """
        h = gpu(0)
        out['codes'] = [code(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2),
                        code(n.nvmlDeviceGetComputeRunningProcesses_v3, h),
                        code(n.nvmlDeviceGetCurrentClocksEventReasons, h),
                        code(n.nvmlGpmSampleAlloc)]
        out['old'] = [n.nvmlDeviceGetMemoryInfo(h).used,
                      n.nvmlDeviceGetComputeRunningProcesses_v2(h)[0].pid,
                      n.nvmlDeviceGetCurrentClocksThrottleReasons(h)]
        """,
    )
    assert out == {"codes": [MISSING] * 4, "old": [7742423040, 7460, 4]}
    assert not set(OLD_DRIVER) & exported_by_nm(old.library)


def exported_by_nm(library: Path) -> set[str]:
    if (nm := shutil.which("nm")) is None:
        return set()
    done = subprocess.run([nm, "-D", library], capture_output=True, text=True, check=True)
    return set(re.findall(r" T (nvml\w+)", done.stdout))


def test_calls_after_the_last_shutdown_are_uninitialized(lab: Lab) -> None:
    """Init and Shutdown are counted; a handle works again after the next Init."""
    out = lab.run(
        "t4",
        """
        h = gpu(0)
        n.nvmlInit()
        n.nvmlShutdown()
        out['one user'] = code(n.nvmlDeviceGetPowerUsage, h)
        n.nvmlShutdown()
        out['none'] = [code(n.nvmlDeviceGetPowerUsage, h), code(n.nvmlDeviceGetCount),
                       code(n.nvmlShutdown)]
        n.nvmlInit()
        out['again'] = code(n.nvmlDeviceGetPowerUsage, h)
        """,
    )
    assert out == {"one user": 0, "none": [1, 1, 1], "again": 0}
    assert lab.log.read_text().count("nvmlInitWithFlags - 0") == 3


def test_a_driver_reload_starts_counters_again(lab: Lab) -> None:
    """A new epoch is a driver loaded anew: counters stand at their base and grow from there."""
    out = lab.run(
        "h100-sxm8",
        """
        now = time.monotonic()
        control.set(f'epoch = {now - 1000}')
        before = n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))
        control.set('system * = !18', '* * = !18')
        out['codes'] = [code(n.nvmlDeviceGetCount), code(n.nvmlInit), code(gpu, 0)]
        control.set(f'epoch = {now}')
        after = n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))
        out['fell'] = before - after > 900 * 631950
        """,
    )
    assert out == {"codes": [18, 18, 18], "fell": True}


# ---- events -------------------------------------------------------------------------------


def test_an_event_is_delivered_once_to_each_set_that_asked_for_its_type(lab: Lab) -> None:
    """Other types and devices are not delivered; a second set has the event too, unless live."""
    out = lab.run(
        "h100-sxm8",
        """
        xid = n.nvmlEventTypeXidCriticalError
        first = n.nvmlEventSetCreate()
        for i in range(4):
            n.nvmlDeviceRegisterEvents(gpu(i), xid, first)
        control.set('event 17 3 8 79', 'event 18 3 1 5', 'event 19 7 8 48',
                    'event 20 2 8 31 live gi 4')
        def wait(one):
            data = n.nvmlEventSetWait_v2(one, 0)
            return [n.nvmlDeviceGetIndex(data.device), data.eventType, data.eventData,
                    data.gpuInstanceId]
        out['first'] = [wait(first), wait(first)]
        out['end'] = code(n.nvmlEventSetWait_v2, first, 0)
        second = n.nvmlEventSetCreate()
        for i in range(4):
            n.nvmlDeviceRegisterEvents(gpu(i), xid, second)
        out['second'] = [wait(second)]
        out['rest'] = code(n.nvmlEventSetWait_v2, second, 0)
        out['unsupported'] = code(n.nvmlDeviceRegisterEvents, gpu(0), 1 << 40, second)
        control.add('gone = 3', 'event 21 3 8 79')
        data = n.nvmlEventSetWait_v2(second, 0)
        out['lost'] = [data.eventData, code(n.nvmlDeviceGetUUID, data.device)]
        for one in first, second:
            n.nvmlEventSetFree(one)
        """,
    )
    assert out["first"] == [[3, 8, 79, 0xFFFFFFFF], [2, 8, 31, 4]]
    assert out["end"] == 10
    assert out["second"] == [[3, 8, 79, 0xFFFFFFFF]]
    assert out["rest"] == 10
    assert out["unsupported"] == UNSUPPORTED
    assert out["lost"] == [79, LOST]


def test_a_waiting_set_is_woken_by_an_event(lab: Lab) -> None:
    """A thread that waits without end gets an event that happens later."""
    out = lab.run(
        "t4",
        """
        one = n.nvmlEventSetCreate()
        n.nvmlDeviceRegisterEvents(gpu(0), n.nvmlEventTypeXidCriticalError, one)
        got = []
        def wait():
            got.append(n.nvmlEventSetWait_v2(one, 60000).eventData)
        thread = threading.Thread(target=wait)
        thread.start()
        logged('nvmlEventSetWait_v2')
        control.set('event 1 0 8 63')
        thread.join()
        out['got'] = got
        """,
    )
    assert out == {"got": [63]}


# ---- hostile, log, threads ----------------------------------------------------------------


def test_sentinels_come_through_as_they_are(lab: Lab) -> None:
    """The hostile profile's values reach the caller bit for bit, names that are not UTF-8 too."""
    out = lab.run(
        "hostile",
        """
        out['power'] = n.nvmlDeviceGetPowerUsage(gpu(0))
        out['temperature'] = n.nvmlDeviceGetTemperature(gpu(0), 0)
        got = n.nvmlDeviceGetFieldValues(gpu(0), [76, 194, 271, 196])
        out['fields'] = [got[0].value.ullVal, got[1].value.sllVal, got[2].value.dVal]
        out['nan'] = got[3].value.dVal != got[3].value.dVal
        room = ctypes.create_string_buffer(96)
        n._nvmlGetFunctionPointer('nvmlDeviceGetName')(gpu(0), room, ctypes.c_uint(96))
        out['name'] = room.value.hex()
        found = n.nvmlDeviceGetComputeRunningProcesses(gpu(0))
        out['pids'] = [one.pid for one in found]
        out['memory'] = found[0].usedGpuMemory
        """,
    )
    assert out["power"] == 4294967295
    assert out["temperature"] == 2147483632
    assert out["fields"] == [9223372036854775794, 9223372036854775794, 1.4e14]
    assert out["nan"] is True
    assert bytes.fromhex(out["name"]) == b"NVIDIA \xff\xfe\x80 GPU"
    assert out["pids"] == [4294967295, 0, 4321, 4322, 4322]
    assert out["memory"] is None


def test_the_log_has_one_line_for_each_call(lab: Lab) -> None:
    """Function, device (or -) and arguments: for tests that count calls."""
    lab.run(
        "h100-sxm8",
        """
        h = gpu(2)
        n.nvmlDeviceGetClockInfo(h, 1)
        n.nvmlDeviceGetFieldValues(h, [186, (138, 5)])
        n.nvmlShutdown()
        """,
    )
    assert lab.log.read_text().splitlines() == [
        "nvmlInitWithFlags - 0",
        "nvmlDeviceGetHandleByIndex_v2 - 2",
        "nvmlDeviceGetClockInfo 2 1",
        "nvmlDeviceGetFieldValues 2 186 138:5",
        "nvmlShutdown -",
    ]


def test_many_threads_and_a_control_file_that_changes_under_them(lab: Lab) -> None:
    """Each answer is one of those that were ever written; nothing is lost or mixed."""
    out = lab.run(
        "h100-sxm8",
        """
        seen, wrong = set(), []
        handles = [gpu(i) for i in range(8)]
        def work(i):
            for _ in range(300):
                value = n.nvmlDeviceGetPowerUsage(handles[i])
                if value not in (631950 + 100 * i, *range(1, 41)):
                    wrong.append(value)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for value in range(1, 41):
            control.set(f'* nvmlDeviceGetPowerUsage = {value}')
        for thread in threads:
            thread.join()
        out['wrong'] = wrong
        out['last'] = n.nvmlDeviceGetPowerUsage(handles[0])
        """,
    )
    assert out == {"wrong": [], "last": 40}


def test_a_call_can_be_made_to_burn_time(lab: Lab) -> None:
    """FAKE_NVML_BUSY_US is processor time for each device call: a driver that costs something."""
    chosen = environment(lab.library, profile("t4"), busy_us=2000)
    program = PREAMBLE + (
        "n.nvmlInit(); h = gpu(0); began = time.thread_time()\n"
        "for _ in range(20): n.nvmlDeviceGetPowerUsage(h)\n"
        "print(time.thread_time() - began >= 0.04)"
    )
    command = [sys.executable, "-c", program, os.devnull, os.devnull]
    chosen["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, env=chosen, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_line_for_tests_states_values_and_steps(tmp_path: Path) -> None:
    """The reader for tests: growth, steps by device and by argument, strings, waves, faults."""
    path = tmp_path / "one.profile"
    path.write_text(
        "devices = 2\n"
        "* field 138 0-3 = u64 100 +5/s +$i*10 +$a  # comment\n"
        '* nvmlDeviceGetName = "a#b $i \\"q\\" \\xff"\n'
        "* gpm 1 = wave 1 2 3\n"
        "1 gpm 2 mig 3 = !15\n"
        "process 0 pid 7 memory 8\n"
    )
    told = Profile.read(path)
    field = told.field(1, 138, 3)
    assert field is not None
    assert (field.kind, field.value, field.rates) == ("u64", 113, (5.0,))
    assert told.field(1, 138, 4) is None
    name = told.function(1, "nvmlDeviceGetName")
    assert name is not None
    assert name.value == b'a#b 1 "q" \xff'
    wave, broken = told.gpm(0, 1), told.gpm(1, 2, 3)
    assert wave is not None
    assert broken is not None
    assert (wave.value, broken.fault) == ((1.0, 2.0, 3.0), "!15")
    assert told.processes(0) == [{"pid": "7", "memory": "8"}]
