"""Text to a checked scenario: from a path, a shipped example, stdin or a mapping."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from clustersim.config.keys import placed
from clustersim.config.machine import Hardware
from clustersim.config.overriding import Override, apply_overrides, blame, parse_override
from clustersim.config.presets import apply_preset
from clustersim.config.scenario_schema import NAME_PATTERN, ScenarioSpec
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.check import validate_document, validate_part, value_at
from clustersim.documents.files import STDIN, STDIN_NAME, data_path, read_stdin, text_of
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import (
    HALF,
    MOST_BYTES,
    WHOLE,
    Data,
    Document,
    is_mapping,
    is_sequence,
    parse_document,
    plain_document,
    read_written,
    whole_text,
)
from clustersim.errors import DomainError, Place, ScenarioError
from clustersim.parallel.training_plan import StrategySettings
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model
from clustersim.workloads.reading.model_spec import HUB_PREFIX, model_names

Reader = Callable[[], object]


def with_others(error: ScenarioError, document: Document, *readers: Reader, more: bool = False) -> ScenarioError:
    """Return all mistakes by their lines: an error, those of the model, the cluster and its parts, and what some readers find.

    Of each key one mistake is told. The last of several says that there is ``more`` to check, if so.
    """
    told = _whole(error)
    for read in (*readers, *_sections(document)):
        try:
            read()
        except DomainError as other:
            keys = set(map(_key, told))
            told += [each for each in _whole(placed(other, document)) if _key(each) not in keys]

    def order(each: ScenarioError) -> tuple[bool, bool, int, int]:
        place = each.place or Place(file=document.name)
        return place.line is None, place.file != document.name, place.line or 0, place.column or 0

    first, *others = sorted(told, key=order)
    if more and others:
        others[-1].hint = "; ".join(filter(None, (others[-1].hint, "more is checked once these are mended")))
    return first.beside(others)


def refusals(spec: ScenarioSpec, document: Document, folder: Path) -> Iterator[Reader]:
    """Yield readers for what may not go together: stages and techniques with the model, degrees with the GPUs, the rest with the nodes."""
    from clustersim.config.background_loads import background_of
    from clustersim.config.constraints import check_size, resolve_dp
    from clustersim.config.cost_section import priced_nodes
    from clustersim.config.job_settings import allocate_nodes
    from clustersim.config.machine import hardware_of, link_changes
    from clustersim.config.planning import data_parallel, server_hosts
    from clustersim.config.stragglers import slowdowns_of
    from clustersim.parallel.contributors import CONTRIBUTORS
    from clustersim.parallel.contributors.pipeline_parallel import check_layers
    from clustersim.parallel.training_plan import StrategySettings
    from clustersim.topology.cluster_wiring import cluster_of
    from clustersim.workloads.reading.model_spec import load_model

    def model() -> Model:
        return load_model(document.data.get("model"), document=document).model

    def own_nodes() -> tuple[Hardware, int]:
        hardware = hardware_of(spec.cluster, document)
        check_size(hardware.n_nodes, hardware.node.n_accelerators)
        return hardware, len(allocate_nodes(spec.jobs, hardware.n_nodes).own)

    def fill(strategy: StrategySettings) -> None:
        hardware, n_nodes = own_nodes()
        resolve_dp(strategy, n_nodes * hardware.node.n_accelerators)

    def wire(changes: tuple[LinkChange, ...]) -> Cluster:
        hardware, n_nodes = own_nodes()
        servers = server_hosts(data_parallel(spec.strategy, hardware.node, n_nodes), hardware.node, n_nodes)
        return cluster_of(hardware.kinds, hardware.fabric, servers=servers, changes=changes)

    for each in CONTRIBUTORS:
        yield lambda each=each: each.refuse_model(model(), spec.strategy)
    yield lambda: check_layers(model().n_layers, StrategySettings().changed(pp=spec.strategy.pp), spec.strategy.pp)
    for name in ("tp", "pp", "cp"):
        yield partial(fill, StrategySettings().changed(**{name: getattr(spec.strategy, name)}))
    yield from (partial(fill, spec.strategy), lambda: wire(link_changes(spec.cluster)))
    yield lambda: slowdowns_of(spec.cluster.stragglers, [node.n_accelerators for node in own_nodes()[0].nodes])
    if spec.background:
        yield lambda: background_of(spec.background, wire(()))
    if (cost := spec.cost) is not None:
        yield lambda: priced_nodes(cost, own_nodes()[0].nodes, folder)


def _key(error: ScenarioError) -> tuple[str | None, str]:
    return error.place and error.place.file, error.field or str(error)


def _whole(error: ScenarioError) -> list[ScenarioError]:
    others = error.further
    return [error.beside(()), *others]


def _sections(document: Document) -> Iterator[Reader]:
    """Yield a reader for each part of a scenario that no other one changes."""
    from clustersim.config.machine import hardware_of
    from clustersim.config.scenario_schema import ClusterSpec
    from clustersim.workloads.reading.model_spec import load_model

    if "model" in document.data:
        yield lambda: load_model(document.data["model"], document=document)
    cluster = document.data.get("cluster")
    if isinstance(cluster, dict):
        yield lambda: hardware_of(validate_part(ClusterSpec, cluster, document, ("cluster",)), document)
        groups = cluster.get("nodes")
        for index in range(len(groups)) if isinstance(groups, list) else ():
            yield from _parts(document, ("cluster", "nodes", index))
        yield from _parts(document, ("cluster",))


def _parts(document: Document, at: Sequence[str | int]) -> Iterator[Reader]:
    """Yield a reader for the node at a path, and for each part of it that has a name or a file of its own."""
    from clustersim.hardware.catalog import load_node, named
    from clustersim.hardware.own_parts import ACCELERATOR, HOST, NIC, SWITCH, Kind, part_of, read_beside

    def part(key: str, kind: Kind[Any, Any]) -> Iterator[Reader]:
        keys = (*at, *key.split("."))
        asked = value_at(document.data, keys)
        if isinstance(asked, str | dict):
            yield partial(part_of, kind, asked, document, keys)

    node = value_at(document.data, (*at, "node"))
    if isinstance(node, dict):
        yield from _parts(document, (*at, "node"))
    elif isinstance(node, str) and node.endswith(".yaml"):
        yield from _parts(read_beside(node, document, (*at, "node")), ())
    elif isinstance(node, str):
        yield partial(named, load_node, node, document, (*at, "node"))
    yield from part("accelerator", ACCELERATOR)
    yield from part("host", HOST)
    yield from part("nics.model", NIC)
    yield from part("fabric.leaf", SWITCH)
    yield from part("fabric.spine", SWITCH)


_MAX_DEPTH: Final = 50
_MAPPING: Final = "scenario"
"""Stands for the file in messages about a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioText:
    """A scenario as it was written, before anything in it is changed or checked."""

    document: Document
    text: str
    """As it was given, without overrides."""
    folder: Path
    """Folder to which paths inside the scenario are relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ScenarioText):
    """A scenario whose keys and values are right one by one, the overrides and the values of its preset in its document."""

    name: str
    spec: ScenarioSpec
    overrides: tuple[Override, ...]
    preset_overrides: tuple[Override, ...] = ()
    """Overrides from a preset that ``--set`` named."""
    of_preset: frozenset[str] = frozenset()
    """Dotted keys whose values a preset brought."""

    def located(self, error: DomainError) -> ScenarioError:
        """Return an error and what else is wrong, with keys and the places of those: lines of the file, or the ``--set`` of a value."""
        return blame(
            with_others(placed(error, self.document), self.document, *refusals(self.spec, self.document, self.folder)),
            (*self.preset_overrides, *self.overrides),
            self.document,
        )


@lru_cache
def example_names(*, serving: bool = False) -> tuple[str, ...]:
    """Return the names of the shipped example scenarios, of training or of serving."""
    return tuple(sorted(path.stem for path in _examples().glob("*.yaml") if serving == ("\nserving:" in path.read_text(encoding="utf-8"))))


def example_path(name: str) -> Path:
    """Return the file of a shipped example.

    Raises
    ------
    ScenarioError
        When there is no such example.
    """
    known = (*example_names(), *example_names(serving=True))
    if name not in known:
        raise ScenarioError(f"unknown example '{name}'", hint=did_you_mean(name, known) or f"use one of {', '.join(known)}")
    return _examples() / f"{name}.yaml"


def load_scenario(source: str | Path | Mapping[str, object], overrides: str | Sequence[str] = ()) -> Scenario:
    """Return a checked scenario.

    Parameters
    ----------
    source
        A path, the name of a shipped example, ``-`` for stdin, or a mapping with the same keys.
    overrides
        ``key=value`` texts, or a single one, put into the data before it is checked.
    """
    texts = (overrides,) if isinstance(overrides, str) else overrides
    return checked_scenario(read_source(source), [parse_override(text) for text in texts])


def read_source(source: str | Path | Mapping[str, object]) -> ScenarioText:
    """Return a scenario as it was written; parameters as for :func:`load_scenario`."""
    if is_mapping(source):
        data = _plain_mapping(source, "", 0)
        return ScenarioText(document=plain_document(data, _MAPPING), text=yaml_text(data), folder=Path())
    if source == STDIN:
        text = text_of(read_stdin(MOST_BYTES, hint="a scenario is a short YAML file"), STDIN_NAME, "write a YAML document")
        return ScenarioText(document=parse_document(text, STDIN_NAME), text=text, folder=Path())
    path = _find(source if isinstance(source, Path) else str(source))
    document, text = read_written(path)
    return ScenarioText(document=document, text=text, folder=path.parent)


def checked_scenario(source: ScenarioText, changes: Sequence[Override]) -> Scenario:
    """Return a checked scenario: what was written, with changes on top.

    Raises
    ------
    ScenarioError
        With each mistake, its place and what would be right.
    """
    document = apply_overrides(source.document, changes)
    blamed = tuple(changes)
    try:
        if "serving" in document.data:
            error = ScenarioError(
                "serves requests and trains nothing",
                field="serving",
                place=document.place(("serving",)),
                hint="use run, compare, sweep, what-if, explain or plan --serving",
            )
            raise with_others(error, document)
        if "architectures" in document.data or "model_type" in document.data:
            raise _only_a_model(document.name)
        if set(document.data) - {"version", "name"} == {"cluster"}:
            hint = f"give it to a job: clustersim run SCENARIO -s cluster={document.name}; or add model and training"
            raise ScenarioError("describes a cluster alone", place=document.place(("cluster",)), hint=hint)
        try:
            merged = apply_preset(document, changes)
            document, blamed = merged.document, (*merged.brought, *changes)
            spec = validate_document(ScenarioSpec, document)
        except ScenarioError as error:
            raise with_others(error, document, lambda: validate_document(ScenarioSpec, document), more=True) from error.__cause__
    except ScenarioError as error:
        raise blame(error, blamed, document) from error
    return Scenario(
        name=spec.name or name_from(document.name),
        spec=spec,
        document=document,
        text=source.text,
        folder=source.folder,
        overrides=tuple(changes),
        preset_overrides=merged.brought,
        of_preset=merged.keys,
    )


def _find(source: str | Path) -> Path:
    """Return the file that a path or a name means; a file in the working directory goes before a shipped example."""
    path = Path(source)
    text = str(source)
    if text.startswith(HUB_PREFIX):
        raise _only_a_model(text.removeprefix(HUB_PREFIX))
    looks_like_a_name = isinstance(source, str) and re.fullmatch(r"[\w-]+", text) is not None
    if not looks_like_a_name or path.is_file():
        return path
    known = (*example_names(), *example_names(serving=True))
    if text in known:
        return example_path(text)
    if path.exists():
        return path  # a folder, which its reader refuses as that
    if text in model_names():
        hint = f"find a layout: clustersim plan {text} dgx-h100 --nodes 2, or write 'model: {text}' in a scenario"
        raise ScenarioError(f"'{text}' is a model and no scenario", hint=hint)
    near = did_you_mean(text, known)
    raise ScenarioError(
        f"there is no file and no shipped example '{text}'", hint=near or "write the path of a YAML file, or see clustersim show examples"
    )


def _only_a_model(file: str) -> ScenarioError:
    hint = f"write 'model: {HUB_PREFIX}{file}' in a scenario, or find a layout: clustersim plan {HUB_PREFIX}{file} dgx-h100 --nodes 2"
    return ScenarioError("is a model of Hugging Face and no scenario", place=Place(file=file), hint=hint)


def _examples() -> Path:
    return data_path("scenarios") / "examples"


def name_from(file: str) -> str:
    """Return a name for a scenario that brings none."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem).strip("-.")[:100]
    return stem if re.fullmatch(NAME_PATTERN, stem) else "scenario"


def _plain_mapping(source: Mapping[object, object], at: str, depth: int) -> dict[str, Data]:
    data: dict[str, Data] = {}
    for key, value in source.items():
        if not isinstance(key, str):
            raise ScenarioError(f"key {key!r} is not text", field=at or None, place=Place(file=_MAPPING))
        if whole_text(key) is None:
            raise ScenarioError(f"key {key!r} {HALF}", field=at or None, hint=WHOLE, place=Place(file=_MAPPING))
        data[key] = _plain(value, f"{at}.{key}" if at else key, depth + 1)
    return data


def _plain(value: object, at: str, depth: int) -> Data:
    place = Place(file=_MAPPING)
    if depth > _MAX_DEPTH:
        raise ScenarioError(f"is nested more than {_MAX_DEPTH} levels deep", field=at, place=place)
    if is_mapping(value):
        return _plain_mapping(value, at, depth)
    if is_sequence(value):
        return [_plain(item, f"{at}.{index}", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ScenarioError(f"{value} is not a finite number", field=at, place=place)
    if isinstance(value, str):
        whole = whole_text(value)
        if whole is None:
            raise ScenarioError(HALF, field=at, hint=WHOLE, place=place)
        return whole
    if value is None or isinstance(value, int | float):
        return value
    raise ScenarioError(f"a {type(value).__name__} is not understood", field=at, hint="use text, numbers, lists and mappings", place=place)
