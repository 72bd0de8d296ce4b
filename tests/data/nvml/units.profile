# Twelve made-up GPUs on which every number differs from its neighbours, so that a reading which is
# scaled wrongly, asked for wrongly or put in the wrong place shows. See SOURCES.md.
#   0 everything that Hopper has     1 NVLink 5, chip-to-chip links, no byte counters for PCIe
#   2 an old driver's ways           3 split into instances
#   4-10 one question each: throttle reasons, fabric, fans, architectures
#   11 times of throttling, whose numbers depend on the driver
devices = 12
system nvmlSystemGetDriverVersion = "590.48.01"
system nvmlSystemGetNVMLVersion = "13.590.48.02"
system nvmlSystemGetCudaDriverVersion = 13010

# identity
* nvmlDeviceGetUUID = "GPU-u$i"
0 nvmlDeviceGetName = "NVIDIA H100 80GB HBM3"
3 nvmlDeviceGetName = "A split GPU"
8 nvmlDeviceGetName = "A split GPU"
0 nvmlDeviceGetSerial = "1653821083900"
0 nvmlDeviceGetVbiosVersion = "96.00.A5.00.01"
0 nvmlDeviceGetBoardPartNumber = "692-2G520-0200-000"
0 nvmlDeviceGetPciInfo_v3 = "00000000:1A:00.0" 0x233010DE 0x16C110DE
0 nvmlDeviceGetCudaComputeCapability = 9 0
0 nvmlDeviceGetNumGpuCores = 16896
1 nvmlDeviceGetCudaComputeCapability = 10 3
2 nvmlDeviceGetCudaComputeCapability = 7 5
5 nvmlDeviceGetCudaComputeCapability = 8 1
6 nvmlDeviceGetCudaComputeCapability = 8 0
0 nvmlDeviceGetArchitecture = 9
1 nvmlDeviceGetArchitecture = 10
2 nvmlDeviceGetArchitecture = 6
4 nvmlDeviceGetArchitecture = 8
5 nvmlDeviceGetArchitecture = 7
6 nvmlDeviceGetArchitecture = 5
7 nvmlDeviceGetArchitecture = 4
8 nvmlDeviceGetArchitecture = 3
9 nvmlDeviceGetArchitecture = 2
10 nvmlDeviceGetArchitecture = 13
0 nvmlDeviceGetVirtualizationMode = 0
1 nvmlDeviceGetVirtualizationMode = 1
4 nvmlDeviceGetVirtualizationMode = 2
5 nvmlDeviceGetVirtualizationMode = 3
6 nvmlDeviceGetVirtualizationMode = 4

# use: percent; encoder and its like also tell a sampling period in microseconds
0 nvmlDeviceGetUtilizationRates = 61 11
1 nvmlDeviceGetUtilizationRates = 47 13
0 samples 1 = u32 37
0 nvmlDeviceGetEncoderUtilization = 12 167001
0 nvmlDeviceGetDecoderUtilization = 23 167002
0 nvmlDeviceGetJpgUtilization = 34 167003
0 nvmlDeviceGetOfaUtilization = 45 167004

# memory, bytes: total reserved free used, the older one total free used; BAR1: total free used
0 nvmlDeviceGetMemoryInfo_v2 = 85520809984 502267904 64238911488 20779630592
0 nvmlDeviceGetMemoryInfo = 85520809985 64238911489 21281898497
2 nvmlDeviceGetMemoryInfo_v2 = !13
2 nvmlDeviceGetMemoryInfo = 15843721216 8101298176 7742423040
0 nvmlDeviceGetBAR1MemoryInfo = 137438953472 116656177152 20782776320

# power mW, energy mJ
0 field 185 = u32 627320
0 field 185 1 = u32 731450
0 field 185 2 = u32 85830
0 field 186 = u32 625680
3 field 185 = u32 415370
0 field 186 1 = u32 728190
0 field 186 2 = u32 84990
0 nvmlDeviceGetPowerUsage = 626110
2 nvmlDeviceGetPowerUsage = 61250
5 nvmlDeviceGetPowerUsage = 250750
6 nvmlDeviceGetPowerUsage = 310550
7 nvmlDeviceGetPowerUsage = 260250
0 nvmlDeviceGetEnforcedPowerLimit = 650000
0 nvmlDeviceGetPowerManagementLimit = 660000
0 nvmlDeviceGetPowerManagementDefaultLimit = 700000
0 nvmlDeviceGetPowerManagementLimitConstraints = 200000 710000
0 nvmlDeviceGetTotalEnergyConsumption = 9876543210
0 field 83 = u64 9876500000
2 field 83 = u64 123456789

# temperatures, Celsius; margins count down to a limit
0 nvmlDeviceGetTemperatureV 0 = 64
0 nvmlDeviceGetTemperatureV 1 = 14
0 nvmlDeviceGetTemperature 0 = 59
2 nvmlDeviceGetTemperatureV = !13
2 nvmlDeviceGetTemperature 0 = 71
2 nvmlDeviceGetTemperature 1 = 15
0 nvmlDeviceGetMarginTemperature = 26
1 nvmlDeviceGetMarginTemperature = -4
0 field 82 = u32 54
2 field 82 = u32 0
0 nvmlDeviceGetTemperatureThreshold 0 = 92
0 nvmlDeviceGetTemperatureThreshold 1 = 89
0 nvmlDeviceGetTemperatureThreshold 2 = 95
0 nvmlDeviceGetTemperatureThreshold 3 = 87
0 field 193 = i32 -8
0 field 194 = i32 -3
0 field 195 = i32 -5
0 field 196 = i32 -1

# fans, percent
2 nvmlDeviceGetNumFans = 2
2 nvmlDeviceGetFanSpeed = 29
2 nvmlDeviceGetFanSpeed_v2 0 = 38
2 nvmlDeviceGetFanSpeed_v2 1 = 43
6 nvmlDeviceGetFanSpeed = 57

# clocks, MHz: graphics, SM, memory, video
0 nvmlDeviceGetClockInfo 0 = 1755
0 nvmlDeviceGetClockInfo 1 = 1740
0 nvmlDeviceGetClockInfo 2 = 2619
0 nvmlDeviceGetClockInfo 3 = 1545
0 nvmlDeviceGetMaxClockInfo 0 = 1995
0 nvmlDeviceGetMaxClockInfo 1 = 1980
0 nvmlDeviceGetMaxClockInfo 2 = 2625
0 nvmlDeviceGetMaxClockInfo 3 = 1965
0 nvmlDeviceGetMaxCustomerBoostClock 1 = 1985
0 nvmlDeviceGetPerformanceState = 7

# Throttle reasons: nine bits spread over four GPUs so that each has a pattern of its own; once for
# either name of the function.
0 nvmlDeviceGetCurrentClocksEventReasons = 0x155
1 nvmlDeviceGetCurrentClocksEventReasons = 0x066
3 nvmlDeviceGetCurrentClocksEventReasons = 0x078
4 nvmlDeviceGetCurrentClocksEventReasons = 0x180
0 nvmlDeviceGetCurrentClocksThrottleReasons = 0x0AA
0 nvmlDeviceGetSupportedClocksEventReasons = 0x1EE
2 nvmlDeviceGetCurrentClocksEventReasons = !13
5 nvmlDeviceGetCurrentClocksEventReasons = !13
6 nvmlDeviceGetCurrentClocksEventReasons = !13
7 nvmlDeviceGetCurrentClocksEventReasons = !13
2 nvmlDeviceGetCurrentClocksThrottleReasons = 0x155
5 nvmlDeviceGetCurrentClocksThrottleReasons = 0x066
6 nvmlDeviceGetCurrentClocksThrottleReasons = 0x078
7 nvmlDeviceGetCurrentClocksThrottleReasons = 0x180

# nanoseconds spent below the wanted clock, by reason
0 field 74 = u64 3000000074
0 field 75 = u64 4000000075
0 field 76 = u64 5000000076
0 field 77 = u64 6000000077
0 field 78 = u64 7000000078
0 field 79 = u64 8000000079
0 field 80 = u64 9000000080
0 field 269 = u64 10000000269
0 field 270 = u64 11000000270
0 field 271 = u64 12000000271
11 field 75 = u64 16000000075
11 field 251 = u64 17000000251
11 field 252 = u64 18000000252
11 field 253 = u64 19000000253
11 field 269 = u64 20000000269
11 field 270 = u64 21000000270
11 field 271 = u64 22000000271
2 field 74 = u64 13000000074
2 field 75 = u64 14000000075
2 field 76 = u64 15000000076

# memory errors: kind, counter, location
0 nvmlDeviceGetEccMode = 1 0
1 nvmlDeviceGetEccMode = 0 1
0 nvmlDeviceGetTotalEccErrors 0 0 = 300
0 nvmlDeviceGetTotalEccErrors 0 1 = 301
0 nvmlDeviceGetTotalEccErrors 1 0 = 310
0 nvmlDeviceGetTotalEccErrors 1 1 = 311
0 nvmlDeviceGetMemoryErrorCounter 0 0 * = 4000 +$a
0 nvmlDeviceGetMemoryErrorCounter 0 1 * = 4010 +$a
0 nvmlDeviceGetMemoryErrorCounter 1 0 * = 4100 +$a
0 nvmlDeviceGetMemoryErrorCounter 1 1 * = 4110 +$a
0 nvmlDeviceGetSramEccErrorStatus = 21 22 23 24 25 26 27 28 29 30 31 1
0 nvmlDeviceGetRemappedRows = 111 112 1 0
1 nvmlDeviceGetRemappedRows = 113 114 0 1
0 nvmlDeviceGetRowRemapperHistogram = 2551 252 253 254 255
4 nvmlDeviceGetRowRemapperHistogram = 2561 262 263 264 265
2 field 29 = u64 17
2 field 30 = u64 15
2 field 31 = u32 1
0 field 230 = u32 4

# PCIe: KB/s, bytes, counts
0 nvmlDeviceGetCurrPcieLinkGeneration = 4
0 nvmlDeviceGetMaxPcieLinkGeneration = 5
0 nvmlDeviceGetGpuMaxPcieLinkGeneration = 6
0 nvmlDeviceGetCurrPcieLinkWidth = 8
0 nvmlDeviceGetMaxPcieLinkWidth = 16
0 nvmlDeviceGetPcieReplayCounter = 27
0 field 94 = u32 28
0 field 95 = u32 25
2 field 94 = u32 31
2 field 95 = u32 32
2 nvmlDeviceGetPcieThroughput 0 = 54321
2 nvmlDeviceGetPcieThroughput 1 = 98765
0 field 169 = u32 2169
0 field 173 = u32 2173
0 field 174 = u32 2174
0 field 175 = u32 2175
0 field 176 = u32 2176
0 field 177 = u32 2177
0 field 178 = u32 2178
0 field 179 = u32 2179
0 field 180 = u32 2180
0 field 181 = u32 2181
0 field 182 = u32 2182
0 field 183 = u32 2183
0 field 197 = u64 123456789012
0 field 198 = u64 345678901234
1 field 197 = u32 4000000197
1 field 198 = u32 4000000198

# NVLink 4: KiB and counts by link; the driver's own count is one less than the links that answer
0 field 91 = u32 3
0 nvmlDeviceGetNvLinkState 0-3 = 1
0 nvmlDeviceGetNvLinkState 1 = 0
0 field 138 0-3 = u64 1000138 +$a*10
0 field 139 0-3 = u64 2000139 +$a*10
0 field 140 0-3 = u64 3000140 +$a*10
0 field 161 0-3 = u64 161000 +$a
0 field 162 0-3 = u64 162000 +$a
0 field 163 0-3 = u64 163000 +$a
0 field 164 0-3 = u32 26562 +$a
# NVLink 5: bytes and counts by link, bytes also of all links together
1 field 91 = u32 2
1 nvmlDeviceGetNvLinkState 0-1 = 1
1 field 202 0-1 = u64 640000000202 +$a*10
1 field 204 0-1 = u64 768000000204 +$a*10
1 field 202 4294967295 = u64 1280000000777
1 field 204 4294967295 = u64 1536000000888
1 field 162 0-1 = u64 162500
1 field 206 0-1 = u64 206000 +$a
1 field 207 0-1 = u64 207000 +$a
1 field 208 0-1 = u64 208000 +$a
1 field 209 0-1 = u64 209000 +$a
1 field 210 0-1 = u64 210000 +$a
1 field 211 0-1 = u64 211000 +$a
1 field 212 0-1 = u64 212000 +$a
1 field 213 0-1 = u64 213000 +$a
1 field 214 0-1 = u64 214000 +$a
1 field 215 0-1 = u64 215000 +$a
1 field 216 0-1 = f64 0.000216
1 field 219 0-1 = u64 219000 +$a
1 field 221 0-1 = u64 221000 +$a
# Volta and Ampere: counts by link and kind, from a function; a driver that does not count the links
2 nvmlDeviceGetNvLinkState 0-1 = 1
2 nvmlDeviceGetNvLinkErrorCounter 0-1 0 = 50100
2 nvmlDeviceGetNvLinkErrorCounter 0-1 1 = 50210
2 nvmlDeviceGetNvLinkErrorCounter 0-1 2 = 50320
2 nvmlDeviceGetNvLinkErrorCounter 0-1 3 = 50430
2 nvmlDeviceGetNvLinkErrorCounter 0-1 4 = 50540
2 nvmlDeviceGetNvLinkErrorCounter 1 0 = 50101
2 nvmlDeviceGetNvLinkErrorCounter 1 1 = 50211
2 nvmlDeviceGetNvLinkErrorCounter 1 2 = 50321
2 nvmlDeviceGetNvLinkErrorCounter 1 3 = 50431
2 nvmlDeviceGetNvLinkErrorCounter 1 4 = 50541
# links whose bytes only GPM tells
4 field 91 = u32 2
4 nvmlDeviceGetNvLinkState 0-1 = 1

# C2C: count, status, MB/s, errors
1 field 170 = u32 3
1 field 171 0-2 = u32 1
1 field 171 1 = u32 0
1 field 172 0-2 = u32 45000 +$a*500
1 field 231 0-2 = u64 23100 +$a
1 field 232 0-2 = u64 23200 +$a
1 field 233 0-2 = u64 23300 +$a

# fabric: cluster, status, clique, state, health mask, summary. Two bits for each fault, four for
# the configuration (1 is right).
0 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x1AA 1
1 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x1AA 2
2 nvmlDeviceGetGpuFabricInfoV = !13
2 nvmlDeviceGetGpuFabricInfo = "c0ffee00-0000-0000-0000-000000000000" 0 6 3
3 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x1A9 1
4 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x1A6 1
5 nvmlDeviceGetGpuFabricInfoV = !13
5 nvmlDeviceGetGpuFabricInfo = "c0ffee00-0000-0000-0000-000000000000" 9 6 3
6 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x19A 1
7 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x16A 1
8 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x3AA 1
9 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 9 5 3 0x1AA 1
10 nvmlDeviceGetGpuFabricInfoV = "c0ffee00-0000-0000-0000-000000000000" 0 5 3 0x1AA 1
4 fabric_version = 2
7 fabric_version = 2
9 fabric_version = 2
10 fabric_version = 2

# modes
0 nvmlDeviceGetPersistenceMode = 1
0 nvmlDeviceGetComputeMode = 3
0 nvmlDeviceGetMigMode = 0 1
3 nvmlDeviceGetMigMode = 1 0
8 nvmlDeviceGetMigMode = 1 0

# GPM: percent, MiB/s; of the GPU, of instances
0 nvmlGpmQueryDeviceSupport = 1
0 gpm 1 = 98.5
0 gpm 2 = 91.25
0 gpm 3 = 44.75
0 gpm 4 = 9.5
0 gpm 5 = 58.25
0 gpm 6 = 0.75
0 gpm 7 = 57.125
0 gpm 8 = 3.375
0 gpm 9 = 1.625
0 gpm 10 = 52.5
0 gpm 11 = 2.875
0 gpm 12 = 6.25
0 gpm 13 = 4.125
0 gpm 14 = 7.25
0 gpm 20 = 1111.5
0 gpm 21 = 2222.5
0 gpm 60 = 3333.5
0 gpm 61 = 4444.5
1 nvmlGpmQueryDeviceSupport = 1
1 gpm 19 = 1020.5
1 gpm 20 = 1171.875
1 gpm 21 = 3320.3125
1 gpm 22 = 3020.5
4 nvmlGpmQueryDeviceSupport = 1
4 gpm 59 = 18400.5
4 gpm 60 = 18432.25
4 gpm 61 = 18440.5
4 gpm 62 = 18450.5
3 nvmlGpmQueryDeviceSupport = 1
3 gpm 1 mig 2 = 97.5
3 gpm 2 mig 2 = 88.25
3 gpm 3 mig 2 = 40.75
3 gpm 4 mig 2 = 8.5
3 gpm 5 mig 2 = 55.25
3 gpm 6 mig 2 = 1.75
3 gpm 9 mig 2 = 2.25
3 gpm 10 mig 2 = 49.5
3 gpm 11 mig 2 = 3.5
3 gpm 1 mig 5 = 27.5
3 gpm 2 mig 5 = 18.25
3 gpm 3 mig 5 = 10.75
3 gpm 5 mig 5 = 15.25
3 gpm 10 mig 5 = 19.5

# instances; GPU 8's driver has only the older function for memory, which counts the reserve as used
8 nvmlDeviceGetMemoryInfo_v2 = !13
8 nvmlDeviceGetMemoryInfo = 42412802049 24587009024 17825793025
mig 3 2 0 profile "3g.40gb" uuid "MIG-u2" memory 42412802048 reserved 1048577 used 11629756416 free 30781997055
mig 3 5 1 profile "1g.10gb" uuid "MIG-u5" memory 10468982784 reserved 1048578 used 9437184 free 10458497022
mig 8 7 0 profile "2g.20gb" uuid "MIG-u7" memory 21072183296 reserved 1048576 used 17825792 free 21053308928

# processes: compute, graphics, MPS; shares in percent
0 nvmlDeviceGetProcessUtilization = 1
process 0 pid 4101 memory 2690646016 sm 63 mem 10 enc 5 dec 6
process 0 pid 4102 memory 1616904192
process 0 pid 4103 memory 52428800 type G
process 0 pid 4104 memory 734003200 type M
process 3 pid 5101 memory 7847542784 gi 2 ci 0
