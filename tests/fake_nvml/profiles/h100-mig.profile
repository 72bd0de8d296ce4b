# One H100 cut into four instances, as a real machine answered.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "590.48.01"
system nvmlSystemGetNVMLVersion = "13.590.48.01"
system nvmlSystemGetCudaDriverVersion = 13010

# identity
* nvmlDeviceGetName = "NVIDIA H100 80GB HBM3"
* nvmlDeviceGetUUID = "GPU-00000101-0000-4000-8000-000000000000"
* nvmlDeviceGetSerial = "1650000000101"
* nvmlDeviceGetBoardPartNumber = "692-2G520-0200-000"
* nvmlDeviceGetVbiosVersion = "96.00.A5.00.01"
* nvmlDeviceGetInforomImageVersion = "G520.0200.00.05"
* nvmlDeviceGetInforomVersion 0 = "2.1"
* nvmlDeviceGetInforomVersion 1 = "7.16"
* nvmlDeviceGetGspFirmwareVersion = "590.48.01"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 9
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 9 0
* nvmlDeviceGetNumGpuCores = 16896
* nvmlDeviceGetMemoryBusWidth = 5120
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:00:09.0" 0x233010DE 0x16C110DE
* nvmlDeviceGetModuleId = 7

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 1 1
* nvmlDeviceGetVirtualizationMode = 1
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
* nvmlDeviceGetDisplayMode = !26
* nvmlDeviceGetApplicationsClock = !26
* nvmlDeviceGetDefaultApplicationsClock = !26

# No utilization, no process utilization, no NVLink query, no remapped rows in MIG mode.
# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 85520809984 502267904 73354182656 11665408000
* nvmlDeviceGetBAR1MemoryInfo = 137438953472 125772496896 11666456576

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 433780
* nvmlDeviceGetEnforcedPowerLimit = 700000
* nvmlDeviceGetPowerManagementLimit = 700000
* nvmlDeviceGetPowerManagementDefaultLimit = 700000
* nvmlDeviceGetPowerManagementLimitConstraints = 200000 700000
* nvmlDeviceGetTotalEnergyConsumption = 7654321000 +433780/s
* field 83 = u64 7654321000 +433780/s
* field 185 0 = u32 433780
* field 186 0 = u32 447350
* field 187 = u32 200000
* field 188 = u32 700000
* field 189 = u32 700000
* field 190 = u32 700000
* field 192 = u32 700000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 53
* nvmlDeviceGetMarginTemperature = 24
* field 82 = u32 59
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
* nvmlDeviceGetRowRemapperHistogram = 2560 0 0 0 0
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
* nvmlDeviceGetPcieThroughput 0 = 9139
* nvmlDeviceGetPcieThroughput 1 = 19191
* nvmlDeviceGetPcieReplayCounter = 9
* field 94 = u32 9
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
* field 197 = u64 1234567890 +9358336/s
* field 198 = u64 2345678901 +19651584/s
* nvmlDeviceGetC2cModeInfoV = 0
* nvmlDeviceGetGpuFabricInfoV = "00000000-0000-0000-0000-000000000000" 0 0 3 0 0

# GPM: percent; by GPU instance
* nvmlGpmQueryDeviceSupport = 1
0 gpm 1 mig 2 = 98.5
0 gpm 2 mig 2 = 94.25
0 gpm 3 mig 2 = 40.5
0 gpm 5 mig 2 = 61.25
0 gpm 7 mig 2 = 61.0
0 gpm 10 mig 2 = 35.5
0 gpm 1 mig 3 = 0
0 gpm 2 mig 3 = 0
0 gpm 3 mig 3 = 0
0 gpm 5 mig 3 = 0
0 gpm 7 mig 3 = 0
0 gpm 10 mig 3 = 0
0 gpm 1 mig 9 = 0
0 gpm 2 mig 9 = 0
0 gpm 3 mig 9 = 0
0 gpm 5 mig 9 = 0
0 gpm 7 mig 9 = 0
0 gpm 10 mig 9 = 0
0 gpm 1 mig 10 = 0
0 gpm 2 mig 10 = 0
0 gpm 3 mig 10 = 0
0 gpm 5 mig 10 = 0
0 gpm 7 mig 10 = 0
0 gpm 10 mig 10 = 0

# instances: GPU instance, compute instance; attributes in the order of nvmlDeviceAttributes_t
mig 0 2 0 profile "3g.40gb" uuid "MIG-00000001-0000-4000-8000-000000000002" memory 42412802048 reserved 0 used 11629756416 free 30783045632 attributes 60 3 3 0 3 0 3 3 40448
mig 0 3 0 profile "2g.20gb" uuid "MIG-00000001-0000-4000-8000-000000000003" memory 21072183296 reserved 0 used 17825792 free 21055406080 attributes 32 2 2 0 2 0 2 2 20096
mig 0 9 0 profile "1g.10gb" uuid "MIG-00000001-0000-4000-8000-000000000009" memory 10468982784 reserved 0 used 9437184 free 10460594176 attributes 16 1 1 0 1 0 1 1 9984
mig 0 10 0 profile "1g.10gb" uuid "MIG-00000001-0000-4000-8000-000000000010" memory 10468982784 reserved 0 used 9437184 free 10460594176 attributes 16 1 1 0 1 0 1 1 9984

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0xFF1F
process 0 pid 21180 memory 2407530496 gi 2 ci 0
process 0 pid 21181 memory 1333788672 gi 2 ci 0
process 0 pid 21198 memory 7847542784 gi 2 ci 0
system nvmlSystemGetProcessName 21180 = "/root/tools/memhog"
system nvmlSystemGetProcessName 21181 = "/root/tools/memhog"
system nvmlSystemGetProcessName 21198 = "./gpu_burn"
