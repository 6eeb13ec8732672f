"""Words in the names of modules and classes: those of the glossary, and a reviewed list of plain English and proper names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SOURCES = sorted((ROOT / "clustersim").rglob("*.py"))


def classes(path: Path) -> list[str]:
    return re.findall(r"^\s*class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)


def words(name: str) -> Iterator[str]:
    return (word.lower() for word in WORD.findall(name))


def test_names_are_made_of_the_words_of_the_glossary_and_of_reviewed_ones(golden: Callable[[str, str], None]) -> None:
    known = set(re.findall(r"[a-z]+", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()))
    names = {name for path in SOURCES for name in (*path.relative_to(ROOT).with_suffix("").parts, *classes(path))}
    golden("names.txt", "\n".join(sorted({word for name in names for word in words(name)} - known)) + "\n")


def test_a_class_name_stands_once_in_the_package() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for name in classes(path):
            homes[name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_a_file_name_stands_in_one_folder() -> None:
    folders: defaultdict[str, set[Path]] = defaultdict(set)
    for path in SOURCES:
        # A command has the name of the question that it asks.
        if path.name != "__init__.py" and path.parent.name != "cli":
            folders[path.name].add(path.relative_to(ROOT / "clustersim").parent)
    assert {name: found for name, found in folders.items() if len(found) > 1} == {}


def test_no_docstring_begins_as_a_question() -> None:
    question = re.compile(r'^\s*r?"""(?:What|Who|Where|How|Of) .*', re.MULTILINE)
    paths = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): question.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}
