"""The files of the project: what is built from them, and what must not be in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainplan

TOP = (".ci", ".gitignore", "LICENSE", "README.md", "cases", "models", "pyproject.toml", "solver", "tests")
PACKAGES = {"trainplan": "solver", "trainplan_models": "models"}
SKIPPED = re.compile(r"__pycache__|\.py[co]$|/\.[^/]*_cache/")

# In pieces, so that this file does not accuse itself.
MACHINE = [re.escape("/" + name + "/") for name in ("work", "root")] + [r"\.py" + "env/"]
REGISTRIES = [re.escape(host) for host in ("py" + "pi.org", "pythonhosted" + ".org", "npm" + "js.org")]


def project_files(checkout: Path) -> Iterator[Path]:
    for name in TOP:
        path = checkout / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not SKIPPED.search(file.as_posix()):
                yield file


def test_no_machine_and_no_registry_is_named(checkout: Path) -> None:
    forbidden = re.compile("|".join([*MACHINE, *REGISTRIES, re.escape(str(Path.home()) + os.sep)]))
    named = {}
    for file in project_files(checkout):
        found = forbidden.search(file.read_text(encoding="utf-8", errors="replace"))
        if found:
            named[str(file.relative_to(checkout))] = found.group()
    assert not named


def test_text_files_are_utf_8_and_end_in_one_newline(checkout: Path) -> None:
    wrong = []
    for file in project_files(checkout):
        raw = file.read_bytes()
        if b"\0" not in raw and raw:
            raw.decode("utf-8")
            if not raw.endswith(b"\n") or raw.endswith(b"\n\n") or b"\r" in raw:
                wrong.append(str(file.relative_to(checkout)))
    assert not wrong


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built by the backend without a network."""
    target = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(target.glob("*.whl"))


def test_the_wheel_has_every_file_of_both_packages_and_nothing_else(checkout: Path, wheel: Path) -> None:
    sources = {
        file.relative_to(checkout / root).as_posix()
        for package, root in PACKAGES.items()
        for file in (checkout / root / package).rglob("*")
        if file.is_file() and not SKIPPED.search(file.as_posix())
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == sources
    assert {name.split("/")[0] for name in packed} == set(PACKAGES)
    assert {"trainplan/py.typed", "trainplan_models/py.typed"} <= packed


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert f"\nVersion: {trainplan.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "trainplan = trainplan.cli:app" in scripts
    assert "Apache License" in licence


def test_highspy_that_returns_wrong_optima_is_refused(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("METADATA"))
    (needed,) = re.findall(r"^Requires-Dist: highspy(.*)$", metadata, re.MULTILINE)
    from packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(needed)
    assert "1.14.0" not in allowed
    assert "1.15.1" in allowed
