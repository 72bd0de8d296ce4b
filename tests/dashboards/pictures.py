"""Take the pictures of docs/images: `python -m tests.dashboards.pictures` (make pictures-boards).

The demo's story runs until a GPU has throttled, the KV cache was full, and a cable was broken; a
real Prometheus scrapes it. Then each board is drawn from its top on.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from dashboards.grafana import Prometheus
from dashboards.render.pictures import MODULES, pictures
from tests.dashboards.board_lab import BOARDS, Phase, running_lab

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 300_000
"""Bytes of a picture in the repository."""
HEIGHT = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, default=MODULES, help="node_modules")
    parser.add_argument("--seconds", type=float, default=870, help="how long the story runs")
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--light", action="store_true", help="one of them light as well")
    told = parser.parse_args()
    program = shutil.which("prometheus")
    if program is None:
        sys.exit("needs prometheus")
    told.out.mkdir(parents=True, exist_ok=True)
    story = (Phase("story", told.seconds, {}),)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_lab(program, Path(folder), story, "story", every=5) as lab,
    ):
        files = sorted(BOARDS.glob("*.json"))
        asked = (Prometheus(lab.url), lab.span(), told.out)
        made = pictures(files, *asked, modules=told.modules, height=HEIGHT)
        if told.light:
            light = [BOARDS / "flopwatch-fleet.json"]
            made += pictures(light, *asked, modes=["light"], modules=told.modules, height=HEIGHT)
    for path in made:
        print(f"{path.stat().st_size:8} {path}")
    return int(any(path.stat().st_size > LARGEST for path in made))


if __name__ == "__main__":
    sys.exit(main())
