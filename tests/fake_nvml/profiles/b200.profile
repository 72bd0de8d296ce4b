# Eight B200.
# Where the values come from: ../SOURCES.md.
devices = 8
system nvmlSystemGetDriverVersion = "580.65.06"
system nvmlSystemGetNVMLVersion = "13.580.65.06"
system nvmlSystemGetCudaDriverVersion = 13000

# identity
* nvmlDeviceGetName = "NVIDIA B200"
* nvmlDeviceGetUUID = "GPU-b2000000-0000-4000-8000-00000000000$i"
* nvmlDeviceGetSerial = "156284920370$i"
* nvmlDeviceGetBoardPartNumber = "699-2G540-0200-000"
* nvmlDeviceGetVbiosVersion = "96.00.A0.00.01"
* nvmlDeviceGetInforomImageVersion = "B200.0200.00.01"
* nvmlDeviceGetInforomVersion 0 = "2.1"
* nvmlDeviceGetInforomVersion 1 = "7.16"
* nvmlDeviceGetGspFirmwareVersion = "580.65.06"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 10
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 10 0
* nvmlDeviceGetNumGpuCores = 18432
* nvmlDeviceGetMemoryBusWidth = 8192
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:1A:00.0" 0x234010DE 0x181810DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:1B:00.0" 0x234010DE 0x181810DE
2 nvmlDeviceGetPciInfo_v3 = "00000000:4A:00.0" 0x234010DE 0x181810DE
3 nvmlDeviceGetPciInfo_v3 = "00000000:4B:00.0" 0x234010DE 0x181810DE
4 nvmlDeviceGetPciInfo_v3 = "00000000:8A:00.0" 0x234010DE 0x181810DE
5 nvmlDeviceGetPciInfo_v3 = "00000000:8B:00.0" 0x234010DE 0x181810DE
6 nvmlDeviceGetPciInfo_v3 = "00000000:CA:00.0" 0x234010DE 0x181810DE
7 nvmlDeviceGetPciInfo_v3 = "00000000:CB:00.0" 0x234010DE 0x181810DE
0 nvmlDeviceGetNumaNodeId = 0
1 nvmlDeviceGetNumaNodeId = 0
2 nvmlDeviceGetNumaNodeId = 0
3 nvmlDeviceGetNumaNodeId = 0
4 nvmlDeviceGetNumaNodeId = 1
5 nvmlDeviceGetNumaNodeId = 1
6 nvmlDeviceGetNumaNodeId = 1
7 nvmlDeviceGetNumaNodeId = 1
* nvmlDeviceGetModuleId = 0 +$i

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 0 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 98 41
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 98
* samples 2 = u32 41

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 206158430208 1073741824 102005473280 103079215104
* nvmlDeviceGetBAR1MemoryInfo = 274877906944 171798691840 103079215104

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 912500 +$i*500
* nvmlDeviceGetEnforcedPowerLimit = 1000000
* nvmlDeviceGetPowerManagementLimit = 1000000
* nvmlDeviceGetPowerManagementDefaultLimit = 1000000
* nvmlDeviceGetPowerManagementLimitConstraints = 400000 1200000
* nvmlDeviceGetTotalEnergyConsumption = 3000000000 +912500/s
* field 83 = u64 3000000000 +912500/s
* field 185 0 = u32 912500 +$i*500
* field 185 2 = u32 141250
* field 186 0 = u32 934750 +$i*500
* field 187 = u32 400000
* field 188 = u32 1200000
* field 189 = u32 1000000
* field 190 = u32 1000000
* field 192 = u32 1000000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 61 +$i
* nvmlDeviceGetMarginTemperature = 24 +$i*-1
* field 82 = u32 68 +$i
* field 193 = i32 -5
* field 194 = i32 -2
* field 195 = i32 0
* field 196 = i32 0

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1965
* nvmlDeviceGetClockInfo 1 = 1965
* nvmlDeviceGetClockInfo 2 = 2500
* nvmlDeviceGetClockInfo 3 = 1200
* nvmlDeviceGetMaxClockInfo 0 = 2100
* nvmlDeviceGetMaxClockInfo 1 = 2100
* nvmlDeviceGetMaxClockInfo 2 = 2500
* nvmlDeviceGetMaxClockInfo 3 = 2100
* nvmlDeviceGetMaxCustomerBoostClock 0 = 2100
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0x4
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 6000000000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 6000000000
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
* nvmlDeviceGetRowRemapperHistogram = 3072 0 0 0 0
* field 1 = u32 1
* field 2 = u32 1
* field 3 = u64 0
* field 4 = u64 0
* field 5 = u64 0
* field 6 = u64 0
* field 230 = u32 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 6
* nvmlDeviceGetMaxPcieLinkGeneration = 6
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 6
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 2048000
* nvmlDeviceGetPcieThroughput 1 = 4096000
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
* field 197 = u64 1234567890123 +2097152000/s
* field 198 = u64 2345678901234 +4194304000/s

# NVLink 5: packets, bytes and errors by link; the older ids are not answered
* nvmlDeviceGetNvLinkState 0-17 = 1
* nvmlDeviceGetNvLinkVersion 0-17 = 7
* nvmlDeviceGetNvLinkRemoteDeviceType 0-17 = 2
* field 90 = u32 53125
* field 91 = u32 18
* field 164 0-17 = u32 53125
* field 165 0-17 = u32 1
* field 166 0-17 = u32 7
* field 201 0-17 = u64 5000000 +1000000/s +$a*1000
* field 202 0-17 = u64 640000000000 +134217728/s +$a*1000
* field 203 0-17 = u64 6000000 +1000000/s +$a*1000
* field 204 0-17 = u64 768000000000 +134217728/s +$a*1000
* field 205 0-17 = u64 0
* field 206 0-17 = u64 1 +$a
* field 207 0-17 = u64 2 +$a
* field 208 0-17 = u64 3 +$a
* field 209 0-17 = u64 4 +$a
* field 210 0-17 = u64 5 +$a
* field 211 0-17 = u64 6 +$a
* field 212 0-17 = u64 7 +$a
* field 213 0-17 = u64 2
* field 214 0-17 = u64 1
* field 215 0-17 = u64 3
* field 219 0-17 = u64 8 +$a
* field 221 0-17 = u64 9 +$a
* nvmlDeviceGetC2cModeInfoV = 0
* nvmlDeviceGetGpuFabricInfoV = "00000000-0000-0000-0000-000000000000" 0 0 3 0x1AA 1

# GPM: percent, MiB/s
* nvmlGpmQueryDeviceSupport = 1
* gpm 1 = 98.0
* gpm 2 = 91.5
* gpm 3 = 44.5
* gpm 4 = 9.25
* gpm 5 = 58.75
* gpm 6 = 0
* gpm 7 = 57.5
* gpm 8 = 0
* gpm 9 = 1.25
* gpm 10 = 52.25
* gpm 11 = 0
* gpm 12 = 4.5
* gpm 13 = 2.25
* gpm 20 = 2048.5
* gpm 21 = 4096.5
* gpm 60 = 51200.5
* gpm 61 = 51200.25

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0xFF1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 6000 memory 103079215104 sm 90 mem 41
process 1 pid 6001 memory 103079215104 sm 91 mem 41
process 2 pid 6002 memory 103079215104 sm 92 mem 41
process 3 pid 6003 memory 103079215104 sm 93 mem 41
process 4 pid 6004 memory 103079215104 sm 94 mem 41
process 5 pid 6005 memory 103079215104 sm 95 mem 41
process 6 pid 6006 memory 103079215104 sm 96 mem 41
process 7 pid 6007 memory 103079215104 sm 97 mem 41
