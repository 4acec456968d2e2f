from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the sources; a test that asks for it is skipped without them."""
    if not (ROOT / "solver").is_dir():
        pytest.skip("no sources beside the tests")
    return ROOT
