"""The mistakes in NCCL's settings, each with a job that makes it and one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.client import nccl as client
from exporter.derive.fabric.environment import (
    DIFFER,
    KINDS,
    RULES,
    STRANGE,
    Node,
    Port,
    Process,
    problems,
)
from exporter.formats import nccl_settings
from exporter.formats.nccl_settings import from_environment, from_file, from_mapping

RAILS = tuple(Port(f"mlx5_{at}", "1", "InfiniBand", active=True) for at in range(8))
STORAGE = Port("mlx5_10", "1", "Ethernet", active=True)
DGX = Node(
    ports=(*RAILS, STORAGE),
    rails=frozenset(one.device for one in RAILS),
    interfaces=frozenset({"lo", "eth0", "bond0", "docker0", "ibp1s0"}),
    spans=True,
    sharp=True,
    odd_file=False,
)
ALL = "=" + ",".join(one.device for one in RAILS)


def found(node: Node = DGX, **settings: str) -> dict[str, bool]:
    variables = {f"NCCL_{name}": value for name, value in settings.items()}
    return problems([Process(from_mapping(variables), node)])


def made(node: Node = DGX, **settings: str) -> set[str]:
    return {kind for kind, so in found(node, **settings).items() if so}


def test_a_job_that_sets_nothing_has_made_no_mistake() -> None:
    assert found() == dict.fromkeys(RULES, False)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"IB_DISABLE": "1"}, {"ib_disabled"}),
        ({"NET": "Socket"}, {"ib_disabled"}),
        ({"NET": "IB", "IB_DISABLE": "0"}, set()),
        ({"IB_HCA": ALL}, set()),
        ({"IB_HCA": "mlx5_0,mlx5_1,mlx5_2,mlx5_3"}, {"hca_incomplete", "hca_beyond_rails",
                                                    "hca_prefix"}),
        ({"IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"}, {"hca_incomplete"}),
        ({"IB_HCA": "mlx5"}, {"hca_beyond_rails"}),
        ({"IB_HCA": f"{ALL},mlx5_12"}, {"hca_missing"}),
        ({"IB_HCA": f"{ALL}:1"}, set()),
        ({"IB_HCA": "=mlx5_0:2"}, {"hca_missing", "hca_incomplete"}),
        ({"IB_HCA": "^mlx5_10"}, set()),
        ({"IB_HCA": "^=mlx5_10,mlx5_3"}, {"hca_incomplete"}),
        ({"SOCKET_IFNAME": "mlx5_3"}, {"socket_interface_rdma", "socket_interface_missing"}),
        ({"SOCKET_IFNAME": "eth"}, set()),
        ({"SOCKET_IFNAME": "=eth"}, {"socket_interface_missing"}),
        ({"SOCKET_IFNAME": "eno1,eth0"}, set()),
        ({"SOCKET_IFNAME": "eth2"}, {"socket_interface_missing"}),
        ({"SOCKET_IFNAME": "^docker,lo"}, set()),
        ({"SOCKET_IFNAME": "lo"}, {"socket_interface_local"}),
        ({"SOCKET_IFNAME": "docker0"}, {"socket_interface_local"}),
        ({"COLLNET_ENABLE": "1"}, set()),
        ({"SHARP_ENABLE": "1"}, {"variable_without_effect"}),
        ({"P2P_DISABLE": "1"}, {"p2p_disabled"}),
        ({"P2P_LEVEL": "LOC"}, {"p2p_disabled"}),
        ({"P2P_LEVEL": "SYS"}, set()),
        ({"SHM_DISABLE": "1"}, {"shm_disabled"}),
        ({"NET_GDR_LEVEL": "LOC"}, {"gdr_disabled"}),
        ({"NET_GDR_LEVEL": "5"}, set()),
        ({"NVLS_ENABLE": "0"}, {"nvls_disabled"}),
        ({"DEBUG": "trace"}, {"debug_left_on"}),
        ({"DEBUG": "INFO", "DEBUG_SUBSYS": "INIT,COLL"}, {"debug_left_on"}),
        ({"DEBUG": "INFO"}, set()),
        ({"DEBUG": "INFO", "DEBUG_SUBSYS": "^INIT"}, {"debug_left_on"}),
        ({"DEBUG": "INFO", "DEBUG_SUBSYS": "^COLL,P2P,CALL"}, set()),
        ({"ALGO": "Ring"}, {"algorithm_pinned"}),
        ({"PROTO": "^LL128"}, {"protocol_pinned"}),
        ({"BUFFSIZE": "67108864"}, {"large_buffers"}),
        ({"BUFFSIZE": "8388608"}, set()),
        ({"BUFFSIZE": "0x4000000"}, {"large_buffers"}),
        ({"BUFFSIZE": "0x800000"}, set()),
        ({"NET": "AWS Libfabric"}, set()),
        ({"IB_DISABLE": "", "NVLS_ENABLE": "", "P2P_LEVEL": ""}, set()),
        ({"SOCKET_NTHREADS": "16", "NSOCKS_PERTHREAD": "8"}, {"too_many_sockets"}),
        ({"SOCKET_NTHREADS": "4", "NSOCKS_PERTHREAD": "4"}, set()),
        ({"CROSS_NIC": "1"}, {"cross_nic"}),
        ({"CROSS_NIC": "0"}, set()),
        ({"IB_DISABLE": "true"}, {"strange_value"}),
        ({"IB_HCA": '"=mlx5_0"'}, {"strange_value"}),
    ],
    ids=lambda one: " ".join(sorted(map(str, one.items() if isinstance(one, dict) else one))),
)  # fmt: skip
def test_each_mistake_is_told_and_nothing_else(settings: dict[str, str], kinds: set[str]) -> None:
    assert made(**settings) == kinds


def test_the_specification_s_own_settings_are_judged() -> None:
    """16.4.3 puts an HCA into NCCL_SOCKET_IFNAME, 16.8.3 writes `export` into /etc/nccl.conf."""
    assert "socket_interface_rdma" in made(SOCKET_IFNAME="mlx5_0")
    text = b"""# 1. Enable Rail algorithm
export NCCL_NET_GDR_LEVEL=5
export NCCL_IB_DISABLE=0
export NCCL_NET=IB
"""
    assert from_file(text) == ({}, True)
    told = made(
        NET_GDR_LEVEL="5", IB_DISABLE="0", NET="IB",
        IB_HCA="=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7",
        ALGO="Collnet,Tree,Ring", COLLNET_ENABLE="1", SHARP_ENABLE="1", BUFFSIZE="67108864",
        NTHREADS="512", CHECKS_DISABLE="1", NSOCKS_PERTHREAD="4", SOCKET_NTHREADS="4",
    )  # fmt: skip
    assert told == {"algorithm_pinned", "variable_without_effect", "large_buffers"}


def test_sharp_that_was_asked_for_and_is_not_used_is_a_mistake() -> None:
    asked = {"COLLNET_ENABLE": "1"}
    assert "sharp_unused" in made(DGX._replace(sharp=False), **asked)
    assert "sharp_unused" not in found(DGX._replace(sharp=None), **asked)
    assert found(DGX._replace(sharp=None))["sharp_unused"] is False


def test_ib_that_is_switched_off_where_there_is_none_is_no_mistake() -> None:
    for ports in ((), tuple(one._replace(active=False) for one in RAILS), (STORAGE,)):
        assert "ib_disabled" not in made(DGX._replace(ports=ports), IB_DISABLE="1")
    roce = tuple(one._replace(link_layer="Ethernet") for one in RAILS)
    assert "ib_disabled" in made(DGX._replace(ports=roce), IB_DISABLE="1")


def test_what_is_not_known_of_the_node_is_no_answer() -> None:
    told = found(Node(), IB_DISABLE="1", IB_HCA="mlx5_0", SOCKET_IFNAME="eth7", CROSS_NIC="1")
    unknown = {
        "ib_disabled", "hca_missing", "hca_incomplete", "hca_beyond_rails", "hca_prefix",
        "socket_interface_missing", "socket_interface_local", "cross_nic", "odd_file",
    }  # fmt: skip
    assert unknown.isdisjoint(told)
    assert set(RULES) - unknown == set(told)


def test_of_a_value_that_makes_no_sense_to_us_nothing_is_said_but_that() -> None:
    """NCCL reads `1 ` as 1, and may find devices in a list that we cannot read."""
    told = found(IB_DISABLE="1 ", IB_HCA="mlx5_0, mlx5_1", SOCKET_IFNAME="ib$N", ALGO="a b")
    assert told["strange_value"] is True
    unclear = {
        "ib_disabled", "hca_missing", "hca_incomplete", "hca_beyond_rails", "hca_prefix",
        "socket_interface_rdma", "socket_interface_missing", "socket_interface_local",
        "algorithm_pinned",
    }  # fmt: skip
    assert set(RULES) - unclear == set(told)


def test_a_port_whose_state_is_not_known_is_neither_up_nor_down() -> None:
    ports = (*RAILS[:7], RAILS[7]._replace(active=None), STORAGE)
    node = DGX._replace(ports=ports)
    assert "hca_missing" not in found(node, IB_HCA=ALL)
    assert found(node, IB_HCA=f"{ALL},mlx5_12")["hca_missing"] is True
    listed = "=" + ",".join(one.device for one in RAILS[:7])
    assert "hca_incomplete" not in found(node, IB_HCA=listed)
    assert found(node, IB_HCA="=mlx5_0")["hca_incomplete"] is True
    assert found(node, IB_DISABLE="1")["ib_disabled"] is True
    node = DGX._replace(ports=tuple(one._replace(active=None) for one in ports))
    told = found(node, IB_DISABLE="1", IB_HCA=f"{ALL},mlx5_10")
    assert {"ib_disabled", "hca_missing", "hca_beyond_rails"}.isdisjoint(told)


def test_of_a_job_with_a_rank_that_is_not_known_it_is_not_said_that_all_is_well() -> None:
    told = problems([Process({}, DGX), Process({}, DGX._replace(odd_file=None))])
    assert "odd_file" not in told
    assert told["p2p_disabled"] is False


def test_a_job_on_one_node_may_use_the_loopback() -> None:
    assert "socket_interface_local" not in made(DGX._replace(spans=False), SOCKET_IFNAME="lo")


def test_a_rail_that_is_down_does_not_make_the_list_incomplete() -> None:
    ports = (*RAILS[:7], RAILS[7]._replace(active=False))
    listed = "=" + ",".join(one.device for one in RAILS[:7])
    assert made(DGX._replace(ports=ports), IB_HCA=listed) == set()
    assert made(DGX._replace(ports=ports), IB_HCA=ALL) == {"hca_missing"}


def test_a_mistake_of_one_rank_is_the_job_s() -> None:
    good, bad = Process({}, DGX), Process({"NCCL_P2P_DISABLE": "1"}, DGX)
    told = problems([good, bad])
    assert told["p2p_disabled"] is True
    assert told[DIFFER] is True
    assert problems([bad, bad])[DIFFER] is False
    assert DIFFER not in problems([bad])
    # Each rank has its own interface, and may.
    each = [Process({"NCCL_SOCKET_IFNAME": name}, DGX) for name in ("eth0", "bond0")]
    assert problems(each)[DIFFER] is False


def test_kinds_are_few_and_well_named() -> None:
    assert len(set(KINDS)) == len(KINDS) == 23
    assert all(kind.isidentifier() and kind.islower() for kind in KINDS)


# ---------------------------------------------------------------- what is kept of an environment

SECRETS = (
    b"PATH=/usr/bin\0AWS_SECRET_ACCESS_KEY=hunter2\0NCCL_TOKEN=hunter2\0NCCL_NET=hunter 2\0"
    b"NCCL_SOCKET_IFNAME=$(curl -H 'Authorization: hunter2')\0NCCL_DEBUG=INFO\0"
    b"XNCCL_DEBUG=hunter2\0NCCL_ALGO=hunter2:hunter2\nhunter2\0NCCL_IB_HCA\0NCCL_IB_DISABLE=1\0"
)


def test_no_other_variable_is_kept_and_no_value_that_looks_otherwise() -> None:
    told = from_environment(SECRETS)
    assert told == {
        "NCCL_NET": STRANGE, "NCCL_SOCKET_IFNAME": STRANGE, "NCCL_DEBUG": "INFO",
        "NCCL_ALGO": STRANGE, "NCCL_IB_DISABLE": "1",
    }  # fmt: skip
    assert "hunter2" not in repr(told)


def test_the_client_keeps_what_the_daemon_keeps() -> None:
    """It may not import the daemon's list."""
    assert client.PATTERNS == nccl_settings.PATTERNS
    assert client.STRANGE == nccl_settings.STRANGE == STRANGE
    text = {
        name.decode(): value.decode()
        for name, equals, value in (one.partition(b"=") for one in SECRETS.split(b"\0"))
        if equals
    }
    assert client.settings_of(text) == from_environment(SECRETS)


def test_the_first_of_a_variable_that_is_there_twice_counts() -> None:
    """As getenv finds it."""
    assert from_environment(b"NCCL_NET=IB\0NCCL_NET=Socket\0") == {"NCCL_NET": "IB"}


@pytest.mark.parametrize(
    ("text", "settings", "odd"),
    [
        (b"", {}, False),
        (b"# NCCL_NET=IB\n  # NCCL_NET=IB\n\nNCCL_DEBUG=WARN\n", {"NCCL_DEBUG": "WARN"}, False),
        (b"NCCL_SOCKET_IFNAME==ens1f0", {"NCCL_SOCKET_IFNAME": "=ens1f0"}, False),
        (b"NCCL_NET = IB\n", {}, True),
        (b"export NCCL_NET=IB\n", {}, True),
        (b"OTHER=1\n", {}, False),
        (b"\xff\xfe=\n", {}, False),
    ],
)
def test_a_file_is_read_as_nccl_reads_it(text: bytes, settings: dict[str, str], odd: bool) -> None:
    assert from_file(text) == (settings, odd)


@given(st.lists(st.tuples(
    st.one_of(st.sampled_from(sorted(nccl_settings.PATTERNS)), st.text(max_size=12)),
    st.one_of(st.sampled_from(["1", "0", "^=mlx5_0", "=,", ",", ":", "^", "LOC"]), st.text()),
), max_size=8))  # fmt: skip
def test_whatever_an_environment_holds_it_is_judged(pairs: list[tuple[str, str]]) -> None:
    """Without trouble, and nothing but kinds and yes or no comes out."""
    text = "\0".join(f"{name}={value}" for name, value in pairs).encode("utf-8", "replace")
    kept = from_environment(text)
    assert set(kept) <= set(nccl_settings.PATTERNS)
    for node in (DGX, Node(), Node((), frozenset(), frozenset(), False, False, True)):
        told = problems([Process(kept, node), Process({}, node)])
        assert set(told) <= set(KINDS)
        assert all(isinstance(so, bool) for so in told.values())
