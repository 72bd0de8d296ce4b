"""Write the boards as JSON for Grafana, or with `--check` tell which files are not what they were.

Run `python -m dashboards.build` after a change to a board, and commit the files that it writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import cost, exporter, fabric, fleet, inference_sla, node, training

FOLDER = Path(__file__).parent
BUILDERS: tuple[Callable[[], Dashboard], ...] = (
    fleet.build,
    node.build,
    training.build,
    inference_sla.build,
    fabric.build,
    cost.build,
    exporter.build,
)


def rendered() -> dict[str, str]:
    """Return the text of each file, by its name."""
    built = (json.loads(json.dumps(build(), cls=JSONEncoder)) for build in BUILDERS)
    return {
        f"{board['uid']}.json": json.dumps(_current(board), indent=1, ensure_ascii=False) + "\n"
        for board in built
    }


def _current(board: dict[str, Any]) -> dict[str, Any]:
    """Return a board without keys that the SDK writes and no Grafana since 10.4 knows."""
    del board["style"]  # whoever looks chooses light or dark
    for variable in board["templating"]["list"]:
        for key in ("id", "auto", "auto_min", "auto_count"):
            del variable[key]
    return board


def drift(folder: Path) -> list[str]:
    """Return the names of files that differ from what the builders make, lack or are too many."""
    texts = rendered()
    there = {path.name: path.read_text("utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in texts | there if texts.get(name) != there.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or check them; return 1 if any is not up to date."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, tell what differs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    options = parser.parse_args(arguments)
    if options.check:
        stale = drift(options.folder)
        sys.stdout.writelines(f"{name}: run python -m dashboards.build\n" for name in stale)
        return 1 if stale else 0
    for name, text in rendered().items():
        (options.folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
