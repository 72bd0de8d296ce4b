# Two A100 40 GB, one cut into seven instances and one into three.
# Where the values come from: ../SOURCES.md.
devices = 2
system nvmlSystemGetDriverVersion = "550.163.01"
system nvmlSystemGetNVMLVersion = "12.550.163.01"
system nvmlSystemGetCudaDriverVersion = 12040

# identity
* nvmlDeviceGetName = "NVIDIA A100-SXM4-40GB"
* nvmlDeviceGetUUID = "GPU-12345678-1234-4234-8234-1234567800a$i"
* nvmlDeviceGetSerial = "13248210838a$i"
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

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetMigMode = 1 1
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 42949672960 611319808 40000000000 2338353152
* nvmlDeviceGetBAR1MemoryInfo = 68719476736 68717379584 2097152

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 121500 +$i*250
* nvmlDeviceGetEnforcedPowerLimit = 400000
* nvmlDeviceGetPowerManagementLimit = 400000
* nvmlDeviceGetPowerManagementDefaultLimit = 400000
* nvmlDeviceGetPowerManagementLimitConstraints = 100000 400000
* nvmlDeviceGetTotalEnergyConsumption = 4000000000 +121500/s
* field 83 = u64 4000000000 +121500/s
* field 185 0 = u32 121500 +$i*250
* field 186 0 = u32 119750 +$i*250
* field 187 = u32 100000
* field 188 = u32 400000
* field 189 = u32 400000
* field 190 = u32 400000
* field 192 = u32 400000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 41 +$i
* nvmlDeviceGetTemperatureThreshold 0 = 92
* nvmlDeviceGetTemperatureThreshold 1 = 87
* nvmlDeviceGetTemperatureThreshold 2 = 95
* nvmlDeviceGetTemperatureThreshold 3 = 83
* field 82 = u32 45 +$i

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1410
* nvmlDeviceGetClockInfo 1 = 1410
* nvmlDeviceGetClockInfo 2 = 1215
* nvmlDeviceGetClockInfo 3 = 1275
* nvmlDeviceGetMaxClockInfo 0 = 1410
* nvmlDeviceGetMaxClockInfo 1 = 1410
* nvmlDeviceGetMaxClockInfo 2 = 1215
* nvmlDeviceGetMaxClockInfo 3 = 1290
* nvmlDeviceGetMaxCustomerBoostClock 0 = 1410
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
* nvmlDeviceGetPcieThroughput 0 = 1024
* nvmlDeviceGetPcieThroughput 1 = 2048
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
* nvmlGpmQueryDeviceSupport = 0

# instances: GPU instance, compute instance; attributes in the order of nvmlDeviceAttributes_t
mig 0 7 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000007" memory 5100273664 reserved 0 used 3145728 free 5097127936 attributes 14 1 0 0 0 0 1 1 4864
mig 0 8 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000008" memory 5100273664 reserved 0 used 13631488 free 5086642176 attributes 14 1 0 0 0 0 1 1 4864
mig 0 9 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000009" memory 5100273664 reserved 0 used 24117248 free 5076156416 attributes 14 1 0 0 0 0 1 1 4864
mig 0 10 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000010" memory 5100273664 reserved 0 used 34603008 free 5065670656 attributes 14 1 0 0 0 0 1 1 4864
mig 0 11 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000011" memory 5100273664 reserved 0 used 45088768 free 5055184896 attributes 14 1 0 0 0 0 1 1 4864
mig 0 12 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000012" memory 5100273664 reserved 0 used 55574528 free 5044699136 attributes 14 1 0 0 0 0 1 1 4864
mig 0 13 0 profile "1g.5gb" uuid "MIG-0000000a-0000-4000-8000-000000000013" memory 5100273664 reserved 0 used 66060288 free 5034213376 attributes 14 1 0 0 0 0 1 1 4864
mig 1 2 0 profile "3g.20gb" uuid "MIG-0000000b-0000-4000-8000-000000000002" memory 20937965568 reserved 0 used 1073741824 free 19864223744 attributes 42 3 2 0 0 0 3 3 19968
mig 1 3 0 profile "2g.10gb" uuid "MIG-0000000b-0000-4000-8000-000000000003" memory 10334765056 reserved 0 used 536870912 free 9797894144 attributes 28 2 1 0 0 0 2 2 9856
mig 1 9 0 profile "1g.5gb" uuid "MIG-0000000b-0000-4000-8000-000000000009" memory 5100273664 reserved 0 used 268435456 free 4831838208 attributes 14 1 0 0 0 0 1 1 4864

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
process 0 pid 5007 memory 10485760 gi 8 ci 0
process 1 pid 5102 memory 1073741824 gi 2 ci 0
process 1 pid 5103 memory 536870912 gi 3 ci 0
