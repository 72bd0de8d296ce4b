# One GB10: CPU and GPU share one memory, so the driver has none to tell of.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "580.95.05"
system nvmlSystemGetNVMLVersion = "13.580.95.05"
system nvmlSystemGetCudaDriverVersion = 13000

# identity
* nvmlDeviceGetName = "NVIDIA GB10"
* nvmlDeviceGetUUID = "GPU-00000b10-0000-4000-8000-000000000000"
* nvmlDeviceGetVbiosVersion = "9A.0B.15.00.00"
* nvmlDeviceGetGspFirmwareVersion = "580.95.05"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 10
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 12 1
* nvmlDeviceGetNumGpuCores = 6144
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "0000000F:01:00.0" 0x2E1210DE 0x00000000

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 96 0
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 96
* samples 2 = u32 0

# power mW: no limit of the GPU alone
* nvmlDeviceGetPowerUsage = 38250
* nvmlDeviceGetTotalEnergyConsumption = 40000000 +38250/s
* field 83 = u64 40000000 +38250/s
* field 185 0 = u32 38250
* field 186 0 = u32 38875

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 63

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 2405
* nvmlDeviceGetClockInfo 1 = 2405
* nvmlDeviceGetMaxClockInfo 0 = 3003
* nvmlDeviceGetMaxClockInfo 1 = 3003
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF
* nvmlDeviceGetClockInfo 3 = 2405
* nvmlDeviceGetMaxClockInfo 3 = 3003

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 0
* field 75 = u64 0
* field 76 = u64 0
* field 269 = u64 0
* field 270 = u64 0
* field 271 = u64 0
* field 230 = u32 0
* nvmlGpmQueryDeviceSupport = 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 1
* nvmlDeviceGetMaxPcieLinkGeneration = 1
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 1
* nvmlDeviceGetCurrPcieLinkWidth = 1
* nvmlDeviceGetMaxPcieLinkWidth = 1

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 8101 memory 18446744073709551615 sm 95 mem 0
process 0 pid 8102 memory 21474836480
