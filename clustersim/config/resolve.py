"""The resolved scenario: every default written out, and the hash that names a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from pydantic import TypeAdapter

from clustersim import __version__
from clustersim.config.build import Built
from clustersim.config.cost_section import resolved_cost
from clustersim.config.job_settings import PlannedJob
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.documents.text import Data
from clustersim.hardware.catalog import FABRIC_KEYS, profile_names
from clustersim.hardware.models import Accelerator, Fabric, GraphSwitch, Host, Nic, Node, Switch
from clustersim.hardware.overrides import INLINE_NAME, NODE_KEYS
from clustersim.hardware.own_parts import ACCELERATOR, HOST, NIC, SWITCH, Kind
from clustersim.notices import Flag
from clustersim.parallel.needs import effective
from clustersim.units.quantity import ENDINGS, ending_of, exact_quantity
from clustersim.workloads.reading.model_spec import LoadedModel

Part = Accelerator | Host | Nic | Switch
HASH_DIGITS: Final = 8
_OF_TOPOLOGY: Final = {"dimensions": "torus", "leaves_per_group": "dragonfly", "global_links": "dragonfly", "graph": "graph"}
"""Keys of a single topology."""
_SWITCHES: Final = TypeAdapter(tuple[GraphSwitch, ...])


def resolved_scenario(built: Built) -> dict[str, Data]:
    """Return the complete scenario with all defaults; it runs to the same numbers.

    Shipped hardware stays named; the model, which may come from a file elsewhere, is written out.
    """
    spec = built.scenario.spec
    resolved: dict[str, Data] = {
        "version": spec.version,
        "name": built.name,
        "model": _model(built.loaded, built.plan.model.name),
        "cluster": resolved_cluster(built, spec.cluster.name),
        **effective(built.plan.model, built.plan.training, built.plan.strategy),
    }
    if spec.steps is not None:
        resolved["steps"] = spec.steps
    if spec.cost is not None:
        resolved["cost"] = resolved_cost(spec.cost)
    if spec.reliability is not None:
        resolved["reliability"] = spec.reliability.model_dump(mode="json", exclude_none=True)
    resolved["checks"] = [check.text for check in built.checks]
    return resolved | _others(built) | _assumed(built.planned_flags)


def resolved_cluster(built: Built, profile: str | None = None) -> dict[str, Data]:
    """Return the complete machine of a scenario with all defaults; by its parts, or as a shipped cluster."""
    hardware = resolved_hardware(built.cluster.kinds, built.cluster.fabric, profile)
    return hardware | ({} if built.constants is None else {"calibration": built.constants.name}) | unlike(built.scenario.spec.cluster)


def files_of(built: Built) -> dict[str, str]:
    """Return the files that a resolved scenario refers to, by name: a schedule, loads of experts, measured constants, and price lists."""
    strategy = built.plan.strategy
    named = {strategy.expert_load.file: strategy.expert_load.text}
    if built.constants is not None:
        named[built.constants.name] = built.constants.text
    if strategy.written is not None:
        named[strategy.schedule] = strategy.written.text
    kept = {name: text for name, text in named.items() if name}
    return kept if built.priced is None else kept | dict(built.priced.files)


def scenario_hash(resolved: dict[str, Data], seed: int, files: dict[str, str] | None = None) -> str:
    """Return eight hexadecimal digits for a resolved scenario.

    The first digits of the SHA-256 of the canonical JSON (sorted keys, no spaces) of the resolved scenario, the seed, the version of the
    package and what stands in files that it refers to. How the scenario was written does not matter: comments, key order, units and
    defaults left out or spelled out give the same hash.
    """
    whole: dict[str, object] = {"clustersim": __version__, "scenario": _as_spelled_out(resolved), "seed": seed}
    whole |= {"files": files} if files else {}
    return digits_of(whole)


def digits_of(value: object) -> str:
    """Return the first digits of the SHA-256 of the canonical JSON of a value."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:HASH_DIGITS]


def _assumed(flags: Sequence[Flag]) -> dict[str, Data]:
    """Return what was assumed where a scenario leaves something open; nothing where it leaves nothing."""
    found: list[Data] = [{"code": flag.code, "message": flag.message} for flag in flags]
    return {"assumed": found} if found else {}


def _as_spelled_out(data: Data) -> Data:
    """Return a resolved scenario without what was assumed: spelled out it gives the same run."""
    if isinstance(data, dict):
        return {key: _as_spelled_out(part) for key, part in data.items() if key != "assumed"}
    return [_as_spelled_out(part) for part in data] if isinstance(data, list) else data


def _others(built: Built) -> dict[str, Data]:
    """Return what else there is on the cluster; nothing where there is nothing."""
    jobs: list[Data] = [{"name": job.name, "nodes": list(job.nodes), "scenario": _job(job)} for job in built.jobs]
    background: list[Data] = [load.model_dump(mode="json", exclude_defaults=True) for load in built.scenario.spec.background]
    others: dict[str, Data] = {"jobs": jobs, "background": background}
    return {key: part for key, part in others.items() if part}


def _job(job: PlannedJob) -> dict[str, Data]:
    plan = job.planned.plan
    return {
        "model": _model(job.planned.loaded, plan.model.name),
        **effective(plan.model, plan.training, plan.strategy),
        # A run puts the name of the job before them.
        **_assumed([replace(flag, message=flag.message.removeprefix(f"job {job.name}: ")) for flag in job.planned.flags]),
    }


def _model(loaded: LoadedModel, name: str) -> dict[str, Data]:
    spec = loaded.spec.model_dump(mode="json", exclude_none=True, exclude={"name", "description", "sources"})
    return {"name": name, **spec}


def unlike(spec: ClusterSpec) -> dict[str, Data]:
    """Return degraded links, stragglers and jitter; nothing where there are none."""
    links: list[Data] = [link.model_dump(mode="json", exclude_defaults=True) for link in spec.links]
    slow: list[Data] = [each.model_dump(mode="json", exclude_none=True) for each in spec.stragglers]
    jitter = None if spec.jitter is None else spec.jitter.model_dump(mode="json", exclude_none=True)
    unlike: dict[str, Data] = {"links": links, "stragglers": slow, "jitter": jitter}
    spread: dict[str, Data] = {} if spec.clock_spread is None else {"clock_spread": spec.clock_spread}
    return spread | {key: part for key, part in unlike.items() if part}


def resolved_hardware(kinds: Sequence[tuple[Node, int]], fabric: Fabric, profile: str | None = None) -> dict[str, Data]:
    """Return nodes and fabric as keys of ``cluster``; shipped parts stay named, and their figures are written out.

    Parameters
    ----------
    kinds
        Each kind of node and how many there are; several are written as groups.
    profile
        The shipped cluster that they are from; None where there is none.
    """
    wires = _fabric(fabric)
    if len(kinds) > 1:
        return {"nodes": [_group(node, count) for node, count in kinds], "fabric": wires}
    node, n_nodes = kinds[0]
    if node.name == INLINE_NAME:
        return {"node": {**_node(node), "fabric": wires}, "nodes": n_nodes}
    base: dict[str, Data] = {"node": node.name} if profile is None else {"name": profile}
    return {**base, "nodes": n_nodes, **_node(node), "fabric": wires}


def _group(node: Node, count: int) -> dict[str, Data]:
    if node.name == INLINE_NAME:
        # A node from nothing must name a fabric, also where that of the cluster takes its place.
        return {"node": {**_node(node), "fabric": _fabric(node.fabric)}, "count": count}
    return {"node": node.name, "count": count, **_node(node)}


def _node(node: Node) -> dict[str, Data]:
    # A part from nothing has no name, and an accelerator without links of its own no bandwidth to state.
    unused = {"nics.model"} if node.nic.name == INLINE_NAME else set[str]()
    unused |= set() if node.accelerator.scale_up_bandwidth_bytes_per_s > 0 else {"scale_up.bandwidth"}
    written = _written(node, {key: each for key, each in NODE_KEYS.items() if not (key in unused or key.startswith("fabric."))})
    _write_own(written, "accelerator", node.accelerator, ACCELERATOR)
    _write_own(written, "host", node.host, HOST)
    nics = written.get("nics")
    if isinstance(nics, dict) and "model" in nics:
        _write_own(nics, "model", node.nic, NIC)
    return written


def _fabric(fabric: Fabric) -> dict[str, Data]:
    unused = {key for key, topology in _OF_TOPOLOGY.items() if fabric.topology != topology}
    unused |= set() if fabric.routing == "ecmp" else {"seed"}
    written = _written(fabric, {key: each for key, each in FABRIC_KEYS.items() if key not in {*unused, "graph"}})
    if "graph" not in unused:
        switches = _SWITCHES.dump_python(fabric.graph, mode="json", by_alias=True)
        written["graph"] = [{key: value for key, value in switch.items() if value} for switch in switches]
    _write_own(written, "leaf", fabric.leaf, SWITCH)
    _write_own(written, "spine", fabric.spine, SWITCH)
    return written


def _write_own(into: dict[str, Data], key: str, part: Part, kind: Kind[Any, Any]) -> None:
    """Write the figures of a part that is not shipped in place of its name."""
    if part.name not in profile_names(kind.folder):
        figures = _written(part, kind.keys)
        if isinstance(part, Accelerator):
            peaks = part.peak_flops_per_s
            figures["peak_flops"] = {precision: exact_quantity(rate, "FLOP/s") for precision, rate in peaks.items()}
            if part.scale_up_links == 0:
                del figures["scale_up"]
        into[key] = figures


def _written(part: Node | Fabric | Part, keys: Mapping[str, str]) -> dict[str, Data]:
    """Return the values of some attributes as a scenario writes them under their keys; those that are None are left out."""
    written: dict[str, Data] = {}
    for key, attribute in keys.items():
        value: Data | tuple[int, ...] = attrgetter(attribute)(part)
        if value is None:
            continue
        *above, name = key.split(".")
        inner = written
        for section in above:
            inner = inner.setdefault(section, {})
            assert isinstance(inner, dict)
        unit = ENDINGS[ending_of(attribute)]
        if unit and isinstance(value, float):
            inner[name] = exact_quantity(value, unit)
        else:
            inner[name] = list[Data](value) if isinstance(value, tuple) else value
    return written
