# A virtual machine with one vGPU: most questions are the host's business.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "550.163.01"
system nvmlSystemGetNVMLVersion = "12.550.163.01"
system nvmlSystemGetCudaDriverVersion = 12040

# identity
* nvmlDeviceGetName = "NVIDIA A40-8Q"
* nvmlDeviceGetUUID = "GPU-0000a408-0000-11ef-8000-000000000000"
* nvmlDeviceGetVbiosVersion = "00.00.00.00.00"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 7
* nvmlDeviceGetBrand = 10
* nvmlDeviceGetCudaComputeCapability = 8 6
* nvmlDeviceGetNumGpuCores = 10752
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:02:00.0" 0x223510DE 0x14E710DE

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 2
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 37 12
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 37
* samples 2 = u32 12

# memory, bytes
* nvmlDeviceGetMemoryInfo_v2 = 8589934592 805306368 5368709120 2415919104
* nvmlDeviceGetBAR1MemoryInfo = 268435456 267386880 1048576

# A guest sees no power, no temperature, no clock that it could set, no ECC counter, no PCIe link.
* nvmlDeviceGetClockInfo 1 = 1740
* nvmlDeviceGetClockInfo 2 = 7250
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetEccMode = 1 1
* nvmlGpmQueryDeviceSupport = !3
* nvmlDeviceGetMPSComputeRunningProcesses_v3 = !3

# events and processes
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 9001 memory 2147483648 sm 36 mem 12
