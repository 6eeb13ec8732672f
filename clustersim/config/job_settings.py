"""The ``jobs`` of a scenario: which nodes each gets, and what it trains there.

Servers and paces of workers are refused here where only a job beside others cannot have them: no technique knows of other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clustersim.config.keys import placed
from clustersim.config.load import Scenario, example_names, example_path
from clustersim.config.machine import hardware_of
from clustersim.config.overriding import apply_overrides
from clustersim.config.presets import apply_preset
from clustersim.config.scenario_schema import JobSpec, ScenarioSpec
from clustersim.documents.check import validate_document
from clustersim.documents.files import named_file
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Document, read_document
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.models import Node
from clustersim.notices import Flag
from clustersim.parallel.step_settings import DataParallel
from clustersim.parallel.training_plan import Plan
from clustersim.units.divisors import listed
from clustersim.workloads.reading.model_spec import LoadedModel

UNUSED: Final = ("cluster", "checks", "cost", "reliability")
"""Parts of a scenario that mean nothing to a job on the cluster of another."""
OF_THE_WHOLE: Final = ("jobs", "background")
"""Parts that belong to the scenario that has the jobs."""
_YAML: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Model and plan of a training on a number of nodes."""

    loaded: LoadedModel
    plan: Plan
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A further job, on its own nodes."""

    name: str
    nodes: tuple[int, ...]
    planned: Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAllocation:
    """Node allocation of the jobs."""

    own: tuple[int, ...]
    """Nodes left for the scenario's own job, ascending."""
    jobs: tuple[tuple[int, ...], ...]


def allocate_nodes(specs: Sequence[JobSpec], n_nodes: int) -> NodeAllocation:
    """Return the nodes of each job: those that are named, then of the rest the last ones, in the order of the jobs.

    Raises
    ------
    ScenarioError
        A node does not exist or is named twice, or there are not enough.
    """
    free = dict.fromkeys(range(n_nodes))
    taken: dict[int, int] = {}
    allocation: dict[int, tuple[int, ...]] = {}
    for index, spec in enumerate(specs):
        for number in spec.nodes if isinstance(spec.nodes, tuple) else ():
            field = f"jobs.{index}.nodes"
            if number >= n_nodes:
                raise ScenarioError(f"there is no node {number}", field=field, hint=f"nodes are 0 to {n_nodes - 1}")
            if number in taken:
                raise ScenarioError(f"node {number} belongs to jobs.{taken[number]} already", field=field, hint="name each node once")
            taken[number] = index
            del free[number]
        if isinstance(spec.nodes, tuple):
            allocation[index] = spec.nodes
    for index, spec in enumerate(specs):
        if isinstance(spec.nodes, int):
            if spec.nodes > len(free):
                raise ScenarioError(
                    f"{spec.nodes} nodes are asked for, and {len(free)} are left", field=f"jobs.{index}.nodes", hint="take fewer"
                )
            allocation[index] = tuple(free)[-spec.nodes :]
            free = dict.fromkeys(number for number in free if number not in allocation[index])
    if not free:
        last = f"jobs.{len(specs) - 1}.nodes"
        raise ScenarioError("no node is left for the scenario's own job", field=last, hint=f"take fewer of the {n_nodes} nodes")
    return NodeAllocation(own=tuple(free), jobs=tuple(allocation[index] for index in range(len(specs))))


def jobs_of(
    scenario: Scenario, node: Node, allocation: NodeAllocation, plan: Callable[[Scenario, Sequence[int]], Planned]
) -> tuple[PlannedJob, ...]:
    """Return the further jobs of a scenario, each on its nodes.

    Parameters
    ----------
    node
        What the cluster is made of.
    plan
        Turns a scenario into a plan for some nodes.

    Raises
    ------
    ScenarioError
        A job's scenario cannot be used, or is for other accelerators.
    """
    names: dict[str, int] = {}
    jobs: list[PlannedJob] = []
    for index, (spec, nodes) in enumerate(zip(scenario.spec.jobs, allocation.jobs, strict=True)):
        field = f"jobs.{index}"
        document, own_name, folder = _document(scenario, spec, field)
        name = _new_name(spec.name, own_name, names, index)
        try:
            inner, unused = _inner(document, scenario, folder, node)
            planned = plan(inner, nodes)
            gradients = planned.plan.strategy.data_parallel
            _check_servers(gradients, len(nodes))
            _check_in_step(gradients)
        except DomainError as error:
            raise _seen_from(scenario, error, document, field) from error
        flags = (*_unused_flags(name, unused), *(Flag(code=flag.code, message=f"job {name}: {flag.message}") for flag in planned.flags))
        jobs.append(PlannedJob(name=name, nodes=nodes, planned=replace(planned, flags=flags)))
    return tuple(jobs)


def _document(scenario: Scenario, spec: JobSpec, field: str) -> tuple[Document, str, Path]:
    """Return the scenario of a job as it was written, a name for it, and what paths in it are relative to."""
    outer, asked = scenario.document, spec.scenario
    if isinstance(asked, str):
        path = _find(asked, scenario, f"{field}.scenario")
        document = read_document(path)
        given = document.data.get("name")
        return document, given if isinstance(given, str) else path.stem, path.parent
    spot = outer.spot
    for part in ("jobs", int(field.rpartition(".")[2]), "scenario"):
        spot = spot.children.get(part) if spot else None
    given = asked.get("name")
    document = Document(name=outer.name, data=asked, spot=spot, lines=outer.lines)
    return document, given if isinstance(given, str) else "job", scenario.folder


def _find(asked: str, scenario: Scenario, field: str) -> Path:
    """Return the file that a path or a name means; a path counts from the scenario's directory, then from the current one."""
    known = example_names()
    if not asked.endswith(_YAML) and "/" not in asked:
        if asked not in known:
            hint = did_you_mean(asked, known) or "write a path that ends in .yaml, or see clustersim show examples"
            raise ScenarioError(f"there is no shipped example '{asked}'", field=field, hint=hint)
        return example_path(asked)
    return named_file(asked, scenario.folder, field=field, otherwise="write the path of a scenario, counted from the directory of this one")


def _inner(document: Document, outer: Scenario, folder: Path, node: Node) -> tuple[Scenario, tuple[str, ...]]:
    """Return the scenario of a job, checked, and which parts of it are not used."""
    unused = tuple(key for key in UNUSED if document.data.get(key))
    merged = apply_preset(apply_overrides(document, ()))
    document = merged.document
    if "cluster" not in unused:
        document = document.with_value(["cluster"], outer.document.data["cluster"])
    spec = validate_document(ScenarioSpec, document)
    for key in OF_THE_WHOLE:
        if document.data.get(key):
            raise ScenarioError(
                "a job of another scenario has none of its own",
                field=key,
                hint=f"write them into {key} of the scenario that shares its cluster",
            )
    inner = Scenario(name=outer.name, spec=spec, document=document, text="", folder=folder, overrides=(), of_preset=merged.keys)
    if "cluster" in unused:
        meant = hardware_of(spec.cluster, document).node
        if meant.accelerator.name != node.accelerator.name:
            message = f"this is a scenario for {meant.accelerator.name}, and the cluster that it shares has {node.accelerator.name}"
            raise ScenarioError(message, field="cluster", hint=f"name a scenario for {node.accelerator.name}, or a copy without cluster")
    return inner, unused


def _check_servers(gradients: DataParallel, n_nodes: int) -> None:
    """Refuse hosts beside the nodes: which there are is up to the scenario that has the jobs."""
    service = gradients.service
    if service is not None and max(service.hosts) >= n_nodes:
        raise ScenarioError(
            "a job that shares a cluster has no dedicated servers",
            field="strategy.data_parallel.placement",
            hint="use placement: colocated",
        )


def _check_in_step(gradients: DataParallel) -> None:
    """Refuse workers that do not wait for all others: only the scenario's own job is replayed with a policy."""
    if gradients.mode != "sync":
        key, what, advice = "mode", f"mode {gradients.mode} lets", "use mode: sync"
    elif gradients.backup_workers:
        key, what, advice = "backup_workers", "backup_workers let", "leave the key out"
    else:
        return
    raise ScenarioError(
        f"a job that shares a cluster runs with all its workers in step, and {what} some go ahead",
        field=f"strategy.data_parallel.{key}",
        hint=f"{advice}, or simulate this job as the scenario's own and the other as one of its jobs",
    )


def _seen_from(outer: Scenario, cause: DomainError, document: Document, field: str) -> ScenarioError:
    """Return an error in the scenario of a job; where that stands inside another, with the place and the field there."""
    error = placed(cause, document)
    if document.name != outer.document.name or error.place is None or error.place.file != outer.document.name:
        return error
    inside = f"{field}.scenario.{error.field}" if error.field else f"{field}.scenario"
    return ScenarioError(error.message, field=inside, hint=error.hint, place=error.place)


def _new_name(asked: str | None, own_name: str, names: dict[str, int], index: int) -> str:
    """Return a name that no job has yet, and note it."""
    name, number = asked or own_name, 1
    if asked in names:
        raise ScenarioError(f"'{asked}' is the name of jobs.{names[asked]} too", field=f"jobs.{index}.name", hint="use another one")
    while name in names:
        number += 1
        name = f"{own_name}-{number}"
    names[name] = index
    return name


def _unused_flags(name: str, unused: Sequence[str]) -> tuple[Flag, ...]:
    if not unused:
        return ()
    verb = "are" if len(unused) > 1 else "is"
    return (Flag(code="unused_key", message=f"job {name}: {listed(unused, 'and')} of its scenario {verb} not used"),)
