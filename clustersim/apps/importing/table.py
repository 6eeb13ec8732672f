"""Vocabulary of each framework: ``scenarios/imports/<framework>.yaml``, one row for each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Literal, Self

from pydantic import Field, model_validator

from clustersim.apps.importing.transforms import TRANSFORMS
from clustersim.config.presets import PresetSource
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import Data, Scalar, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked

_FOLDER = "imports"
FOREIGN = "others"
"""A recognised file that describes no job."""
_MACHINE = "machine"
_NO_TABLES = (FOREIGN, "commands")

Value = Scalar | list[Scalar]
Settings = dict[str, Value]
JobKind = Literal["training", "serving"]


class KeyRow(Checked):
    """One key of a framework, under all its names, and the setting that it is."""

    keys: list[str] = Field(min_length=1)
    """Names from the oldest to the newest; ``*`` matches anything."""
    to: str | None = None
    """Dotted key of the scenario, or of the facts that it is derived from (``job.ranks``)."""
    values: dict[str, Value | Settings] | None = None
    """Our value, or several settings, for each of theirs; ``*`` for any other."""
    transform: str = "same"
    either: bool = False
    """Whether one true key is enough where several keys stand for one setting."""
    combine: Literal["product", "largest"] | None = None
    """Value of several keys, or of several pools, for one setting; without it, the last one counts."""
    lost: str | None = None
    """Loss in the prediction, with its direction, where the key is not modelled."""
    unless: list[Scalar] = Field(default=[None, False, 0, 1, ""])
    """Values with which nothing is lost."""
    where: dict[str, list[Scalar]] = Field(default_factory=dict[str, list[Scalar]])
    """Counts only where the settings of rows before have one of these values."""
    note: str | None = None
    versions: str | None = None
    source: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.to is None and self.values is None and self.lost is None and self.note is None:
            raise ValueError("give to, values, lost or a note of why the key has no effect")
        if self.transform not in TRANSFORMS:
            raise ValueError(f"there is no transform '{self.transform}'; use one of {', '.join(TRANSFORMS)}")
        return self


class Default(Checked):
    """Setting of a framework where neither a key of the file nor a preset gives it."""

    to: str
    value: Value
    absent: list[str] = Field(default_factory=list[str])
    """Only where none of these keys is present; ``*`` matches anything."""
    present: list[str] = Field(default_factory=list[str])
    """Only where all of these keys are present."""
    where: dict[str, list[Scalar]] = Field(default_factory=dict[str, list[Scalar]])
    """Only where these settings have one of these values."""
    reason: str
    source: str
    versions: str | None = None


class Recognition(Checked):
    """Keys by which a file is recognised."""

    any: list[list[str]] = Field(default_factory=list[list[str]])
    """Sets of keys; all of one set are present."""
    programs: list[str] = Field(default_factory=list[str])
    """Programs, modules and container images, any of which a command starts; ``*`` matches anything."""
    without: list[str] = Field(default_factory=list[str])
    """Keys of other frameworks, with any of which it is none of this one."""


class TableFile(Checked):
    """One file of ``scenarios/imports``."""

    title: str
    versions: str
    job: JobKind = "training"
    extends: list[str] = Field(default_factory=list[str])
    """Tables whose rows follow the own ones."""
    under: list[str] = Field(default_factory=list[str])
    """Mappings with the keys; ``*`` matches anything."""
    pools: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    """Mappings that hold the keys of the prefill and of the decode pool."""
    recognised: Recognition | None = None
    """None for a table that others extend."""
    options_with_dashes: bool = False
    """Whether it spells options with dashes, where other frameworks have underscores."""
    models: dict[str, str] = Field(default_factory=dict[str, str])
    """Shipped models by the framework's names: a family and a flavour with ``/`` between, or a name of the Hugging Face Hub."""
    rows: list[KeyRow] = Field(default_factory=list[KeyRow])
    defaults: list[Default] = Field(default_factory=list[Default])
    no_effect: list[str] = Field(default_factory=list[str])
    labels: dict[str, str] = Field(default_factory=dict[str, str])
    """Keys of the rows by labels of nodes, and by keys of Ray, XPK, Vertex AI, Azure ML and srt-slurm, that say the same."""
    levels: list[list[str]] = Field(default_factory=list[list[str]])
    """Labels of nodes that name their switches, from the lowest level."""
    domains: list[str] = Field(default_factory=list[str])
    """Labels of nodes that name their scale-up domain."""
    sources: dict[str, PresetSource] = Field(default_factory=dict[str, PresetSource])

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        named = {each.source for each in (*self.rows, *self.defaults) if each.source}
        if not named <= set(self.sources):
            raise ValueError(f"no source is called {', '.join(sorted(named - set(self.sources)))}")
        return self


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of a framework with that of the tables it extends."""

    name: str
    file: TableFile
    rows: tuple[KeyRow, ...]
    defaults: tuple[Default, ...]
    no_effect: tuple[str, ...]
    models: Mapping[str, str]

    @cached_property
    def _exact(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for number, row in enumerate(self.rows):
            for key in row.keys:
                found.setdefault(canonical(key), number)
        return found

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], int], ...]:
        rows = enumerate(self.rows)
        return tuple((re.compile(translate(canonical(key))), number) for number, row in rows for key in row.keys if "*" in key)

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(map(canonical, self.no_effect))

    @cached_property
    def _silent(self) -> re.Pattern[str]:
        return re.compile("|".join(translate(canonical(key)) for key in self.no_effect) or r"(?!)")

    @cached_property
    def _under(self) -> tuple[re.Pattern[str], ...]:
        below = (*self.file.under, *(prefix for prefixes in self.file.pools.values() for prefix in prefixes))
        return tuple(re.compile(translate(f"{prefix}.")[: -len(r"\Z")] + "(?P<rest>.+)") for prefix in below)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a key as it is, and without each of the mappings that may hold it."""
        return (name, *(match["rest"] for pattern in self._under if (match := pattern.match(name))))

    def pool_of(self, name: str) -> str:
        """Return the pool that a key is of; nothing without one."""
        pools = self.file.pools.items()
        return next((pool for pool, prefixes in pools if any(name.startswith(f"{prefix}.") for prefix in prefixes)), "")

    def row_of(self, name: str) -> int | None:
        """Return the number of the row of a key."""
        for each in self.names(name):
            exact = self._exact.get(each)
            if exact is not None:
                return exact
        return next((number for each in self.names(name) for pattern, number in self._patterns if pattern.match(each)), None)

    def has_no_effect(self, name: str) -> bool:
        """Return whether a key never changes a prediction."""
        return any(self._silent.match(each) for each in self.names(name))

    def misspelt(self, name: str) -> str | None:
        """Return the correction of a key that is no name of the table, but has one letter other than the key of a setting."""
        names = [each for each in self.names(name) if len(each.rpartition(".")[2]) > 5]
        if any(each in self._listed for each in names):
            return None
        keys = [key for key, number in self._exact.items() if "*" not in key and (self.rows[number].to or self.rows[number].values)]
        alike = ((each, [key for key in keys if abs(len(key) - len(each)) < 2]) for each in names)
        return next((near for each, some in alike if (near := did_you_mean(each, some, 1 - 1.01 / len(each)))), None)

    def said(self, setting: str, value: Data, under: str = "") -> tuple[str, Data] | None:
        """Return the key and value of a setting in the framework; None without a key.

        The inverse of reading: of several keys and of several values the first, of keys with a beginning alone.
        """
        for row in (row for row in self.rows if row.to == setting and row.keys[0].startswith(under)):
            theirs = _inverse(row, value)
            if theirs is not None:
                return row.keys[0], theirs
        return None

    @cached_property
    def known(self) -> tuple[tuple[str, ...], ...]:
        """Names of its own keys, and of all, for corrections of misspelt ones."""
        own = [key for row in self.file.rows for key in row.keys]
        of_all = [*self._exact, *self.no_effect]
        return tuple(tuple(canonical(key) for key in keys if "*" not in key) for keys in ([*own, *self.file.no_effect], of_all))


def _inverse(row: KeyRow, value: Data) -> Data:
    """Return the framework's value for a setting; None without one, or where leaving the key out has the same effect."""
    if row.values is not None:
        return next((theirs for theirs, ours in row.values.items() if ours == value and "*" not in theirs), None)
    if row.transform in ("boolean", "negated"):
        return True if value is (row.transform == "boolean") else None
    if row.transform == "largest":
        return value or None
    return value if row.transform in ("same", "rate", "tokens") else None


def canonical(key: str) -> str:
    """Return a key as tables are searched: with underscores."""
    return key.replace("-", "_")


@lru_cache
def framework_names() -> tuple[str, ...]:
    """Return the values of ``--as``."""
    names = sorted(path.stem for path in (data_path("scenarios") / _FOLDER).glob("*.yaml"))
    return tuple(name for name in names if name not in _NO_TABLES and _file(name).recognised is not None)


@lru_cache
def load_table(name: str) -> Vocabulary:
    """Return the vocabulary of a framework.

    Raises
    ------
    ScenarioError
        When there is none of this name, or its file breaks the schema.
    """
    if name not in framework_names():
        raise ScenarioError(f"there is no framework '{name}'", field="--as", hint=choices_hint(name, framework_names(), longest=30))
    return _loaded(name)


@lru_cache
def machine_table() -> Vocabulary:
    """Return the vocabulary of descriptions of machines."""
    return _loaded(_MACHINE)


def _loaded(name: str) -> Vocabulary:
    file = _file(name)
    below = [_loaded(each) for each in file.extends]
    return Vocabulary(
        name=name,
        file=file,
        rows=(*file.rows, *(row for table in below for row in table.rows)),
        defaults=(*file.defaults, *(default for table in below for default in table.defaults)),
        no_effect=(*file.no_effect, *(key for table in below for key in table.no_effect)),
        models={**{key: name for table in below for key, name in table.models.items()}, **file.models},
    )


@lru_cache
def _file(name: str) -> TableFile:
    return validate_document(TableFile, read_document(data_path("scenarios") / _FOLDER / f"{name}.yaml"))


class Foreign(Checked):
    """A kind of file that is no configuration of a training job."""

    title: str
    kind: Literal[
        "a model",
        "a model of another kind",
        "a script of Python",
        "a serving deployment",
        "a command",
        "a description of a cluster",
        "a loop of reinforcement learning",
        "a conversion of weights",
        "an evaluation or a generation",
        "a question",
        "a workload of another simulator",
        "a trace",
        "a measurement",
        "a script of the shell",
    ]
    patterns: list[str] = Field(min_length=1)
    """Regular expressions, all of which are found near the beginning."""
    reader: str | None = None
    """Reader of machines that takes it; None where it is refused."""
    instead: str = "clustersim import takes it, alone for its cluster or together with the file of a job"
    """Correction: the command that takes such a file, or the part of a scenario that it describes."""


class ForeignFile(Checked):
    """Kinds of files, in the order in which they are tried."""

    kinds: list[Foreign]


@lru_cache
def foreign_kinds() -> tuple[Foreign, ...]:
    """Return the kinds of files that are recognised and refused."""
    return tuple(validate_document(ForeignFile, read_document(data_path("scenarios") / _FOLDER / f"{FOREIGN}.yaml")).kinds)
