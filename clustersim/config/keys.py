"""Keys of a scenario for the attributes by which errors of its objects name a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from pydantic import BaseModel

from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.documents.check import located, value_at
from clustersim.documents.text import Data, Document
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.catalog import FABRIC_KEYS
from clustersim.hardware.overrides import NODE_KEYS
from clustersim.parallel.settings import key_of

Path = tuple[str | int, ...]

_OF_CLUSTER: Final = {"changes": "links", "n_nodes": "nodes"}
"""Keys of attributes of a cluster that are neither of its nodes nor of its fabric."""


def placed(error: DomainError, document: Document) -> ScenarioError:
    """Return an error with the key of the value that it is about, and the place of that in the document."""
    if not isinstance(error, ScenarioError):
        message = _with_key(error.message, error.in_the_way)
        error = ScenarioError(message, field=dotted(error.path, document.data) or None, hint=error.hint)
    return error if error.place else located(error, document)


def refusal(error: DomainError, *, field: str) -> ScenarioError:
    """Return an error of an object as an error of a field, with the key of the value concerned."""
    return ScenarioError(_with_key(error.message, error.path), field=field, hint=error.hint)


def _with_key(message: str, path: Path) -> str:
    key = dotted(path, {})
    return f"{message} ({key})" if key else message


def dotted(path: Path, data: dict[str, Data]) -> str:
    """Return the dotted key of the value at a path of attributes; of several keys, the one of which least is missing in the data.

    Examples
    --------
    >>> dotted(("strategy", "data_parallel", "bucket_bytes"), {})
    'strategy.data_parallel.bucket'
    >>> dotted(("cluster", "kinds", 0, "n_accelerators"), {})
    'cluster.accelerators_per_node'
    >>> dotted(("cluster", "kinds", 0, "n_accelerators"), {"cluster": {"node": {"accelerators_per_node": 9}}})
    'cluster.node.accelerators_per_node'
    """
    choices = [("cluster", *keys) for keys in _in_cluster(path[1:], data)] if path[:1] == ("cluster",) else [_in_settings(path)]
    return ".".join(map(str, min(choices, key=lambda keys: _n_missing(keys, data))))


def _in_settings(path: Path) -> Path:
    """Return the keys of a path through the settings of a scenario."""
    keys: list[str | int] = []
    section: type[BaseModel] | None = ScenarioSpec
    for part in path:
        field = None if section is None else section.model_fields.get(str(part))
        keys.append(part if field is None else key_of(str(part), field))
        types = () if field is None else (field.annotation, *get_args(field.annotation))
        section = next((each for each in types if isinstance(each, type) and issubclass(each, BaseModel)), None)
    return tuple(keys)


def _in_cluster(path: Path, data: dict[str, Data]) -> list[Path]:
    """Return the keys below ``cluster`` by which a scenario may say what an attribute of a cluster is."""
    cluster = data.get("cluster")
    several = isinstance(cluster, dict) and isinstance(cluster.get("nodes"), list)
    if path[:1] == ("kinds",):
        within = ("nodes", path[1]) if several else ()
        own = _keys(path[2:], NODE_KEYS)
        return [(*within, *own), (*within, "node", *own)]
    if path[:1] == ("fabric",):
        own = ("fabric", *_keys(path[1:], FABRIC_KEYS))
        return [own, ("nodes", 0, "node", *own) if several else ("node", *own)]
    return [tuple(_OF_CLUSTER.get(str(part), part) for part in path)]


def _keys(path: Path, keys: Mapping[str, str]) -> Path:
    """Return the key of an attribute of a node or fabric, or of the part of it that has a key."""
    by_attribute = {attribute: key for key, attribute in keys.items()}
    for depth in range(len(path), 0, -1):
        attribute = ".".join(map(str, path[:depth]))
        key = by_attribute.get(attribute) or by_attribute.get(f"{attribute}.name")
        if key is not None:
            return tuple(key.split("."))
    return ()


def _n_missing(keys: Path, data: dict[str, Data]) -> int:
    """Return how many keys of a path, counted from its end, do not stand in the data."""
    above = (value_at(data, keys[:depth]) for depth in range(1, len(keys)))
    return len(keys) - sum(isinstance(value, dict | list) for value in above) - (value_at(data, keys) is not None)
