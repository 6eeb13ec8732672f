"""The documentation keeps up with the code: every key, command and result is described, and every example works."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel

from clustersim.cli.app import COMMANDS
from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.parallel.settings import key_of
from clustersim.report.plots.kinds import KINDS
from clustersim.workloads.reading.model_fields import ModelSpec

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
WIDEST: Final = 120
"""Columns of prose in Markdown."""
GENERATED: Final = ("validation.md", "presets.md")
"""Pages that commands write, as those of studies."""
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+\.md)")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def parts_of(annotation: object) -> Iterator[object]:
    """Yield the annotation and everything inside its unions, tuples and `Annotated`."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts_of(inner)


def scenario_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all keys that hold no further mapping."""
    for attribute, field in model.model_fields.items():
        name = key_of(attribute, field)
        parts = [part for part in parts_of(field.annotation) if isinstance(part, type) and not isinstance(part, types.GenericAlias)]
        # A node that is described whole, and a group of nodes, repeat the keys of the cluster.
        inner = None if name in {"node", "nodes"} else next((part for part in parts if issubclass(part, BaseModel)), None)
        if inner is None:
            yield f"{prefix}{name}"
        else:
            yield from scenario_keys(inner, f"{prefix}{name}.")


def result_keys(record: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all figures of a result; a list is marked with []."""
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        record_inside = next((part for part in parts_of(hint) if isinstance(part, type) and dataclasses.is_dataclass(part)), None)
        mark = "[]" if typing.get_origin(hint) is tuple else ""
        if record_inside is None:
            yield f"{prefix}{field.name}"
        else:
            yield from result_keys(record_inside, f"{prefix}{field.name}{mark}.")


def documented_results() -> set[str]:
    """Return the keys of the tables; `a.b`, `.c` in one cell stands for a.b and a.c."""
    found: set[str] = set()
    for line in page("reference/results.md").splitlines():
        names = re.findall(r"`([\w.\[\]]+)`", line.split("|")[1]) if line.startswith("| `") else []
        for name in names:
            found.add(names[0].rpartition(".")[0] + name if name.startswith(".") else name)
    return found


def test_every_key_of_a_scenario_is_described() -> None:
    described = set(re.findall(r"`([\w.]+)`", page("reference/scenario.md")))

    keys = set(scenario_keys(ScenarioSpec))

    assert len(keys) > 60
    assert keys - described == set()


def test_every_key_of_a_model_is_described_and_no_other() -> None:
    section = page("reference/scenario.md").partition("\n## `model`")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]

    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(ModelSpec.model_fields)


def test_no_key_is_described_that_a_scenario_does_not_have() -> None:
    keys = set(scenario_keys(ScenarioSpec))
    described = set(re.findall(r"`((?:cluster|training|strategy|cost|reliability)\.\w[\w.]*)`", page("reference/scenario.md")))

    assert described - keys == set()


def test_every_key_of_a_result_is_described_and_no_other() -> None:
    records = {"bounds.": BoundsReport, "cost.": CostReport, "goodput.": GoodputReport}
    sections = {key for prefix, record in records.items() for key in result_keys(record, prefix)}
    keys = (
        sections
        | set(result_keys(Metrics))
        | {
            "time_to_train_s",
            "scenario_hash",
            "checks[].check",
            "checks[].value",
            "checks[].values",
            "checks[].holds",
            "checks[].decided",
        }
    )
    files = {name for name in documented_results() if name.endswith((".yaml", ".json", ".md", ".csv", ".gz", ".html"))}

    assert documented_results() - files == keys


def test_every_command_is_described() -> None:
    described = re.findall(r"^## `clustersim ([\w-]+)", page("reference/cli.md"), re.MULTILINE)

    assert sorted(described) == sorted(COMMANDS)


def test_every_picture_is_described() -> None:
    section = page("reference/cli.md").partition("## `clustersim plot")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]

    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(KINDS)


def test_every_picture_is_in_the_gallery_with_the_command_that_draws_it() -> None:
    text = page("reference/gallery.md")

    drawn = re.findall(r"^```\nclustersim plot ([\w-]+) [^`]*```\n\n```{image} \.\./_gallery/(\w+)\.png", text, re.MULTILINE)

    assert all(command.replace("-", "_") == name for command, name in drawn)
    assert sorted(name for _, name in drawn) == sorted(KINDS)


@pytest.mark.parametrize(
    "command",
    ["run", "calibrate", "compare", "explain", "sweep", "what-if", "show", "init", "schema", "flows", "plot", "report", "export", "ui"],
)
def test_every_option_of_a_command_is_described(command: str) -> None:
    parameters = COMMANDS[command].load(command).params
    options = [option for parameter in parameters for option in parameter.opts if option.startswith("--")]

    section = page("reference/cli.md").partition(f"## `clustersim {command}")[2].partition("\n## ")[0]

    assert [option for option in options if option not in section and option != "--help"] == []


@pytest.mark.parametrize("path", [*PAGES, *DOCS.parent.glob("*.md")], ids=lambda path: path.name)
def test_a_page_is_wrapped_and_its_links_and_footnotes_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [link for link in LINK.findall(text) if not (path.parent / link).is_file()] == []

    written = re.findall(r"^\[\^([\w-]+)\]:", text, re.MULTILINE)
    referred = re.findall(r"\[\^([\w-]+)\]", re.sub(r"^\[\^[\w-]+\]:", "", text, flags=re.MULTILINE))
    assert sorted(written) == sorted(set(referred))

    bare = re.sub(r"^([`~:]{3,}|\$\$).*?^\s*\1|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    # Tables, links and code are as wide as they are.
    words = re.sub(r"\[[^\[\]\n]*\]\([^()\n]*\)|`+[^`\n]+`+|\$+[^$\n]+\$+|<\S+>", "x", bare)
    long = [line for line in words.splitlines() if len(line) > WIDEST and not line.lstrip().startswith("|")]
    assert path.name in GENERATED or path.parent.name == "studies" or long == []
