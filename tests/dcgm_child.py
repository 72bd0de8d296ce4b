"""The DCGM source in a real child process; run as `python -m tests.dcgm_child`."""

from __future__ import annotations

import sys

from exporter.isolate import main
from exporter.sources.dcgm import DcgmSource

if __name__ == "__main__":
    main(sys.argv[1:], {"dcgm": DcgmSource})
