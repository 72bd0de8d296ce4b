# One Jetson Thor: its utilization is always told as 0, while it draws 20 W.
# Where the values come from: ../SOURCES.md.
devices = 1
system nvmlSystemGetDriverVersion = "580.00"
system nvmlSystemGetNVMLVersion = "13.580.00"
system nvmlSystemGetCudaDriverVersion = 13000

# identity
* nvmlDeviceGetName = "NVIDIA Thor"
* nvmlDeviceGetUUID = "GPU-0000710e-0000-4000-8000-000000000000"
* nvmlDeviceGetMinorNumber = $i
* nvmlDeviceGetArchitecture = 10
* nvmlDeviceGetBrand = 14
* nvmlDeviceGetCudaComputeCapability = 11 0
* nvmlDeviceGetNumGpuCores = 2560
* nvmlDeviceGetMultiGpuBoard = 0

# modes
* nvmlDeviceGetPersistenceMode = 0
* nvmlDeviceGetComputeMode = 0

# use, power mW, clocks MHz
* nvmlDeviceGetUtilizationRates = 0 0
* nvmlDeviceGetPowerUsage = 20125
* nvmlDeviceGetClockInfo 0 = 1575
* nvmlDeviceGetClockInfo 1 = 1575
* nvmlDeviceGetMaxClockInfo 0 = 1575
* nvmlDeviceGetMaxClockInfo 1 = 1575
* nvmlDeviceGetTemperature 0 = 48
* nvmlDeviceGetComputeRunningProcesses_v3 = !3
* nvmlDeviceGetGraphicsRunningProcesses_v3 = !3
* nvmlDeviceGetMPSComputeRunningProcesses_v3 = !3
* nvmlGpmQueryDeviceSupport = !3
