"""What all tests share: finding the programs that some need, and saying aloud what was skipped."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

TABLE = Path(__file__).parent.parent / ".ci" / "apt"


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Return a function from a program's name in .ci/apt to its path.

    Where the program is missing the test is skipped; it fails where FLOPWATCH_REQUIRE_TOOLS=1.
    """
    rows = [line.split() for line in TABLE.read_text("utf-8").splitlines() if line[:1] != "#"]
    programs = {name: (package, [name, *others]) for name, package, *others in rows}

    def find(name: str) -> str:
        package, commands = programs[name]
        for command in commands:
            if (path := shutil.which(command)) is not None:
                return path
        reason = f"needs {name} (Debian package {package})"
        if os.environ.get("FLOPWATCH_REQUIRE_TOOLS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the skipped tests by reason: a skip is a check that nobody made."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    if not reasons:
        return
    terminalreporter.section(f"{reasons.total()} NOT CHECKED", sep="-")
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"{number:5}  {reason}")
