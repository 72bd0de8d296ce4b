# One L40S encoding video, as a real machine answered.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "595.80"
system nvmlSystemGetNVMLVersion = "13.595.80"
system nvmlSystemGetCudaDriverVersion = 13020

# identity
* nvmlDeviceGetName = "NVIDIA L40S"
* nvmlDeviceGetUUID = "GPU-00000405-0000-4000-8000-000000000000"
* nvmlDeviceGetSerial = "1650000000405"
* nvmlDeviceGetBoardPartNumber = "900-2G133-0080-000"
* nvmlDeviceGetVbiosVersion = "95.02.66.00.02"
* nvmlDeviceGetInforomImageVersion = "G133.0242.00.03"
* nvmlDeviceGetInforomVersion 0 = "2.1"
* nvmlDeviceGetInforomVersion 1 = "6.16"
* nvmlDeviceGetGspFirmwareVersion = "595.80"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 8
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 8 9
* nvmlDeviceGetNumGpuCores = 18176
* nvmlDeviceGetMemoryBusWidth = 384
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:01:00.0" 0x26B910DE 0x185110DE
* nvmlDeviceGetModuleId = 1

# modes
* nvmlDeviceGetPersistenceMode = 0
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 1
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 1
* nvmlDeviceGetDisplayMode = !26
* nvmlDeviceGetApplicationsClock = !26
* nvmlDeviceGetDefaultApplicationsClock = !26

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 9 2
* nvmlDeviceGetEncoderUtilization = 60 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 9
* samples 2 = u32 2
* nvmlDeviceGetEncoderStats = 2 237 4271133

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 48305799168 638582784 46373273600 1294991360
* nvmlDeviceGetBAR1MemoryInfo = 68719476736 67424485376 1294991360

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 110230
* nvmlDeviceGetEnforcedPowerLimit = 350000
* nvmlDeviceGetPowerManagementLimit = 350000
* nvmlDeviceGetPowerManagementDefaultLimit = 350000
* nvmlDeviceGetPowerManagementLimitConstraints = 100000 350000
* nvmlDeviceGetTotalEnergyConsumption = 123456789 +110230/s
* field 83 = u64 123456789 +110230/s
* field 185 0 = u32 110240
* field 186 0 = u32 110010
* field 187 = u32 100000
* field 188 = u32 350000
* field 189 = u32 350000
* field 190 = u32 350000
* field 192 = u32 350000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 54
* nvmlDeviceGetMarginTemperature = 34
* field 193 = i32 -5
* field 194 = i32 -2
* field 196 = i32 0

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 2520
* nvmlDeviceGetClockInfo 1 = 2520
* nvmlDeviceGetClockInfo 2 = 9001
* nvmlDeviceGetClockInfo 3 = 1965
* nvmlDeviceGetMaxClockInfo 0 = 2520
* nvmlDeviceGetMaxClockInfo 1 = 2520
* nvmlDeviceGetMaxClockInfo 2 = 9001
* nvmlDeviceGetMaxClockInfo 3 = 1965
* nvmlDeviceGetMaxCustomerBoostClock 0 = 2520
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 204642816000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 204642816000
* field 75 = u64 0
* field 76 = u64 0
* field 269 = u64 0
* field 270 = u64 0
* field 271 = u64 0

# memory errors
* nvmlDeviceGetEccMode = 1 1
* nvmlDeviceGetDefaultEccMode = 1
* nvmlDeviceGetTotalEccErrors 0 0 = 0
* nvmlDeviceGetTotalEccErrors 1 0 = 0
* nvmlDeviceGetTotalEccErrors 0 1 = 0
* nvmlDeviceGetTotalEccErrors 1 1 = 0
* nvmlDeviceGetMemoryErrorCounter 0 0 2 = 0
* nvmlDeviceGetMemoryErrorCounter 1 0 2 = 0
* nvmlDeviceGetMemoryErrorCounter 0 1 2 = 0
* nvmlDeviceGetMemoryErrorCounter 1 1 2 = 0
* nvmlDeviceGetMemoryErrorCounter 0 0 7 = 0
* nvmlDeviceGetMemoryErrorCounter 1 0 7 = 0
* nvmlDeviceGetMemoryErrorCounter 0 1 7 = 0
* nvmlDeviceGetMemoryErrorCounter 1 1 7 = 0
* nvmlDeviceGetSramEccErrorStatus = 0 0 0 0 0 0 0 0 0 0 0 0
* nvmlDeviceGetRemappedRows = 0 0 0 0
* field 142 = u32 0
* field 143 = u32 0
* field 144 = u32 0
* field 145 = u32 0
* nvmlDeviceGetRowRemapperHistogram = 192 0 0 0 0
* field 1 = u32 1
* field 2 = u32 1
* field 3 = u64 0
* field 4 = u64 0
* field 5 = u64 0
* field 6 = u64 0
* field 230 = u32 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 4
* nvmlDeviceGetMaxPcieLinkGeneration = 4
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 4
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 259423
* nvmlDeviceGetPcieThroughput 1 = 2012109
* nvmlDeviceGetPcieReplayCounter = 0
* field 94 = u32 0
* field 95 = u32 0
* field 173 = u32 0
* field 174 = u32 0
* field 175 = u32 0
* field 176 = u32 0
* field 177 = u32 0
* field 178 = u32 0
* field 179 = u32 0
* field 180 = u32 0
* field 181 = u32 0
* field 182 = u32 0
* field 183 = u32 0
* field 197 = u64 1234567890 +265649152/s
* field 198 = u64 2345678901 +2060399616/s

# A PCIe card: no NVLink, no fabric; GPM came with Hopper only
* nvmlGpmQueryDeviceSupport = 0

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0xFF1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 20037 memory 564133888 sm 2 mem 0 enc 24
process 0 pid 20038 memory 714080256 sm 6 mem 0 enc 40
system nvmlSystemGetProcessName 20037 = "ffmpeg"
system nvmlSystemGetProcessName 20038 = "ffmpeg"
