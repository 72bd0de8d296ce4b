"""Whatever the files of a port say or refuse, the source goes on, and other ports do not notice."""

from __future__ import annotations

import errno
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.samples import Fault, Gate, Sample
from exporter.sources.network import NetworkSource
from tests.sources.network_lab import TREES, Failing, read

H100 = TREES / "h100-8xndr-bond"
PORT = H100 / "sys/class/infiniband/mlx5_4/ports/1"
FILES = sorted(str(path.relative_to(PORT)) for path in PORT.rglob("*") if path.is_file())
ANSWERS = st.one_of(
    st.sampled_from(
        [errno.EINVAL, errno.EIO, errno.EACCES, errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP]
    ),
    st.binary(max_size=40),
    st.integers(0, 2**70).map(lambda n: f"{n}\n".encode()),
    st.sampled_from([b"4: ACTIVE", b"1: DOWN", b"inf Gb/sec", b"400 Gb/sec (4X NDR)", b"\xff\xfe"]),
)
ROUND = st.dictionaries(st.sampled_from(FILES), ANSWERS, max_size=12)
WHOLE = {key: value for key, value in read(H100, raw=True).items() if key[1] != "mlx5_4"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROUND, min_size=1, max_size=4), st.integers(1, 3))
def test_one_port_may_say_anything(rounds: list[dict[str, int | bytes]], relist: int) -> None:
    """Given any answers of one port's files, read after read, then well-formed samples, faults
    that name that port only, and every series of the others."""
    failing = Failing({})
    source = NetworkSource(H100, files=lambda _: failing, raw=True, relist=relist, backoff=2)
    for answers in rounds:
        failing.answers = {f"mlx5_4/ports/1/{file}$": answer for file, answer in answers.items()}
        items = list(source.read())
        samples = [item for item in items if isinstance(item, Sample)]
        assert Gate(10_000).admit(samples)[1] == {}
        faults = [item for item in items if isinstance(item, Fault)]
        assert len(faults) + len(samples) == len(items)
        assert {fault.part.partition("/")[0] for fault in faults} <= {"mlx5_4"}
        others = {
            (sample.metric.name, *sample.labels): sample.value
            for sample in samples
            if sample.labels[0] != "mlx5_4"
        }
        assert others == WHOLE
    source.close()


def test_the_files_are_those_of_a_port() -> None:
    """Else nothing would be tested."""
    assert {"state", "rate", "counters/symbol_error", "hw_counters/packet_seq_err"} <= set(FILES)
    assert Path(PORT, "hw_counters/lifespan").exists()
