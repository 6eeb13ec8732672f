"""Published measurements: one file for each source, each row a scenario and what was measured on it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, StringConstraints, model_validator

from clustersim.config.scenario_schema import NAME_PATTERN
from clustersim.documents.check import validate_document, validate_part, value_at
from clustersim.documents.files import MB, data_path, read_text
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Document, merged, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import Bytes, FlopsPerSecond, SamplesPerSecond, Seconds, Share, TokensPerSecond

Quality = Literal["A", "B"]
QUALITIES: Final[tuple[Quality, ...]] = ("A", "B")
"""A: the source says all that matters; B: one or two things had to be assumed."""

MEASURED: Final = "measured."
"""Begins the columns of a table that were measured."""

SPEEDS: Final = ("step_time", "samples_per_s", "tokens_per_s_per_gpu")
"""Speeds of a step that a source may print; one of them."""

Sentence = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
Address = Annotated[str, StringConstraints(pattern=r"^(https?://\S+|measured)$")]
_SUFFIXES: Final = (".yaml", ".yml")
_TRUTH: Final = {"true": True, "false": False}
_MOST_BYTES: Final = 50 * MB
"""Largest table of rows, in bytes."""


class PlaceSpec(Checked):
    """Place of a row in a source."""

    table: Sentence
    row: Sentence
    url: Address | None = None
    """Address, where it is not in the source of the file itself."""


class MeasuredSpec(Checked):
    """Measured values as printed; predictions are compared with the step time, which may follow from a rate."""

    step_time: Annotated[Seconds, Field(gt=0)] | None = None
    samples_per_s: Annotated[SamplesPerSecond, Field(gt=0)] | None = None
    """Samples per second, whole job."""
    tokens_per_s_per_gpu: Annotated[TokensPerSecond, Field(gt=0)] | None = None
    memory: Annotated[Bytes, Field(gt=0)] | None = None
    """The most that one accelerator held."""
    allocated: Annotated[Bytes, Field(gt=0)] | None = None
    """The most that the framework allocated on one accelerator, without the reserve for context and communication buffers."""
    hardware_rate: Annotated[FlopsPerSecond, Field(gt=0)] | None = None
    """FLOPs that one GPU did in a second, those of recomputation included."""
    mfu: Share | None = None

    @model_validator(mode="after")
    def _check_speed(self) -> MeasuredSpec:
        given = [name for name in SPEEDS if name in self.model_fields_set]
        if not given:
            raise ScenarioError("nothing says how long a step took", field="step_time", hint=f"give one of {', '.join(SPEEDS)}")
        if len(given) > 1:
            message = f"{' and '.join(given)} say the same twice"
            raise ScenarioError(message, field=given[-1], hint="keep what the source measured")
        return self


class MisfitSpec(Checked):
    """A run that somebody has tried, and that ran out of memory."""

    id: Name
    source: PlaceSpec
    assumed: list[Sentence] = Field(default=[])
    """Facts that the source does not state about this run, and values taken instead."""
    scenario: dict[str, JsonValue]
    """Put on top of what all rows have in common."""


class RowSpec(MisfitSpec):
    """One run that somebody has timed."""

    quality: Quality
    measured: MeasuredSpec
    derived_from: Sentence | None = None
    """Figure from which the step time was computed, where the source does not print it."""
    hidden: dict[str, Annotated[list[JsonValue], Field(min_length=2)]] = Field(default={})
    """Dotted keys of the scenario that the source does not say and that decide the result, each with the values that it may have had."""


class TableSpec(Checked):
    """Rows that differ in a few numbers only, in a file beside that of the source: one line each, without what all have in common."""

    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.csv$")]
    """Its header names the columns: ``id``, ``row``, keys of ``measured`` after ``measured.``, and keys of a scenario.

    An empty cell leaves its key out.
    """
    table: Sentence
    quality: Quality
    assumed: list[Sentence] = Field(default=[])


class PublishedSourceSpec(Checked):
    """``scenarios/published/<source>.yaml``."""

    source_id: Name
    title: Sentence
    urls: list[Address] = Field(min_length=1)
    retrieved: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    notes: list[Sentence] = Field(default=[])
    conventions: dict[str, Sentence] = Field(default={})
    """Why a key of the scenarios has the value that it has, by dotted key."""
    fitted: list[str] = Field(default=[])
    """Keys of the scenarios whose values were fitted to the rows themselves."""
    common: dict[str, JsonValue] = Field(default={})
    rows: list[RowSpec] = Field(default=[])
    table: TableSpec | None = None
    """Further rows."""
    out_of_memory: list[MisfitSpec] = Field(default=[])
    """Runs that did not fit, and whose prediction should say so."""
    explained: dict[Name, Sentence] = Field(default={})
    """By the ids of rows that are far off: why."""

    @model_validator(mode="after")
    def _check_any(self) -> PublishedSourceSpec:
        if not self.rows and self.table is None:
            raise ScenarioError("there is no row", field="rows", hint="write at least one, or a table")
        return self

    @model_validator(mode="after")
    def _check_rows(self) -> PublishedSourceSpec:
        first: dict[str, int] = {}
        for index, row in enumerate(self.rows):
            if row.id in first:
                raise ScenarioError(
                    f"'{row.id}' is the id of row {first[row.id]} already", field=f"rows.{index}.id", hint="give each row its own"
                )
            first[row.id] = index
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSource:
    """A checked source, and the document it came from."""

    spec: PublishedSourceSpec
    document: Document

    def scenario(self, index: int) -> dict[str, JsonValue]:
        """Return the whole scenario of a row."""
        row = self.spec.rows[index]
        return merged(self.spec.common, {"name": row.id, **row.scenario})

    def alternatives(self, index: int) -> list[dict[str, JsonValue]]:
        """Return the scenarios that a row may have been: one, or one for each combination of what is hidden."""
        hidden = self.spec.rows[index].hidden
        choices = [[_nested(key, value) for value in values] for key, values in hidden.items()]
        return [reduce(merged, chosen, self.scenario(index)) for chosen in product(*choices)]

    def simulated(self, index: int) -> str:
        """Return all that decides the prediction of a row, as text: its scenario but for the name, and what is hidden of it."""
        row = self.spec.rows[index]
        return json.dumps([merged(self.spec.common, row.scenario) | {"name": ""}, row.hidden])

    def alone(self, index: int) -> PublishedSource:
        """Return the source with one row and without places, which is quickly handed to a process."""
        spec = self.spec.model_copy(update={"rows": [self.spec.rows[index]], "out_of_memory": []})
        return replace(self, spec=spec, document=Document(name=self.document.name, data={}))

    def misfit(self, index: int) -> dict[str, JsonValue]:
        """Return the whole scenario of a run that did not fit."""
        row = self.spec.out_of_memory[index]
        return merged(self.spec.common, {"name": row.id, **row.scenario})

    def located(self, error: ScenarioError, index: int) -> ScenarioError:
        """Return an error about the scenario of a row with the place, in the row or in what all rows share, that it came from."""
        if error.place is not None and error.place.line is not None:
            return error  # it is in another file, such as that of a model
        field = error.field.split(".") if error.field else []
        in_row: tuple[str | int, ...] = ("rows", index, "scenario")
        shared = not _holds(self.spec.rows[index].scenario, field) and _holds(self.spec.common, field)
        path = ("common", *field) if shared else (*in_row, *field)
        return ScenarioError(error.message, field=".".join(str(part) for part in path), hint=error.hint, place=self.document.place(path))


TYPED: Final = MappingProxyType(
    {
        "training": ("global_batch_size", "micro_batch_size", "seq_length", "precision"),
        "strategy": (
            *("dp", "tp", "pp", "cp", "ep", "etp", "zero_stage", "schedule", "virtual_stages"),
            *("recompute", "recompute_layers", "recompute_modules"),
        ),
    }
)
"""Keys of training and strategy that people type: batch, sequence, precision, degrees, schedule, recomputation. Beside them model and
cluster; nothing of the fine print of a framework, and no preset."""
FORMATS: Final = ("mx", "nvfp4")
"""Values of ``training.fp8_scaling`` that people name as a precision: MXFP8 and NVFP4."""


def as_typed(source: PublishedSource) -> PublishedSource:
    """Return a source whose rows say what people type alone, so that defaults decide the rest."""
    spec = source.spec
    rows = [row.model_copy(update={"scenario": _typed(row.scenario), "hidden": {}}) for row in spec.rows]
    return replace(
        source, spec=spec.model_copy(update={"common": _typed(spec.common), "rows": rows, "conventions": {}, "out_of_memory": []})
    )


def _typed(scenario: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    sections = {name: value for name, value in scenario.items() if name in ("version", "name", "model", "cluster", *TYPED)}
    return {
        name: {key: each for key, each in value.items() if key in TYPED[name] or (key == "fp8_scaling" and each in FORMATS)}
        if name in TYPED and isinstance(value, dict)
        else value
        for name, value in sections.items()
    }


def source_names() -> tuple[str, ...]:
    """Return the names of the shipped sources in alphabetical order."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def read_source(name: str | Path) -> PublishedSource:
    """Return a source.

    Parameters
    ----------
    name
        Of a shipped source, or the path of a file of the same form.

    Raises
    ------
    ScenarioError
        When there is no such source, or its file cannot be used.
    """
    document = read_document(_find(name))
    spec = validate_document(PublishedSourceSpec, document)
    stem = Path(document.name).stem
    if spec.source_id != stem:
        message = f"'{spec.source_id}' is not the name of the file"
        raise ScenarioError(message, field="source_id", hint=f"write '{stem}'", place=document.place(("source_id",)))
    if spec.table is not None:
        rows = _table_rows(spec.table, Path(_find(name)).parent / spec.table.file)
        spec = PublishedSourceSpec.model_validate({**spec.model_dump(exclude_unset=True), "rows": [*spec.rows, *rows]})
    ids, keys = (
        [row.id for row in spec.rows],
        list(dict.fromkeys(key for row in spec.rows for key in _dotted(merged(spec.common, row.scenario)))),
    )
    _check_names(document, "explained", ids, "no row has the id")
    _check_names(document, "conventions", keys, "no row sets")
    _check_names(document, "fitted", keys, "no row sets")
    return PublishedSource(spec=spec, document=document)


def _check_names(document: Document, field: str, known: Sequence[str], missing: str) -> None:
    """Refuse a name in a part of a source that no row knows."""
    named = document.data.get(field, ())
    for name in named if isinstance(named, (dict, list)) else ():
        if name not in known:
            place = document.place((field, str(name)), key=True)
            raise ScenarioError(f"{missing} '{name}'", field=field, hint=choices_hint(str(name), known), place=place)


def _table_rows(table: TableSpec, file: Path) -> list[RowSpec]:
    try:
        lines = list(csv.DictReader(read_text(file, _MOST_BYTES).splitlines()))
    except (ScenarioError, csv.Error) as error:
        reason = error.message if isinstance(error, ScenarioError) else str(error)
        raise ScenarioError(f"cannot read '{file.name}': {reason}", field="table.file", hint="put it beside the source") from error
    rows = [_row_of(table, line) for line in lines]
    document = Document(name=file.name, data={"lines": [{}, *rows]})  # the header is line 0
    return [validate_part(RowSpec, row, document, ("lines", number)) for number, row in enumerate(rows, 1)]


def _row_of(table: TableSpec, line: Mapping[str, str]) -> dict[str, JsonValue]:
    cells: dict[str, JsonValue] = {name: int(text) if text.isdecimal() else _TRUTH.get(text, text) for name, text in line.items() if text}
    measured = {name.removeprefix(MEASURED): cell for name, cell in cells.items() if name.startswith(MEASURED)}
    scenario: dict[str, JsonValue] = {}
    for name, cell in cells.items():
        if name not in ("id", "row") and not name.startswith(MEASURED):
            scenario = merged(scenario, _nested(name, cell))
    place: dict[str, JsonValue] = {"table": table.table, "row": str(cells.get("row", ""))}
    row: dict[str, JsonValue] = {"id": cells.get("id"), "source": place, "quality": table.quality, "measured": measured}
    return {**row, "assumed": [*table.assumed], "scenario": scenario}


def _nested(key: str, value: JsonValue) -> dict[str, JsonValue]:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _find(name: str | Path) -> Path:
    if isinstance(name, Path) or name.endswith(_SUFFIXES) or "/" in name:
        return Path(name)
    known = source_names()
    if name not in known:
        raise ScenarioError(f"unknown source '{name}'", hint=choices_hint(name, known))
    return _folder() / f"{name}.yaml"


def _folder() -> Path:
    return data_path("scenarios") / "published"


def _holds(data: dict[str, JsonValue], path: list[str]) -> bool:
    return bool(path) and value_at(data, path) is not None


def _dotted(data: dict[str, JsonValue], prefix: str = "") -> list[str]:
    """Return the dotted keys of everything in nested mappings, mappings included."""
    keys: list[str] = []
    for key, value in data.items():
        keys.append(f"{prefix}{key}")
        if isinstance(value, dict):
            keys += _dotted(value, f"{prefix}{key}.")
    return keys
