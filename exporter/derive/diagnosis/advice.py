"""What to do about a bottleneck: what it means, what to measure next, and what helps.

`ADVICE` holds it for each row of the tree and each cause. `PROBLEMS` is the specification's table
16-8 (common problems of communication) with the causes of ours that tell of each. Commands are of
the tools as they are today: NCCL's calls come with `--trace=nvtx`, for NCCL marks them, and what
was the report `cudaapisum` is `cuda_api_sum`; without `--kill=none` the job ends with the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_NSYS = (
    "nsys profile --trace=cuda,nvtx,osrt,cublas,cudnn --delay=30 --duration=60"
    " --kill=none --force-overwrite=true --output=flopwatch-{run} COMMAND OF ONE RANK"
)
_STATS = "nsys stats --report cuda_gpu_kern_sum,cuda_api_sum flopwatch-{run}.nsys-rep"
_MEMCPY = "nsys stats --report cuda_gpu_mem_time_sum flopwatch-{run}.nsys-rep"
_TORCH = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],"
    " schedule=torch.profiler.schedule(wait=2, warmup=2, active=5),"
    " on_trace_ready=torch.profiler.tensorboard_trace_handler('traces'))"
)
_TORCH_MEMORY = (
    "torch.cuda.memory_summary() and torch.cuda.memory._record_memory_history(), then"
    " torch.cuda.memory._dump_snapshot('memory.pickle')"
)
_NCCL_LOG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING COMMAND OF ONE RANK"
_NCCL_TEST = "all_reduce_perf -b 8M -e 8G -f 2 -g 8"
_NCCL_SMALL = "all_reduce_perf -b 8 -e 8M -f 2 -g 8"
_TOPOLOGY = "nvidia-smi topo -m"
_THROTTLE = "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER"
_LINK = "ibstat; perfquery -x (InfiniBand), ethtool -S INTERFACE (RoCE)"
_PAUSE = "ethtool -S INTERFACE | grep -E 'pause|prio', and the same counters of the switch"
_STACK = "py-spy dump --pid PID OF ONE RANK, some times in a row"


class Advice(NamedTuple):
    """What a finding means, what to measure next (commands and places), and what helps."""

    means: str
    measure: tuple[str, ...]
    helps: str


ADVICE: Mapping[str, Advice] = {
    # The rows of the tree.
    "memory_bound_severe": Advice(
        "GPUs often have nothing to do while their memory is full: too little memory makes the"
        " job move data to the host, or free and allocate over and over",
        (_TORCH_MEMORY, _NSYS, _MEMCPY),
        "smaller micro-batch, recomputation of activations, sharded optimizer states, offloading"
        " that overlaps; expandable segments of the allocator against fragments",
    ),
    "software_overhead": Advice(
        "GPUs often have nothing to do and memory is not full: the host does not feed them,"
        " because it loads data, launches many small kernels, or waits",
        (_NSYS, _STATS, _TORCH, _STACK),
        "more and pinned workers of the data loader, prefetching, CUDA graphs, torch.compile,"
        " fewer synchronizations (.item(), print of a loss) in the loop",
    ),
    "communication_bound": Advice(
        "GPUs are busy, and a large part of the step is communication between them",
        (_NSYS, _NCCL_LOG, _NCCL_TEST, _TOPOLOGY),
        "less tensor parallelism across nodes, overlap with computing, larger buckets, gradient"
        " accumulation, NCCL's algorithm and channels, a healthy fabric (table below)",
    ),
    "memory_bandwidth_bound": Advice(
        "GPUs are busy and hardly communicate: the tree takes the memory's bandwidth for the limit;"
        " whether that is so shows in the HBM counters, not in the utilization",
        (_TORCH, _NSYS, "ncu --set roofline --launch-skip 100 --launch-count 20 COMMAND"),
        "fused kernels (norm, activation, attention), larger matrices, lower precision; if tensor"
        " cores are at work, nothing: it is bound by computing",
    ),
    "efficient": Advice(
        "GPUs are busy and communication is neither large nor absent: near its peak by the tree;"
        " MFU says how near",
        (_TORCH,),
        "only what changes the work: lower precision, less recomputation, fused kernels",
    ),
    "mixed": Advice(
        "no single limit: utilization lies between the two thresholds",
        (_NSYS, _STATS, _TORCH),
        "take a detailed profile and begin with the largest cause below",
    ),
    # What can be seen directly.
    "data_loading": Advice(
        "the loop waits for data",
        (_TORCH, "iostat -x 1; and the time of DataLoader.__next__ alone"),
        "more workers, prefetch_factor, pin_memory, local or cached shards, decoding on the GPU",
    ),
    "exposed_communication": Advice(
        "the loop waits for other ranks and computes nothing meanwhile",
        (_NSYS, _NCCL_TEST, _NCCL_LOG),
        "overlap of communication and computing, larger buckets, another split of parallelism",
    ),
    "bubble": Advice(
        "pipeline stages wait for each other",
        (_NSYS,),
        "more micro-batches for each step, virtual stages (interleaved 1F1B), fewer stages",
    ),
    "checkpoint": Advice(
        "saving checkpoints holds the loop up",
        (_STACK, "the time of the save in the job's log, and iostat -x 1 on the target"),
        "asynchronous and sharded checkpoints, faster storage, a longer interval",
    ),
    "framework": Advice(
        "the host launches kernels more slowly than the GPU runs them",
        (_NSYS, _STATS),
        "CUDA graphs, torch.compile, fused optimizers, fewer small kernels",
    ),
    "clock": Advice(
        "clocks are held down: heat, the power brake, or the power limit",
        (_THROTTLE,),
        "cooling, power limit and supply of that GPU; compare with its neighbours",
    ),
    "straggler": Advice(
        "one rank needs longer for its own work than the others, and all wait for it",
        ("train_straggler_score of {run}, by rank", _NSYS, _THROTTLE),
        "take the slow node out; look at its clocks, PCIe, NVLink, NIC and its host's load",
    ),
    "memory_bandwidth": Advice(
        "the memory's bandwidth is used to a large part: kernels are bound by memory",
        (_TORCH, "ncu --set roofline --launch-skip 100 --launch-count 20 COMMAND"),
        "fused kernels, larger matrices, lower precision",
    ),
    "memory_stalled": Advice(
        "processes of the host wait for memory: it reclaims or swaps",
        ("cat /proc/pressure/memory; vmstat 1",),
        "fewer loader workers, less pinned memory, more memory for the pod, no swap",
    ),
    "tensor_active": Advice(
        "tensor cores are at work", (_TORCH,), "nothing: this is what they are for"
    ),
    "link_errors": Advice(
        "a link of a network port has errors", (_LINK,), "replace optics or cable, or the port"
    ),
    "congestion": Advice(
        "packets were marked by congested switches, or flows were told to slow down",
        (_PAUSE,),
        "ECN marks at the switch, buffer thresholds, fewer flows over one link",
    ),
    "paused": Advice(
        "others make this node's ports stop sending (pause frames): a lossless network is full, and"
        " the wait spreads from the slow receiver to all who send over the same switch",
        (_PAUSE, "nic_transmit_pause_seconds_total of all nodes: who sends the pauses"),
        "find the node that sends them; let ECN act before PFC (a lower threshold at the switch),"
        " DCQCN on all hosts",
    ),
    "pausing": Advice(
        "this node has others wait (it sends pause frames): it does not take its packets in, mostly"
        " because of PCIe, memory, or work that is not done on the card",
        (_PAUSE, "nic_pcie_stalled_seconds_total, nic_pcie_errors_total; lspci -vv | grep LnkSta"),
        "the card's PCIe width and speed, ACS and IOMMU settings, GPUDirect, the NUMA node of the"
        " buffers; take the node out until then: it slows all that send to it",
    ),
    "pcie_errors": Advice(
        "transfers over PCIe had to be repeated", ("nvidia-smi -q | grep -A8 Replay",),
        "reseat or replace the card or riser",
    ),
    "pcie_width": Advice(
        "a GPU has fewer PCIe lanes than it could have", (_TOPOLOGY, "lspci -vv | grep LnkSta"),
        "reseat the card; check slot and bifurcation in the firmware",
    ),
    "nic_distance": Advice(
        "a GPU's nearest NIC is farther than it could be: what it sends to other nodes goes over"
        " the CPU, or over the other socket",
        ("flopwatch topology", _TOPOLOGY, _NCCL_LOG),
        "put the NIC into the slot beside its GPU; until then leave it out of NCCL_IB_HCA",
    ),
    "small_messages": Advice(
        "most collectives are small: their latency counts, not the bandwidth",
        (_NCCL_SMALL,),
        "larger buckets, gradient accumulation, fused collectives",
    ),
    "slow_collectives": Advice(
        "large collectives reach less than half of what the links allow",
        (_NCCL_TEST, _TOPOLOGY, "nccl_wait_seconds_total and nic_rail_traffic_ratio of this node"),
        "see first whether ranks are late; then links, rails, GPUDirect, PCIe width and ACS",
    ),
    "late_ranks": Advice(
        "collectives wait for ranks that come late: time that no faster network would save",
        ("nccl_wait_seconds_total by rank: the one that waits least is the late one", _NSYS),
        "that rank's node: its clocks, its data, its batch; even pipeline stages and experts",
    ),
    "sharp_unused": Advice(
        "the job asked for SHARP and the network does not add up",
        (_NCCL_LOG, "sharp_hello, and the log of sharp_am where the subnet manager runs"),
        "sharp_am on the subnet manager, the SHARP plug-in in the image, trees that are free",
    ),
    "nccl_settings": Advice(
        "a setting of NCCL takes transports or rails away, or logs each call",
        ("nccl_environment_problem of {run}", _NCCL_LOG),
        "remove the setting: docs/fabric.md says of each kind what helps",
    ),
    "rail_imbalance": Advice(
        "one rail carries much less than the others, and rings wait for it",
        ("nic_rail_traffic_ratio by rail", _LINK, _TOPOLOGY),
        "NCCL_IB_HCA, the port's link and rate, GPU and NIC affinity, ECMP at the switch",
    ),
}  # fmt: skip
"""By the name of a row's bottleneck, or of a cause."""


class Problem(NamedTuple):
    """A row of the specification's table 16-8. `causes` tell of it; without any, nothing does."""

    problem: str
    symptom: str
    diagnosis: str
    fix: str
    causes: tuple[str, ...]


PROBLEMS: tuple[Problem, ...] = (
    Problem(
        "CRC errors of an InfiniBand link", "throughput fluctuates, timeouts now and then",
        "SymbolError in ibstat or perfquery; nic_errors_total here", "replace optics or fibre",
        ("link_errors",),
    ),
    Problem(
        "PFC storm (RoCEv2)", "periodic jitter",
        "PFC counters of the switch; nic_receive_pause_seconds_total (paused),"
        " nic_transmit_pause_seconds_total (pausing others) and nic_ecn_marked_packets_total here",
        "adjust the ECN marks; if this node pauses others, its PCIe and memory",
        ("paused", "pausing", "congestion"),
    ),
    Problem(
        "bad PCIe topology", "less bandwidth between GPU and NIC than expected",
        "nvidia-smi topo -m; topology_gpu_nic_ok, topology_pcie_link_degraded and"
        " gpu_pcie_link_lanes here", "put the NIC into a PCIe slot of the GPU's NUMA node",
        ("nic_distance", "pcie_width", "pcie_errors"),
    ),
    Problem(
        "SHARP is not in effect", "slow all-reduce", "NCCL_DEBUG=INFO; nccl_collnet_active here",
        "switch SHARP on in the subnet manager, and NCCL_COLLNET_ENABLE=1", ("sharp_unused",),
    ),
    Problem(
        "slow node (straggler)", "all-reduce is slow as a whole",
        "NCCL ranges in Nsight; train_straggler_score, nccl_wait_seconds_total here",
        "isolate the node, look at its NIC and NVLink", ("straggler", "late_ranks"),
    ),
    Problem(
        "overhead of small messages", "many small all-reduces are slow", "nccl-tests by size",
        "gradient accumulation: communicate less often", ("small_messages",),
    ),
)  # fmt: skip
"""Table 16-8, in its order."""
