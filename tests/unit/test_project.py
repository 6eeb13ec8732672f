"""The project itself: one version, light imports, small files, honest dependencies, a wheel that brings its data."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import clustersim

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clustersim"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = ("matplotlib", "networkx", "numba", "numpy", "pandas", "pydantic", "rich", "ruamel", "simpy")
TEXT = (".cff", ".cfg", ".csv", ".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(work|tmp|home|root|Users)/\w")


def files_of_the_project() -> list[Path]:
    """Return all text files of the checkout, without environment, runs and caches."""
    kept = (path for path in ROOT.iterdir() if path.name not in {".git", ".venv", "runs", "dist", "build"})
    found = (path for top in kept for path in ([top] if top.is_file() else top.rglob("*")))
    return sorted(path for path in found if path.suffix in TEXT and "_build" not in path.parts)


def imported_names(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_there_is_one_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert PROJECT["version"] == clustersim.__version__
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [clustersim.__version__]
    assert re.findall(r"^## (\d\S*)", changelog, re.MULTILINE)[0] == clustersim.__version__


@pytest.mark.parametrize("module", ["clustersim", "clustersim.cli.app"])
def test_importing_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.split() == []


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]

    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}

    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_file_names_a_path_of_some_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files_of_the_project()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]

    assert found == []


def test_the_dependencies_are_what_the_package_imports() -> None:
    declared = {re.split(r"[<>=.\[]", requirement)[0] for requirement in PROJECT["dependencies"]}

    imported = set[str]().union(*(imported_names(path) for path in PACKAGE.rglob("*.py")))

    extras = [wanted for extra, wanted in PROJECT["optional-dependencies"].items() if extra not in ("dev", "docs")]
    optional = {re.split(r"[<>=.\[]", requirement)[0] for wanted in extras for requirement in wanted}
    # pydantic_core comes with pydantic, which pins it exactly.
    # What two libraries call themselves.
    named = {{"PIL": "pillow", "SALib": "salib", "google": "protobuf"}.get(name, name) for name in imported}
    assert named - sys.stdlib_module_names - {"clustersim", "pydantic_core"} - optional == declared


def test_every_dependency_is_pinned_for_the_makefile() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(requirement for extra in extras.values() for requirement in extra)]

    assert {re.split(r"[<>=\[]", requirement)[0].lower() for requirement in wanted} - pinned - {"clustersim"} == set()


def test_the_wheel_brings_profiles_scenarios_and_the_typing_mark(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = [path for kind in ("hardware_profiles", "scenarios") for path in (ROOT / kind).rglob("*.yaml")]
    assert data
    assert {f"clustersim/_data/{path.relative_to(ROOT).as_posix()}" for path in data} <= names
    assert "clustersim/py.typed" in names
