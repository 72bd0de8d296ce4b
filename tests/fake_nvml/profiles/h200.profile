# One H200 under load, as a real machine answered.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "590.48.01"
system nvmlSystemGetNVMLVersion = "13.590.48.01"
system nvmlSystemGetCudaDriverVersion = 13010

# identity
* nvmlDeviceGetName = "NVIDIA H200"
* nvmlDeviceGetUUID = "GPU-00000200-0000-4000-8000-000000000000"
* nvmlDeviceGetSerial = "1650000000200"
* nvmlDeviceGetBoardPartNumber = "695-2G520-0280-001"
* nvmlDeviceGetVbiosVersion = "96.00.A5.00.03"
* nvmlDeviceGetInforomImageVersion = "G520.0280.02.02"
* nvmlDeviceGetInforomVersion 0 = "2.1"
* nvmlDeviceGetInforomVersion 1 = "7.16"
* nvmlDeviceGetGspFirmwareVersion = "590.48.01"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 9
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 9 0
* nvmlDeviceGetNumGpuCores = 16896
* nvmlDeviceGetMemoryBusWidth = 6144
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:83:00.0" 0x233510DE 0x18BE10DE
* nvmlDeviceGetModuleId = 1

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 0 0
* nvmlDeviceGetVirtualizationMode = 1
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
* nvmlDeviceGetDisplayMode = !26
* nvmlDeviceGetApplicationsClock = !26
* nvmlDeviceGetDefaultApplicationsClock = !26

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 100 7
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 100
* samples 2 = u32 7

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 150754820096 643825664 116178026496 33934016512
* nvmlDeviceGetBAR1MemoryInfo = 274877906944 240942841856 33935065088

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 627400
* nvmlDeviceGetEnforcedPowerLimit = 700000
* nvmlDeviceGetPowerManagementLimit = 700000
* nvmlDeviceGetPowerManagementDefaultLimit = 700000
* nvmlDeviceGetPowerManagementLimitConstraints = 200000 700000
* nvmlDeviceGetTotalEnergyConsumption = 8765432100 +627400/s
* field 83 = u64 8765432100 +627400/s
* field 185 0 = u32 627320
* field 185 2 = u32 97690
* field 186 0 = u32 625240
* field 187 = u32 200000
* field 188 = u32 700000
* field 189 = u32 700000
* field 190 = u32 700000
* field 192 = u32 700000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 52
* nvmlDeviceGetMarginTemperature = 35
* field 82 = u32 40
* field 193 = i32 -8
* field 194 = i32 -2
* field 195 = i32 0
* field 196 = i32 0

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1980
* nvmlDeviceGetClockInfo 1 = 1980
* nvmlDeviceGetClockInfo 2 = 3201
* nvmlDeviceGetClockInfo 3 = 1545
* nvmlDeviceGetMaxClockInfo 0 = 1980
* nvmlDeviceGetMaxClockInfo 1 = 1980
* nvmlDeviceGetMaxClockInfo 2 = 3201
* nvmlDeviceGetMaxClockInfo 3 = 1545
* nvmlDeviceGetMaxCustomerBoostClock 0 = 1980
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

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
* nvmlDeviceGetCurrPcieLinkGeneration = 5
* nvmlDeviceGetMaxPcieLinkGeneration = 5
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 5
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 4217
* nvmlDeviceGetPcieThroughput 1 = 8691
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
* field 197 = u64 1234567890 +4318208/s
* field 198 = u64 2345678901 +8899584/s

# NVLink: KiB, counts; scope is the link
* nvmlDeviceGetNvLinkState 0-17 = 1
* nvmlDeviceGetNvLinkVersion 0-17 = 6
* nvmlDeviceGetNvLinkRemoteDeviceType 0-17 = 2
* nvmlDeviceGetNvLinkErrorCounter 0-17 0 = 0
* nvmlDeviceGetNvLinkErrorCounter 0-17 1 = 0
* field 90 = u32 26562
* field 91 = u32 18
* field 138 0-17 = u64 1000000 +65536/s +$a*1000
* field 139 0-17 = u64 2000000 +65536/s +$a*1000
* field 140 0-17 = u64 1100000 +72090/s +$a*1000
* field 141 0-17 = u64 2200000 +72090/s +$a*1000
* field 138 4294967295 = u64 18153000 +1179648/s
* field 139 4294967295 = u64 36153000 +1179648/s
* field 140 4294967295 = u64 19953000 +1297620/s
* field 141 4294967295 = u64 39753000 +1297620/s
* field 161 0-17 = u64 0
* field 162 0-17 = u64 0
* field 163 0-17 = u64 0
* field 164 0-17 = u32 26562
* field 165 0-17 = u32 1
* field 166 0-17 = u32 6
* nvmlDeviceGetC2cModeInfoV = 0
* nvmlDeviceGetGpuFabricInfoV = "00000000-0000-0000-0000-000000000000" 0 0 3 0 0

# GPM: percent, MiB/s
* nvmlGpmQueryDeviceSupport = 1
* gpm 1 = 99.75
* gpm 2 = 96.5
* gpm 3 = 37.5
* gpm 4 = 14.25
* gpm 5 = 71.5
* gpm 6 = 0
* gpm 7 = 71.25
* gpm 8 = 0
* gpm 9 = 0
* gpm 10 = 22.5
* gpm 11 = 0
* gpm 12 = 3.5
* gpm 13 = 1.25
* gpm 20 = 4.125
* gpm 21 = 8.5
* gpm 60 = 0
* gpm 61 = 0

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0xFF1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 10291 memory 2690646016
process 0 pid 10293 memory 1616904192
process 0 pid 10309 memory 29605494784 sm 99 mem 7
system nvmlSystemGetProcessName 10291 = "/root/tools/memhog"
system nvmlSystemGetProcessName 10293 = "/root/tools/memhog"
system nvmlSystemGetProcessName 10309 = "./gpu_burn"
