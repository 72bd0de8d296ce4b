# A T4 beside an H100: what the first GPU can do says nothing of the second.
# Where the values come from: ../SOURCES.md.
devices = 2
system nvmlSystemGetDriverVersion = "550.163.01"
system nvmlSystemGetNVMLVersion = "12.550.163.01"
system nvmlSystemGetCudaDriverVersion = 12040

# identity
* nvmlDeviceGetName = "NVIDIA T4"
* nvmlDeviceGetUUID = "GPU-0000031d-0000-4000-8000-00000000000$i"
* nvmlDeviceGetSerial = "031d0000000$i"
* nvmlDeviceGetVbiosVersion = "90.04.84.00.06"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 6
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 7 5
* nvmlDeviceGetNumGpuCores = 2560
* nvmlDeviceGetMemoryBusWidth = 256
* nvmlDeviceGetMultiGpuBoard = 0
0 nvmlDeviceGetPciInfo_v3 = "00000000:3B:00.0" 0x1EB810DE 0x12A210DE
1 nvmlDeviceGetPciInfo_v3 = "00000000:86:00.0" 0x233010DE 0x16C110DE
1 nvmlDeviceGetName = "NVIDIA H100 80GB HBM3"
1 nvmlDeviceGetArchitecture = 9
1 nvmlDeviceGetCudaComputeCapability = 9 0
1 nvmlDeviceGetNumGpuCores = 16896
1 nvmlDeviceGetMemoryBusWidth = 5120

# modes
* nvmlDeviceGetPersistenceMode = 1
* nvmlDeviceGetComputeMode = 0
* nvmlDeviceGetVirtualizationMode = 0
* nvmlDeviceGetDisplayActive = 0
* nvmlDeviceGetAccountingMode = 0
1 nvmlDeviceGetMigMode = 0 0

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
1 nvmlDeviceGetMemoryInfo_v2 = 85520809984 502267904 64238911488 20779630592

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 61250
* nvmlDeviceGetEnforcedPowerLimit = 70000
* nvmlDeviceGetPowerManagementLimit = 70000
* nvmlDeviceGetPowerManagementDefaultLimit = 70000
* nvmlDeviceGetPowerManagementLimitConstraints = 60000 70000
* nvmlDeviceGetTotalEnergyConsumption = 100000000 +61250/s
* field 83 = u64 100000000 +61250/s
* field 186 0 = u32 61250
* field 187 = u32 60000
* field 188 = u32 70000
* field 189 = u32 70000
* field 190 = u32 70000
* field 192 = u32 70000
1 nvmlDeviceGetPowerUsage = 500000
1 nvmlDeviceGetEnforcedPowerLimit = 700000
1 field 185 0 = u32 500000
1 field 186 0 = u32 501000

# temperatures, Celsius; margins count down to a limit
* nvmlDeviceGetTemperature 0 = 63 +$i
* nvmlDeviceGetTemperatureThreshold 0 = 96
* nvmlDeviceGetTemperatureThreshold 1 = 93
* nvmlDeviceGetTemperatureThreshold 3 = 89
1 field 82 = u32 60
1 nvmlDeviceGetMarginTemperature = 20

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
* nvmlDeviceGetCurrentClocksEventReasons = 0
* nvmlDeviceGetSupportedClocksEventReasons = 0x1FF
1 nvmlDeviceGetClockInfo 0-1 = 1980
1 nvmlDeviceGetMaxClockInfo 0-1 = 1980

# NVLink: KiB, counts; scope is the link
1 nvmlDeviceGetNvLinkState 0-17 = 1
1 nvmlDeviceGetNvLinkVersion 0-17 = 6
1 nvmlDeviceGetNvLinkRemoteDeviceType 0-17 = 2
1 nvmlDeviceGetNvLinkErrorCounter 0-17 0 = 0
1 nvmlDeviceGetNvLinkErrorCounter 0-17 1 = 0
1 field 90 = u32 26562
1 field 91 = u32 18
1 field 138 0-17 = u64 1000000 +65536/s +$a*1000
1 field 139 0-17 = u64 2000000 +65536/s +$a*1000
1 field 140 0-17 = u64 1100000 +72090/s +$a*1000
1 field 141 0-17 = u64 2200000 +72090/s +$a*1000
1 field 138 4294967295 = u64 18153000 +1179648/s
1 field 139 4294967295 = u64 36153000 +1179648/s
1 field 140 4294967295 = u64 19953000 +1297620/s
1 field 141 4294967295 = u64 39753000 +1297620/s
1 field 161 0-17 = u64 0
1 field 162 0-17 = u64 0
1 field 163 0-17 = u64 0
1 field 164 0-17 = u32 26562
1 field 165 0-17 = u32 1
1 field 166 0-17 = u32 6

# GPM: only the second
0 nvmlGpmQueryDeviceSupport = 0
1 nvmlGpmQueryDeviceSupport = 1
1 gpm 1 = 90.5
1 gpm 2 = 85.25
1 gpm 3 = 33.5
1 gpm 5 = 44.75
1 gpm 7 = 44.5
1 gpm 10 = 20.25

# events and processes
* nvmlDeviceGetSupportedEventTypes = 0x1F
* nvmlDeviceGetProcessUtilization = 1
