# A T4 and an A100 on a driver of 2021. Build with without=OLD_DRIVER.
# Where the values come from: ../SOURCES.md.
devices = 2
system nvmlSystemGetDriverVersion = "460.106.00"
system nvmlSystemGetNVMLVersion = "11.460.106.00"
system nvmlSystemGetCudaDriverVersion = 11020

# identity
* nvmlDeviceGetName = "Tesla T4"
* nvmlDeviceGetUUID = "GPU-00000460-0000-4000-8000-00000000000$i"
* nvmlDeviceGetSerial = "046000000000$i"
* nvmlDeviceGetBoardPartNumber = "900-2G183-0000-000"
* nvmlDeviceGetVbiosVersion = "90.04.84.00.06"
* nvmlDeviceGetInforomImageVersion = "G183.0200.00.02"
* nvmlDeviceGetInforomVersion 0 = "1.1"
* nvmlDeviceGetInforomVersion 1 = "5.0"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 6
* nvmlDeviceGetBrand = 2
* nvmlDeviceGetCudaComputeCapability = 7 5
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:3B:00.0" 0x1EB810DE 0x12A210DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:86:00.0" 0x20B010DE 0x134710DE
1 nvmlDeviceGetName = "A100-SXM4-40GB"
1 nvmlDeviceGetArchitecture = 7
1 nvmlDeviceGetCudaComputeCapability = 8 0

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
1 nvmlDeviceGetMigMode = 0 0

# use: percent, sampling period in microseconds
* nvmlDeviceGetUtilizationRates = 55 20
* nvmlDeviceGetEncoderUtilization = 0 167000
* nvmlDeviceGetDecoderUtilization = 0 167000
* samples 1 = u32 55

# memory, bytes: total free used; there is no reserved part yet
0 nvmlDeviceGetMemoryInfo = 15843721216 8101298176 7742423040
1 nvmlDeviceGetMemoryInfo = 42505273344 20000000000 22505273344
* nvmlDeviceGetBAR1MemoryInfo = 268435456 266338304 2097152

# power mW, energy mJ: no field for the average yet
* nvmlDeviceGetPowerUsage = 60500 +$i*250000
* nvmlDeviceGetEnforcedPowerLimit = 70000 +$i*330000
* nvmlDeviceGetPowerManagementLimit = 70000 +$i*330000
* nvmlDeviceGetPowerManagementDefaultLimit = 70000 +$i*330000
* nvmlDeviceGetTotalEnergyConsumption = 90000000 +60500/s
* field 83 = u64 90000000 +60500/s

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 61 +$i
* nvmlDeviceGetTemperatureThreshold 0 = 96
* nvmlDeviceGetTemperatureThreshold 1 = 93
* nvmlDeviceGetTemperatureThreshold 3 = 89
1 field 82 = u32 70

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
* nvmlDeviceGetCurrentClocksThrottleReasons = 0x4
* nvmlDeviceGetSupportedClocksThrottleReasons = 0x1FF

# nanoseconds spent below the wanted clock, by reason
* nvmlDeviceGetViolationStatus 0 = 1784016773000000 1234567000
* nvmlDeviceGetViolationStatus 1 = 1784016773000000 0
* nvmlDeviceGetViolationStatus 2 = 1784016773000000 0
* field 74 = u64 1234567000
* field 75 = u64 0
* field 76 = u64 0

# memory errors
* nvmlDeviceGetEccMode = 1 1
* nvmlDeviceGetTotalEccErrors 0 0 = 0
* nvmlDeviceGetTotalEccErrors 1 0 = 0
* nvmlDeviceGetTotalEccErrors 0 1 = 3
* nvmlDeviceGetTotalEccErrors 1 1 = 0
0 nvmlDeviceGetRetiredPages 0 = none
0 nvmlDeviceGetRetiredPages 1 = none
0 nvmlDeviceGetRetiredPagesPendingStatus = 0
1 nvmlDeviceGetRemappedRows = 0 0 0 0
1 nvmlDeviceGetRowRemapperHistogram = 640 0 0 0 0

# PCIe: KB/s, bytes, counts
* nvmlDeviceGetCurrPcieLinkGeneration = 3
* nvmlDeviceGetMaxPcieLinkGeneration = 3
* nvmlDeviceGetGpuMaxPcieLinkGeneration = 3
* nvmlDeviceGetCurrPcieLinkWidth = 16
* nvmlDeviceGetMaxPcieLinkWidth = 16
* nvmlDeviceGetPcieThroughput 0 = 54321
* nvmlDeviceGetPcieThroughput 1 = 98765
* nvmlDeviceGetPcieReplayCounter = 0
* field 94 = u32 0
* field 95 = u32 0

# NVLink: KiB, counts; scope is the link
1 nvmlDeviceGetNvLinkState 0-11 = 1
1 nvmlDeviceGetNvLinkVersion 0-11 = 4
1 nvmlDeviceGetNvLinkRemoteDeviceType 0-11 = 2
1 nvmlDeviceGetNvLinkErrorCounter 0-11 0 = 0
1 nvmlDeviceGetNvLinkErrorCounter 0-11 1 = 0
1 nvmlDeviceGetNvLinkErrorCounter 0-11 2 = 0
1 nvmlDeviceGetNvLinkErrorCounter 0-11 3 = 0
1 field 90 = u32 25781
1 field 91 = u32 12

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
process 0 pid 7460 memory 7516192768 sm 54 mem 20
process 1 pid 7461 memory 20000000000 sm 53 mem 20
