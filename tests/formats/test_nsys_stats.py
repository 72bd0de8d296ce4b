"""Tables of `nsys stats`, of old and new versions, as CSV.

Written in the layout of the reports; the figures are the seed chapter's where it has them.
"""

from __future__ import annotations

import pytest

from exporter.formats.nsys_stats import Row, read
from exporter.samples import Malformed

NEW = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,6000000,3,2000000.0,2000000.0,1999999,2000001,1.0,"void gemm<int, float>(int, float *)"
40.0,4000000,1,4000000.0,4000000.0,4000000,4000000,0.0,ncclDevKernel_AllReduce
"""
API = """Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
45.2,12345678901,10000,1234567.0,1.0,1,1,0.0,cudaLaunchKernel
23.1,6789012345,1234,5501234.0,1.0,1,1,0.0,cudaDeviceSynchronize
"""
OLD_API = """Time(%),Total Time (ns),Num Calls,Average,Minimum,Maximum,StdDev,Name
45.2,"12,345,678,901","10,000",1234567.8,1,2,3,cudaLaunchKernel
"""
MEMORY = """Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,5000,4,1250.0,1250.0,1,1,0.0,[CUDA memcpy Host-to-Device]
"""
SIZES = """Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
12.5,4,3.1,3.1,1,1,0.0,[CUDA memcpy Host-to-Device]
"""


def test_each_report_is_told_by_its_columns() -> None:
    """Files can be called anything."""
    assert read(NEW) == [
        Row("kernel", "void gemm<int, float>(int, float *)", 3, 0.006),
        Row("kernel", "ncclDevKernel_AllReduce", 1, 0.004),
    ]
    assert read(API)[0] == Row("call", "cudaLaunchKernel", 10000, pytest.approx(12.345678901))
    assert read(OLD_API) == [Row("call", "cudaLaunchKernel", 10000, pytest.approx(12.345678901))]
    assert read(MEMORY) == [Row("copy", "[CUDA memcpy Host-to-Device]", 4, pytest.approx(5e-6))]


def test_reports_of_no_interest_are_read_over() -> None:
    """`nsys stats` writes a file for each: sizes, ranges of NVTX, calls to the system."""
    ranges = "Time (%),Total Time (ns),Instances,Avg (ns),Style,Range\n95.0,348,1,3,PushPop,Step\n"
    system = API.replace("cudaLaunchKernel", "sem_wait").replace("cudaDeviceSynchronize", "poll")
    for text in (SIZES, ranges, system):
        assert read(text) == []


def test_several_reports_in_one_file_are_read() -> None:
    """As they come on standard output, with what nsys says between them."""
    text = (
        "Generating SQLite file x.sqlite from x.nsys-rep\n"
        "Processing [x.sqlite] with [/opt/reports/cuda_gpu_kern_sum.py]...\n"
        f"{NEW}\nProcessing [x.sqlite] with [cuda_api_sum.py]... \n{API}\n"
        f"SKIPPED: x.sqlite does not contain NV Tools Extension data.\n\n{SIZES}\n{MEMORY}"
    )
    assert [row.kind for row in read(text)] == ["kernel", "kernel", "call", "call", "copy"]


def test_times_are_in_the_unit_of_the_column() -> None:
    """`nsys stats --timeunit msec`."""
    text = NEW.replace("(ns)", "(ms)").replace("6000000", "6").replace("4000000", "4")
    assert [row.seconds for row in read(text)] == [0.006, 0.004]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no report"),
        ("a,b\n1,2\n", "no report"),
        (NEW + "1.0,5\n", "line 4: 2 columns, not 9"),
        (NEW + "1.0,soon,3,1,1,1,1,1,x\n", "line 4: 'soon' is not a time"),
        (NEW + "1.0,-5,3,1,1,1,1,1,x\n", "line 4: -5.0 makes no sense"),
        (NEW + "1.0,nan,3,1,1,1,1,1,x\n", "line 4: nan makes no sense"),
        (NEW.replace("Total Time (ns)", "Total Time (weeks)"), "weeks"),
        (NEW + '"' + "x" * 200_000, "line 4"),
    ],
)
def test_what_does_not_fit_is_said_with_its_line(text: str, said: str) -> None:
    """Not a sum of what happened to be readable."""
    with pytest.raises(Malformed, match=said):
        read(text)
