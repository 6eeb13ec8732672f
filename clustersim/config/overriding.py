"""Changes from the command line: ``--set key=value`` on a document, before anything is checked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data, Document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.own_parts import read_beside
from clustersim.workloads.reading.hub_names import hub_model

_KEY: Final = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
_LONGEST: Final = 10_000
_FILE_KEYS: Final = re.compile(
    r"(jobs\.\d+\.scenario\.)?(model|strategy\.(schedule|expert_load)|cluster(\.(calibration|node|accelerator|host|nics\.model|fabric\.(leaf|spine)))?"
    r"|cost\.prices(\.\d+)?)|jobs\.\d+\.scenario"
)
"""Keys whose text may name a file."""
CLUSTER_FILES: Final = (".yaml", ".yml")
"""Endings of a cluster that is a file rather than a shipped name."""
_FILE: Final = re.compile(r"(hf:)\s*(.+)|()(.*/.*|.*\.(?:ya?ml|csv|json))", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One ``--set``."""

    path: tuple[str, ...]
    value: Data
    text: str
    leaves_out: bool = False
    """Whether the key is left out, whatever the scenario says."""

    @property
    def place(self) -> Place:
        """Return the text for file and line in a message."""
        return Place(file=f"--set {self.text}" if len(self.text) < 80 else f"--set {'.'.join(self.path)}=...")


def set_options(overrides: Iterable[str]) -> str:
    """Return ``key=value`` texts as options that a shell takes.

    Examples
    --------
    >>> set_options(["strategy.tp=4", "cluster.nics.bandwidth=800 Gbit/s"])
    "-s strategy.tp=4 -s 'cluster.nics.bandwidth=800 Gbit/s'"
    """
    return " ".join(f"-s {shlex.quote(each)}" for each in overrides)


def override_texts(changes: str | Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
    """Return changes as ``key=value`` texts: one text, several, or values by key.

    Examples
    --------
    >>> override_texts({"strategy.tp": 4, "cluster.nics.bandwidth": "800 Gbit/s"})
    ('strategy.tp=4', 'cluster.nics.bandwidth=800 Gbit/s')
    """
    if isinstance(changes, Mapping):
        return tuple(f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}" for key, value in changes.items())
    return (changes,) if isinstance(changes, str) else tuple(changes)


def parse_override(text: str) -> Override:
    """Return the path and value of ``key=value``; the value is YAML, and file paths in it are relative to the current directory.

    Raises
    ------
    ScenarioError
        When there is no key, no value, or the value is not YAML.

    Examples
    --------
    >>> override = parse_override("strategy.data_parallel.bucket=50 MB")
    >>> override.path, override.value
    (('strategy', 'data_parallel', 'bucket'), '50 MB')
    """
    place = Place(file=f"--set {text}" if len(text) < 80 else "--set")
    key, sign, value = text.partition("=")
    if sign and _KEY.fullmatch(key.strip()) and not value.strip():
        raise ScenarioError("holds no value", hint="write it such as --set strategy.tp=4", place=place)
    if not sign or not _KEY.fullmatch(key.strip()) or len(text) > _LONGEST:
        raise ScenarioError("is not key=value", hint="write it such as --set strategy.tp=4", place=place)
    try:
        read = read_yaml(value, str(place), value.splitlines())
    except ScenarioError as error:
        raise ScenarioError(error.message, hint=error.hint, place=place) from error
    if read is None:
        raise ScenarioError("holds no value", hint="write it such as --set strategy.tp=4", place=place)
    path = tuple(key.strip().split("."))
    return Override(path=path, value=from_here(read[0], ".".join(path)), text=text)


def from_here(value: Data, key: str) -> Data:
    """Return a value with the paths of files in it made absolute: a scenario may lie elsewhere, and its paths count from there."""
    if isinstance(value, dict):
        return {name: from_here(below, f"{key}.{name}") for name, below in value.items()}
    if isinstance(value, list):
        return [from_here(below, f"{key}.{index}") for index, below in enumerate(value)]
    found = _FILE.fullmatch(value.strip()) if isinstance(value, str) and _FILE_KEYS.fullmatch(key) else None
    if found is None:
        return value
    prefix, path = (part for part in found.groups() if part is not None)
    if not prefix and hub_model(path) and not Path(path).exists():
        return value
    return f"{prefix}{Path(path).absolute()}"


def apply_overrides(document: Document, overrides: Sequence[Override]) -> Document:
    """Return the document with each override in place, the later ones on top.

    Raises
    ------
    ScenarioError
        When a key leads into something that is no mapping.
    """
    document = _with_cluster_mapping(document)
    for override in overrides:
        _check_way(document.data, override)
        changed = document.without(override.path) if override.leaves_out else document.with_value(override.path, override.value)
        try:
            document = _with_cluster_mapping(changed)
        except ScenarioError as error:
            raise blame(error, (override,), changed) from error
    return document


def blame(error: ScenarioError, overrides: Sequence[Override], document: Document) -> ScenarioError:
    """Return the error with the ``--set`` that caused it as its place, if one did; errors in other files are unchanged."""
    error.beside([blame(each, overrides, document) for each in error.further])
    if error.place is not None and error.place.file != document.name:
        return error
    field = tuple(error.field.split(".")) if error.field else ()
    for override in reversed(overrides):
        # Also for a parent that stands in no file: --set fabric.x=1 is what made 'fabric'.
        made_it = bool(field and document.spot) and override.path[: len(field)] == field and not document.wrote(field)
        if made_it or field[: len(override.path)] == override.path:
            return error.at(override.place)
    return error


def _with_cluster_mapping(document: Document) -> Document:
    """Return the document with ``cluster: name`` or ``cluster: FILE`` written out, so that one of its parts can be overridden."""
    cluster = document.data.get("cluster")
    if not isinstance(cluster, str):
        return document
    if not cluster.endswith(CLUSTER_FILES):
        return document.with_value(["cluster"], {"name": cluster})
    written = read_beside(cluster, document, ("cluster",))
    described = written.data.get("cluster")
    if not isinstance(described, dict):
        hint = "name a file with a cluster in it, such as clustersim import writes"
        raise ScenarioError(f"{cluster} describes no cluster", field="cluster", hint=hint, place=document.place(("cluster",)))
    return document.with_value(["cluster"], described)


def _check_way(data: Mapping[str, Data], override: Override) -> None:
    here: Data = dict(data)
    for depth, part in enumerate(override.path[:-1]):
        here = here.get(part) if isinstance(here, dict) else None
        if here is not None and not isinstance(here, dict):
            at = ".".join(override.path[: depth + 1])
            raise ScenarioError(f"{at} is not a mapping, so nothing below it can be set", hint=f"set {at} itself", place=override.place)
