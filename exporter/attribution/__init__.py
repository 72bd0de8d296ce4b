"""Whose a process is, and whose a GPU: by cgroups, by the names of log folders, by Slurm's files.

Looks things up for the sources `jobs` and `slurm`; knows no metrics.
"""
