"""What a counter file of a port means: its family, its unit, and what happens at its end.

Tables of names by who writes them: the kernel for every InfiniBand port, each driver for its own
hardware, the network stack for interfaces. A name that is in no table is a raw counter.

Widths are two different traps. The classic counters of an InfiniBand port are 4 to 32 bits wide and
*stop* at their top until an operator clears them (IBTA specification, PortCounters): rules on them
are blind from then on, which `nic_saturated` says. The Q counters of mlx5 are 32 bits wide
and *wrap*; `wrapping` makes them go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.samples import Metric

_TOP4, _TOP8, _TOP16, _TOP32 = 2**4 - 1, 2**8 - 1, 2**16 - 1, 2**32 - 1


class Reading(NamedTuple):
    """What one counter file means: its family, the value of the family's last label, its unit.

    `top` is where a narrow field stops (0: it does not). A `fast` field, when only 32 bits wide,
    is full within a second at today's link speeds: at its top it is left out altogether. `also`
    is a second family, without a last label, that the same file counts for. Files whose readings
    `add` are parts of one series; of others the first one wins.
    """

    metric: Metric
    label: str | None = None
    scale: int = 1
    top: int = 0
    fast: bool = False
    also: Metric | None = None
    adds: bool = False


# The kernel asks the card for these two sets separately (mlx5: by virtual port, and by a register
# that restricted functions may not read), so one may be refused while the other works.
TRAFFIC: Mapping[str, Reading] = {
    # units of 4 octets by specification, whatever the link's width
    "port_rcv_data": Reading(c.NIC_RECEIVE_BYTES_TOTAL, None, 4, _TOP32, fast=True),
    "port_xmit_data": Reading(c.NIC_TRANSMIT_BYTES_TOTAL, None, 4, _TOP32, fast=True),
    "port_rcv_packets": Reading(c.NIC_RECEIVE_PACKETS_TOTAL, None, 1, _TOP32, fast=True),
    "port_xmit_packets": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL, None, 1, _TOP32, fast=True),
    # in `counters_ext`, where the file without `_64` is not there
    "port_rcv_data_64": Reading(c.NIC_RECEIVE_BYTES_TOTAL, None, 4),
    "port_xmit_data_64": Reading(c.NIC_TRANSMIT_BYTES_TOTAL, None, 4),
    "port_rcv_packets_64": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "port_xmit_packets_64": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
}
ERRORS: Mapping[str, Reading] = {
    "port_xmit_discards": Reading(c.NIC_TRANSMIT_DROPS_TOTAL, top=_TOP16),
    "port_xmit_wait": Reading(c.NIC_TRANSMIT_WAIT_TICKS_TOTAL, top=_TOP32),
    "symbol_error": Reading(c.NIC_ERRORS_TOTAL, "symbol", top=_TOP16),
    "link_error_recovery": Reading(c.NIC_ERRORS_TOTAL, "link_recovery", top=_TOP8),
    "link_downed": Reading(c.NIC_ERRORS_TOTAL, "link_downed", top=_TOP8),
    "port_rcv_errors": Reading(c.NIC_ERRORS_TOTAL, "receive", top=_TOP16),
    # already marked bad on arrival: another link, upstream, is sick
    "port_rcv_remote_physical_errors": Reading(c.NIC_ERRORS_TOTAL, "remote_physical", top=_TOP16),
    "local_link_integrity_errors": Reading(c.NIC_ERRORS_TOTAL, "link_integrity", top=_TOP4),
    "excessive_buffer_overrun_errors": Reading(c.NIC_ERRORS_TOTAL, "buffer_overrun", top=_TOP4),
    "VL15_dropped": Reading(c.NIC_ERRORS_TOTAL, "vl15_dropped", top=_TOP16),
    "port_rcv_constraint_errors": Reading(c.NIC_ERRORS_TOTAL, "receive_constraint", top=_TOP8),
    "port_xmit_constraint_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit_constraint", top=_TOP8),
    # port_rcv_switch_relay_errors means something on switches only
}
WIDE: Mapping[str, str] = {
    "port_rcv_data": "port_rcv_data_64",
    "port_xmit_data": "port_xmit_data_64",
    "port_rcv_packets": "port_rcv_packets_64",
    "port_xmit_packets": "port_xmit_packets_64",
}
"""64-bit twins in `counters_ext`, of kernels before 4.5 (mlx4). A driver that has only one of the
two shows 0 in the other, and both count the same, so the greater one is right."""

_MLX5: Mapping[str, Reading] = {
    # of queue pairs
    "packet_seq_err": Reading(c.NIC_RETRANSMITS_TOTAL, "sequence"),
    "implied_nak_seq_err": Reading(c.NIC_RETRANSMITS_TOTAL, "implied_nak"),
    "roce_adp_retrans": Reading(c.NIC_RETRANSMITS_TOTAL, "adaptive"),
    "roce_adp_retrans_to": Reading(c.NIC_RETRANSMITS_TOTAL, "adaptive_timeout"),
    "local_ack_timeout_err": Reading(c.NIC_TIMEOUTS_TOTAL),
    "rnr_nak_retry_err": Reading(c.NIC_ERRORS_TOTAL, "receiver_not_ready"),
    "req_rnr_retries_exceeded": Reading(c.NIC_ERRORS_TOTAL, "rnr_retries_exceeded"),
    "req_transport_retries_exceeded": Reading(c.NIC_ERRORS_TOTAL, "transport_retries_exceeded"),
    "out_of_buffer": Reading(c.NIC_ERRORS_TOTAL, "out_of_buffer"),
    "rx_icrc_encapsulated": Reading(c.NIC_ERRORS_TOTAL, "icrc"),
    # of congestion control
    "np_cnp_sent": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "rp_cnp_handled": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "rp_cnp_ignored": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "ignored"),
    "np_ecn_marked_roce_packets": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
}
# Failures to make an object are the host's or its limits', not the network's: one series.
_EFA_RESOURCES = (
    "alloc_pd_err", "alloc_ucontext_err", "create_ah_err", "create_cq_err", "create_qp_err",
    "mmap_err", "reg_mr_err",
)  # fmt: skip
_EFA: Mapping[str, Reading] = {
    "rx_bytes": Reading(c.NIC_RECEIVE_BYTES_TOTAL),
    "tx_bytes": Reading(c.NIC_TRANSMIT_BYTES_TOTAL),
    "rx_pkts": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "tx_pkts": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
    "rx_drops": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
    "retrans_pkts": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "retrans_timeout_events": Reading(c.NIC_TIMEOUTS_TOTAL),
    "unresponsive_remote_events": Reading(c.NIC_ERRORS_TOTAL, "unresponsive_remote"),
    "impaired_remote_conn_events": Reading(c.NIC_ERRORS_TOTAL, "impaired_remote"),
    "rdma_read_wr_err": Reading(c.NIC_ERRORS_TOTAL, "rdma_read"),
    "rdma_write_wr_err": Reading(c.NIC_ERRORS_TOTAL, "rdma_write"),
    "cmds_err": Reading(c.NIC_ERRORS_TOTAL, "command"),
    "no_completion_cmds": Reading(c.NIC_ERRORS_TOTAL, "command_no_completion"),
    "keep_alive_rcvd": Reading(c.NIC_KEEP_ALIVES_TOTAL),
    **dict.fromkeys(_EFA_RESOURCES, Reading(c.NIC_ERRORS_TOTAL, "resource", adds=True)),
}
_BNXT: Mapping[str, Reading] = {
    # bytes and packets have the names of EFA's
    "to_retransmits": Reading(c.NIC_RETRANSMITS_TOTAL, "timeout", also=c.NIC_TIMEOUTS_TOTAL),
    "seq_err_naks_rcvd": Reading(c.NIC_RETRANSMITS_TOTAL, "sequence"),
    "missing_resp": Reading(c.NIC_RETRANSMITS_TOTAL, "implied_nak"),
    "oos_drop_count": Reading(c.NIC_ERRORS_TOTAL, "out_of_order"),
    "max_retry_exceeded": Reading(c.NIC_ERRORS_TOTAL, "transport_retries_exceeded"),
    "rnr_naks_rcvd": Reading(c.NIC_ERRORS_TOTAL, "receiver_not_ready"),
    "rx_out_of_buffer": Reading(c.NIC_ERRORS_TOTAL, "out_of_buffer"),
    "rx_roce_errors": Reading(c.NIC_ERRORS_TOTAL, "receive"),
    "tx_roce_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit"),
    "unrecoverable_err": Reading(c.NIC_ERRORS_TOTAL, "unrecoverable"),
    "rx_roce_discards": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
    "tx_roce_discards": Reading(c.NIC_TRANSMIT_DROPS_TOTAL),
    "tx_cnp_pkts": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "rx_cnp_pkts": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "rx_ecn_marked_pkts": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
    # `recoverable_errors` is fed from a broadcast counter and left alone
}
_IRDMA: Mapping[str, Reading] = {
    "ip4InOctets": Reading(c.NIC_RECEIVE_BYTES_TOTAL, adds=True),
    "ip6InOctets": Reading(c.NIC_RECEIVE_BYTES_TOTAL, adds=True),
    "ip4OutOctets": Reading(c.NIC_TRANSMIT_BYTES_TOTAL, adds=True),
    "ip6OutOctets": Reading(c.NIC_TRANSMIT_BYTES_TOTAL, adds=True),
    "ip4InPkts": Reading(c.NIC_RECEIVE_PACKETS_TOTAL, adds=True),
    "ip6InPkts": Reading(c.NIC_RECEIVE_PACKETS_TOTAL, adds=True),
    "ip4OutPkts": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL, adds=True),
    "ip6OutPkts": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL, adds=True),
    "ip4InDiscards": Reading(c.NIC_RECEIVE_DROPS_TOTAL, adds=True),
    "ip6InDiscards": Reading(c.NIC_RECEIVE_DROPS_TOTAL, adds=True),
    "RetransSegs": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "tcpRetransSegs": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "InProtoErrors": Reading(c.NIC_ERRORS_TOTAL, "protocol"),
    "tcpInProtoErrors": Reading(c.NIC_ERRORS_TOTAL, "protocol"),
    "cnpSent": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "cnpHandled": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "cnpIgnored": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "ignored"),
    "RxECNMrkd": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
}
_HFI1: Mapping[str, Reading] = {
    "RcResend": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "RcTimeOut": Reading(c.NIC_TIMEOUTS_TOTAL),
    "PktDrop": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
}
_HNS: Mapping[str, Reading] = {
    "rx_pkt": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "tx_pkt": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
    "rx_err_pkt": Reading(c.NIC_ERRORS_TOTAL, "receive"),
    "tx_err_pkt": Reading(c.NIC_ERRORS_TOTAL, "transmit"),
    "tx_cnp_pkt": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "rx_cnp_pkt": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
}
DRIVER: Mapping[str, Reading] = {**_MLX5, **_EFA, **_BNXT, **_IRDMA, **_HFI1, **_HNS}
"""All drivers' names in one table: no name means two things, and a driver that we do not know may
use one of them."""

INTERFACE: Mapping[str, Reading] = {
    "rx_bytes": Reading(c.NIC_RECEIVE_BYTES_TOTAL),
    "tx_bytes": Reading(c.NIC_TRANSMIT_BYTES_TOTAL),
    "rx_packets": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "tx_packets": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
    # /proc/net/dev adds these two as well: the second is what the card threw away for want of
    # buffers of the host
    "rx_dropped": Reading(c.NIC_RECEIVE_DROPS_TOTAL, adds=True),
    "rx_missed_errors": Reading(c.NIC_RECEIVE_DROPS_TOTAL, adds=True),
    "tx_dropped": Reading(c.NIC_TRANSMIT_DROPS_TOTAL),
    "rx_errors": Reading(c.NIC_ERRORS_TOTAL, "receive"),
    "tx_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit"),
    "rx_crc_errors": Reading(c.NIC_ERRORS_TOTAL, "crc"),
    "rx_fifo_errors": Reading(c.NIC_ERRORS_TOTAL, "fifo"),
    "rx_over_errors": Reading(c.NIC_ERRORS_TOTAL, "over"),
}

_MLX5_64_BITS = ("np_", "rp_", "cc_", "rdma_", "rx_icrc_encapsulated")


def wraps(name: str) -> bool:
    """Tell whether an mlx5 driver counter is 32 bits wide and begins again at 0.

    The Q counters are; those of congestion control and the optional ones have 64 bits.
    """
    return not name.startswith(_MLX5_64_BITS)


def is_setting(name: str) -> bool:
    """Tell whether a file among the counters is none: for how long the kernel keeps them."""
    return name == "lifespan"


def is_level(name: str) -> bool:
    """Tell whether a raw value goes up and down: objects that are open (bnxt_re)."""
    return name.startswith(("active_", "watermark_"))
