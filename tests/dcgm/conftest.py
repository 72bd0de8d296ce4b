"""A fake libdcgm for the tests of DCGM, built once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import fake_dcgm


@pytest.fixture(scope="session")
def libdcgm(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> str:
    """Return the path of the library."""
    tool("gcc")
    return str(fake_dcgm.build(tmp_path_factory.mktemp("libdcgm")))


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_dcgm.Control:
    """Return what tells the library how to behave."""
    path = tmp_path / "dcgm.txt"
    monkeypatch.setenv(fake_dcgm.VARIABLE, str(path))
    return fake_dcgm.Control(path)
