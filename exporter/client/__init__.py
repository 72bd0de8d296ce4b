"""What a training script imports to tell the daemon of its steps.

    from exporter.client import Run

Standard library only, Python 3.9 and newer. The folder may be copied into a job's environment under
any name. Nothing in it raises into the script, waits for the daemon, or keeps the process alive.
"""

from .run import Phase, Run, Step

__all__ = ["Phase", "Run", "Step"]
