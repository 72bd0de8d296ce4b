"""What every metric is: one row for each family, and nothing else.

HELP and TYPE lines, `docs/METRICS.md` and the checks on dashboards and alerts all come out of this
table. A row is a module constant, written with its full name, so that a typo is an error at import
and an editor finds every use. Names, labels and meanings are promises to users: a `stable` row
changes only with a major version.

Labels: `gpu`, `uuid`, `mig`, `device`, `port`, `link`, `server`, `engine`, `model_name`, `run`,
`rank`. Never `job`, `instance`, `service`, `cluster`, `env`, `region`: Prometheus owns those.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.samples import Metric

ALLOCATION = "allocation"
COST = "cost"
DIAGNOSIS = "diagnosis"
EXPORTER = "exporter"
FABRIC = "fabric"
GPU = "gpu"
HOST = "host"
NCCL = "nccl"
NIC = "nic"
NIC_RAW = "nic_raw"
PROFILE = "profile"
SERVING = "serving"
SLA = "sla"
SPOT = "spot"
TOPOLOGY = "topology"
TRAINING = "training"
XID = "xid"

# ---------------------------------------------------------------- host: what diagnosis needs
# node_exporter stays the source for everything about the machine. These few are what explains a
# slow GPU (data loading, paging, noisy neighbours) and are sampled in step with it.

HOST_INFO = Metric(
    "host_info", "info", "The machine: kernel release, CPU architecture.",
    ("kernel", "architecture"), HOST,
)  # fmt: skip
HOST_BOOT_TIME_SECONDS = Metric(
    "host_boot_time_seconds", "gauge", "When the machine was started, in Unix seconds.",
    (), HOST, "seconds",
)  # fmt: skip
HOST_CPUS = Metric(
    "host_cpus", "gauge", "Logical CPUs that are online.", (), HOST,
)  # fmt: skip
HOST_CPU_SECONDS_TOTAL = Metric(
    "host_cpu_seconds_total", "counter",
    "CPU time of all CPUs together, by mode. Modes do not overlap.",
    ("mode",), HOST, "seconds",
)  # fmt: skip
HOST_LOAD_AVERAGE = Metric(
    "host_load_average", "gauge",
    "Processes that ran or waited (uninterruptible ones included), averaged over the window.",
    ("window",), HOST,
)  # fmt: skip
HOST_PROCESSES_RUNNING = Metric(
    "host_processes_running", "gauge", "Processes that are running or ready to run.", (), HOST,
)  # fmt: skip
HOST_PROCESSES_BLOCKED = Metric(
    "host_processes_blocked", "gauge",
    "Processes that wait for I/O and cannot be interrupted; a driver that hangs shows here.",
    (), HOST,
)  # fmt: skip
HOST_MEMORY_TOTAL_BYTES = Metric(
    "host_memory_total_bytes", "gauge", "Usable memory of the machine.", (), HOST, "bytes",
)  # fmt: skip
HOST_MEMORY_AVAILABLE_BYTES = Metric(
    "host_memory_available_bytes", "gauge",
    "Memory that new programs can have without swapping (the kernel's estimate).",
    (), HOST, "bytes",
)  # fmt: skip
HOST_SWAP_TOTAL_BYTES = Metric(
    "host_swap_total_bytes", "gauge", "Size of all swap areas.", (), HOST, "bytes",
)  # fmt: skip
HOST_SWAP_FREE_BYTES = Metric(
    "host_swap_free_bytes", "gauge", "Unused part of all swap areas.", (), HOST, "bytes",
)  # fmt: skip
HOST_PRESSURE_STALLED_SECONDS_TOTAL = Metric(
    "host_pressure_stalled_seconds_total", "counter",
    "Time in which some (or all, `full`) runnable tasks were stalled for want of the resource"
    " (Linux PSI).",
    ("resource", "kind"), HOST, "seconds",
)  # fmt: skip
HOST_NUMA_MEMORY_TOTAL_BYTES = Metric(
    "host_numa_memory_total_bytes", "gauge", "Memory of one NUMA node.",
    ("node",), HOST, "bytes",
)  # fmt: skip
HOST_NUMA_MEMORY_FREE_BYTES = Metric(
    "host_numa_memory_free_bytes", "gauge", "Free memory of one NUMA node.",
    ("node",), HOST, "bytes",
)  # fmt: skip
HOST_NUMA_MISSES_TOTAL = Metric(
    "host_numa_misses_total", "counter",
    "Pages allocated on this node although another node was wanted.",
    ("node",), HOST,
)  # fmt: skip

# ---------------------------------------------------------------- gpu: the accelerators
# `gpu` is the driver's index, `uuid` the board's identity; both stand on every series of a GPU.
# `mig` is the number of a GPU instance: instances have families of their own, so that a sum over
# GPUs never counts a slice twice. Beside a ratio stands its integral as a counter: we sample each
# second, Prometheus looks once in fifteen or sixty, and `rate()` over the counter misses nothing.

_GPU = ("gpu", "uuid")
_MIG = ("gpu", "uuid", "mig")

GPU_INFO = Metric(
    "gpu_info", "info",
    "A GPU: product name, PCI address and ids, serial number, architecture, CUDA compute"
    " capability and cores, firmware and driver versions, and how it is virtualized.",
    (*_GPU, "name", "pci_bus_id", "pci_device_id", "serial", "architecture",
     "compute_capability", "cuda_cores", "vbios_version", "driver_version", "virtualization"),
    GPU,
)  # fmt: skip
GPU_DRIVER_INFO = Metric(
    "gpu_driver_info", "info", "The GPU driver, its management library, and the CUDA it supports.",
    ("driver_version", "nvml_version", "cuda_version"), GPU,
)  # fmt: skip
GPU_DEVICES_EXPECTED = Metric(
    "gpu_devices_expected", "gauge",
    "GPUs that should be here: the number in the configuration; without one, those on the PCI bus"
    " that were not given to another driver, or those seen or listed, whichever is most.",
    (), GPU,
)  # fmt: skip
GPU_DEVICES_PRESENT = Metric(
    "gpu_devices_present", "gauge", "GPUs that the driver lists and that answer.", (), GPU,
)  # fmt: skip
GPU_UP = Metric(
    "gpu_up", "gauge",
    "1 while the GPU answers; 0 while it is lost, has fallen off the bus, waits for a reset, or a"
    " call to it hangs.",
    _GPU, GPU,
)  # fmt: skip
GPU_LOSSES_TOTAL = Metric(
    "gpu_losses_total", "counter",
    "Times that a GPU which had answered was lost; needs no XID to be counted.",
    _GPU, GPU,
)  # fmt: skip
GPU_READINGS_DISAGREE = Metric(
    "gpu_readings_disagree", "gauge",
    "1 while the driver's utilization and the measured SM activity contradict each other, so that"
    " one of them must be wrong; 0 while they agree.",
    _GPU, GPU,
)  # fmt: skip
GPU_UTILIZATION_RATIO = Metric(
    "gpu_utilization_ratio", "gauge",
    "Share of the driver's last sample period in which any kernel ran. Says busy, not how busy:"
    " see gpu_sm_active_ratio.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_BUSY_SECONDS_TOTAL = Metric(
    "gpu_busy_seconds_total", "counter", "Integral of gpu_utilization_ratio over time.",
    _GPU, GPU, "seconds",
)  # fmt: skip
GPU_MEMORY_BUSY_RATIO = Metric(
    "gpu_memory_busy_ratio", "gauge",
    "Share of the driver's last sample period in which device memory was read or written.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_VIDEO_UTILIZATION_RATIO = Metric(
    "gpu_video_utilization_ratio", "gauge",
    "Utilization of the video encoder, decoder, JPEG and optical flow units.",
    (*_GPU, "unit"), GPU, "ratio",
)  # fmt: skip
GPU_MEMORY_TOTAL_BYTES = Metric(
    "gpu_memory_total_bytes", "gauge", "Device memory, used, reserved and free.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_MEMORY_USED_BYTES = Metric(
    "gpu_memory_used_bytes", "gauge",
    "Device memory that programs have allocated; without the driver's reserve where the driver"
    " tells it apart (gpu_memory_reserved_bytes is there then).",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_MEMORY_RESERVED_BYTES = Metric(
    "gpu_memory_reserved_bytes", "gauge", "Device memory that driver and firmware keep.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_MEMORY_FREE_BYTES = Metric(
    "gpu_memory_free_bytes", "gauge", "Device memory that can be allocated.", _GPU, GPU, "bytes",
)  # fmt: skip
GPU_BAR1_USED_BYTES = Metric(
    "gpu_bar1_used_bytes", "gauge", "Part of the window into device memory (BAR1) that is mapped.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_BAR1_TOTAL_BYTES = Metric(
    "gpu_bar1_total_bytes", "gauge", "Size of the window into device memory (BAR1).",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_POWER_WATTS = Metric(
    "gpu_power_watts", "gauge",
    "Power drawn by the board; `kind` is average (over a second) or instant. Some boards tell only"
    " one of them.",
    (*_GPU, "kind"), GPU, "watts",
)  # fmt: skip
GPU_PART_POWER_WATTS = Metric(
    "gpu_part_power_watts", "gauge",
    "Power drawn by a larger or smaller part: the module (GPU, CPU and memory of a superchip) or"
    " the device memory.",
    (*_GPU, "part", "kind"), GPU, "watts",
)  # fmt: skip
GPU_POWER_LIMIT_WATTS = Metric(
    "gpu_power_limit_watts", "gauge",
    "Power limits: the enforced one, the one asked for, the default, and the bounds of what may be"
    " asked for.",
    (*_GPU, "limit"), GPU, "watts",
)  # fmt: skip
GPU_ENERGY_JOULES_TOTAL = Metric(
    "gpu_energy_joules_total", "counter", "Energy used since the driver was loaded.",
    _GPU, GPU, "joules",
)  # fmt: skip
GPU_TEMPERATURE_CELSIUS = Metric(
    "gpu_temperature_celsius", "gauge", "Temperature of the core or of the device memory.",
    (*_GPU, "sensor"), GPU, "celsius",
)  # fmt: skip
GPU_TEMPERATURE_MARGIN_CELSIUS = Metric(
    "gpu_temperature_margin_celsius", "gauge",
    "Degrees left until the GPU slows itself down (T.limit); below zero while it does.",
    _GPU, GPU, "celsius",
)  # fmt: skip
GPU_TEMPERATURE_LIMIT_CELSIUS = Metric(
    "gpu_temperature_limit_celsius", "gauge",
    "Temperatures at which the GPU acts: shutdown, slowdown, its highest while operating.",
    (*_GPU, "limit"), GPU, "celsius",
)  # fmt: skip
GPU_TEMPERATURE_MARGIN_LIMIT_CELSIUS = Metric(
    "gpu_temperature_margin_limit_celsius", "gauge",
    "Margins (T.limit) at which the GPU acts: shutdown, slowdown, highest of core and memory.",
    (*_GPU, "limit"), GPU, "celsius",
)  # fmt: skip
GPU_FAN_SPEED_RATIO = Metric(
    "gpu_fan_speed_ratio", "gauge",
    "Intended speed of a fan, as a share of the highest that it has by itself; tools can set more.",
    (*_GPU, "fan"), GPU, "ratio",
)  # fmt: skip
GPU_CLOCK_HERTZ = Metric(
    "gpu_clock_hertz", "gauge", "Current clock of a domain (graphics, sm, memory, video).",
    (*_GPU, "domain"), GPU, "hertz",
)  # fmt: skip
GPU_CLOCK_MAX_HERTZ = Metric(
    "gpu_clock_max_hertz", "gauge", "Highest clock of a domain.",
    (*_GPU, "domain"), GPU, "hertz",
)  # fmt: skip
GPU_PERFORMANCE_STATE = Metric(
    "gpu_performance_state", "gauge", "Performance state: 0 (P0, fastest) to 15.", _GPU, GPU,
)  # fmt: skip
GPU_THROTTLED_SECONDS_TOTAL = Metric(
    "gpu_throttled_seconds_total", "counter",
    "Time in which clocks were held down, by reason, as the GPU itself counts it. Reasons overlap.",
    (*_GPU, "reason"), GPU, "seconds",
)  # fmt: skip
GPU_THROTTLE_ACTIVE = Metric(
    "gpu_throttle_active", "gauge",
    "1 while the reason holds clocks down, else 0, at the moment of the reading.",
    (*_GPU, "reason"), GPU,
)  # fmt: skip
GPU_ECC_ERRORS_TOTAL = Metric(
    "gpu_ecc_errors_total", "counter",
    "Memory errors, corrected or uncorrected; `counter` is volatile (since the driver was loaded)"
    " or aggregate (since the board was made).",
    (*_GPU, "kind", "counter"), GPU,
)  # fmt: skip
GPU_ECC_LOCATION_ERRORS_TOTAL = Metric(
    "gpu_ecc_location_errors_total", "counter",
    "Memory errors by where they were: dram, sram, l1_cache, l2_cache, register_file ...",
    (*_GPU, "kind", "counter", "location"), GPU,
)  # fmt: skip
GPU_ECC_SRAM_THRESHOLD_EXCEEDED = Metric(
    "gpu_ecc_sram_threshold_exceeded", "gauge",
    "1 if more uncorrected errors of on-chip memory happened than the maker tolerates.",
    _GPU, GPU,
)  # fmt: skip
GPU_REMAPPED_ROWS_TOTAL = Metric(
    "gpu_remapped_rows_total", "counter",
    "Rows of device memory replaced by spare ones, for corrected or uncorrected errors. Not told"
    " while the GPU is split into instances (MIG).",
    (*_GPU, "kind"), GPU,
)  # fmt: skip
GPU_ROW_REMAP_PENDING = Metric(
    "gpu_row_remap_pending", "gauge", "1 if a row will be replaced at the next reset.", _GPU, GPU,
)  # fmt: skip
GPU_ROW_REMAP_FAILED = Metric(
    "gpu_row_remap_failed", "gauge",
    "1 if a row could not be replaced: the board has to be.", _GPU, GPU,
)  # fmt: skip
GPU_ROW_REMAP_BANKS = Metric(
    "gpu_row_remap_banks", "gauge",
    "Memory banks by how many spare rows they have left: max, high, partial, low, none.",
    (*_GPU, "availability"), GPU,
)  # fmt: skip
GPU_RETIRED_PAGES_TOTAL = Metric(
    "gpu_retired_pages_total", "counter",
    "Pages of device memory taken out of use (before Ampere), by cause.",
    (*_GPU, "cause"), GPU,
)  # fmt: skip
GPU_RETIRED_PAGES_PENDING = Metric(
    "gpu_retired_pages_pending", "gauge", "1 if a page waits for a reset to be retired.",
    _GPU, GPU,
)  # fmt: skip
GPU_PCIE_RECEIVE_BYTES_TOTAL = Metric(
    "gpu_pcie_receive_bytes_total", "counter",
    "Bytes that the GPU received over PCIe; those of the protocol are in it where it comes from the"
    " performance counters.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_PCIE_TRANSMIT_BYTES_TOTAL = Metric(
    "gpu_pcie_transmit_bytes_total", "counter",
    "Bytes that the GPU sent over PCIe; those of the protocol are in it where it comes from the"
    " performance counters.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_PCIE_RECEIVE_BYTES_PER_SECOND = Metric(
    "gpu_pcie_receive_bytes_per_second", "gauge",
    "Rate at which the GPU received over PCIe, bytes of the protocol included, sampled for 20 ms"
    " now and then; only where the hardware does not count bytes.",
    _GPU, GPU,
)  # fmt: skip
GPU_PCIE_TRANSMIT_BYTES_PER_SECOND = Metric(
    "gpu_pcie_transmit_bytes_per_second", "gauge",
    "Rate at which the GPU sent over PCIe, bytes of the protocol included, sampled for 20 ms now"
    " and then; only where the hardware does not count bytes.",
    _GPU, GPU,
)  # fmt: skip
GPU_PCIE_REPLAYS_TOTAL = Metric(
    "gpu_pcie_replays_total", "counter", "Transfers over PCIe that had to be repeated.",
    _GPU, GPU,
)  # fmt: skip
GPU_PCIE_ERRORS_TOTAL = Metric(
    "gpu_pcie_errors_total", "counter", "Errors of the PCIe link, by cause.",
    (*_GPU, "cause"), GPU,
)  # fmt: skip
GPU_PCIE_LINK_GENERATION = Metric(
    "gpu_pcie_link_generation", "gauge",
    "PCIe generation in use; it falls while the GPU is idle.", _GPU, GPU,
)  # fmt: skip
GPU_PCIE_LINK_GENERATION_MAX = Metric(
    "gpu_pcie_link_generation_max", "gauge", "Highest PCIe generation that GPU and slot allow.",
    _GPU, GPU,
)  # fmt: skip
GPU_PCIE_LINK_LANES = Metric(
    "gpu_pcie_link_lanes", "gauge", "PCIe lanes in use.", _GPU, GPU,
)  # fmt: skip
GPU_PCIE_LINK_LANES_MAX = Metric(
    "gpu_pcie_link_lanes_max", "gauge", "PCIe lanes that GPU and slot have.", _GPU, GPU,
)  # fmt: skip
GPU_NVLINK_LINKS = Metric(
    "gpu_nvlink_links", "gauge", "NVLinks that the GPU has.", _GPU, GPU,
)  # fmt: skip
GPU_NVLINK_LINKS_UP = Metric(
    "gpu_nvlink_links_up", "gauge", "NVLinks that are active.", _GPU, GPU,
)  # fmt: skip
GPU_NVLINK_RECEIVE_BYTES_TOTAL = Metric(
    "gpu_nvlink_receive_bytes_total", "counter",
    "Payload received over all NVLinks of the GPU.", _GPU, GPU, "bytes",
)  # fmt: skip
GPU_NVLINK_TRANSMIT_BYTES_TOTAL = Metric(
    "gpu_nvlink_transmit_bytes_total", "counter", "Payload sent over all NVLinks of the GPU.",
    _GPU, GPU, "bytes",
)  # fmt: skip
GPU_NVLINK_ERRORS_TOTAL = Metric(
    "gpu_nvlink_errors_total", "counter",
    "Errors on all NVLinks of the GPU, by cause; the causes differ by NVLink generation.",
    (*_GPU, "cause"), GPU,
)  # fmt: skip
GPU_NVLINK_LINK_UP = Metric(
    "gpu_nvlink_link_up", "gauge", "1 while the link is active, else 0.", (*_GPU, "link"), GPU,
)  # fmt: skip
GPU_NVLINK_LINK_RATE_BYTES_PER_SECOND = Metric(
    "gpu_nvlink_link_rate_bytes_per_second", "gauge",
    "Speed of the link in one direction, as the driver states it.", (*_GPU, "link"), GPU,
)  # fmt: skip
GPU_NVLINK_LINK_RECEIVE_BYTES_TOTAL = Metric(
    "gpu_nvlink_link_receive_bytes_total", "counter", "Payload received over the link.",
    (*_GPU, "link"), GPU, "bytes",
)  # fmt: skip
GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL = Metric(
    "gpu_nvlink_link_transmit_bytes_total", "counter", "Payload sent over the link.",
    (*_GPU, "link"), GPU, "bytes",
)  # fmt: skip
GPU_NVLINK_LINK_ERRORS_TOTAL = Metric(
    "gpu_nvlink_link_errors_total", "counter",
    "Errors on the link, by cause. A recovery count that grows on one link comes days before the"
    " link is lost.",
    (*_GPU, "link", "cause"), GPU,
)  # fmt: skip
GPU_C2C_LINKS = Metric(
    "gpu_c2c_links", "gauge", "Chip-to-chip links to the CPU (Grace).", _GPU, GPU,
)  # fmt: skip
GPU_C2C_LINKS_UP = Metric(
    "gpu_c2c_links_up", "gauge", "Chip-to-chip links that are active.", _GPU, GPU,
)  # fmt: skip
GPU_C2C_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "gpu_c2c_bandwidth_bytes_per_second", "gauge",
    "Highest bandwidth of all active chip-to-chip links together.", _GPU, GPU,
)  # fmt: skip
GPU_C2C_ERRORS_TOTAL = Metric(
    "gpu_c2c_errors_total", "counter", "Errors on the chip-to-chip links, by cause.",
    (*_GPU, "cause"), GPU,
)  # fmt: skip
GPU_PERSISTENCE_MODE = Metric(
    "gpu_persistence_mode", "gauge",
    "1 if the driver stays loaded while nobody uses the GPU, else 0.", _GPU, GPU,
)  # fmt: skip
GPU_MIG_MODE = Metric(
    "gpu_mig_mode", "gauge", "1 if the GPU is split into instances (MIG), else 0.", _GPU, GPU,
)  # fmt: skip
GPU_ECC_MODE = Metric(
    "gpu_ecc_mode", "gauge", "1 if memory errors are detected and corrected, else 0.", _GPU, GPU,
)  # fmt: skip
GPU_COMPUTE_MODE = Metric(
    "gpu_compute_mode", "gauge",
    "Who may compute: 0 anyone, 1 one thread (obsolete), 2 nobody, 3 one process.", _GPU, GPU,
)  # fmt: skip
GPU_FABRIC_STATE = Metric(
    "gpu_fabric_state", "gauge",
    "Registration with the NVLink fabric: 1 not started, 2 in progress, 3 completed.", _GPU, GPU,
)  # fmt: skip
GPU_FABRIC_HEALTHY = Metric(
    "gpu_fabric_healthy", "gauge",
    "1 if registration succeeded and no fault of the fabric is reported, else 0.", _GPU, GPU,
)  # fmt: skip
GPU_RECOVERY_ACTION = Metric(
    "gpu_recovery_action", "gauge",
    "What the driver asks for: 0 nothing, 1 reset the GPU, 2 reboot the node, 3 drain peers, 4"
    " drain and reset, 5 recover the IMEX domain, 6 reset the bus, 7 reboot the system.",
    _GPU, GPU,
)  # fmt: skip
GPU_GRAPHICS_ACTIVE_RATIO = Metric(
    "gpu_graphics_active_ratio", "gauge",
    "Share of the last interval in which the compute and graphics engine worked.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_SM_ACTIVE_RATIO = Metric(
    "gpu_sm_active_ratio", "gauge",
    "Share of cycles in which an SM had a warp, averaged over all SMs and the last interval.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_SM_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_sm_active_seconds_total", "counter", "Integral of gpu_sm_active_ratio over time.",
    _GPU, GPU, "seconds",
)  # fmt: skip
GPU_SM_OCCUPANCY_RATIO = Metric(
    "gpu_sm_occupancy_ratio", "gauge",
    "Warps resident on the SMs, as a share of what they can hold.", _GPU, GPU, "ratio",
)  # fmt: skip
GPU_TENSOR_ACTIVE_RATIO = Metric(
    "gpu_tensor_active_ratio", "gauge",
    "Share of cycles in which the tensor cores worked, of whatever precision. Cycles, not time: a"
    " lower clock does less with the same share.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_TENSOR_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_tensor_active_seconds_total", "counter", "Integral of gpu_tensor_active_ratio over time.",
    _GPU, GPU, "seconds",
)  # fmt: skip
GPU_PIPE_ACTIVE_RATIO = Metric(
    "gpu_pipe_active_ratio", "gauge",
    "Share of cycles in which a pipe worked: tensor_half (HMMA: FP16, BF16, TF32),"
    " tensor_integer (IMMA), tensor_dmma and tensor_dfma (FP64), fp64, fp32, fp16, integer.",
    (*_GPU, "pipe"), GPU, "ratio",
)  # fmt: skip
GPU_DRAM_ACTIVE_RATIO = Metric(
    "gpu_dram_active_ratio", "gauge",
    "Share of the device memory's peak bandwidth in use, averaged over the last interval.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_DRAM_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_dram_active_seconds_total", "counter", "Integral of gpu_dram_active_ratio over time.",
    _GPU, GPU, "seconds",
)  # fmt: skip
GPU_HBM_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "gpu_hbm_bandwidth_bytes_per_second", "gauge",
    "Device memory traffic: gpu_dram_active_ratio times the board's peak bandwidth.", _GPU, GPU,
)  # fmt: skip
GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "gpu_peak_memory_bandwidth_bytes_per_second", "gauge",
    "Peak device memory bandwidth of this product, from the maker's data sheet.", _GPU, GPU,
)  # fmt: skip
GPU_PEAK_FLOPS = Metric(
    "gpu_peak_flops", "gauge",
    "Peak operations per second of this product by precision (fp32, tf32, bf16, fp16, fp8, fp4),"
    " dense (without sparsity), from the maker's data sheet.",
    (*_GPU, "precision"), GPU,
)  # fmt: skip
GPU_PEAK_CONFIDENCE_RATIO = Metric(
    "gpu_peak_confidence_ratio", "gauge",
    "How sure it is that the peaks are this board's: 1 the name and what the driver says about the"
    " board agree with the table, less where they do not, 0 the product is not in the table. Below"
    " 0.5 no peaks are exported.",
    _GPU, GPU, "ratio",
)  # fmt: skip
GPU_ESTIMATED_FLOPS_PER_SECOND = Metric(
    "gpu_estimated_flops_per_second", "gauge",
    "Estimate of tensor operations per second: tensor activity times clock over the clock of the"
    " peak, times the peak of `precision` (the precision is a hint: the hardware does not tell).",
    (*_GPU, "precision"), GPU,
)  # fmt: skip
GPU_ESTIMATED_FLOPS_TOTAL = Metric(
    "gpu_estimated_flops_total", "counter",
    "Integral of gpu_estimated_flops_per_second over time.", (*_GPU, "precision"), GPU,
)  # fmt: skip
GPU_ARITHMETIC_INTENSITY_FLOPS_PER_BYTE = Metric(
    "gpu_arithmetic_intensity_flops_per_byte", "gauge",
    "Estimated tensor operations for each byte of device memory traffic, over the last minute."
    " Above the ridge point (gpu_peak_flops over gpu_peak_memory_bandwidth_bytes_per_second)"
    " arithmetic is the limit, below it memory.",
    (*_GPU, "precision"), GPU, stability="experimental",
)  # fmt: skip
GPU_ROOFLINE_VERDICT = Metric(
    "gpu_roofline_verdict", "gauge",
    "1 for what limits the GPU by its roofline over the last minute, compute_bound or"
    " memory_bound. Both are 0 for one that is idle: less than a tenth of both peaks is in use.",
    (*_GPU, "precision", "verdict"), GPU, stability="experimental",
)  # fmt: skip
GPU_MIG_INFO = Metric(
    "gpu_mig_info", "info",
    "A MIG device: its GPU instance (`mig`), compute instance, UUID and profile.",
    (*_MIG, "compute_instance", "mig_uuid", "profile"), GPU,
)  # fmt: skip
GPU_MIG_MEMORY_TOTAL_BYTES = Metric(
    "gpu_mig_memory_total_bytes", "gauge", "Device memory of a GPU instance.", _MIG, GPU, "bytes",
)  # fmt: skip
GPU_MIG_MEMORY_USED_BYTES = Metric(
    "gpu_mig_memory_used_bytes", "gauge", "Device memory of a GPU instance that is allocated.",
    _MIG, GPU, "bytes",
)  # fmt: skip
GPU_MIG_GRAPHICS_ACTIVE_RATIO = Metric(
    "gpu_mig_graphics_active_ratio", "gauge",
    "As gpu_graphics_active_ratio, of a GPU instance.", _MIG, GPU, "ratio",
)  # fmt: skip
GPU_MIG_SM_ACTIVE_RATIO = Metric(
    "gpu_mig_sm_active_ratio", "gauge", "As gpu_sm_active_ratio, of a GPU instance.",
    _MIG, GPU, "ratio",
)  # fmt: skip
GPU_MIG_SM_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_mig_sm_active_seconds_total", "counter",
    "Integral of gpu_mig_sm_active_ratio over time.", _MIG, GPU, "seconds",
)  # fmt: skip
GPU_MIG_SM_OCCUPANCY_RATIO = Metric(
    "gpu_mig_sm_occupancy_ratio", "gauge", "As gpu_sm_occupancy_ratio, of a GPU instance.",
    _MIG, GPU, "ratio",
)  # fmt: skip
GPU_MIG_TENSOR_ACTIVE_RATIO = Metric(
    "gpu_mig_tensor_active_ratio", "gauge", "As gpu_tensor_active_ratio, of a GPU instance.",
    _MIG, GPU, "ratio",
)  # fmt: skip
GPU_MIG_TENSOR_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_mig_tensor_active_seconds_total", "counter",
    "Integral of gpu_mig_tensor_active_ratio over time.", _MIG, GPU, "seconds",
)  # fmt: skip
GPU_MIG_DRAM_ACTIVE_RATIO = Metric(
    "gpu_mig_dram_active_ratio", "gauge", "As gpu_dram_active_ratio, of a GPU instance.",
    _MIG, GPU, "ratio",
)  # fmt: skip
GPU_MIG_DRAM_ACTIVE_SECONDS_TOTAL = Metric(
    "gpu_mig_dram_active_seconds_total", "counter",
    "Integral of gpu_mig_dram_active_ratio over time.", _MIG, GPU, "seconds",
)  # fmt: skip
GPU_PROCESSES = Metric(
    "gpu_processes", "gauge", "Processes that use the GPU.", _GPU, GPU,
)  # fmt: skip
GPU_PROCESS_MEMORY_BYTES = Metric(
    "gpu_process_memory_bytes", "gauge",
    "Device memory that a process holds. `pid` is as the driver tells it; `command` is empty where"
    " the process cannot be seen from here.",
    (*_GPU, "mig", "pid", "command"), GPU, "bytes",
)  # fmt: skip
GPU_PROCESS_SM_RATIO = Metric(
    "gpu_process_sm_ratio", "gauge",
    "Share of the GPU's time that a process had, in the driver's latest sample. Absent while the"
    " process does nothing.",
    (*_GPU, "pid", "command"), GPU, "ratio",
)  # fmt: skip
GPU_XID_ERRORS_TOTAL = Metric(
    "gpu_xid_errors_total", "counter",
    "Driver errors (XID) by code, from driver events and the kernel log, each counted once; the"
    " kernel log reaches back to the boot as far as it is kept. Critical codes start at 0."
    " `severity` is that of the line, where the line says it.",
    (*_GPU, "pci_bus_id", "xid", "severity"), XID,
)  # fmt: skip
GPU_XID_LAST_TIMESTAMP_SECONDS = Metric(
    "gpu_xid_last_timestamp_seconds", "gauge", "When the code was last seen, in Unix seconds.",
    (*_GPU, "pci_bus_id", "xid"), XID, "seconds",
)  # fmt: skip
GPU_XID_INFO = Metric(
    "gpu_xid_info", "info",
    "What a code means: name, severity (critical, warning, info, unknown), and what to do.",
    ("xid", "name", "severity", "action"), XID,
)  # fmt: skip
GPU_NVSWITCH_SXID_ERRORS_TOTAL = Metric(
    "gpu_nvswitch_sxid_errors_total", "counter",
    "Errors of an NVSwitch (SXID) by code, from the kernel log.",
    ("device", "sxid", "severity"), XID,
)  # fmt: skip
GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS = Metric(
    "gpu_nvswitch_sxid_last_timestamp_seconds", "gauge",
    "When the code was last seen, in Unix seconds.", ("device", "sxid"), XID, "seconds",
)  # fmt: skip
GPU_FALLEN_OFF_BUS_TOTAL = Metric(
    "gpu_fallen_off_bus_total", "counter",
    "Kernel messages that a GPU has fallen off the bus, which may come without any XID.",
    (*_GPU, "pci_bus_id"), XID,
)  # fmt: skip

# ---------------------------------------------------------------- nic: InfiniBand, RoCE, Ethernet
# `port` is the RDMA port number, empty for a network interface. A RoCE port and its interface
# (`netdev` on nic_info) both count: RDMA traffic bypasses the interface's counters.

NIC_INFO = Metric(
    "nic_info", "info",
    "A port: its link layer (InfiniBand, Ethernet, EFA), driver, firmware, board, network"
    " interface, and whether it is a virtual function.",
    ("device", "port", "link_layer", "driver", "firmware", "board", "netdev", "virtual"), NIC,
)  # fmt: skip
NIC_UP = Metric(
    "nic_up", "gauge",
    "1 while the port can carry traffic (RDMA state ACTIVE, interface operstate up), else 0."
    " EFA devices always claim to be active: theirs is the state of their interface.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_LINK_RATE_BYTES_PER_SECOND = Metric(
    "nic_link_rate_bytes_per_second", "gauge",
    "Signalling rate of the link in one direction; absent while the link is down or its rate"
    " is made up by the driver.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_RECEIVE_BYTES_TOTAL = Metric(
    "nic_receive_bytes_total", "counter", "Bytes received.",
    ("device", "port"), NIC, "bytes",
)  # fmt: skip
NIC_TRANSMIT_BYTES_TOTAL = Metric(
    "nic_transmit_bytes_total", "counter", "Bytes sent.", ("device", "port"), NIC, "bytes",
)  # fmt: skip
NIC_RECEIVE_PACKETS_TOTAL = Metric(
    "nic_receive_packets_total", "counter", "Packets received.", ("device", "port"), NIC,
)  # fmt: skip
NIC_TRANSMIT_PACKETS_TOTAL = Metric(
    "nic_transmit_packets_total", "counter", "Packets sent.", ("device", "port"), NIC,
)  # fmt: skip
NIC_RECEIVE_DROPS_TOTAL = Metric(
    "nic_receive_drops_total", "counter", "Received packets that were thrown away.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_TRANSMIT_DROPS_TOTAL = Metric(
    "nic_transmit_drops_total", "counter", "Packets to send that were thrown away.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_ERRORS_TOTAL = Metric(
    "nic_errors_total", "counter",
    "Errors of the port, by cause; `receive` and `transmit` are the interface's own totals and"
    " include its other causes.",
    ("device", "port", "cause"), NIC,
)  # fmt: skip
NIC_TRANSMIT_WAIT_TICKS_TOTAL = Metric(
    "nic_transmit_wait_ticks_total", "counter",
    "Ticks in which data waited for credit. The length of a tick depends on the vendor:"
    " compare ports with each other or with their own past.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_RETRANSMITS_TOTAL = Metric(
    "nic_retransmits_total", "counter", "RDMA retransmissions, by cause.",
    ("device", "port", "cause"), NIC,
)  # fmt: skip
NIC_TIMEOUTS_TOTAL = Metric(
    "nic_timeouts_total", "counter",
    "RDMA acknowledgements that did not come in time: loss, a dead peer, or a pause storm.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_CONGESTION_NOTICES_TOTAL = Metric(
    "nic_congestion_notices_total", "counter",
    "Congestion notices: `sent` (we were flooded), `handled` (we slowed down), `ignored`"
    " (received and not acted on).",
    ("device", "port", "kind"), NIC,
)  # fmt: skip
NIC_ECN_MARKED_PACKETS_TOTAL = Metric(
    "nic_ecn_marked_packets_total", "counter",
    "Packets that arrived marked by a congested switch: RoCE at an RDMA port, others at an"
    " interface.", ("device", "port"), NIC,
)  # fmt: skip
NIC_CARRIER_CHANGES_TOTAL = Metric(
    "nic_carrier_changes_total", "counter", "Times the interface's link came or went.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_SATURATED = Metric(
    "nic_saturated", "gauge",
    "1 while a narrow port counter stands at its maximum: it counts no more until an operator"
    " clears it, so its rate of 0 means nothing. Absent otherwise.",
    ("device", "port", "counter"), NIC,
)  # fmt: skip
NIC_DEVICE_INFO = Metric(
    "nic_device_info", "info",
    "Where a port is and how it counts: `physical` ports together carry all the node's traffic,"
    " each byte once; `master` is its bond or bridge; `role` is fabric, management or host;"
    " `restricted` says that the driver refuses its counters; `model` is the card's, as its driver"
    " calls it.",
    (
        "device", "port", "pci_bus_id", "numa_node", "master", "physical", "role", "restricted",
        "model",
    ),
    NIC, stability="experimental",
)  # fmt: skip
NIC_EXPECTED_UP = Metric(
    "nic_expected_up", "gauge",
    "1 if a port ought to be up, else 0, by reason: stated (in the configuration), virtual,"
    " disabled (switched off), seen_up (since the machine started), peers (most ports of its kind"
    " are up), no_evidence.",
    ("device", "port", "reason"), NIC, stability="experimental",
)  # fmt: skip
NIC_PORT_STATE = Metric(
    "nic_port_state", "gauge",
    "Logical state of an RDMA port: 1 down, 2 initializing (waits for a subnet manager), 3 armed,"
    " 4 active, 5 active but its link errors are being repaired.",
    ("device", "port"), NIC, stability="experimental",
)  # fmt: skip
NIC_PORT_PHYSICAL_STATE = Metric(
    "nic_port_physical_state", "gauge",
    "Physical state of an RDMA port: 1 sleep, 2 polling (no other end), 3 disabled, 4 training,"
    " 5 link up, 6 link error recovery, 7 test.",
    ("device", "port"), NIC, stability="experimental",
)  # fmt: skip
NIC_STATE_CHANGES_TOTAL = Metric(
    "nic_state_changes_total", "counter",
    "Times that an RDMA port was seen to become active or to cease to be. Shorter outages than the"
    ' time between two reads are only in `nic_errors_total{cause="link_downed"}`.',
    ("device", "port"), NIC, stability="experimental",
)  # fmt: skip
NIC_DEVICE_MISSING = Metric(
    "nic_device_missing", "gauge",
    "1 for a network device that was there since the machine started, or is stated to be, and is"
    " not. Absent otherwise.",
    ("device",), NIC, stability="experimental",
)  # fmt: skip
NIC_KEEP_ALIVES_TOTAL = Metric(
    "nic_keep_alives_total", "counter",
    "Signs of life that an EFA device has given its driver: one that gives none is dead.",
    ("device", "port"), NIC, stability="experimental",
)  # fmt: skip
NIC_RAW_TOTAL = Metric(
    "nic_raw_total", "counter",
    "Every number of every counter file of a port, as the kernel writes it (data of InfiniBand in"
    " words of 4 octets), by file and folder. Counters of 32 bits that wrap go on. A counter of the"
    " whole device has no port.",
    ("device", "port", "counter", "folder"), NIC_RAW, stability="experimental",
)  # fmt: skip
NIC_RAW_LEVEL = Metric(
    "nic_raw_level", "gauge",
    "Files among the counters that go up and down, such as open queue pairs (bnxt_re).",
    ("device", "port", "counter", "folder"), NIC_RAW, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- nic: what ethtool tells
# `device` is the interface and `port` empty, as for the interface's other counters. `priority` is a
# number of 802.1p; `global` (802.3x frames, which stop all traffic), `pfc` (of any priority) or
# `all` where the driver does not tell them apart: its values never count a frame twice.

_NIC = ("device", "port")

NIC_ETHERNET_INFO = Metric(
    "nic_ethernet_info", "info",
    "An interface as its driver describes it: driver, firmware, forward error correction in use,"
    " global pause frames (none, receive, transmit, both), medium.",
    (*_NIC, "driver", "firmware", "fec", "global_pause", "medium"), NIC, stability="experimental",
)  # fmt: skip
NIC_RECEIVE_PAUSE_FRAMES_TOTAL = Metric(
    "nic_receive_pause_frames_total", "counter",
    "Pause frames received: the network, or a host far away, asked this port to stop sending.",
    (*_NIC, "priority"), NIC, stability="experimental",
)  # fmt: skip
NIC_TRANSMIT_PAUSE_FRAMES_TOTAL = Metric(
    "nic_transmit_pause_frames_total", "counter",
    "Pause frames sent: this host did not take its packets in fast enough.",
    (*_NIC, "priority"), NIC, stability="experimental",
)  # fmt: skip
NIC_RECEIVE_PAUSE_SECONDS_TOTAL = Metric(
    "nic_receive_pause_seconds_total", "counter",
    "Time for which the port was told to stop sending. Its rate is the share of time lost.",
    (*_NIC, "priority"), NIC, "seconds", "experimental",
)  # fmt: skip
NIC_TRANSMIT_PAUSE_SECONDS_TOTAL = Metric(
    "nic_transmit_pause_seconds_total", "counter",
    "Time for which this port told the other side to stop. Its rate is a share of time.",
    (*_NIC, "priority"), NIC, "seconds", "experimental",
)  # fmt: skip
NIC_RECEIVE_PAUSE_EPISODES_TOTAL = Metric(
    "nic_receive_pause_episodes_total", "counter",
    "Times the port went from sending to being paused.",
    (*_NIC, "priority"), NIC, stability="experimental",
)  # fmt: skip
NIC_TRANSMIT_PAUSE_EPISODES_TOTAL = Metric(
    "nic_transmit_pause_episodes_total", "counter",
    "Times the port went over to pausing the other side.",
    (*_NIC, "priority"), NIC, stability="experimental",
)  # fmt: skip
NIC_PAUSE_STORM_EVENTS_TOTAL = Metric(
    "nic_pause_storm_events_total", "counter",
    "Times the card's own watchdog found that it had paused others for too long; after `error` it"
    " no longer pauses, and drops instead.",
    (*_NIC, "severity"), NIC, stability="experimental",
)  # fmt: skip
NIC_RECEIVE_DISCARDS_TOTAL = Metric(
    "nic_receive_discards_total", "counter",
    "Packets thrown away on arrival, by cause: port_buffer (on a lossless class a fault),"
    " no_descriptor (software took them too slowly), device_queue, pcie_overflow.",
    (*_NIC, "cause"), NIC, stability="experimental",
)  # fmt: skip
NIC_TRANSMIT_DISCARDS_TOTAL = Metric(
    "nic_transmit_discards_total", "counter",
    "Packets thrown away on their way out, by cause: port, queue, link_down.",
    (*_NIC, "cause"), NIC, stability="experimental",
)  # fmt: skip
NIC_RECEIVE_PRIORITY_DISCARDS_TOTAL = Metric(
    "nic_receive_priority_discards_total", "counter",
    "Packets of a priority thrown away on arrival: port_buffer (part of nic_receive_discards_total)"
    ", host_buffer, congestion. Told of priorities that have PFC, and of those that have lost any.",
    (*_NIC, "priority", "cause"), NIC, stability="experimental",
)  # fmt: skip
NIC_PRIORITY_ECN_MARKED_PACKETS_TOTAL = Metric(
    "nic_priority_ecn_marked_packets_total", "counter",
    "Packets of a priority that this card itself marked, being congested.",
    (*_NIC, "priority"), NIC, stability="experimental",
)  # fmt: skip
NIC_PHYSICAL_ERRORS_TOTAL = Metric(
    "nic_physical_errors_total", "counter",
    "Errors at the physical port, by cause: checksum (a frame that arrived broken), symbol,"
    " local_fault, remote_fault.",
    (*_NIC, "cause"), NIC, stability="experimental",
)  # fmt: skip
NIC_LINK_DOWNS_TOTAL = Metric(
    "nic_link_downs_total", "counter", "Times the physical link was lost.",
    _NIC, NIC, stability="experimental",
)  # fmt: skip
NIC_FEC_BLOCKS_TOTAL = Metric(
    "nic_fec_blocks_total", "counter",
    "Blocks that forward error correction has `corrected`, or has not (`uncorrected`: lost).",
    (*_NIC, "result"), NIC, stability="experimental",
)  # fmt: skip
NIC_FEC_UNCORRECTED_SYMBOLS_TOTAL = Metric(
    "nic_fec_uncorrected_symbols_total", "counter",
    "Symbols that forward error correction could not repair, or that had none: traffic was lost.",
    _NIC, NIC, stability="experimental",
)  # fmt: skip
NIC_FEC_CORRECTIONS_TOTAL = Metric(
    "nic_fec_corrections_total", "counter",
    "Bits that forward error correction has repaired. Some are normal; over eight times"
    " nic_physical_receive_bytes_total they are the bit error ratio before correction.",
    _NIC, NIC, stability="experimental",
)  # fmt: skip
NIC_PHYSICAL_RECEIVE_BYTES_TOTAL = Metric(
    "nic_physical_receive_bytes_total", "counter",
    "Bytes received at the physical port, idle ones included.",
    _NIC, NIC, "bytes", "experimental",
)  # fmt: skip
NIC_LANE_ERRORS_TOTAL = Metric(
    "nic_lane_errors_total", "counter",
    "Bit errors of one lane before correction: one lane far above its neighbours is a bad one.",
    (*_NIC, "lane"), NIC, stability="experimental",
)  # fmt: skip
NIC_MODULE_FAULTS_TOTAL = Metric(
    "nic_module_faults_total", "counter",
    "Faults of the plugged module: unplugged, bus_stuck, high_temperature, shorted.",
    (*_NIC, "fault"), NIC, stability="experimental",
)  # fmt: skip
NIC_MODULE_TEMPERATURE_CELSIUS = Metric(
    "nic_module_temperature_celsius", "gauge", "Temperature of the plugged module.",
    _NIC, NIC, "celsius", "experimental",
)  # fmt: skip
NIC_MODULE_RECEIVE_POWER_WATTS = Metric(
    "nic_module_receive_power_watts", "gauge",
    "Light that arrives at the plugged module, by lane. Absent for copper.",
    (*_NIC, "lane"), NIC, "watts", "experimental",
)  # fmt: skip
NIC_MODULE_TRANSMIT_POWER_WATTS = Metric(
    "nic_module_transmit_power_watts", "gauge",
    "Light that the plugged module sends, by lane. Absent for copper.",
    (*_NIC, "lane"), NIC, "watts", "experimental",
)  # fmt: skip
NIC_RECEIVE_BUFFER_HIGH_TOTAL = Metric(
    "nic_receive_buffer_high_total", "counter",
    "Times the port's receive buffer filled beyond its threshold (mlx5: 85 %).",
    _NIC, NIC, stability="experimental",
)  # fmt: skip
NIC_PCIE_ERRORS_TOTAL = Metric(
    "nic_pcie_errors_total", "counter",
    "Recoveries of the card's PCIe link after errors: found by the card (`receive`) or by the"
    " other end (`transmit`). Rising: a bad lane, slot or riser.",
    (*_NIC, "kind"), NIC, stability="experimental",
)  # fmt: skip
NIC_PCIE_STALLED_RATIO = Metric(
    "nic_pcie_stalled_ratio", "gauge",
    "Share of the last second in which the card's reads or writes over PCIe had to wait.",
    (*_NIC, "kind"), NIC, "ratio", "experimental",
)  # fmt: skip
NIC_PCIE_STALLED_SECONDS_TOTAL = Metric(
    "nic_pcie_stalled_seconds_total", "counter",
    "Seconds in which the card's reads or writes over PCIe waited for more than 30 % of the time.",
    (*_NIC, "kind"), NIC, "seconds", "experimental",
)  # fmt: skip
NIC_ALLOWANCE_EXCEEDED_PACKETS_TOTAL = Metric(
    "nic_allowance_exceeded_packets_total", "counter",
    "Packets delayed or dropped because the instance had used up what its cloud allows:"
    " bandwidth_in, bandwidth_out, packets, connections, link_local (AWS ENA).",
    (*_NIC, "allowance"), NIC, stability="experimental",
)  # fmt: skip
NIC_ETHTOOL_TOTAL = Metric(
    "nic_ethtool_total", "counter",
    "A statistic by its driver's own name, where no other family has it.",
    (*_NIC, "counter"), NIC_RAW, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- topology: who is near whom
# Words as `nvidia-smi topo -m` has them; numbers in their order: 0 NVLink, 1 PIX ... 5 SYS.

TOPOLOGY_INFO = Metric(
    "topology_info", "info",
    "Where distances come from: sysfs, nccl_xml or matrix (a file that was configured). They are"
    " not trusted where a hypervisor shows a PCI tree of its own.",
    ("source", "trusted"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_NIC_INFO = Metric(
    "topology_nic_info", "info",
    "A NIC on PCI: its interfaces, its address, and what it is there for: compute, storage,"
    " default_route, other (slower, or no RDMA); of a compute NIC the rail, its place among them.",
    ("device", "netdev", "pci_bus_id", "role", "rail"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_BEST_NIC_INFO = Metric(
    "topology_gpu_best_nic_info", "info",
    "The compute NIC that is nearest to a GPU: how far it is (PIX, PXB, PHB, NODE, SYS), and the"
    " rail that it is on.",
    ("gpu", "uuid", "device", "distance", "rail"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_NIC_DISTANCE = Metric(
    "topology_gpu_nic_distance", "gauge",
    "How far a GPU and a NIC are apart: 1 PIX, 2 PXB, 3 PHB, 4 NODE, 5 SYS. Absent where it cannot"
    " be told.",
    ("gpu", "uuid", "device", "path"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_NIC_OK = Metric(
    "topology_gpu_nic_ok", "gauge",
    "1 if the GPU's nearest compute NIC is as near as the board allows, else 0: a NIC in the wrong"
    " slot, or a GPU without one. Absent in virtual machines that have no topology file.",
    ("gpu", "uuid"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_NIC_SHARED = Metric(
    "topology_nic_shared", "gauge",
    "1 if the compute NIC is the nearest of several GPUs though there are as many NICs as GPUs.",
    ("device",), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_GPU_DISTANCE = Metric(
    "topology_gpu_gpu_distance", "gauge",
    "How far two GPUs are apart: 0 NVLink (path tells how many links), 1 PIX ... 5 SYS. Each pair"
    " is there once; peer is the index of the other GPU.",
    ("gpu", "uuid", "peer", "path"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_NVLINK_LINKS = Metric(
    "topology_nvlink_links", "gauge",
    "NVLinks that are active and lead to one peer: another GPU (peer is its PCI address), switches"
    " or the CPU (peer is empty).",
    (*_GPU, "kind", "peer"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_NVLINK_OK = Metric(
    "topology_gpu_nvlink_ok", "gauge",
    "1 if the GPU has as many NVLinks up as most GPUs of the node, else 0.",
    ("gpu", "uuid"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_NUMA_NODE = Metric(
    "topology_numa_node", "gauge",
    "NUMA node of a GPU (device is empty) or a NIC. Absent where firmware tells none.",
    ("gpu", "uuid", "device"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_GPU_AFFINITY_INFO = Metric(
    "topology_gpu_affinity_info", "info", "The CPUs that are near to a GPU, as the kernel lists"
    " them.",
    ("gpu", "uuid", "cpus"), TOPOLOGY, stability="experimental",
)  # fmt: skip
TOPOLOGY_PCIE_LINK_DEGRADED = Metric(
    "topology_pcie_link_degraded", "gauge",
    "1 if the PCIe link of a GPU (device is empty) or a NIC has fewer lanes (part is width) or is"
    " slower (part is speed) than card and slot can do. The width counts on the whole way to the"
    " CPU; the speed of a GPU is judged only while it is busy: it falls when idle.",
    ("gpu", "uuid", "device", "part"), TOPOLOGY, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- fabric: use, balance, settings
# A RoCE port and its interface share a link: its use is the sum of both. Rates are over the last
# half minute. `kind` on nccl_environment_problem is of a closed list (docs/fabric.md).

NIC_RECEIVE_UTILIZATION_RATIO = Metric(
    "nic_receive_utilization_ratio", "gauge",
    "Bytes received over what the link carries in that direction; absent without a link rate.",
    ("device", "port"), FABRIC, "ratio", "experimental",
)  # fmt: skip
NIC_TRANSMIT_UTILIZATION_RATIO = Metric(
    "nic_transmit_utilization_ratio", "gauge",
    "Bytes sent over what the link carries in that direction; absent without a link rate.",
    ("device", "port"), FABRIC, "ratio", "experimental",
)  # fmt: skip
GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "gpu_nvlink_peak_bandwidth_bytes_per_second", "gauge",
    "What all active NVLinks of the GPU carry together in one direction.",
    _GPU, FABRIC, stability="experimental",
)  # fmt: skip
GPU_NVLINK_RECEIVE_UTILIZATION_RATIO = Metric(
    "gpu_nvlink_receive_utilization_ratio", "gauge",
    "Payload received over gpu_nvlink_peak_bandwidth_bytes_per_second.",
    _GPU, FABRIC, "ratio", "experimental",
)  # fmt: skip
GPU_NVLINK_TRANSMIT_UTILIZATION_RATIO = Metric(
    "gpu_nvlink_transmit_utilization_ratio", "gauge",
    "Payload sent over gpu_nvlink_peak_bandwidth_bytes_per_second.",
    _GPU, FABRIC, "ratio", "experimental",
)  # fmt: skip
NIC_RAIL_BYTES_PER_SECOND = Metric(
    "nic_rail_bytes_per_second", "gauge",
    "What this node receives and sends over a rail: the compute NIC nearest to a GPU.",
    ("rail",), FABRIC, stability="experimental",
)  # fmt: skip
NIC_RAIL_TRAFFIC_RATIO = Metric(
    "nic_rail_traffic_ratio", "gauge",
    "Traffic of a rail over the median of this node's rails. Absent while the median is below"
    " fabric.rail_floor, or a rail is not known, and for rails whose GPUs are idle.",
    ("rail",), FABRIC, "ratio", "experimental",
)  # fmt: skip
NIC_RAIL_IMBALANCE_RATIO = Metric(
    "nic_rail_imbalance_ratio", "gauge",
    "By how much the rail that carries least is below the median of the rails: 0 is balance, 1 a"
    " rail that carries nothing.",
    (), FABRIC, "ratio", "experimental",
)  # fmt: skip

NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "nccl_expected_bus_bandwidth_bytes_per_second", "gauge",
    "Bus bandwidth that the links allow an operation: NVLink on one node, between nodes the ports"
    " of the communicator's GPUs, times fabric.efficiency; or fabric.reference_bandwidth.",
    ("run", "rank", "collective", "size"), FABRIC, stability="experimental",
)  # fmt: skip
NCCL_BUS_BANDWIDTH_RATIO = Metric(
    "nccl_bus_bandwidth_ratio", "gauge",
    "Measured over expected bus bandwidth. Waiting for late ranks makes it small as well; above 1"
    " switches add up, or two nodes use a tree.",
    ("run", "rank", "collective", "size"), FABRIC, "ratio", "experimental",
)  # fmt: skip
NCCL_ENVIRONMENT_INFO = Metric(
    "nccl_environment_info", "info",
    "A run whose NCCL settings are known, and from where: client (the job told them itself),"
    " process (the environment of its processes). Empty run: processes of which no run is known.",
    ("run", "origin"), FABRIC, stability="experimental",
)  # fmt: skip
NCCL_ENVIRONMENT_PROBLEM = Metric(
    "nccl_environment_problem", "gauge",
    "1 for a mistake in a run's NCCL settings, 0 where it was looked for and is not there. Values"
    " of variables are never told.",
    ("run", "kind"), FABRIC, stability="experimental",
)  # fmt: skip
NCCL_COLLNET_ACTIVE = Metric(
    "nccl_collnet_active", "gauge",
    "Whether switches of the network add up for the run (SHARP): 1 if NCCL's log says so, or bus"
    " bandwidth is beyond what links carry; 0 if the log says that it goes without, or bandwidth is"
    " far below fabric.reference_bandwidth. Absent while nobody knows.",
    ("run",), FABRIC, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- serving: inference servers
# Names of the user's specification to the letter where it has them (llm_ttft_seconds,
# llm_tokens_total, llm_active_requests), with our labels `engine` and `server` added. Rules and
# panels select engine!="" so that an application that uses the same names is not counted twice.

_LLM = ("model_name", "model_version", "engine", "server")

LLM_SERVER_INFO = Metric(
    "llm_server_info", "info",
    "A scraped inference server: its engine, the engine's version where it says so.",
    ("engine", "server", "version"), SERVING,
)  # fmt: skip
LLM_SOURCE_INFO = Metric(
    "llm_source_info", "info",
    "How a metric of this server comes about: its quality (exact, derived, mean_only, bounded,"
    " biased), what precisely is measured, and the engine's own name for it.",
    ("engine", "server", "metric", "quality", "semantics", "source"), SERVING,
)  # fmt: skip
LLM_MAPPING_UNRESOLVED = Metric(
    "llm_mapping_unresolved", "gauge",
    "1 where a metric that this engine should offer is not on its page: the engine was upgraded,"
    " or the metric is switched off. Absent otherwise.",
    ("engine", "server", "metric"), SERVING,
)  # fmt: skip
LLM_TTFT_SECONDS = Metric(
    "llm_ttft_seconds", "histogram",
    "Time to first token: from the arrival of a request to its first output token, queueing"
    " included.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_TPOT_SECONDS = Metric(
    "llm_tpot_seconds", "histogram",
    "Time per output token after the first: one observation for each request, the mean over its"
    " tokens.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_ITL_SECONDS = Metric(
    "llm_itl_seconds", "histogram",
    "Inter-token latency: one observation for each gap between two outputs of a request.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_E2E_SECONDS = Metric(
    "llm_e2e_seconds", "histogram",
    "End-to-end latency: from the arrival of a request to its last token; finished requests only.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_QUEUE_SECONDS = Metric(
    "llm_queue_seconds", "histogram",
    "Time that a request waited before the engine first scheduled it.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_PREFILL_SECONDS_TOTAL = Metric(
    "llm_prefill_seconds_total", "counter",
    "Time spent processing prompts, summed over requests.", _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_DECODE_SECONDS_TOTAL = Metric(
    "llm_decode_seconds_total", "counter",
    "Time spent generating tokens, summed over requests (parallel requests each count).",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_TOKENS_TOTAL = Metric(
    "llm_tokens_total", "counter",
    "Tokens read from prompts (input, cached ones included) and generated (output).",
    ("model_name", "model_version", "direction", "engine", "server"), SERVING,
)  # fmt: skip
LLM_ACTIVE_REQUESTS = Metric(
    "llm_active_requests", "gauge", "Requests that the engine is working on; waiting ones not"
    " included.",
    _LLM, SERVING,
)  # fmt: skip
LLM_WAITING_REQUESTS = Metric(
    "llm_waiting_requests", "gauge", "Requests accepted and not yet scheduled.", _LLM, SERVING,
)  # fmt: skip
LLM_REQUESTS_TOTAL = Metric(
    "llm_requests_total", "counter",
    "Requests by how they ended: stop, length or success; cancelled by the client; abort, error,"
    " rejected; invalid ones, which nobody could have served. Whether aborted requests are in it"
    " depends on the engine: see llm_source_info.",
    ("model_name", "model_version", "outcome", "engine", "server"), SERVING,
)  # fmt: skip
LLM_HTTP_RESPONSES_TOTAL = Metric(
    "llm_http_responses_total", "counter",
    "HTTP responses of the inference routes by status code, or by class of codes (4xx) where the"
    " engine tells no more, as vLLM; the only place where refused requests show on some engines.",
    ("code", "engine", "server"), SERVING,
)  # fmt: skip
LLM_KV_CACHE_USAGE_RATIO = Metric(
    "llm_kv_cache_usage_ratio", "gauge", "Share of the KV cache that is in use, 0 to 1.",
    _LLM, SERVING, "ratio",
)  # fmt: skip
LLM_PREEMPTIONS_TOTAL = Metric(
    "llm_preemptions_total", "counter",
    "Running requests thrown out of the batch for want of KV cache, to be computed again.",
    _LLM, SERVING,
)  # fmt: skip
LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL = Metric(
    "llm_prefix_cache_queried_tokens_total", "counter",
    "Prompt tokens looked up in the prefix cache.", _LLM, SERVING,
)  # fmt: skip
LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL = Metric(
    "llm_prefix_cache_hit_tokens_total", "counter",
    "Prompt tokens found in the prefix cache, hence not computed.", _LLM, SERVING,
)  # fmt: skip
LLM_SCRAPE_DURATION_SECONDS = Metric(
    "llm_scrape_duration_seconds", "gauge",
    "Time that the last read of the server's own metrics page took, network included: what our"
    " reading may cost the server.",
    ("server",), SERVING, "seconds",
)  # fmt: skip

LLM_SERVER_START_TIME_SECONDS = Metric(
    "llm_server_start_time_seconds", "gauge",
    "When the server process was started, in Unix seconds, where its page or its answer tells.",
    ("engine", "server"), SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_SERVER_RANKS = Metric(
    "llm_server_ranks", "gauge",
    "Data-parallel ranks (or other parts) that the server's page adds up to one series.",
    ("engine", "server"), SERVING, "", "experimental",
)  # fmt: skip
LLM_RANK_CHANGES_TOTAL = Metric(
    "llm_rank_changes_total", "counter",
    "Times that a rank (or other part) of the server's page came, went or was replaced while others"
    " stayed: the sum over them then rises or falls without traffic.",
    ("engine", "server"), SERVING, "", "experimental",
)  # fmt: skip
LLM_SERVER_GPU = Metric(
    "llm_server_gpu", "gauge",
    "1 for each GPU that a server works on, as far as that is configured or can be seen.",
    ("server", "gpu", "uuid"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PREFILL_TOKENS_TOTAL = Metric(
    "llm_prefill_tokens_total", "counter",
    "Prompt tokens that were computed: those found in a cache are left out.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_FINISHED_INPUT_TOKENS_TOTAL = Metric(
    "llm_finished_input_tokens_total", "counter",
    "Prompt tokens of requests that have finished, counted at their end.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_FINISHED_OUTPUT_TOKENS_TOTAL = Metric(
    "llm_finished_output_tokens_total", "counter",
    "Output tokens of requests that have finished, counted at their end.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_REQUEST_DURATION_SECONDS_TOTAL = Metric(
    "llm_request_duration_seconds_total", "counter",
    "End-to-end time summed over requests, of engines that have no histogram of it.",
    _LLM, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_REQUEST_QUEUEING_SECONDS_TOTAL = Metric(
    "llm_request_queueing_seconds_total", "counter",
    "Waiting time summed over requests, of engines that have no histogram of it.",
    _LLM, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_ENGINE_STEPS_TOTAL = Metric(
    "llm_engine_steps_total", "counter", "Forward passes of the engine.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_DRAFT_TOKENS_TOTAL = Metric(
    "llm_draft_tokens_total", "counter", "Tokens proposed by speculative decoding.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_ACCEPTED_DRAFT_TOKENS_TOTAL = Metric(
    "llm_accepted_draft_tokens_total", "counter", "Proposed tokens that were accepted.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_CONCURRENCY_LIMIT = Metric(
    "llm_concurrency_limit", "gauge",
    "Requests that the server works on at the same time at most, where it says so.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_KV_CACHE_CAPACITY_TOKENS = Metric(
    "llm_kv_cache_capacity_tokens", "gauge", "Tokens that the KV cache can hold.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_KV_CACHE_INFO = Metric(
    "llm_kv_cache_info", "info",
    "The type that the KV cache is stored in, in the engine's word (fp8_e4m3, ...); auto: that of"
    " the model.",
    (*_LLM, "dtype"), SERVING, "", "experimental",
)  # fmt: skip
LLM_ESTIMATED_GPU_FLOPS_TOTAL = Metric(
    "llm_estimated_gpu_flops_total", "counter",
    "Floating-point operations of each GPU as the engine itself estimates them (with data-parallel"
    " ranks: their mean); absent while that is switched off.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_ESTIMATED_GPU_READ_BYTES_TOTAL = Metric(
    "llm_estimated_gpu_read_bytes_total", "counter",
    "Bytes read from each GPU's memory as the engine itself estimates them; absent while that is"
    " switched off.",
    _LLM, SERVING, "bytes", "experimental",
)  # fmt: skip
LLM_ESTIMATED_GPU_WRITTEN_BYTES_TOTAL = Metric(
    "llm_estimated_gpu_written_bytes_total", "counter",
    "Bytes written to each GPU's memory as the engine itself estimates them; absent while that is"
    " switched off.",
    _LLM, SERVING, "bytes", "experimental",
)  # fmt: skip
LLM_RETRIES_TOTAL = Metric(
    "llm_retries_total", "counter",
    "Attempts to serve a request again elsewhere, by how they ended (success, failure); gateways"
    " only.",
    ("model_name", "model_version", "outcome", "engine", "server"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PROBES_TOTAL = Metric(
    "llm_probes_total", "counter",
    "Probes that we sent to a server: kind (health, completion), outcome (success, failure).",
    ("server", "kind", "outcome"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PROBE_UP = Metric(
    "llm_probe_up", "gauge", "1 if the last probe of this kind succeeded, else 0.",
    ("server", "kind"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PROBE_DURATION_SECONDS = Metric(
    "llm_probe_duration_seconds", "gauge", "Time that the last probe of this kind took.",
    ("server", "kind"), SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_DISCOVERED_SERVERS = Metric(
    "llm_discovered_servers", "gauge",
    "Inference servers that are read, by how they became known (static, file, local, kubernetes).",
    ("origin",), SERVING, "", "experimental",
)  # fmt: skip

# Derived from the above over rolling windows. A `window` is 1m, 5m, 30m or 1h; how much of it has
# been seen yet is `llm_window_filled_ratio`.

_SIGNAL = (*_LLM, "signal", "percentile", "window")
_NODE_SIGNAL = ("model_name", "signal", "percentile", "window")

LLM_WINDOW_FILLED_RATIO = Metric(
    "llm_window_filled_ratio", "gauge",
    "Share of a window for which there are readings of the server: below 1 after a start, and"
    " after a gap far longer than the usual time between two readings.",
    ("server", "window"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_WINDOW_SECONDS = Metric(
    "llm_window_seconds", "gauge",
    "Time between the first and the last reading that a window is made of, gaps and all.",
    ("server", "window"), SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_LATENCY_QUANTILE_SECONDS = Metric(
    "llm_latency_quantile_seconds", "gauge",
    "Quantile of a latency (signal: ttft, tpot, itl, e2e, queue) over a window, by interpolation"
    " between the bounds of the engine's buckets. The true value lies between"
    " llm_latency_quantile_lower_seconds and ..._upper_seconds. Absent with fewer than 1/(1-q)"
    " observations.",
    _SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_LATENCY_QUANTILE_LOWER_SECONDS = Metric(
    "llm_latency_quantile_lower_seconds", "gauge",
    "The least that the quantile can be, by the buckets and the sum of the observations.",
    _SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_LATENCY_QUANTILE_UPPER_SECONDS = Metric(
    "llm_latency_quantile_upper_seconds", "gauge",
    "The most that the quantile can be, by the buckets and the sum of the observations.",
    _SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_LATENCY_MEAN_SECONDS = Metric(
    "llm_latency_mean_seconds", "gauge",
    "Mean of a latency over a window. `method` is `exact` where the engine sums it up, `derived`"
    " where it comes from other sums.",
    (*_LLM, "signal", "window", "method"), SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_LATENCY_OBSERVATIONS = Metric(
    "llm_latency_observations", "gauge", "Observations of a latency within a window.",
    (*_LLM, "signal", "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_NODE_LATENCY_QUANTILE_SECONDS = Metric(
    "llm_node_latency_quantile_seconds", "gauge",
    "The same over all servers of this node that serve a model; only where there are several."
    " Bounds: llm_node_latency_quantile_lower_seconds and ..._upper_seconds.",
    _NODE_SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_NODE_LATENCY_QUANTILE_LOWER_SECONDS = Metric(
    "llm_node_latency_quantile_lower_seconds", "gauge",
    "The least that llm_node_latency_quantile_seconds can be.",
    _NODE_SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_NODE_LATENCY_QUANTILE_UPPER_SECONDS = Metric(
    "llm_node_latency_quantile_upper_seconds", "gauge",
    "The most that llm_node_latency_quantile_seconds can be.",
    _NODE_SIGNAL, SERVING, "seconds", "experimental",
)  # fmt: skip
LLM_REQUESTS_PER_SECOND = Metric(
    "llm_requests_per_second", "gauge",
    "Requests that were served to their end, for each second of a window; where the engine does not"
    " tell outcomes, all that ended.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_INPUT_TOKENS_PER_SECOND = Metric(
    "llm_input_tokens_per_second", "gauge", "Prompt tokens for each second of a window.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_OUTPUT_TOKENS_PER_SECOND = Metric(
    "llm_output_tokens_per_second", "gauge", "Generated tokens for each second of a window.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_OUTPUT_TOKENS_PER_SECOND_PER_GPU = Metric(
    "llm_output_tokens_per_second_per_gpu", "gauge",
    "Generated tokens for each second of a window and each GPU of the server.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PEAK_ACTIVE_REQUESTS = Metric(
    "llm_peak_active_requests", "gauge",
    "The most requests that were seen in work at the same time within a window.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PREFIX_CACHE_HIT_RATIO = Metric(
    "llm_prefix_cache_hit_ratio", "gauge",
    "Share of the prompt tokens looked up in a window that were in the prefix cache.",
    (*_LLM, "window"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_QUEUE_TIME_RATIO = Metric(
    "llm_queue_time_ratio", "gauge",
    "Share of the end-to-end time of the requests of a window that they spent waiting.",
    (*_LLM, "window"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_NODE_REQUESTS_PER_SECOND = Metric(
    "llm_node_requests_per_second", "gauge",
    "Requests that ended on this node, for each second of a window.",
    ("model_name", "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_NODE_INPUT_TOKENS_PER_SECOND = Metric(
    "llm_node_input_tokens_per_second", "gauge",
    "Prompt tokens of this node, for each second of a window.",
    ("model_name", "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_NODE_OUTPUT_TOKENS_PER_SECOND = Metric(
    "llm_node_output_tokens_per_second", "gauge",
    "Tokens generated on this node, for each second of a window.",
    ("model_name", "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_RESETS_TOTAL = Metric(
    "llm_resets_total", "counter",
    "Times that a server's counters, or those of one of its models, began anew: a restart.",
    ("server",), SERVING, "", "experimental",
)  # fmt: skip
LLM_ANOMALIES_TOTAL = Metric(
    "llm_anomalies_total", "counter",
    "Readings that make no sense and were left out, by kind: buckets (they shrank), sum (outside"
    " of what the buckets allow), layout (other bounds), ranks (a rank came, went or was replaced),"
    " decrease (a counter fell though the server was not restarted), start (another start time"
    " though it was not: several servers behind one address, a clock that was set), crowd (more"
    " series than are kept: all began anew), utilization (an MFU or MBU above 1.05:"
    " the model's shape, its GPUs or their peaks are not what they seem).",
    ("server", "kind"), SERVING, "", "experimental",
)  # fmt: skip
LLM_ABORTED_REQUESTS_TOTAL = Metric(
    "llm_aborted_requests_total", "counter",
    "Requests whose client went away after the first token, derived where the engine hides them"
    " (first tokens less finished requests less those in work).",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_WASTED_TOKENS_TOTAL = Metric(
    "llm_wasted_tokens_total", "counter",
    "Tokens generated for requests that were aborted, derived (generated less those of finished"
    " requests; settled whenever the server has nothing in work).",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_STALLED = Metric(
    "llm_stalled", "gauge",
    "1 while requests wait and no token has been generated for a minute, else 0.",
    _LLM, SERVING, "", "experimental",
)  # fmt: skip
LLM_LITTLE_QUOTIENT = Metric(
    "llm_little_quotient", "gauge",
    "Mean of the requests seen in work over what Little's law expects (rate times mean time in"
    " work). Far from 1: the engine's gauge is stale, or observations are lost.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip
LLM_PREFILL_MFU_RATIO = Metric(
    "llm_prefill_mfu_ratio", "gauge",
    "Model FLOP/s utilization while prompts are computed: operations of the computed prompt tokens"
    " over the peak of the server's GPUs for the time spent in prefill.",
    (*_LLM, "window", "method", "peak"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_DECODE_MBU_RATIO = Metric(
    "llm_decode_mbu_ratio", "gauge",
    "Memory bandwidth utilization while tokens are generated: weights and KV cache read over the"
    " peak bandwidth of the server's GPUs.",
    (*_LLM, "window", "method", "peak"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_MFU_RATIO = Metric(
    "llm_mfu_ratio", "gauge",
    "Model FLOP/s utilization over a whole window, idle time included. `method` tells who counted"
    " the operations: engine (its own estimate), model (from the model's shape) or gpu (measured).",
    (*_LLM, "window", "method", "peak"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_MBU_RATIO = Metric(
    "llm_mbu_ratio", "gauge",
    "Memory bandwidth utilization over a whole window, idle time included; `method` as above.",
    (*_LLM, "window", "method", "peak"), SERVING, "ratio", "experimental",
)  # fmt: skip
LLM_TOKENS_PER_JOULE = Metric(
    "llm_tokens_per_joule", "gauge",
    "Generated tokens for each joule that the GPUs of the server used within a window.",
    (*_LLM, "window"), SERVING, "", "experimental",
)  # fmt: skip

# ---------------------------------------------------------------- sla: what was promised
# An objective is pooled over all servers unless it is stated for each model or server; then these
# labels say for which, and are empty otherwise.

_SLA = ("sla", "objective", "tier", "model_name", "server")

SLA_OBJECTIVE_INFO = Metric(
    "sla_objective_info", "info",
    "An objective as it is evaluated: its signal, and its target in words.",
    ("sla", "objective", "tier", "signal", "statement"), SLA, "", "experimental",
)  # fmt: skip
SLA_TARGET_RATIO = Metric(
    "sla_target_ratio", "gauge", "Share of events that must be good.",
    ("sla", "objective", "tier"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_MINIMUM_EVENTS = Metric(
    "sla_minimum_events", "gauge",
    "With fewer events nothing is said of an objective; the shipped rules keep to it over all"
    " nodes.",
    ("sla", "objective", "tier"), SLA, "", "experimental",
)  # fmt: skip
SLA_THRESHOLD_SECONDS = Metric(
    "sla_threshold_seconds", "gauge", "The longest time that counts as good.",
    ("sla", "objective", "tier"), SLA, "seconds", "experimental",
)  # fmt: skip
SLA_THRESHOLD_TOKENS_PER_SECOND = Metric(
    "sla_threshold_tokens_per_second", "gauge", "The least rate of tokens that counts as good.",
    ("sla", "objective", "tier"), SLA, "", "experimental",
)  # fmt: skip
SLA_THRESHOLD_ALIGNED = Metric(
    "sla_threshold_aligned", "gauge",
    "1 if the threshold is a bound of all the engines' buckets, so that these leave nothing open; 0"
    " if it lies between two bounds of any and compliance is an interval. Failures that may have"
    " been measured make it one in either case.",
    _SLA, SLA, "", "experimental",
)  # fmt: skip
SLA_MEASURED_SECONDS = Metric(
    "sla_measured_seconds", "gauge",
    "The time that the objective's share of the events stays below, of those that were measured,"
    " over a window (a quantile, by interpolation). Failed requests have no time: it may keep the"
    " threshold while the objective, which counts them as bad, is violated.",
    (*_SLA, "window"), SLA, "seconds", "experimental",
)  # fmt: skip
SLA_MEASURED_RATIO = Metric(
    "sla_measured_ratio", "gauge",
    "The measured value of an objective that is itself a ratio (uptime, error rate ...).",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_MEASURED_TOKENS_PER_SECOND = Metric(
    "sla_measured_tokens_per_second", "gauge", "The measured rate of tokens over a window.",
    (*_SLA, "window"), SLA, "", "experimental",
)  # fmt: skip
SLA_DELIVERED_TOKENS_PER_SECOND = Metric(
    "sla_delivered_tokens_per_second", "gauge",
    "Tokens in a second of those whom a throughput objective selects on this node, over the last"
    " five minutes, with or without demand. What all nodes make together is the sum of it.",
    _SLA, SLA, "", "experimental",
)  # fmt: skip
SLA_COMPLIANCE_RATIO = Metric(
    "sla_compliance_ratio", "gauge",
    "Share of the events of a window that were good. Where the threshold lies between two bounds"
    " this is by interpolation; the truth lies between sla_compliance_lower_ratio and"
    " sla_compliance_upper_ratio.",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_COMPLIANCE_LOWER_RATIO = Metric(
    "sla_compliance_lower_ratio", "gauge", "The least that compliance can be.",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_COMPLIANCE_UPPER_RATIO = Metric(
    "sla_compliance_upper_ratio", "gauge", "The most that compliance can be.",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_COMPLIANT = Metric(
    "sla_compliant", "gauge",
    "1 if the objective is met over a window, 0 if it is violated; absent with too few events and"
    " while the buckets do not tell.",
    (*_SLA, "window"), SLA, "", "experimental",
)  # fmt: skip
SLA_STATE = Metric(
    "sla_state", "gauge",
    "1 for the state that an objective is in on this node (met, violated, undetermined), 0 for the"
    " others.",
    (*_SLA, "state"), SLA, "", "experimental",
)  # fmt: skip
SLA_EVENTS_TOTAL = Metric(
    "sla_events_total", "counter",
    "Events that count for an objective: offered requests (served, aborted by us, rejected,"
    " failed), probes, or seconds with demand.",
    _SLA, SLA, "", "experimental",
)  # fmt: skip
SLA_GOOD_EVENTS_TOTAL = Metric(
    "sla_good_events_total", "counter", "Of these, those that were good for certain.",
    _SLA, SLA, "", "experimental",
)  # fmt: skip
SLA_POSSIBLY_GOOD_EVENTS_TOTAL = Metric(
    "sla_possibly_good_events_total", "counter",
    "Of these, those that may have been good: all but the certainly bad. Equal to"
    " sla_good_events_total where the threshold is a bound of the buckets and it is known which"
    " failures were measured.",
    _SLA, SLA, "", "experimental",
)  # fmt: skip
SLA_EXCLUDED_EVENTS_TOTAL = Metric(
    "sla_excluded_events_total", "counter",
    "Events that were left out of an objective, by reason (client_abort, client_error,"
    " not_measured, restart: under way when the server was restarted). The first and the third are"
    " told when that has stood for a minute.",
    (*_SLA, "reason"), SLA, "", "experimental",
)  # fmt: skip
SLA_ERROR_BUDGET_REMAINING_RATIO = Metric(
    "sla_error_budget_remaining_ratio", "gauge",
    "What is left of the bad events that the target allows within a window: 1 untouched, 0 used"
    " up, below 0 overdrawn. By the certainly bad events.",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_BURN_RATE = Metric(
    "sla_burn_rate", "gauge",
    "Bad share over allowed bad share within a window: at 1 the budget just lasts. By the certainly"
    " bad events: what a page should rest on.",
    (*_SLA, "window"), SLA, "", "experimental",
)  # fmt: skip
SLA_BURN_RATE_UPPER = Metric(
    "sla_burn_rate_upper", "gauge",
    "The same by all events that may have been bad: what a ticket may rest on.",
    (*_SLA, "window"), SLA, "", "experimental",
)  # fmt: skip
SLA_BREACH_SECONDS_TOTAL = Metric(
    "sla_breach_seconds_total", "counter", "Time for which an objective has been violated.",
    _SLA, SLA, "seconds", "experimental",
)  # fmt: skip
SLA_BREACH_CAUSE = Metric(
    "sla_breach_cause", "gauge",
    "While an objective is violated: the top contributor that can be seen (queue, prefill,"
    " preemption, kv_cache_full, gpu_throttled, link_errors, errors, unreachable, stall, unknown),"
    " with the evidence in words.",
    (*_SLA, "cause", "evidence"), SLA, "", "experimental",
)  # fmt: skip
SLA_WINDOW_FILLED_RATIO = Metric(
    "sla_window_filled_ratio", "gauge",
    "Share of a window for which there are events or readings: below 1 after a start.",
    (*_SLA, "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_GOODPUT_LOWER_RATIO = Metric(
    "sla_goodput_lower_ratio", "gauge",
    "The least share of requests that can have met all latency objectives of an SLA (Frechet"
    " bound; the engines' histograms do not tell which request was slow in what).",
    ("sla", "tier", "model_name", "server", "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_GOODPUT_UPPER_RATIO = Metric(
    "sla_goodput_upper_ratio", "gauge",
    "The largest share of requests that can have met all latency objectives of an SLA.",
    ("sla", "tier", "model_name", "server", "window"), SLA, "ratio", "experimental",
)  # fmt: skip
SLA_GOODPUT_LOWER_REQUESTS_PER_SECOND = Metric(
    "sla_goodput_lower_requests_per_second", "gauge",
    "The least rate of requests that can have met all latency objectives of an SLA.",
    ("sla", "tier", "model_name", "server", "window"), SLA, "", "experimental",
)  # fmt: skip
SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND = Metric(
    "sla_goodput_upper_requests_per_second", "gauge",
    "The largest rate of requests that can have met all latency objectives of an SLA.",
    ("sla", "tier", "model_name", "server", "window"), SLA, "", "experimental",
)  # fmt: skip

# ---------------------------------------------------------------- training: the jobs of the node
# Labels: `run` is a training run, `rank` one of its processes (empty: the run as a whole). What is
# said of a whole run (tokens, loss, MFU) stands only on the node whose reader tells it, so that a
# sum over nodes counts a run once; what is said of a rank stands on the rank's own node. Gauges of
# throughput and efficiency cover the last minute, or the last ten steps where those take longer.

_RUN = ("run",)
_RANK = ("run", "rank")

# Logs of jobs: how they are read. `run` is empty for files that have not told of a step yet.

TRAIN_LOCAL_RANKS = Metric(
    "train_local_ranks", "gauge",
    "Ranks of the run that are processes on this node, as their environment says.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_EXTREME_RANK_STEP_SECONDS = Metric(
    "train_extreme_rank_step_seconds", "gauge",
    "Time of a step of the fastest and of the slowest rank of the run, on whatever node, as its"
    " log named them last (Megatron's straggler detection).",
    (*_RANK, "extreme"), TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_LOG_FILES = Metric(
    "train_log_files", "gauge", "Log files that are followed.",
    (), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_COLLNET_LOGGED = Metric(
    "train_collnet_logged", "gauge",
    "What NCCL says of SHARP in a run's log: 1 in use, 0 not in use. Absent while it says neither.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_LOG_BYTES_TOTAL = Metric(
    "train_log_bytes_total", "counter", "Bytes of the run's logs that were read.",
    _RUN, TRAINING, "bytes", "experimental",
)  # fmt: skip
TRAIN_LOG_LINES_TOTAL = Metric(
    "train_log_lines_total", "counter",
    "Lines of the run's logs that told something of it; the others are not counted.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_LOG_LAG_BYTES = Metric(
    "train_log_lag_bytes", "gauge",
    "Bytes of the run's logs that were written and not taken yet, an unfinished line included.",
    _RUN, TRAINING, "bytes", "experimental",
)  # fmt: skip
TRAIN_LOG_SKIPPED_BYTES_TOTAL = Metric(
    "train_log_skipped_bytes_total", "counter",
    "Bytes of the run's logs that were passed over, because they were written faster than read.",
    _RUN, TRAINING, "bytes", "experimental",
)  # fmt: skip

# Runs.

TRAIN_RUN_INFO = Metric(
    "train_run_info", "info",
    "A training run: scope is `run` where this node tells the numbers of the whole run,"
    " `rank` where only those of its own ranks. One row for each rank on this node that is"
    " known; rank is empty where none is.",
    (*_RANK, "framework", "model_name", "precision", "schedule", "world_size", "scope"),
    TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_RUN_GPU = Metric(
    "train_run_gpu", "gauge",
    "1 for each GPU of this node that works on the run: as stated, as readers tell, or all of them"
    " where the run is the only one and as large as the node.",
    (*_RUN, "gpu", "uuid"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_READER_CHOSEN = Metric(
    "train_reader_chosen", "gauge",
    "1 for the reader (push, log, tensorboard ...) that is believed for the run's steps, 0"
    " for others that tell of it too.",
    (*_RUN, "reader"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_WORLD_SIZE = Metric(
    "train_world_size", "gauge",
    "Ranks of the run on all nodes; one GPU each.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_PARALLEL_SIZE = Metric(
    "train_parallel_size", "gauge",
    "Ranks along one dimension of parallelism: data, tensor, pipeline, context, expert.",
    (*_RUN, "dimension"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEP = Metric(
    "train_step", "gauge",
    "Number of the last step that ended, as the job counts.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_LAST_STEP_TIMESTAMP_SECONDS = Metric(
    "train_last_step_timestamp_seconds", "gauge",
    "When the last step was told, in Unix seconds.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_STALLED = Metric(
    "train_stalled", "gauge",
    "1 while a run that has not ended tells of no step for ten times as long as a step"
    " takes, and for a minute at least (for three lines where a line tells of many steps); 0"
    " otherwise.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEPS_TOTAL = Metric(
    "train_steps_total", "counter",
    "Optimizer steps that ended.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_TOKENS_TOTAL = Metric(
    "train_tokens_total", "counter",
    "Tokens that the whole run has trained on.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_SAMPLES_TOTAL = Metric(
    "train_samples_total", "counter",
    "Samples (sequences) that the whole run has trained on.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_SKIPPED_STEPS_TOTAL = Metric(
    "train_skipped_steps_total", "counter",
    "Steps that changed no weight: the loss scale overflowed, or a value was not a number.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_REPEATED_STEPS_TOTAL = Metric(
    "train_repeated_steps_total", "counter",
    "Steps done again after a restart, because the checkpoint was older.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEP_SECONDS = Metric(
    "train_step_seconds", "histogram",
    "Time of one optimizer step. Of steps that were told only in a mean of several, each"
    " counts with the mean.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_PHASE_SECONDS_TOTAL = Metric(
    "train_phase_seconds_total", "counter",
    "Time of steps by phase: data, forward, backward, communication (waiting for other"
    " ranks), optimizer, checkpoint, evaluation, bubble, other. rank is empty where the run"
    " was told as a whole.",
    (*_RANK, "phase"), TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_LOSS = Metric(
    "train_loss", "gauge",
    "Loss of the last step that told one; NaN if that is what it told.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_GRADIENT_NORM = Metric(
    "train_gradient_norm", "gauge",
    "Norm of the gradient at the last step that told one.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_LEARNING_RATE = Metric(
    "train_learning_rate", "gauge",
    "Learning rate of the last step that told one.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_MEMORY_PEAK_BYTES = Metric(
    "train_memory_peak_bytes", "gauge",
    "GPU memory at its highest, as the framework tells it.",
    _RANK, TRAINING, "bytes", "experimental",
)  # fmt: skip
TRAIN_TOKENS_PER_SECOND = Metric(
    "train_tokens_per_second", "gauge",
    "Tokens that the whole run trains on in a second.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_TOKENS_PER_SECOND_PER_GPU = Metric(
    "train_tokens_per_second_per_gpu", "gauge",
    "TGS: tokens in a second for each GPU of the run.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_SAMPLES_PER_SECOND = Metric(
    "train_samples_per_second", "gauge",
    "Samples that the whole run trains on in a second.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEPS_PER_SECOND = Metric(
    "train_steps_per_second", "gauge",
    "Optimizer steps in a second.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEP_MEDIAN_SECONDS = Metric(
    "train_step_median_seconds", "gauge",
    "Median time of a step.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_UPDATE_INTERVAL_SECONDS = Metric(
    "train_update_interval_seconds", "gauge",
    "TBT: mean time between the ends of two optimizer updates, with everything that lies"
    " between steps.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_ELAPSED_SECONDS = Metric(
    "train_elapsed_seconds", "gauge",
    "Wall time since the run began, or since it was first seen.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_REMAINING_SECONDS = Metric(
    "train_remaining_seconds", "gauge",
    "Wall time until the last step at the present pace, where the number of steps is known.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_PARAMETERS = Metric(
    "train_parameters", "gauge",
    "Parameters of the model: total, active (those that a token meets), trainable.",
    (*_RUN, "kind"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_FLOPS_PER_TOKEN = Metric(
    "train_flops_per_token", "gauge",
    "Model FLOPs to train on one token, forward and backward, by convention: causal, palm,"
    " full, 6n.",
    (*_RUN, "convention"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_MODEL_FLOPS_PER_SECOND_PER_GPU = Metric(
    "train_model_flops_per_second_per_gpu", "gauge",
    "TFGS: model FLOP/s for each GPU; recomputed work does not count.",
    (*_RUN, "convention"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_PEAK_FLOPS_PER_GPU = Metric(
    "train_peak_flops_per_gpu", "gauge",
    "Dense peak FLOP/s of one GPU that MFU is measured against, by precision.",
    (*_RUN, "peak"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_MFU_RATIO = Metric(
    "train_mfu_ratio", "gauge",
    "Model FLOPs utilization: model FLOP/s over the dense peak of that precision. causal is"
    " the headline; never compare across conventions or peaks.",
    (*_RUN, "convention", "peak"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_HFU_RATIO = Metric(
    "train_hfu_ratio", "gauge",
    "Hardware FLOPs utilization: as MFU, with recomputed work counted.",
    (*_RUN, "convention", "peak"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_MFU_WITHHELD = Metric(
    "train_mfu_withheld", "gauge",
    "1 for each reason that keeps MFU from being told: above_one, unknown_accelerator,"
    " mixed_accelerators, unknown_model, unknown_world_size, unknown_tokens.",
    (*_RUN, "reason"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_MFU_LOSS_RATIO = Metric(
    "train_mfu_loss_ratio", "gauge",
    "Share of the peak that is lost to a cause: data, checkpoint, evaluation, bubble,"
    " communication, idle, framework, memory, clock, kernels (computing below the peak),"
    " recomputation, unexplained (with its sign). With MFU (causal, peak of the run's"
    " precision) they add up to 1. evidence: measured, profiled, counters, estimated, remainder.",
    (*_RUN, "cause", "evidence"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO = Metric(
    "train_hbm_bandwidth_utilization_ratio", "gauge",
    "MBFU: HBM bandwidth in use over its peak, mean of the run's GPUs on this node.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_GPU_ACTIVE_RATIO = Metric(
    "train_gpu_active_ratio", "gauge",
    "Share of time in which the SMs of the run's GPUs on this node had work.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_COMMUNICATION_RATIO = Metric(
    "train_communication_ratio", "gauge",
    "Share of step time spent communicating: total, or exposed (nothing was computed"
    " meanwhile).",
    (*_RUN, "kind", "evidence"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_COMMUNICATION_OVERLAP_RATIO = Metric(
    "train_communication_overlap_ratio", "gauge",
    "Share of communication that was hidden behind computing.",
    (*_RUN, "evidence"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_PIPELINE_BUBBLE_RATIO = Metric(
    "train_pipeline_bubble_ratio", "gauge",
    "Share of step time in which pipeline stages wait: theoretical is (p-1)/(v m + p-1),"
    " measured where the job tells it.",
    (*_RUN, "kind"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_SCALING_EFFICIENCY_RATIO = Metric(
    "train_scaling_efficiency_ratio", "gauge",
    "Throughput for each GPU over that of the stated baseline: weak (same batch for each"
    " GPU) or strong (same batch for the run).",
    (*_RUN, "kind"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_DATA_LOADING_RATIO = Metric(
    "train_data_loading_ratio", "gauge",
    "Share of step time spent waiting for data.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_CHECKPOINTS_TOTAL = Metric(
    "train_checkpoints_total", "counter",
    "Checkpoints that were saved.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_CHECKPOINT_SECONDS_TOTAL = Metric(
    "train_checkpoint_seconds_total", "counter",
    "Time for which saving checkpoints held the run up.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS = Metric(
    "train_last_checkpoint_timestamp_seconds", "gauge",
    "When the last checkpoint was saved, in Unix seconds.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_GOODPUT_RATIO = Metric(
    "train_goodput_ratio", "gauge",
    "Productive time (steps that were not repeated, without stalls) over wall time since"
    " the run was first seen.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_PRODUCTIVE_SECONDS_TOTAL = Metric(
    "train_productive_seconds_total", "counter",
    "Time of steps that brought the run on.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_LOST_SECONDS_TOTAL = Metric(
    "train_lost_seconds_total", "counter",
    "Wall time that brought the run nowhere: start, data, checkpoint, repeated, restart,"
    " stalled, evaluation, unknown.",
    (*_RUN, "cause"), TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_ENERGY_JOULES_PER_TOKEN = Metric(
    "train_energy_joules_per_token", "gauge",
    "Energy of the GPUs for each token.",
    _RUN, TRAINING, "", "experimental",
)  # fmt: skip
TRAIN_EXPERT_IMBALANCE_RATIO = Metric(
    "train_expert_imbalance_ratio", "gauge",
    "Load of the busiest expert over the mean; 1 is balanced.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_DROPPED_TOKENS_RATIO = Metric(
    "train_dropped_tokens_ratio", "gauge",
    "Share of tokens that experts without room left out.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_REPORTED_TOKENS_PER_SECOND_PER_GPU = Metric(
    "train_reported_tokens_per_second_per_gpu", "gauge",
    "TGS as the framework prints it.",
    (*_RUN, "reader"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_REPORTED_MODEL_FLOPS_PER_SECOND_PER_GPU = Metric(
    "train_reported_model_flops_per_second_per_gpu", "gauge",
    "FLOP/s for each GPU as the framework prints them, by its own convention.",
    (*_RUN, "reader"), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_REPORTED_MFU_RATIO = Metric(
    "train_reported_mfu_ratio", "gauge",
    "MFU as the framework prints it, by its own convention and peak.",
    (*_RUN, "reader"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_REPORT_MISMATCH_RATIO = Metric(
    "train_report_mismatch_ratio", "gauge",
    "How far the framework's figure (tokens, flops, mfu) lies from ours: theirs over ours,"
    " less 1. flops and mfu are compared with the convention and peak of ours that come nearest.",
    (*_RUN, "reader", "quantity"), TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_RANK_STEP_SECONDS = Metric(
    "train_rank_step_seconds", "gauge",
    "Mean time of a step of one rank on this node.",
    _RANK, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_RANK_WAIT_RATIO = Metric(
    "train_rank_wait_ratio", "gauge",
    "Share of its step time that a rank waits in collectives; a straggler waits least.",
    _RANK, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_STRAGGLER_SCORE = Metric(
    "train_straggler_score", "gauge",
    "How much slower a rank is than the median of the ranks on this node: own work (step"
    " less waiting) over the median of it, less 1. Only where four or more are told.",
    _RANK, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_STEP_SKEW_RATIO = Metric(
    "train_step_skew_ratio", "gauge",
    "Own work of the slowest rank on this node over the median, less 1.",
    _RUN, TRAINING, "ratio", stability="experimental",
)  # fmt: skip
TRAIN_START_LATENCY_SECONDS = Metric(
    "train_start_latency_seconds", "gauge",
    "From submission to the first step.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_RECOVERY_SECONDS = Metric(
    "train_recovery_seconds", "gauge",
    "From the last failure to the first step after it.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_RUNS_STARTED_TOTAL = Metric(
    "train_runs_started_total", "counter",
    "Runs (and restarts of runs) that began on this node.",
    (), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_RUNS_FAILED_TOTAL = Metric(
    "train_runs_failed_total", "counter",
    "Runs (and restarts of runs) that failed on this node.",
    (), TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_INTERRUPTIONS_TOTAL = Metric(
    "train_interruptions_total", "counter",
    "Times that the run was interrupted on this node and knew it beforehand: spot, maintenance.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_INTERRUPTION_RECOVERIES_TOTAL = Metric(
    "train_interruption_recoveries_total", "counter",
    "Interruptions after which the run went on at this node, wherever it was interrupted.",
    _RUN, TRAINING, stability="experimental",
)  # fmt: skip
TRAIN_INTERRUPTION_SECONDS_TOTAL = Metric(
    "train_interruption_seconds_total", "counter",
    "Time from interruptions until the first step after them, told where the run went on.",
    _RUN, TRAINING, "seconds", "experimental",
)  # fmt: skip
TRAIN_RECORDS_REFUSED_TOTAL = Metric(
    "train_records_refused_total", "counter",
    "Records about runs that were not kept: nonsense, or beyond a limit.",
    ("reader", "reason"), TRAINING, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- profile: what a profiler saw
# Of the latest profile of each rank: a Kineto trace, or an export of Nsight Systems. A profile is a
# glance at some steps, not a measurement that goes on: look at its timestamp.

TRAIN_PROFILE_INFO = Metric(
    "train_profile_info", "info",
    "The latest profile of a rank: format kineto, nsys or nsys_stats, and the GPU's name.",
    (*_RANK, "format", "gpu_name"), PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_TIMESTAMP_SECONDS = Metric(
    "train_profile_timestamp_seconds", "gauge",
    "When the span that was profiled ended; where that is not told, when the file was written."
    " In Unix seconds.",
    _RANK, PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_SPAN_SECONDS = Metric(
    "train_profile_span_seconds", "gauge",
    "Length of the span that was profiled: from the first step, kernel or copy to the last.",
    _RANK, PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_STEPS = Metric(
    "train_profile_steps", "gauge",
    "Steps within the span, as the profiler marked them.",
    _RANK, PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_STEP_SECONDS = Metric(
    "train_profile_step_seconds", "gauge",
    "Mean time of those steps, also where the profile is of the CPU alone. Profiling itself takes"
    " a part of it.",
    _RANK, PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_TIME_RATIO = Metric(
    "train_profile_time_ratio", "gauge",
    "Share of the span: matmul (matrix products and attention), memory_bound (other kernels),"
    " exposed_communication (nothing was computed meanwhile), copies (alone), idle. They add up"
    " to 1; means over GPUs where a profile has several.",
    (*_RANK, "kind"), PROFILE, "ratio", "experimental",
)  # fmt: skip
TRAIN_PROFILE_COMMUNICATION_RATIO = Metric(
    "train_profile_communication_ratio", "gauge",
    "Share of the span in which communication ran, hidden behind computing or not.",
    _RANK, PROFILE, "ratio", "experimental",
)  # fmt: skip
TRAIN_PROFILE_COMMUNICATION_OVERLAP_RATIO = Metric(
    "train_profile_communication_overlap_ratio", "gauge",
    "Share of communication during which something was computed; absent without communication.",
    _RANK, PROFILE, "ratio", "experimental",
)  # fmt: skip
TRAIN_PROFILE_STARVED_RATIO = Metric(
    "train_profile_starved_ratio", "gauge",
    "Share of the span in which the GPU was idle and the host had launched nothing for it;"
    " absent where launches cannot be joined with kernels.",
    _RANK, PROFILE, "ratio", "experimental",
)  # fmt: skip
TRAIN_PROFILE_KERNELS = Metric(
    "train_profile_kernels", "gauge",
    "Kernels in the profile; 0 if it is of the CPU alone.",
    _RANK, PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_LAUNCH_SECONDS = Metric(
    "train_profile_launch_seconds", "gauge",
    "The host's time in calls that launch kernels, sum over its threads.",
    _RANK, PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_CLASS_SECONDS = Metric(
    "train_profile_class_seconds", "gauge",
    "Sum of the durations of all kernels of a class: matmul, attention, norm, elementwise,"
    " communication, copy, other. Kernels that ran at once count each.",
    (*_RANK, "class"), PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_CLASS_KERNELS = Metric(
    "train_profile_class_kernels", "gauge",
    "Number of kernels (or copies) of a class.",
    (*_RANK, "class"), PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_KERNEL_SECONDS = Metric(
    "train_profile_kernel_seconds", "gauge",
    "Sum of durations of the kernels that took most, by name without template arguments.",
    (*_RANK, "kernel"), PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_KERNEL_CALLS = Metric(
    "train_profile_kernel_calls", "gauge",
    "How often each of those kernels ran.",
    (*_RANK, "kernel"), PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_MEMORY_OPERATION_SECONDS = Metric(
    "train_profile_memory_operation_seconds", "gauge",
    "Sum of durations of copies and fillings of memory, by kind.",
    (*_RANK, "operation"), PROFILE, "seconds", "experimental",
)  # fmt: skip
TRAIN_PROFILE_MEMORY_OPERATION_BYTES = Metric(
    "train_profile_memory_operation_bytes", "gauge",
    "Bytes that they moved.",
    (*_RANK, "operation"), PROFILE, "bytes", "experimental",
)  # fmt: skip
TRAIN_PROFILE_MEMORY_PEAK_BYTES = Metric(
    "train_profile_memory_peak_bytes", "gauge",
    "Most memory that the framework's allocator held on the GPU: allocated, reserved. Only where"
    " the profiler recorded memory.",
    (*_RANK, "kind"), PROFILE, "bytes", "experimental",
)  # fmt: skip
TRAIN_PROFILE_OPERATOR_ALLOCATED_BYTES = Metric(
    "train_profile_operator_allocated_bytes", "gauge",
    "Memory (gpu, or host where none of a GPU was recorded) that the operators which took most"
    " have allocated themselves, in sum; not what they held at once. Only where the profiler"
    " recorded memory.",
    (*_RANK, "operator", "memory"), PROFILE, "bytes", "experimental",
)  # fmt: skip
TRAIN_PROFILE_PATTERN = Metric(
    "train_profile_pattern", "gauge",
    "1 for the picture that the timeline shows, 0 for the others: normal, memory,"
    " communication, software_overhead.",
    (*_RANK, "pattern"), PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_FILES_TOTAL = Metric(
    "train_profile_files_total", "counter",
    "Files of profiles that were dealt with: read, no_kernels, failed.",
    ("outcome",), PROFILE, stability="experimental",
)  # fmt: skip
TRAIN_PROFILE_FILES_WAITING = Metric(
    "train_profile_files_waiting", "gauge",
    "Files that are to be read, those that are still being written included.",
    (), PROFILE, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- nccl: collectives, and tests
# Of NCCL Inspector's dumps: rank is that of a process in the largest communicator it was seen in;
# size is a class of message sizes by its upper bound. The plug-in does not write down every
# operation, so that sums are a lower bound of what ran. Of test tools: the latest file of each.

_OPERATION = (*_RANK, "collective", "size")

NCCL_OPERATIONS_TOTAL = Metric(
    "nccl_operations_total", "counter",
    "Collectives and transfers that NCCL Inspector wrote down.",
    _OPERATION, NCCL, stability="experimental",
)  # fmt: skip
NCCL_OPERATION_SECONDS_TOTAL = Metric(
    "nccl_operation_seconds_total", "counter",
    "Time that they took, waiting for other ranks included.",
    _OPERATION, NCCL, "seconds", "experimental",
)  # fmt: skip
NCCL_OPERATION_BYTES_TOTAL = Metric(
    "nccl_operation_bytes_total", "counter",
    "Sizes of their messages, as the job gave them.",
    _OPERATION, NCCL, "bytes", "experimental",
)  # fmt: skip
NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "nccl_bus_bandwidth_bytes_per_second", "gauge",
    "Bus bandwidth of the last hundred operations, weighted by their time.",
    _OPERATION, NCCL, "", "experimental",
)  # fmt: skip
NCCL_COMMUNICATOR_INFO = Metric(
    "nccl_communicator_info", "info",
    "Ranks and nodes of the communicator that nccl_bus_bandwidth_bytes_per_second is of, from 16"
    " MiB on. Absent where operations of several kinds of communicators are in it.",
    (*_OPERATION, "ranks", "nodes"), NCCL, stability="experimental",
)  # fmt: skip
NCCL_WAIT_SECONDS_TOTAL = Metric(
    "nccl_wait_seconds_total", "counter",
    "Time in collectives in which the rank waited for others: by how much each took longer than on"
    " the rank that came last. Of collectives that several ranks' dumps tell of; a lower bound"
    " where ranks are missing.",
    _RANK, NCCL, "seconds", "experimental",
)  # fmt: skip
NCCL_TRANSFER_SECONDS_TOTAL = Metric(
    "nccl_transfer_seconds_total", "counter",
    "The rest of the time of those collectives: all ranks were there.",
    _RANK, NCCL, "seconds", "experimental",
)  # fmt: skip
NCCL_MATCHED_OPERATIONS_TOTAL = Metric(
    "nccl_matched_operations_total", "counter",
    "Those collectives: such as the dumps of several ranks tell of.",
    _RANK, NCCL, stability="experimental",
)  # fmt: skip
NCCL_COLLNET_LOGGED = Metric(
    "nccl_collnet_logged", "gauge",
    "What NCCL's log says of SHARP: 1 in use, 0 not in use. Absent while it says neither.",
    _RUN, NCCL, stability="experimental",
)  # fmt: skip
NCCL_SMALL_MESSAGE_RATIO = Metric(
    "nccl_small_message_ratio", "gauge",
    "Share of the operations of the last minute whose message has less than 64 KiB.",
    _RANK, NCCL, "ratio", "experimental",
)  # fmt: skip
NCCL_COMMUNICATION_UPPER_BOUND_RATIO = Metric(
    "nccl_communication_upper_bound_ratio", "gauge",
    "Time of the operations of the last minute over that minute, 1 at most. An upper bound of"
    " the share that those took: communicators run at once.",
    _RANK, NCCL, "ratio", "experimental",
)  # fmt: skip
NCCL_TEST_BUS_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "nccl_test_bus_bandwidth_bytes_per_second", "gauge",
    "Bus bandwidth that nccl-tests measured, by collective, placement (in, out) and message"
    " size; the largest sizes.",
    (*_RUN, "test", "placement", "size_bytes"), NCCL, "", "experimental",
)  # fmt: skip
NCCL_TEST_AVERAGE_BUS_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "nccl_test_average_bus_bandwidth_bytes_per_second", "gauge",
    "Mean over all sizes, as nccl-tests prints it; small messages pull it down.",
    (*_RUN, "test"), NCCL, "", "experimental",
)  # fmt: skip
NCCL_TEST_WRONG_VALUES = Metric(
    "nccl_test_wrong_values", "gauge",
    "Values that nccl-tests found to be wrong; anything but 0 is broken hardware or software.",
    (*_RUN, "test"), NCCL, stability="experimental",
)  # fmt: skip
NCCL_TEST_TIMESTAMP_SECONDS = Metric(
    "nccl_test_timestamp_seconds", "gauge",
    "When the output of the test was written, in Unix seconds.",
    (*_RUN, "test"), NCCL, "seconds", "experimental",
)  # fmt: skip
NIC_RDMA_TEST_BANDWIDTH_BYTES_PER_SECOND = Metric(
    "nic_rdma_test_bandwidth_bytes_per_second", "gauge",
    "Mean bandwidth that perftest (ib_write_bw and its kin) measured, by operation, device and"
    " message size; the largest sizes.",
    (*_RUN, "test", "device", "size_bytes"), NCCL, "", "experimental",
)  # fmt: skip
NIC_RDMA_TEST_TIMESTAMP_SECONDS = Metric(
    "nic_rdma_test_timestamp_seconds", "gauge",
    "When the output of the test was written, in Unix seconds.",
    (*_RUN, "test", "device"), NCCL, "seconds", "experimental",
)  # fmt: skip
NCCL_FILES_TOTAL = Metric(
    "nccl_files_total", "counter",
    "Files of tests that were dealt with: read, failed.",
    ("outcome",), NCCL, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- allocation: who has which GPU
# Of a part (an instance, a replica) its own rows, so that a join by GPU meets each container once.

_CONTAINER = ("namespace", "pod", "container")

GPU_ALLOCATION_INFO = Metric(
    "gpu_allocation_info", "info",
    "Who has a GPU: a row for each container that may use it; namespace, pod and container are"
    " empty for a GPU that nobody has. Absent where that is not known.",
    (*_GPU, *_CONTAINER), ALLOCATION, stability="experimental",
)  # fmt: skip
GPU_ALLOCATION_PART_INFO = Metric(
    "gpu_allocation_part_info", "info",
    "Which part of a GPU a container has: a GPU instance (`mig`), a replica of a GPU or of an"
    " instance (time slicing, MPS, vGPU; `replica`). Of whole GPUs there is no such row.",
    (*_GPU, "mig", "replica", *_CONTAINER), ALLOCATION, stability="experimental",
)  # fmt: skip
GPU_ALLOCATION_SHARE_RATIO = Metric(
    "gpu_allocation_share_ratio", "gauge",
    "How much of a GPU was handed to a container: 1 for all of it, for instances their part of its"
    " SMs, for replicas their part of all that there are. Absent where parts are not known.",
    (*_GPU, *_CONTAINER), ALLOCATION, "ratio", "experimental",
)  # fmt: skip
GPU_ALLOCATION_AGE_SECONDS = Metric(
    "gpu_allocation_age_seconds", "gauge",
    "For how long the kubelet has not said who has which GPU; what it said last holds for a while.",
    (), ALLOCATION, "seconds", "experimental",
)  # fmt: skip
GPU_ALLOCATION_UNRESOLVED_DEVICES = Metric(
    "gpu_allocation_unresolved_devices", "gauge",
    "Devices that containers have, by resource or driver, of which nobody knows which GPU they are"
    " a part of, or of which several pods say that they have them alone.",
    ("resource",), ALLOCATION, stability="experimental",
)  # fmt: skip

# Whose the processes on a GPU are: by their cgroups, so also where nobody handed out a GPU.

_OWNER = ("namespace", "pod", "container", "pod_uid", "cluster_job")

GPU_PROCESS_INFO = Metric(
    "gpu_process_info", "info",
    "Whose a process on a GPU is: its pod (by uid; names where they are known), container, Slurm"
    " job and step, by its cgroup. `user` where that is asked for, `unit` for processes of none of"
    " these, which are told of where that is asked for.",
    (*_GPU, "mig", "pid", *_OWNER, "container_id", "step", "user", "unit"), ALLOCATION,
    stability="experimental",
)  # fmt: skip
GPU_ALLOCATION_PROCESSES = Metric(
    "gpu_allocation_processes", "gauge",
    "Processes on a GPU by whose they are; all labels empty: of no pod, container or job.",
    (*_GPU, *_OWNER), ALLOCATION, stability="experimental",
)  # fmt: skip
GPU_ALLOCATION_MEMORY_USED_BYTES = Metric(
    "gpu_allocation_memory_used_bytes", "gauge",
    "Device memory that the processes of one owner hold together. Absent where the driver does not"
    " tell it.",
    (*_GPU, *_OWNER), ALLOCATION, "bytes", "experimental",
)  # fmt: skip
GPU_ALLOCATION_SM_RATIO = Metric(
    "gpu_allocation_sm_ratio", "gauge",
    "Share of the GPU's time that the processes of one owner had, in the driver's latest sample."
    " Absent for a GPU whose driver does not tell shares (MIG).",
    (*_GPU, *_OWNER), ALLOCATION, "ratio", "experimental",
)  # fmt: skip
GPU_ALLOCATION_SM_SECONDS_TOTAL = Metric(
    "gpu_allocation_sm_seconds_total", "counter",
    "Integral of gpu_allocation_sm_ratio over time: how the time of a shared GPU was split.",
    (*_GPU, *_OWNER), ALLOCATION, "seconds", "experimental",
)  # fmt: skip
GPU_JOB_INFO = Metric(
    "gpu_job_info", "info",
    "Which job of the cluster's scheduler has a GPU, or a GPU instance (`mig`), by the directory in"
    " which the scheduler says so and by the cgroups of processes. `cluster_job` is empty for a GPU"
    " that no job has; absent where that is not known. `user` where that is asked for.",
    (*_GPU, "mig", "cluster_job", "user"), ALLOCATION, stability="experimental",
)  # fmt: skip
GPU_JOB_STALE_ENTRIES = Metric(
    "gpu_job_stale_entries", "gauge",
    "Entries of the scheduler's directory for jobs that live no more: left over from a crash.",
    (), ALLOCATION, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- cost: dollars
# A price is stated, of the TCO model, of OpenCost or listed; without one there are no dollars.

_TENANT = ("namespace", "pricing")
_POD = ("namespace", "pod", "pricing")
_JOB = ("cluster_job", "user", "pricing")

COST_GPU_HOUR_DOLLARS = Metric(
    "cost_gpu_hour_dollars", "gauge",
    "Price of an hour of the GPU now, the time of day considered. Absent where there is no price.",
    _GPU, COST, "dollars", "experimental",
)  # fmt: skip
COST_PRICE_INFO = Metric(
    "cost_price_info", "info",
    "Where the GPU's price comes from: source (config, tco, opencost, listed), pricing (on_demand,"
    " reserved, spot, owned; empty: not stated), instance type and day of a listed price.",
    (*_GPU, "source", "pricing", "instance_type", "as_of"), COST, stability="experimental",
)  # fmt: skip
COST_PRICE_AGE_SECONDS = Metric(
    "cost_price_age_seconds", "gauge",
    "Age of the oldest price in use, by source: listed and stated prices since their day, those of"
    " OpenCost since they were read. Absent where a price has no day.",
    ("source",), COST, "seconds", "experimental",
)  # fmt: skip
COST_PRICE_TABLE_AGE_SECONDS = Metric(
    "cost_price_table_age_seconds", "gauge",
    "Age of the newest row of the table of list prices; absent while the table is empty.",
    (), COST, "seconds", "experimental",
)  # fmt: skip
COST_OPENCOST_GPU_HOUR_DOLLARS = Metric(
    "cost_opencost_gpu_hour_dollars", "gauge",
    "Price of one GPU of this node for an hour, as OpenCost tells it (node_gpu_hourly_cost);"
    " pricing is spot where it says so, else empty.",
    ("instance_type", "pricing"), COST, "dollars", "experimental",
)  # fmt: skip
COST_DOLLARS_TOTAL = Metric(
    "cost_dollars_total", "counter",
    "Price times time, for as long as the daemon ran: busy (SM activity; kernels where that is not"
    " told), idle, unallocated (idle, and nobody has it; only where allocation is known), unknown"
    " (whether it was busy was not told). The states add up to all of it.",
    (*_GPU, "state"), COST, "dollars", "experimental",
)  # fmt: skip
COST_COUNTED_SECONDS_TOTAL = Metric(
    "cost_counted_seconds_total", "counter",
    "Time over which GPUs were followed and one of them at least had a price: what is missing in it"
    " is missing in the dollars.",
    (), COST, "seconds", "experimental",
)  # fmt: skip
COST_GAP_SECONDS = Metric(
    "cost_gap_seconds", "gauge",
    "Time for which no daemon ran before this one began, as far as that is known: nothing was"
    " counted then. After a crash it is too long by up to the interval of the state file.",
    (), COST, "seconds", "experimental",
)  # fmt: skip
COST_DOLLARS_PER_HOUR = Metric(
    "cost_dollars_per_hour", "gauge",
    "What all priced GPUs of the node cost an hour, now.",
    (), COST, stability="experimental",
)  # fmt: skip
COST_IDLE_DOLLARS_PER_HOUR = Metric(
    "cost_idle_dollars_per_hour", "gauge",
    "What idle and unallocated time of the node's GPUs costs an hour, over the last five minutes.",
    (), COST, stability="experimental",
)  # fmt: skip
COST_ENERGY_DOLLARS_TOTAL = Metric(
    "cost_energy_dollars_total", "counter",
    "What the GPU's energy cost: joules, times PUE, times the price of electricity. Where the price"
    " of the hour includes electricity this is a part of it.",
    _GPU, COST, "dollars", "experimental",
)  # fmt: skip
COST_CARBON_GRAMS_TOTAL = Metric(
    "cost_carbon_grams_total", "counter",
    "Grams of CO2 equivalent for the GPU's energy: joules, times PUE, times the intensity of the"
    " grid.",
    _GPU, COST, stability="experimental",
)  # fmt: skip
COST_TENANT_GPU_SECONDS_TOTAL = Metric(
    "cost_tenant_gpu_seconds_total", "counter",
    "GPU time that a namespace had on this node. A GPU that several pods share is divided evenly.",
    _TENANT, COST, "seconds", "experimental",
)  # fmt: skip
COST_TENANT_UNUSED_GPU_SECONDS_TOTAL = Metric(
    "cost_tenant_unused_gpu_seconds_total", "counter",
    "GPU time that a namespace had and in which the GPU is known to have been idle.",
    _TENANT, COST, "seconds", "experimental",
)  # fmt: skip
COST_TENANT_DOLLARS_TOTAL = Metric(
    "cost_tenant_dollars_total", "counter",
    "Price of the GPU time that a namespace had on this node.",
    _TENANT, COST, "dollars", "experimental",
)  # fmt: skip
COST_POD_GPU_SECONDS_TOTAL = Metric(
    "cost_pod_gpu_seconds_total", "counter",
    "GPU time that a pod had; it goes with its pod, what is billed is the namespace's.",
    _POD, COST, "seconds", "experimental",
)  # fmt: skip
COST_POD_UNUSED_GPU_SECONDS_TOTAL = Metric(
    "cost_pod_unused_gpu_seconds_total", "counter",
    "GPU time that a pod had and in which the GPU is known to have been idle.",
    _POD, COST, "seconds", "experimental",
)  # fmt: skip
COST_JOB_GPU_SECONDS_TOTAL = Metric(
    "cost_job_gpu_seconds_total", "counter",
    "GPU time that a job of the cluster's scheduler had on this node; jobs that share a GPU have"
    " even parts of it. It goes a little after its job.",
    _JOB, COST, "seconds", "experimental",
)  # fmt: skip
COST_JOB_UNUSED_GPU_SECONDS_TOTAL = Metric(
    "cost_job_unused_gpu_seconds_total", "counter",
    "GPU time that a job had and in which the GPU is known to have been idle.",
    _JOB, COST, "seconds", "experimental",
)  # fmt: skip
COST_JOB_DOLLARS_TOTAL = Metric(
    "cost_job_dollars_total", "counter",
    "Price of the GPU time that a job had on this node.",
    _JOB, COST, "dollars", "experimental",
)  # fmt: skip
COST_ALLOCATED_GPUS = Metric(
    "cost_allocated_gpus", "gauge",
    "GPUs of this node that a namespace has now; shared ones in parts.",
    ("namespace",), COST, stability="experimental",
)  # fmt: skip
COST_QUOTA_GPUS = Metric(
    "cost_quota_gpus", "gauge",
    "GPUs that a namespace may have on all nodes, as configured.",
    ("namespace",), COST, stability="experimental",
)  # fmt: skip
COST_QUOTA_USED_RATIO = Metric(
    "cost_quota_used_ratio", "gauge",
    "Part of its quota that a namespace uses on this node: the sum over nodes is its use.",
    ("namespace",), COST, "ratio", "experimental",
)  # fmt: skip
LLM_COST_PER_MILLION_TOKENS_DOLLARS = Metric(
    "llm_cost_per_million_tokens_dollars", "gauge",
    "What a million tokens cost: all dollars of the server's GPUs in a window, busy or not, over"
    " the tokens of the same window. An output token weighs as configured; blended is over both."
    " basis: gpus (those of the server), node (the node's, by configuration).",
    (*_LLM, "direction", "window", "basis"), COST, "dollars", "experimental",
)  # fmt: skip
LLM_TOKENS_PER_DOLLAR = Metric(
    "llm_tokens_per_dollar", "gauge",
    "Tokens generated for each dollar of the window.",
    (*_LLM, "window", "basis"), COST, stability="experimental",
)  # fmt: skip
LLM_QUERIES_PER_DOLLAR = Metric(
    "llm_queries_per_dollar", "gauge",
    "Requests served for each dollar of the window: requests a second over dollars a second.",
    (*_LLM, "window", "basis"), COST, stability="experimental",
)  # fmt: skip
TRAIN_COST_DOLLARS_TOTAL = Metric(
    "train_cost_dollars_total", "counter",
    "What the GPUs of this node cost while they worked on the run, stalls included, since it was"
    " first seen; the sum over nodes is the run's.",
    _RUN, COST, "dollars", "experimental",
)  # fmt: skip
TRAIN_COST_PER_MILLION_TOKENS_DOLLARS = Metric(
    "train_cost_per_million_tokens_dollars", "gauge",
    "What a million tokens of the whole run cost, between two tellings of the job that lie five"
    " minutes apart or more. GPUs on other nodes are taken to cost what those of this one do.",
    _RUN, COST, "dollars", "experimental",
)  # fmt: skip
TRAIN_PROJECTED_COST_DOLLARS = Metric(
    "train_projected_cost_dollars", "gauge",
    "What the whole run will have cost at its last step, at the present pace and price: what it"
    " cost since it was first seen, and what is to come. GPUs on other nodes are taken to cost what"
    " those of this one do, so it is not to be added up over nodes.",
    _RUN, COST, "dollars", "experimental",
)  # fmt: skip

# ---------------------------------------------------------------- spot: notices, the instance

SPOT_INSTANCE_INFO = Metric(
    "spot_instance_info", "info",
    "The cloud instance that this node is: provider (aws, gcp, azure, alibaba, tencent, oci),"
    " lifecycle (on_demand, spot, reserved; empty: not known), type and zone.",
    ("provider", "lifecycle", "instance_type", "zone"), SPOT, stability="experimental",
)  # fmt: skip
_CLOUD = ("provider",)
SPOT_NOTICE_SUPPORTED = Metric(
    "spot_notice_supported", "gauge",
    "1 if the provider's metadata service announces interruptions; 0: it documents nothing of the"
    " kind (oci).",
    _CLOUD, SPOT, stability="experimental",
)  # fmt: skip
SPOT_INTERRUPTION_NOTICE = Metric(
    "spot_interruption_notice", "gauge",
    "1 from when the cloud announces that it takes this node away until the node is gone, 0 while"
    " it has just said that nothing is announced; absent while that is not known.",
    _CLOUD, SPOT, stability="experimental",
)  # fmt: skip
SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS = Metric(
    "spot_interruption_deadline_timestamp_seconds", "gauge",
    "When the node is taken away, in Unix seconds; action: terminate, stop, hibernate. Absent"
    " where the cloud gives no time (gcp).",
    ("provider", "action"), SPOT, "seconds", "experimental",
)  # fmt: skip
SPOT_NOTICE_LEAD_SECONDS = Metric(
    "spot_notice_lead_seconds", "gauge",
    "From when the present announcement was first seen until its deadline: what a checkpoint has.",
    _CLOUD, SPOT, "seconds", "experimental",
)  # fmt: skip
SPOT_REBALANCE_NOTICE = Metric(
    "spot_rebalance_notice", "gauge",
    "1 once the cloud has said that an interruption has become likely (aws), 0 while it has not.",
    _CLOUD, SPOT, stability="experimental",
)  # fmt: skip
SPOT_MAINTENANCE_NOTICE = Metric(
    "spot_maintenance_notice", "gauge",
    "1 while work on the node or its host is announced, 0 while none is.",
    _CLOUD, SPOT, stability="experimental",
)  # fmt: skip
SPOT_MAINTENANCE_DEADLINE_TIMESTAMP_SECONDS = Metric(
    "spot_maintenance_deadline_timestamp_seconds", "gauge",
    "When the earliest announced work of a kind begins, in Unix seconds; action: reboot, stop,"
    " retire, maintenance, migrate, terminate, freeze, redeploy.",
    ("provider", "action"), SPOT, "seconds", "experimental",
)  # fmt: skip
SPOT_POLLS_TOTAL = Metric(
    "spot_polls_total", "counter",
    "Questions to the metadata service by result: none and notice are answers; unauthorized,"
    " forbidden, throttled, timeout, token_timeout (a connection, but never a token: the hop"
    " limit), unreachable, redirected, server_error, malformed are not.",
    ("provider", "result"), SPOT, stability="experimental",
)  # fmt: skip
SPOT_LAST_SUCCESS_TIMESTAMP_SECONDS = Metric(
    "spot_last_success_timestamp_seconds", "gauge",
    "When the metadata service last answered a question about announcements, in Unix seconds.",
    _CLOUD, SPOT, "seconds", "experimental",
)  # fmt: skip
SPOT_INTERRUPTIONS_TOTAL = Metric(
    "spot_interruptions_total", "counter",
    "Interruptions of this node that were announced; each counts once.",
    _CLOUD, SPOT, stability="experimental",
)  # fmt: skip
COST_INTERRUPTION_DOLLARS_TOTAL = Metric(
    "cost_interruption_dollars_total", "counter",
    "What interruptions of a run cost: the time until the first step after them, on all its GPUs,"
    " at the mean price of this node's. An upper bound where machines that are gone cost nothing.",
    _RUN, SPOT, "dollars", "experimental",
)  # fmt: skip

# ---------------------------------------------------------------- diagnosis: what the numbers mean
# `run` is a training run; empty: the GPUs of the node that no run and no inference server uses.

DIAGNOSIS_BOTTLENECK = Metric(
    "diagnosis_bottleneck", "gauge",
    "1 for what the decision tree says limits a run, 0 for its other answers:"
    " memory_bound_severe, software_overhead, communication_bound, memory_bandwidth_bound,"
    " efficient, mixed. Absent while an input is missing, or no answer has stood long enough.",
    ("run", "bottleneck"), DIAGNOSIS, stability="experimental",
)  # fmt: skip
DIAGNOSIS_CONFIRMED = Metric(
    "diagnosis_confirmed", "gauge",
    "1 if what is measured directly (diagnosis_cause) bears the bottleneck out, 0 if it does not;"
    " absent where nothing that could is measured.",
    ("run",), DIAGNOSIS, stability="experimental",
)  # fmt: skip
DIAGNOSIS_CAUSE = Metric(
    "diagnosis_cause", "gauge",
    "1 for each thing that is seen to be so, 0 where it is seen not to be: data_loading,"
    " exposed_communication, bubble, checkpoint, framework, clock, straggler, memory_bandwidth,"
    " memory_stalled, tensor_active, link_errors, congestion, paused, pausing, pcie_errors,"
    " pcie_width, nic_distance, small_messages, slow_collectives, late_ranks, sharp_unused,"
    " nccl_settings,"
    " rail_imbalance.",
    ("run", "cause"), DIAGNOSIS, stability="experimental",
)  # fmt: skip
DIAGNOSIS_SIGNAL_RATIO = Metric(
    "diagnosis_signal_ratio", "gauge",
    "A share that the diagnosis rests on, over the last minute (checkpoints: hour).",
    ("run", "signal"), DIAGNOSIS, "ratio", "experimental",
)  # fmt: skip
DIAGNOSIS_SIGNAL_PER_SECOND = Metric(
    "diagnosis_signal_per_second", "gauge",
    "A rate of events that the diagnosis rests on, over the last minute.",
    ("run", "signal"), DIAGNOSIS, stability="experimental",
)  # fmt: skip
DIAGNOSIS_THRESHOLD_RATIO = Metric(
    "diagnosis_threshold_ratio", "gauge",
    "What shares are held against, as configured.",
    ("threshold",), DIAGNOSIS, "ratio", "experimental",
)  # fmt: skip
DIAGNOSIS_THRESHOLD_PER_SECOND = Metric(
    "diagnosis_threshold_per_second", "gauge",
    "What rates of events are held against, as configured.",
    ("threshold",), DIAGNOSIS, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- exporter: what jobs push

FLOPWATCH_PUSH_RECORDS_TOTAL = Metric(
    "flopwatch_push_records_total", "counter",
    "Records of training runs that were pushed (push, otlp), by outcome: new, known (told before),"
    " refused.",
    ("reader", "outcome"), EXPORTER, stability="experimental",
)  # fmt: skip
FLOPWATCH_PUSH_ANSWERS_TOTAL = Metric(
    "flopwatch_push_answers_total", "counter",
    "Answers to pushes, by HTTP status.",
    ("status",), EXPORTER, stability="experimental",
)  # fmt: skip

# ---------------------------------------------------------------- exporter: the daemon itself

FLOPWATCH_BUILD_INFO = Metric(
    "flopwatch_build_info", "info", "Version of the daemon and of the Python that runs it.",
    ("version", "python"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_UP = Metric(
    "flopwatch_source_up", "gauge",
    "1 while the source delivers (perhaps in part), else 0; absent before its first read ends.",
    ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_RELEASED = Metric(
    "flopwatch_source_released", "gauge",
    "1 while the source has let go of its driver on request, which is no failure and not counted as"
    " one, else 0; only sources that can.", ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_READ_DURATION_SECONDS = Metric(
    "flopwatch_source_read_duration_seconds", "gauge", "Time that the last finished read took.",
    ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS = Metric(
    "flopwatch_source_last_success_timestamp_seconds", "gauge",
    "When the source last delivered, in Unix seconds.", ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SOURCE_READS_TOTAL = Metric(
    "flopwatch_source_reads_total", "counter", "Reads begun.", ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_FAILURES_TOTAL = Metric(
    "flopwatch_source_failures_total", "counter",
    "Reads, or parts of reads, that failed: timeout, unavailable, denied, malformed, io, bug.",
    ("source", "reason"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_FAILING_PARTS = Metric(
    "flopwatch_source_failing_parts", "gauge",
    "Parts (devices, ports, files) missing from the last read.", ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_BUSY_SECONDS = Metric(
    "flopwatch_source_busy_seconds", "gauge",
    "How long the read under way has been running; 0 between reads. It grows when a driver hangs.",
    ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SERIES = Metric(
    "flopwatch_series", "gauge", "Series on the page, by group.", ("group",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SAMPLES_DROPPED_TOTAL = Metric(
    "flopwatch_samples_dropped_total", "counter",
    "Samples left out: cap (too many series), duplicate, labels, value, malformed (lines of a"
    " scraped page), overwritten (records of the kernel log).",
    ("source", "reason"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SCRAPES_TOTAL = Metric(
    "flopwatch_scrapes_total", "counter", "Times that /metrics was answered.", (), EXPORTER,
)  # fmt: skip
FLOPWATCH_RENDER_SECONDS_TOTAL = Metric(
    "flopwatch_render_seconds_total", "counter",
    "Time spent writing the page (a page is written once and served to all who ask).",
    (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESSFUL = Metric(
    "flopwatch_config_last_reload_successful", "gauge",
    "1 if the last attempt to load the configuration worked, 0 if the old one was kept.",
    (), EXPORTER,
)  # fmt: skip
FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = Metric(
    "flopwatch_config_last_reload_success_timestamp_seconds", "gauge",
    "When the configuration in force was loaded, in Unix seconds.", (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_WEB_CONFIG_LAST_RELOAD_SUCCESSFUL = Metric(
    "flopwatch_web_config_last_reload_successful", "gauge",
    "1 if the web config file and what it names could be loaded as they are now, 0 if the former"
    " state was kept; absent without such a file.",
    (), EXPORTER,
)  # fmt: skip
FLOPWATCH_WEB_REFUSED_TOTAL = Metric(
    "flopwatch_web_refused_total", "counter",
    "Connections and requests that were turned away: certificate (missing, or of a name that may"
    " not come in), handshake (TLS failed), password, rate, size.",
    ("reason",), EXPORTER,
)  # fmt: skip
FLOPWATCH_CHILD_CPU_SECONDS_TOTAL = Metric(
    "flopwatch_child_cpu_seconds_total", "counter",
    "CPU time of the daemon's live child processes (driver readers).",
    (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_CHILD_RESIDENT_MEMORY_BYTES = Metric(
    "flopwatch_child_resident_memory_bytes", "gauge",
    "Resident memory of the daemon's live child processes.", (), EXPORTER, "bytes",
)  # fmt: skip
FLOPWATCH_DRIVER_SECONDS_TOTAL = Metric(
    "flopwatch_driver_seconds_total", "counter",
    "Time that calls into a driver library took; all threads together.",
    ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_STATE_BYTES = Metric(
    "flopwatch_state_bytes", "gauge",
    "Size of the file with what the next daemon should know, as last written.",
    (), EXPORTER, "bytes", "experimental",
)  # fmt: skip
FLOPWATCH_STATE_SAVED_TIMESTAMP_SECONDS = Metric(
    "flopwatch_state_saved_timestamp_seconds", "gauge",
    "When that file was last written, in Unix seconds.",
    (), EXPORTER, "seconds", "experimental",
)  # fmt: skip
FLOPWATCH_PODS = Metric(
    "flopwatch_pods", "gauge",
    "Pods of this node that are known, by whether they serve: serving (running and ready), other.",
    ("state",), EXPORTER, stability="experimental",
)  # fmt: skip
FLOPWATCH_POD_REQUESTS_TOTAL = Metric(
    "flopwatch_pod_requests_total", "counter",
    "Requests for the node's pods: list and watch at the API server, kubelet at the kubelet.",
    ("kind",), EXPORTER, stability="experimental",
)  # fmt: skip
FLOPWATCH_POD_CHANGES_TOTAL = Metric(
    "flopwatch_pod_changes_total", "counter",
    "Changes of pods that the API server's watch has told.",
    (), EXPORTER, stability="experimental",
)  # fmt: skip
FLOPWATCH_NOTIFICATIONS_TOTAL = Metric(
    "flopwatch_notifications_total", "counter",
    "Notices of the cloud that were passed on by receiver and result: sent (taken by it), failed.",
    ("receiver", "result"), EXPORTER, stability="experimental",
)  # fmt: skip
PROCESS_CPU_SECONDS_TOTAL = Metric(
    "process_cpu_seconds_total", "counter", "CPU time of the daemon, user and system.",
    (), EXPORTER, "seconds",
)  # fmt: skip
PROCESS_START_TIME_SECONDS = Metric(
    "process_start_time_seconds", "gauge", "When the daemon was started, in Unix seconds.",
    (), EXPORTER, "seconds",
)  # fmt: skip
PROCESS_RESIDENT_MEMORY_BYTES = Metric(
    "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.",
    (), EXPORTER, "bytes",
)  # fmt: skip
PROCESS_VIRTUAL_MEMORY_BYTES = Metric(
    "process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon.",
    (), EXPORTER, "bytes",
)  # fmt: skip
PROCESS_OPEN_FDS = Metric(
    "process_open_fds", "gauge", "File descriptors that the daemon holds open.", (), EXPORTER,
)  # fmt: skip
PROCESS_MAX_FDS = Metric(
    "process_max_fds", "gauge", "File descriptors that the daemon may hold open.", (), EXPORTER,
)  # fmt: skip

FAMILIES: Mapping[str, Metric] = {
    row.name: row for row in tuple(globals().values()) if isinstance(row, Metric)
}
"""Every row by name, in the order above: the order of the page and of the reference."""

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(row.group for row in FAMILIES.values()))
"""Every group, in the order of the page."""

ORDER: Mapping[Metric, int] = {row: i for i, row in enumerate(FAMILIES.values())}
"""Where each row stands in the table."""
