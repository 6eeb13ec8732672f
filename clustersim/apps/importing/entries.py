"""Keys and values of a file, flat, with the line of each, and the options of an import."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from clustersim.apps.importing.machine_files import ListedFabric
from clustersim.documents.text import Data, Spot
from clustersim.errors import Place

Format = Literal["arguments", "yaml", "json", "toml", "log", "machine"]

Pool = Literal["", "prefill", "decode"]

TABLE: Final = re.compile(r"\s*\[{1,2}[\w.\"' -]+\]{1,2}\s*(?:#.*)?")
"""Head of a table of TOML."""
_DASHES: Final = re.compile(r"(?:^|(?<=\.))-+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of a file, with its value."""

    key: str
    """Dotted from the top, as it is written."""
    value: Data
    file: str
    line: int | None = None
    names_read: bool = False
    """Whether the value is the name of a file whose keys are read beside it."""

    @property
    def name(self) -> str:
        """The key as tables spell it: without leading dashes, with underscores.

        Examples
        --------
        >>> Entry(key="MODEL_ARGS.--num-layers", value=2, file="x").name
        'MODEL_ARGS.num_layers'
        """
        return _DASHES.sub("", self.key).replace("-", "_")

    @property
    def place(self) -> Place:
        """File and line."""
        return Place(file=self.file, line=self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSteps:
    """Step times that a log reports, in seconds."""

    step_time_s: float
    """Median of those after the first."""
    n_steps: int
    timers_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Parts of a step by the names of their timers: medians of the largest over ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A file as keys and values."""

    file: str
    format: Format
    entries: tuple[Entry, ...]
    measured: LoggedSteps | None = None
    fabric: ListedFabric | None = None
    """Switches that it lists."""
    labels: tuple[Entry, ...] = ()
    """Labels of the nodes that its pods ask for, or that a log shows."""
    pool: Pool = ""
    """Pool that its servers are, where the other one is not among them."""
    ran: tuple[str, ...] = ()
    """Names of other scripts that it sources or starts; their options are among its own."""

    @property
    def only_measured(self) -> bool:
        """Whether it holds step times and no settings."""
        return self.measured is not None and not self.entries


def flattened(data: Data, spot: Spot | None, file: str, key: str = "") -> Iterator[Entry]:
    """Yield the leaves of nested data; a list of scalars is one leaf, and so is an empty mapping."""
    line = spot.line if spot is not None else None
    if isinstance(data, dict) and data:
        for name, value in data.items():
            below = spot.children.get(name) if spot is not None else None
            # The key, and not the value, is what a reader looks for.
            at = spot.keys.get(name) if spot is not None else None
            where = Spot(line=at[0], column=at[1], keys=below.keys, children=below.children) if below and at else below
            yield from flattened(value, where, file, f"{key}.{name}" if key else name)
    elif isinstance(data, list) and any(isinstance(item, dict | list) for item in data):
        for index, item in enumerate(data):
            yield from flattened(
                item, spot.children.get(index) if spot is not None else None, file, f"{key}.{index}" if key else str(index)
            )
    elif key:
        yield Entry(key=_whole(key), value=_clean(data), file=file, line=line)


def toml_entries(text: str, file: str) -> Iterator[Entry]:
    """Yield the keys of TOML, with their lines.

    Raises
    ------
    ValueError
        When it is none.
    """
    # Dates become text, as in YAML.
    data: Data = json.loads(json.dumps(tomllib.loads(text), default=str))
    lines = _toml_lines(text)
    return (replace(each, line=lines.get(each.key)) for each in flattened(data, None, file))


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line of each key that begins one."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if TABLE.fullmatch(line):
            section = line.partition("#")[0].strip().strip("[]").strip().replace('"', "") + "."
        elif (key := re.match(r"\s*([\w.\"-]+)\s*=", line)) is not None:
            lines.setdefault(section + key[1].replace('"', ""), number)
    return lines


def _clean(value: Data) -> Data:
    """Return a leaf that any file can hold: numbers that are none, and halves of characters, as text."""
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    return text.encode("utf-8", errors="replace").decode("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of ``clustersim import`` that change the scenario."""

    framework: str | None = None
    cluster: str | None = None
    nodes: int | None = None
    model: str | None = None
    overrides: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()
    """Changes that give the cluster where no file names accelerators."""
    strict: bool = False
    by_option: bool = True
    """Whether ``--cluster``, ``--nodes`` and ``--model`` may give values that no file has; otherwise only ``--set``."""
