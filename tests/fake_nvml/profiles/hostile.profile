# Three GPUs whose driver answers nonsense with success.
# Where the values come from: ../SOURCES.md.
devices = 3
system nvmlSystemGetDriverVersion = "590.00 \"beta\" \\ {x}"
system nvmlSystemGetNVMLVersion = "13.580.00"
system nvmlSystemGetCudaDriverVersion = 0

# identity: a name that is not UTF-8, one that breaks a label, two GPUs with one UUID
0 nvmlDeviceGetName = "NVIDIA \xff\xfe\x80 GPU"
1 nvmlDeviceGetName = "quote \" backslash \\ newline \n end"
2 nvmlDeviceGetName = ""
0 nvmlDeviceGetUUID = "GPU-00000bad-0000-4000-8000-000000000000"
1 nvmlDeviceGetUUID = "GPU-00000bad-0000-4000-8000-000000000001"
2 nvmlDeviceGetUUID = "GPU-00000bad-0000-4000-8000-000000000001"
* nvmlDeviceGetSerial = "\xc3\x28"
* nvmlDeviceGetVbiosVersion = "[N/A]"
* nvmlDeviceGetMinorNumber = 4294967295
* nvmlDeviceGetArchitecture = 0xffffffff
* nvmlDeviceGetCudaComputeCapability = -1 -1
* nvmlDeviceGetNumGpuCores = 4294967295
0 nvmlDeviceGetPciInfo_v3 = "ERR!"
1 nvmlDeviceGetPciInfo_v3 = "FFFFFFFF:FF:1F.0" 0xFFFFFFFF 0xFFFFFFFF

# use over a hundred percent, and far over
0 nvmlDeviceGetUtilizationRates = 4294967295 4294967295
1 nvmlDeviceGetUtilizationRates = 250 101
2 nvmlDeviceGetUtilizationRates = 2147483632 100
* nvmlDeviceGetEncoderUtilization = 4294967295 0
* samples 1 = u32 4294967295

# memory: more used than there is; nothing at all; all ones
0 nvmlDeviceGetMemoryInfo_v2 = 85520809984 0 18446744073709551615 18446744073709551615
1 nvmlDeviceGetMemoryInfo_v2 = 0 0 0 0
2 nvmlDeviceGetMemoryInfo_v2 = 18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615
* nvmlDeviceGetBAR1MemoryInfo = 18446744073709551615 18446744073709551615 18446744073709551615

# power mW, energy mJ
* nvmlDeviceGetPowerUsage = 4294967295
* nvmlDeviceGetEnforcedPowerLimit = 4294967295
* nvmlDeviceGetPowerManagementDefaultLimit = 0
* nvmlDeviceGetPowerManagementLimitConstraints = 4294967295 0
* nvmlDeviceGetTotalEnergyConsumption = 18446744073709551615
* field 83 = u64 9223372036854775794
* field 185 0 = u32 4294967295
* field 186 0 = u32 2147483632

# temperatures
0 nvmlDeviceGetTemperature 0 = 2147483632
1 nvmlDeviceGetTemperature 0 = 4294967295
2 nvmlDeviceGetTemperature 0 = 255
* nvmlDeviceGetMarginTemperature = 2147483632
* field 82 = u32 2147483632
* field 193 = i32 -2147483648
* field 194 = i64 9223372036854775794
* field 196 = f64 nan

# clocks
* nvmlDeviceGetClockInfo = 4294967295
* nvmlDeviceGetMaxClockInfo = 0
* nvmlDeviceGetPerformanceState = 32
* nvmlDeviceGetCurrentClocksEventReasons = 0xFFFFFFFFFFFFFFFF

# counters at the blank values of DCGM and of the driver
* field 74 = u64 9223372036854775792
* field 75 = u64 9223372036854775793
* field 76 = u64 9223372036854775794
* field 269 = u64 140000000000000
* field 270 = i64 -1
* field 271 = f64 140000000000000.0
* nvmlDeviceGetTotalEccErrors = 18446744073709551615
* nvmlDeviceGetMemoryErrorCounter = 9223372036854775794
* nvmlDeviceGetRemappedRows = 4294967295 4294967295 4294967295 4294967295
* nvmlDeviceGetRowRemapperHistogram = 4294967295 4294967295 4294967295 4294967295 4294967295
* field 142 = u32 4294967295
* field 230 = u32 4294967295
* nvmlDeviceGetPcieThroughput = 4294967295
* nvmlDeviceGetPcieReplayCounter = 4294967295
* nvmlDeviceGetCurrPcieLinkGeneration = 4294967295
* nvmlDeviceGetCurrPcieLinkWidth = 4294967295
* nvmlDeviceGetMaxPcieLinkGeneration = 0
* nvmlDeviceGetMaxPcieLinkWidth = 0
* field 94 = u32 4294967295
* field 197 = u64 18446744073709551615
* field 198 = u64 9223372036854775794
* nvmlDeviceGetNumFans = 4294967295
* nvmlDeviceGetFanSpeed = 4294967295
* nvmlDeviceGetPersistenceMode = 4294967295
* nvmlDeviceGetEccMode = 4294967295 4294967295
* nvmlDeviceGetMigMode = 4294967295 4294967295

# NVLink: a count of links without end, states that do not exist
* field 91 = u32 4294967295
* nvmlDeviceGetNvLinkState = 4294967295
* field 138 * = u64 9223372036854775794
* field 139 * = u64 18446744073709551615
* nvmlDeviceGetNvLinkErrorCounter = 18446744073709551615
* nvmlDeviceGetGpuFabricInfoV = "ffffffff-ffff-ffff-ffff-ffffffffffff" 4294967295 4294967295 4294967295 0xFFFFFFFF 255

# GPM
* nvmlGpmQueryDeviceSupport = 1
* gpm 1 = nan
* gpm 2 = -5.0
* gpm 3 = 105.0
* gpm 5 = 1e300
* gpm 7 = !999
* gpm 10 = inf
* gpm 20 = -1.0
* gpm 60 = 1e19

# processes: no memory told, no such process, one of them twice
* nvmlDeviceGetProcessUtilization = 1
* nvmlDeviceGetSupportedEventTypes = 0xFFFFFFFFFFFFFFFF
process 0 pid 4294967295 memory 18446744073709551615 sm 4294967295 mem 4294967295
process 0 pid 0 memory 0 sm 0 mem 0
process 0 pid 4321 memory 18446744073709551615 gi 4294967294 ci 7 sm 250 mem 12
process 0 pid 4322 memory 1073741824 sm 40 mem 12
process 0 pid 4322 memory 1073741824 sm 41 mem 12
