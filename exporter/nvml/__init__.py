"""What we know of NVML, NVIDIA's management library: its door, its readings, its traps.

`driver` is the only door to the library, `readings` the table of what is asked and what the
answers mean, `device` reads one GPU by that table, `links`, `gpm` and `processes` read what does
not fit a table. Threads, deadlines and the list of GPUs are left to `sources.nvml`.
"""
