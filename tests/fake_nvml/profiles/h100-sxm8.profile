# Eight H100 SXM with 18 NVLinks each, under load. Where the values come from: ../SOURCES.md.
devices = 8
system nvmlSystemGetDriverVersion = "590.48.01"
system nvmlSystemGetNVMLVersion = "13.590.48.01"
system nvmlSystemGetCudaDriverVersion = 13010

# identity
* nvmlDeviceGetName = "NVIDIA H100 80GB HBM3"
* nvmlDeviceGetUUID = "GPU-01000100-0000-4000-8000-00000000000$i"
* nvmlDeviceGetSerial = "165382108390$i"
* nvmlDeviceGetBoardPartNumber = "692-2G520-0200-000"
* nvmlDeviceGetVbiosVersion = "96.00.A5.00.01"
* nvmlDeviceGetInforomImageVersion = "G520.0200.00.05"
* nvmlDeviceGetInforomVersion 0 = "2.1"
* nvmlDeviceGetInforomVersion 1 = "7.16"
* nvmlDeviceGetGspFirmwareVersion = "590.48.01"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetModuleId = 0 +$i
* nvmlDeviceGetArchitecture = 9
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 9 0
* nvmlDeviceGetNumGpuCores = 16896
* nvmlDeviceGetMemoryBusWidth = 5120
* nvmlDeviceGetBusType = 2
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:1A:00.0" 0x233010DE 0x16C110DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:1B:00.0" 0x233010DE 0x16C110DE
2 nvmlDeviceGetPciInfo_v3 = "00000000:4A:00.0" 0x233010DE 0x16C110DE
3 nvmlDeviceGetPciInfo_v3 = "00000000:4B:00.0" 0x233010DE 0x16C110DE
4 nvmlDeviceGetPciInfo_v3 = "00000000:8A:00.0" 0x233010DE 0x16C110DE
5 nvmlDeviceGetPciInfo_v3 = "00000000:8B:00.0" 0x233010DE 0x16C110DE
6 nvmlDeviceGetPciInfo_v3 = "00000000:CA:00.0" 0x233010DE 0x16C110DE
7 nvmlDeviceGetPciInfo_v3 = "00000000:CB:00.0" 0x233010DE 0x16C110DE
0 nvmlDeviceGetNumaNodeId = 0
1 nvmlDeviceGetNumaNodeId = 0
2 nvmlDeviceGetNumaNodeId = 0
3 nvmlDeviceGetNumaNodeId = 0
4 nvmlDeviceGetNumaNodeId = 1
5 nvmlDeviceGetNumaNodeId = 1
6 nvmlDeviceGetNumaNodeId = 1
7 nvmlDeviceGetNumaNodeId = 1

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 0 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
* nvmlDeviceGetDisplayMode = !26

# use: percent; encoder and its like also tell a sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 100 11
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 100
* samples 2 = u32 11
* samples 0 = u32 631950

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 85520809984 502267904 64238911488 20779630592
* nvmlDeviceGetBAR1MemoryInfo = 137438953472 116656177152 20782776320

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 631950 +$i*100
* nvmlDeviceGetEnforcedPowerLimit = 700000
* nvmlDeviceGetPowerManagementLimit = 700000
* nvmlDeviceGetPowerManagementDefaultLimit = 700000
* nvmlDeviceGetPowerManagementLimitConstraints = 200000 700000
* nvmlDeviceGetTotalEnergyConsumption = 9876543210 +631950/s +$i*1000
* field 83 = u64 9876543210 +631950/s +$i*1000
* field 185 0 = u32 631950 +$i*100
* field 185 2 = u32 85830
* field 186 0 = u32 625680 +$i*100
* field 187 = u32 200000
* field 188 = u32 700000
* field 189 = u32 700000
* field 190 = u32 700000
* field 192 = u32 700000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 59 +$i
* nvmlDeviceGetMarginTemperature = 26 +$i*-1
* nvmlDeviceGetTemperatureThreshold 0 = 92
* nvmlDeviceGetTemperatureThreshold 1 = 89
* nvmlDeviceGetTemperatureThreshold 2 = 95
* nvmlDeviceGetTemperatureThreshold 3 = 87
* field 82 = u32 54 +$i
* field 193 = i32 -8
* field 194 = i32 -2
* field 195 = i32 0
* field 196 = i32 0

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1980
* nvmlDeviceGetClockInfo 1 = 1980
* nvmlDeviceGetClockInfo 2 = 2619
* nvmlDeviceGetClockInfo 3 = 1545
* nvmlDeviceGetMaxClockInfo 0 = 1980
* nvmlDeviceGetMaxClockInfo 1 = 1980
* nvmlDeviceGetMaxClockInfo 2 = 2619
* nvmlDeviceGetMaxClockInfo 3 = 1545
* nvmlDeviceGetMaxCustomerBoostClock 0 = 1980
* nvmlDeviceGetApplicationsClock = !26
* nvmlDeviceGetDefaultApplicationsClock = !26
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF
0 nvmlDeviceGetCurrentClocksEventReasons = 0x4

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 3000000000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 3 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 4 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 5 = 1784016773000000 0
* field 74 = u64 3000000000 +$i*1000000
* field 75 = u64 250000000
* field 76 = u64 0
* field 77 = u64 0
* field 78 = u64 0
* field 79 = u64 0
* field 80 = u64 4000000000
* field 81 = u64 0
* field 269 = u64 500000000
* field 270 = u64 250000000
* field 271 = u64 125000000

# memory errors
* nvmlDeviceGetEccMode = 1 1
* nvmlDeviceGetDefaultEccMode = 1
* nvmlDeviceGetTotalEccErrors 0 0 = 7
* nvmlDeviceGetTotalEccErrors 1 0 = 0
* nvmlDeviceGetTotalEccErrors 0 1 = 41
* nvmlDeviceGetTotalEccErrors 1 1 = 2
* nvmlDeviceGetMemoryErrorCounter 0 0 2 = 5
* nvmlDeviceGetMemoryErrorCounter 0 0 7 = 2
* nvmlDeviceGetMemoryErrorCounter 1 0 2 = 0
* nvmlDeviceGetMemoryErrorCounter 1 0 7 = 0
* nvmlDeviceGetMemoryErrorCounter 0 1 2 = 38
* nvmlDeviceGetMemoryErrorCounter 0 1 7 = 3
* nvmlDeviceGetMemoryErrorCounter 1 1 2 = 1
* nvmlDeviceGetMemoryErrorCounter 1 1 7 = 1
* nvmlDeviceGetSramEccErrorStatus = 0 1 3 0 0 2 0 1 0 0 0 0
* nvmlDeviceGetRemappedRows = 1 1 0 0
* nvmlDeviceGetRowRemapperHistogram = 2558 2 0 0 0
* field 142 = u32 1
* field 143 = u32 1
* field 144 = u32 0
* field 145 = u32 0
* field 1 = u32 1
* field 2 = u32 1
* field 3 = u64 7
* field 4 = u64 0
* field 5 = u64 41
* field 6 = u64 2
* field 230 = u32 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 5
* nvmlDeviceGetMaxPcieLinkGeneration = 5
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 5
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieSpeed = 32000
* nvmlDeviceGetPcieThroughput 0 = 1200000 +$i
* nvmlDeviceGetPcieThroughput 1 = 3400000 +$i
* nvmlDeviceGetPcieReplayCounter = 3
* field 94 = u32 3
* field 95 = u32 0
* field 169 = u32 12
* field 173 = u32 4
* field 174 = u32 1
* field 175 = u32 2
* field 176 = u32 5
* field 177 = u32 6
* field 178 = u32 7
* field 179 = u32 0
* field 180 = u32 0
* field 181 = u32 1
* field 182 = u32 8
* field 183 = u32 9
* field 197 = u64 123456789012 +1228800000/s
* field 198 = u64 345678901234 +3481600000/s

# NVLink: KiB, counts; scope is the link
* nvmlDeviceGetNvLinkState 0-17 = 1
* nvmlDeviceGetNvLinkVersion 0-17 = 6
* nvmlDeviceGetNvLinkRemoteDeviceType 0-17 = 2
* nvmlDeviceGetNvLinkErrorCounter 0-17 0 = 0
* nvmlDeviceGetNvLinkErrorCounter 0-17 1 = 0
2 nvmlDeviceGetNvLinkErrorCounter 5 0 = 17
2 nvmlDeviceGetNvLinkErrorCounter 5 1 = 505
* field 90 = u32 26562
* field 91 = u32 18
* field 138 0-17 = u64 1000000 +1048576/s +$a*1000
* field 139 0-17 = u64 2000000 +1048576/s +$a*1000
* field 140 0-17 = u64 1100000 +1153434/s +$a*1000
* field 141 0-17 = u64 2200000 +1153434/s +$a*1000
* field 138 4294967295 = u64 18153000 +18874368/s
* field 139 4294967295 = u64 36153000 +18874368/s
* field 140 4294967295 = u64 19953000 +20761812/s
* field 141 4294967295 = u64 39753000 +20761812/s
* field 161 0-17 = u64 0
* field 162 0-17 = u64 0
* field 163 0-17 = u64 0
2 field 161 5 = u64 17
2 field 162 5 = u64 505
* field 164 0-17 = u32 26562
* field 165 0-17 = u32 1
* field 166 0-17 = u32 6
* nvmlDeviceGetC2cModeInfoV = 0
* nvmlDeviceGetGpuFabricInfoV = "00000000-0000-0000-0000-000000000000" 0 0 3 0 0

# GPM: percent, MiB/s
* nvmlGpmQueryDeviceSupport = 1
* gpm 1 = 99.5
* gpm 2 = 95.5 +$i*0.25
* gpm 3 = 41.25
* gpm 4 = 12.5
* gpm 5 = 62.5 +$i*0.25
* gpm 6 = 0.5
* gpm 7 = 61.0
* gpm 8 = 0.25
* gpm 9 = 0.75
* gpm 10 = 38.75 +$i*0.25
* gpm 11 = 1.5
* gpm 12 = 6.25
* gpm 13 = 3.125
* gpm 20 = 1171.875
* gpm 21 = 3320.3125
* gpm 60 = 18432
* gpm 61 = 18432.5

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0xFF1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 11327 memory 2690646016
process 0 pid 11328 memory 1616904192
process 0 pid 11345 memory 16452157440 sm 99 mem 10
process 1 pid 11346 memory 16452157440 sm 98 mem 10
process 2 pid 11347 memory 16452157440 sm 97 mem 10
process 3 pid 11348 memory 16452157440 sm 96 mem 10
process 4 pid 11349 memory 16452157440 sm 95 mem 10
process 5 pid 11350 memory 16452157440 sm 94 mem 10
process 6 pid 11351 memory 16452157440 sm 93 mem 10
process 7 pid 11352 memory 16452157440 sm 92 mem 10
system nvmlSystemGetProcessName 11327 = "/root/tools/memhog"
system nvmlSystemGetProcessName 11328 = "/root/tools/memhog"
system nvmlSystemGetProcessName 11345-11352 = "./gpu_burn"
