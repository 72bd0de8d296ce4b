# One GeForce RTX 2080 Super with a desktop, as a real machine answered.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "610.57.04"
system nvmlSystemGetNVMLVersion = "13.610.57.04"
system nvmlSystemGetCudaDriverVersion = 13030

# identity
* nvmlDeviceGetName = "NVIDIA GeForce RTX 2080 SUPER"
* nvmlDeviceGetUUID = "GPU-00002080-0000-4000-8000-000000000000"
* nvmlDeviceGetVbiosVersion = "90.04.7A.40.73"
* nvmlDeviceGetInforomImageVersion = "G001.0000.02.04"
* nvmlDeviceGetInforomVersion 0 = "1.1"
* nvmlDeviceGetGspFirmwareVersion = "610.57.04"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 6
* nvmlDeviceGetBrand = 5
* nvmlDeviceGetCudaComputeCapability = 7 5
* nvmlDeviceGetNumGpuCores = 3072
* nvmlDeviceGetMemoryBusWidth = 256
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:0C:00.0" 0x1E8110DE 0x40051458
* nvmlDeviceGetModuleId = 1

# modes
* nvmlDeviceGetPersistenceMode = 0
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
* nvmlDeviceGetDisplayMode = !26
* nvmlDeviceGetApplicationsClock = !26
* nvmlDeviceGetDefaultApplicationsClock = !26

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 8 3
* nvmlDeviceGetEncoderUtilization = 100 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 8
* samples 2 = u32 3
* nvmlDeviceGetEncoderStats = 2 108 96754

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 8589934592 419430400 7316963328 854589440
* nvmlDeviceGetBAR1MemoryInfo = 268435456 225443840 42991616

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 98140
* nvmlDeviceGetEnforcedPowerLimit = 250000
* nvmlDeviceGetPowerManagementLimit = 250000
* nvmlDeviceGetPowerManagementDefaultLimit = 250000
* nvmlDeviceGetPowerManagementLimitConstraints = 105000 350000
* nvmlDeviceGetTotalEnergyConsumption = 50000000 +98140/s
* field 83 = u64 50000000 +98140/s
* field 186 0 = u32 97750
* field 187 = u32 105000
* field 188 = u32 350000
* field 189 = u32 250000
* field 190 = u32 250000
* field 192 = u32 250000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 38
* nvmlDeviceGetTemperatureThreshold 0 = 100
* nvmlDeviceGetTemperatureThreshold 1 = 97
* nvmlDeviceGetTemperatureThreshold 3 = 89
* nvmlDeviceGetTemperatureThreshold 5 = 84
* nvmlDeviceGetNumFans = 1
* nvmlDeviceGetFanSpeed = 38
* nvmlDeviceGetFanSpeed_v2 0 = 38
* nvmlDeviceGetTargetFanSpeed 0 = 38
* nvmlDeviceGetMinMaxFanSpeed = 23 100

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 2070
* nvmlDeviceGetClockInfo 1 = 2070
* nvmlDeviceGetClockInfo 2 = 7500
* nvmlDeviceGetClockInfo 3 = 1920
* nvmlDeviceGetMaxClockInfo 0 = 2145
* nvmlDeviceGetMaxClockInfo 1 = 2145
* nvmlDeviceGetMaxClockInfo 2 = 7751
* nvmlDeviceGetMaxClockInfo 3 = 1995
* nvmlDeviceGetPerformanceState = 2
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 15820333506000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 15820333506000
* field 75 = u64 0
* field 76 = u64 0
* field 269 = u64 0
* field 270 = u64 0
* field 271 = u64 0
* field 230 = u32 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 3
* nvmlDeviceGetMaxPcieLinkGeneration = 3
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 3
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 110546
* nvmlDeviceGetPcieThroughput 1 = 1370556
* nvmlDeviceGetPcieReplayCounter = 0
* field 94 = u32 0
* field 95 = u32 0
* nvmlGpmQueryDeviceSupport = 0

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 1720 memory 181403648 type G
process 0 pid 4556 memory 3145728 type G
process 0 pid 28511 memory 241172480 sm 3 mem 1 enc 50
process 0 pid 28512 memory 387973120 sm 4 mem 1 enc 50
system nvmlSystemGetProcessName 1720 = "/usr/bin/gnome-shell"
system nvmlSystemGetProcessName 4556 = "/usr/bin/Xwayland"
system nvmlSystemGetProcessName 28511 = "ffmpeg"
system nvmlSystemGetProcessName 28512 = "ffmpeg"
