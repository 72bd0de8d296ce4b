# Four T4.
# Where the values come from: ../SOURCES.md.
devices = 4
system nvmlSystemGetDriverVersion = "550.163.01"
system nvmlSystemGetNVMLVersion = "12.550.163.01"
system nvmlSystemGetCudaDriverVersion = 12040

# identity
* nvmlDeviceGetName = "NVIDIA T4"
* nvmlDeviceGetUUID = "GPU-00000074-0000-4000-8000-00000000000$i"
* nvmlDeviceGetSerial = "042181908540$i"
* nvmlDeviceGetBoardPartNumber = "900-2G183-0000-000"
* nvmlDeviceGetVbiosVersion = "90.04.84.00.06"
* nvmlDeviceGetInforomImageVersion = "G183.0200.00.02"
* nvmlDeviceGetInforomVersion 0 = "1.1"
* nvmlDeviceGetInforomVersion 1 = "5.0"
* nvmlDeviceGetGspFirmwareVersion = "550.163.01"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 6
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 7 5
* nvmlDeviceGetNumGpuCores = 2560
* nvmlDeviceGetMemoryBusWidth = 256
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:3B:00.0" 0x1EB810DE 0x12A210DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:86:00.0" 0x1EB810DE 0x12A210DE
2 nvmlDeviceGetPciInfo_v3 = "00000000:AF:00.0" 0x1EB810DE 0x12A210DE
3 nvmlDeviceGetPciInfo_v3 = "00000000:D8:00.0" 0x1EB810DE 0x12A210DE

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 64 21
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* nvmlDeviceGetJpgUtilization = 0 167000
* nvmlDeviceGetOfaUtilization = 0 167000
* samples 1 = u32 64
* samples 2 = u32 21

# memory, bytes: total reserved free used; BAR1: total free used
* nvmlDeviceGetMemoryInfo_v2 = 17179869184 314572800 8432648192 8432648192
* nvmlDeviceGetBAR1MemoryInfo = 274877906944 274875809792 2097152

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 61250 +$i*250
* nvmlDeviceGetEnforcedPowerLimit = 70000
* nvmlDeviceGetPowerManagementLimit = 70000
* nvmlDeviceGetPowerManagementDefaultLimit = 70000
* nvmlDeviceGetPowerManagementLimitConstraints = 60000 70000
* nvmlDeviceGetTotalEnergyConsumption = 100000000 +61250/s
* field 83 = u64 100000000 +61250/s
* field 186 0 = u32 61250 +$i*250
* field 187 = u32 60000
* field 188 = u32 70000
* field 189 = u32 70000
* field 190 = u32 70000
* field 192 = u32 70000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 63 +$i
* nvmlDeviceGetTemperatureThreshold 0 = 96
* nvmlDeviceGetTemperatureThreshold 1 = 93
* nvmlDeviceGetTemperatureThreshold 3 = 89

# clocks, MHz: graphics, SM, memory, video
* nvmlDeviceGetClockInfo 0 = 1320
* nvmlDeviceGetClockInfo 1 = 1320
* nvmlDeviceGetClockInfo 2 = 5000
* nvmlDeviceGetClockInfo 3 = 1230
* nvmlDeviceGetMaxClockInfo 0 = 1590
* nvmlDeviceGetMaxClockInfo 1 = 1590
* nvmlDeviceGetMaxClockInfo 2 = 5001
* nvmlDeviceGetMaxClockInfo 3 = 1470
* nvmlDeviceGetMaxCustomerBoostClock 0 = 1590
* nvmlDeviceGetPerformanceState = 0
* nvmlDeviceGetCurrentClocksEventReasons = 0x4
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 987654321000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 987654321000
* field 75 = u64 0
* field 76 = u64 0

# memory errors: Turing counts by place and retires pages
* nvmlDeviceGetEccMode = 1 1
* nvmlDeviceGetTotalEccErrors 0 0 = 0
* nvmlDeviceGetTotalEccErrors 1 0 = 0
* nvmlDeviceGetTotalEccErrors 0 1 = 12
* nvmlDeviceGetTotalEccErrors 1 1 = 1
* nvmlDeviceGetMemoryErrorCounter 0 0 0-4 = 0
* nvmlDeviceGetMemoryErrorCounter 1 0 0-4 = 0
* nvmlDeviceGetMemoryErrorCounter 1 0 6 = 0
* nvmlDeviceGetMemoryErrorCounter 0 1 0-4 = 0
* nvmlDeviceGetMemoryErrorCounter 1 1 0-4 = 0
* nvmlDeviceGetMemoryErrorCounter 1 1 6 = 0
* nvmlDeviceGetMemoryErrorCounter 0 1 2 = 12
* nvmlDeviceGetMemoryErrorCounter 1 1 2 = 1
* nvmlDeviceGetRetiredPages 0 = none
* nvmlDeviceGetRetiredPages 1 = none
* nvmlDeviceGetRetiredPages_v2 0 = none
* nvmlDeviceGetRetiredPages_v2 1 = none
* nvmlDeviceGetRetiredPagesPendingStatus = 0
1 nvmlDeviceGetRetiredPages 0 = 0x1a2b3 0x1a2b4
1 nvmlDeviceGetRetiredPages 1 = 0x7ffee
1 nvmlDeviceGetRetiredPages_v2 0 = 0x1a2b3 1784000000 0x1a2b4 1784000100
1 nvmlDeviceGetRetiredPages_v2 1 = 0x7ffee 1784000200
1 nvmlDeviceGetRetiredPagesPendingStatus = 1
* field 29 = u64 0
* field 30 = u64 0
* field 31 = u32 0
1 field 29 = u64 2
1 field 30 = u64 1
1 field 31 = u32 1

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 3
* nvmlDeviceGetMaxPcieLinkGeneration = 3
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 3
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 54321
* nvmlDeviceGetPcieThroughput 1 = 98765
* nvmlDeviceGetPcieReplayCounter = 2
* field 94 = u32 2
* field 95 = u32 0
* nvmlGpmQueryDeviceSupport = 0

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 7000 memory 7340032000 sm 60 mem 21
process 1 pid 7001 memory 7340032000 sm 61 mem 21
process 2 pid 7002 memory 7340032000 sm 62 mem 21
process 3 pid 7003 memory 7340032000 sm 63 mem 21
