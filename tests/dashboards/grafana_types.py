"""Hold the boards against the types of later Grafanas, as npm's `@grafana/schema` has them.

By hand, for it needs node and the network:

    for version in 10.4 11 12 13; do
        npm install --prefix /tmp/types/$version typescript@5.6 @grafana/schema@$version
    done
    python -m tests.dashboards.grafana_types /tmp/types/*

Each board becomes TypeScript: the whole as a `Dashboard`, the options of each panel and its custom
settings as the types of its kind. The compiler tells of keys that a version does not know (2353)
and of keys that it misses (2741). That a text stands where an
enumeration is asked for is passed over: the SDK's models check those. So are two things that later
versions turn into their own when they load a board: `expr` and formats of annotations (the
Prometheus plugin), `show` of a heat map's tooltip.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.dashboards.queries import board, names
from tests.dashboards.schema import ANNOTATION_KEYS, panels

_ERROR = re.compile(r"error TS(\d+): (.*)")
_TOLD = {"2353", "2741", "2561", "2739", "2740"}


def types_of(schema: Path, kind: str) -> Path | None:
    """Return the file with the types of a kind of panel."""
    folder = f"raw/composable/{kind.replace('-', '')}/panelcfg/x/*types.gen.d.ts"
    return next(iter(sorted((schema / "dist").rglob(folder))), None)


def loaded(name: str) -> dict[str, Any]:
    """Return a board without what later versions turn into something else."""
    read = copy.deepcopy(board(name))
    for mark in read["annotations"]["list"]:
        for key in ("expr", *ANNOTATION_KEYS):
            del mark[key]
    for panel in panels(read):
        if panel["type"] == "heatmap":
            del panel["options"]["tooltip"]["show"]
            panel["options"]["tooltip"]["mode"] = "single"
    return read


def program(name: str, where: Path) -> Iterator[str]:
    """Yield the lines of a board's program."""
    read = loaded(name)
    yield 'import type { Dashboard } from "@grafana/schema";'
    kinds = sorted({panel["type"] for panel in panels(read)})
    for number, kind in enumerate(kinds):
        found = types_of(where / "node_modules/@grafana/schema", kind)
        assert found, f"no panel of type {kind}"
        path = "./" + str(found.relative_to(where)).removesuffix(".d.ts")
        yield f'import type * as kind{number} from "{path}";'
    yield f"export const whole: Dashboard = {json.dumps(read)};"
    for index, panel in enumerate(panels(read)):
        kind = f"kind{kinds.index(panel['type'])}"
        yield f"// {panel['title'] if 'title' in panel else panel['type']}"
        text = json.dumps(panel["options"])
        yield f"export const options{index}: Partial<{kind}.Options> = {text};"
        custom = panel["fieldConfig"]["defaults"].get("custom")
        if custom and panel["type"] in {"timeseries", "state-timeline", "heatmap"}:
            yield f"export const custom{index}: {kind}.FieldConfig = {json.dumps(custom)};"


def told(where: Path) -> set[str]:
    """Return what the compiler says of all boards in the types that lie in a folder."""
    files: list[str] = []
    for name in names():
        file = where / f"{name}.ts"
        file.write_text("\n".join(program(name, where)), "utf-8")
        files.append(file.name)
    command = ["node", "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck",
        "--moduleResolution", "bundler", "--module", "esnext", "--target", "es2022"]  # fmt: skip
    result = subprocess.run(
        [*command, *files], cwd=where, capture_output=True, text=True, timeout=300, check=False
    )
    found = [(match[1], match[2]) for match in _ERROR.finditer(result.stdout)]
    others: dict[str, Any] = {code for code, _ in found} - _TOLD - {"2322", "2418"}
    assert not others, result.stdout[:2000]
    return {text for code, text in found if code in _TOLD}


def main() -> None:
    """Print what each version says."""
    for where in map(Path, sys.argv[1:]):
        package = where / "node_modules/@grafana/schema/package.json"
        print("==", json.loads(package.read_text("utf-8"))["version"])
        print("\n".join(sorted(told(where.resolve()))) or "nothing")


if __name__ == "__main__":
    main()
