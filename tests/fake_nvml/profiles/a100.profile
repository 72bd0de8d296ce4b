# Two A100 SXM of 40 GB and two of 80 GB.
# Where the values come from: ../SOURCES.md.
devices = 4
system nvmlSystemGetDriverVersion = "550.163.01"
system nvmlSystemGetNVMLVersion = "12.550.163.01"
system nvmlSystemGetCudaDriverVersion = 12040

# identity
* nvmlDeviceGetName = "NVIDIA A100-SXM4-40GB"
* nvmlDeviceGetUUID = "GPU-12345678-1234-4234-8234-12345678000$i"
* nvmlDeviceGetSerial = "132482108380$i"
* nvmlDeviceGetBoardPartNumber = "692-2G506-0200-002"
* nvmlDeviceGetVbiosVersion = "92.00.45.00.03"
* nvmlDeviceGetInforomImageVersion = "G506.0200.00.04"
* nvmlDeviceGetInforomVersion 0 = "2.0"
* nvmlDeviceGetInforomVersion 1 = "6.16"
* nvmlDeviceGetGspFirmwareVersion = "550.163.01"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 7
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 8 0
* nvmlDeviceGetNumGpuCores = 6912
* nvmlDeviceGetMemoryBusWidth = 5120
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:07:00.0" 0x20B010DE 0x134710DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:0F:00.0" 0x20B010DE 0x134710DE
2 nvmlDeviceGetPciInfo_v3 = "00000000:47:00.0" 0x20B210DE 0x147F10DE
3 nvmlDeviceGetPciInfo_v3 = "00000000:4E:00.0" 0x20B210DE 0x147F10DE
0 nvmlDeviceGetNumaNodeId = 0
1 nvmlDeviceGetNumaNodeId = 0
2 nvmlDeviceGetNumaNodeId = 1
3 nvmlDeviceGetNumaNodeId = 1
2 nvmlDeviceGetName = "NVIDIA A100-SXM4-80GB"
3 nvmlDeviceGetName = "NVIDIA A100-SXM4-80GB"

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 0 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 87 34
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 87
* samples 2 = u32 34

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 42949672960 611319808 21474836480 20863516672
* nvmlDeviceGetBAR1MemoryInfo = 68719476736 47244640256 21474836480
2 nvmlDeviceGetMemoryInfo_v2 = 85899345920 1222639616 42949672960 41726706304
3 nvmlDeviceGetMemoryInfo_v2 = 85899345920 1222639616 42949672960 41726706304

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 312500 +$i*250
* nvmlDeviceGetEnforcedPowerLimit = 400000
* nvmlDeviceGetPowerManagementLimit = 400000
* nvmlDeviceGetPowerManagementDefaultLimit = 400000
* nvmlDeviceGetPowerManagementLimitConstraints = 100000 400000
* nvmlDeviceGetTotalEnergyConsumption = 5000000000 +312500/s
* field 83 = u64 5000000000 +312500/s
* field 185 0 = u32 312500 +$i*250
* field 186 0 = u32 318250 +$i*250
* field 187 = u32 100000
* field 188 = u32 400000
* field 189 = u32 400000
* field 190 = u32 400000
* field 192 = u32 400000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 58 +$i
* nvmlDeviceGetTemperatureThreshold 0 = 92
* nvmlDeviceGetTemperatureThreshold 1 = 87
* nvmlDeviceGetTemperatureThreshold 2 = 95
* nvmlDeviceGetTemperatureThreshold 3 = 83
* field 82 = u32 66 +$i

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1395
* nvmlDeviceGetClockInfo 1 = 1395
* nvmlDeviceGetClockInfo 2 = 1215
* nvmlDeviceGetClockInfo 3 = 1275
* nvmlDeviceGetMaxClockInfo 0 = 1410
* nvmlDeviceGetMaxClockInfo 1 = 1410
* nvmlDeviceGetMaxClockInfo 2 = 1215
* nvmlDeviceGetMaxClockInfo 3 = 1290
* nvmlDeviceGetMaxCustomerBoostClock 0 = 1410
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0x4
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 12000000000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 12000000000
* field 75 = u64 0
* field 76 = u64 0

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
* nvmlDeviceGetRowRemapperHistogram = 640 0 0 0 0
* field 1 = u32 1
* field 2 = u32 1
* field 3 = u64 0
* field 4 = u64 0
* field 5 = u64 0
* field 6 = u64 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 4
* nvmlDeviceGetMaxPcieLinkGeneration = 4
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 4
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 812345
* nvmlDeviceGetPcieThroughput 1 = 1654321
* nvmlDeviceGetPcieReplayCounter = 1
* field 94 = u32 1
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

# NVLink: KiB, counts; scope is the link
* nvmlDeviceGetNvLinkState 0-11 = 1
* nvmlDeviceGetNvLinkVersion 0-11 = 4
* nvmlDeviceGetNvLinkRemoteDeviceType 0-11 = 2
* nvmlDeviceGetNvLinkErrorCounter 0-11 0 = 0
* nvmlDeviceGetNvLinkErrorCounter 0-11 1 = 0
* nvmlDeviceGetNvLinkErrorCounter 0-11 2 = 0
* nvmlDeviceGetNvLinkErrorCounter 0-11 3 = 0
* field 90 = u32 25781
* field 91 = u32 12
* field 138 0-11 = u64 1000000 +65536/s +$a*1000
* field 139 0-11 = u64 2000000 +65536/s +$a*1000
* field 140 0-11 = u64 1100000 +72090/s +$a*1000
* field 141 0-11 = u64 2200000 +72090/s +$a*1000
* field 138 4294967295 = u64 12066000 +786432/s
* field 139 4294967295 = u64 24066000 +786432/s
* field 140 4294967295 = u64 13266000 +865080/s
* field 141 4294967295 = u64 26466000 +865080/s
* field 164 0-11 = u32 25781
* field 165 0-11 = u32 1
* field 166 0-11 = u32 4
* field 32 = u64 0
* field 33 = u64 0
* field 34 = u64 0
* field 35 = u64 0
* field 36 = u64 0
* field 37 = u64 0
* field 96 = u64 0
* field 97 = u64 0
* field 98 = u64 0
* field 99 = u64 0
* field 100 = u64 0
* field 101 = u64 0
* field 38 = u64 0
* field 39 = u64 0
* field 40 = u64 0
* field 41 = u64 0
* field 42 = u64 0
* field 43 = u64 0
* field 44 = u64 0
* field 102 = u64 0
* field 103 = u64 0
* field 104 = u64 0
* field 105 = u64 0
* field 106 = u64 0
* field 107 = u64 0
* field 45 = u64 0
* field 46 = u64 0
* field 47 = u64 0
* field 48 = u64 0
* field 49 = u64 0
* field 50 = u64 0
* field 51 = u64 0
* field 108 = u64 0
* field 109 = u64 0
* field 110 = u64 0
* field 111 = u64 0
* field 112 = u64 0
* field 113 = u64 0
* field 52 = u64 0
* field 53 = u64 0
* field 54 = u64 0
* field 55 = u64 0
* field 56 = u64 0
* field 57 = u64 0
* field 58 = u64 0
* field 114 = u64 0
* field 115 = u64 0
* field 116 = u64 0
* field 117 = u64 0
* field 118 = u64 0
* field 119 = u64 0
* field 59 = u64 0

# GPM came with Hopper: the question is answered, with no
* nvmlGpmQueryDeviceSupport = 0

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 4000 memory 18874368000 sm 80 mem 34
process 1 pid 4001 memory 18874368000 sm 81 mem 34
process 2 pid 4002 memory 18874368000 sm 82 mem 34
process 3 pid 4003 memory 18874368000 sm 83 mem 34
