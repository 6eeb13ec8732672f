"""From a model and a cluster, or from a scenario, to a search."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.importing import foreign_source
from clustersim.apps.importing.machines import cluster_of
from clustersim.apps.importing.opening import open_scenario
from clustersim.apps.plan.exports import LAUNCHERS
from clustersim.apps.plan.flags import FRAMEWORKS, FrameworkFiles, megatron
from clustersim.apps.plan.space import NUMBERS, WORDS, ParallelLayout, Space, layout_of, limits_of, space_of
from clustersim.config.build import build
from clustersim.config.constraints import check_size
from clustersim.config.cost_section import CostSpec
from clustersim.config.load import Scenario, example_names, load_scenario
from clustersim.config.machine import hardware_of
from clustersim.config.node_groups import Hardware
from clustersim.config.overriding import Override, parse_override
from clustersim.config.planning import circumstances_of
from clustersim.config.usual import AS_IN_TABLE, ASSUMED_KERNELS, KERNELS, NOT_SAID, Circumstances, one_software
from clustersim.documents.check import value_at
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Data, Document
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.catalog import nodes_with, profile_names
from clustersim.hardware.models import Accelerator, Node
from clustersim.hardware.prices import load_price_list
from clustersim.notices import Flag
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, Plan
from clustersim.units.quantity import parse_quantity
from clustersim.workloads.model import Model
from clustersim.workloads.reading.hub_names import hub_model
from clustersim.workloads.reading.model_spec import HUB_PREFIX, load_model, model_names

BATCH: Final = 1024
"""Default sequences of a step: 4 to 8 million tokens of the lengths that large models are trained on."""

SEQUENCE: Final = 8192
"""Default tokens of a sequence, where the model takes as many: what Llama 3 is trained on before its context is made longer."""

PRICES: Final = "on-demand-2026-10"
"""Default price list."""
NO_PRICES: Final = "no prices are given"
"""Start of the note on it."""

_REPLACED: Final = ("dp", "offload", "placement", *NUMBERS, *WORDS)
# Its flags have both, and a plan would ask for them.
_MEGATRON: Final[Mapping[str, Data]] = {"preset": "megatron_lm", "sequence_parallel": True, "data_parallel": {"overlap": True}}
PRESETS: Final[Mapping[str, Mapping[str, Data]]] = MappingProxyType(
    {
        "torchtitan": {"preset": "torchtitan"},
        "deepspeed": {"sequence_parallel": False},
        **dict.fromkeys(("megatron", *LAUNCHERS), _MEGATRON),
    }
)
"""Settings of a strategy with which a framework is started; the preset of DeepSpeed depends on the stage of ZeRO."""

MOST_LETTERS: Final = 100
"""Longest name of a scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Request to plan a layout."""

    base: Mapping[str, Data]
    """A scenario, whose layout is open."""
    space: Space
    assumed: tuple[str, ...]
    """Values that were assumed."""
    tokens_per_step: int
    scenario: Scenario
    """As it was read, for the places of mistakes."""
    own: ParallelLayout | str | None = None
    """That of a scenario with a ``strategy``, or why it cannot be built."""
    usual: tuple[Flag, ...] = ()
    """Notices on usual settings that all layouts have."""
    remarks: tuple[str, ...] = ()
    """Notices on what is not as it was asked for, but for prices: settings that are searched in spite of their value, unknown powers."""
    writes: Callable[[Plan], FrameworkFiles] | None = None
    """Writes a plan in the words of the framework of the winner, or refuses one that it cannot have."""
    unpriced: str = ""
    """Accelerators whose price neither the scenario nor a shipped list has."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """Notices on what is not as it was asked for."""
        return (*self.remarks, *([no_price_of(self.unpriced)] if self.unpriced else ()))

    def told_of(self, layouts: Iterable[ParallelLayout]) -> PlanRequest:
        """Return the same without the notice on how to run zero 3 as here, where no layout has it."""
        if any(layout.zero_stage == SHARDS_PARAMETERS for layout in layouts):
            return self
        remarks = tuple(line for line in self.remarks if not line.startswith(AS_IN_TABLE))
        return replace(self, remarks=remarks, usual=tuple(flag for flag in self.usual if not flag.message.startswith(AS_IN_TABLE)))

    @contextmanager
    def told(self) -> Generator[None]:
        """Give a mistake that comes up inside its line of the file, or its ``--set``."""
        try:
            yield
        except DomainError as error:
            if isinstance(error, ScenarioError) and not (error.place and error.place.line):
                raise self.scenario.located(ScenarioError(error.message, field=error.field, hint=error.hint)) from error
            raise self.scenario.located(error) from error


def asked_of(
    model: str | Mapping[str, object],
    cluster: str | None = None,
    *,
    nodes: int | None = None,
    overrides: Sequence[str] = (),
    limits: Sequence[str] = (),
    framework: str | None = None,
) -> PlanRequest:
    """Return what to search.

    Parameters
    ----------
    model
        A model, or without a cluster a scenario whose layout is to be replaced; a mapping in place of either.
    cluster
        A shipped node or cluster.
    nodes
        How many.
    overrides
        ``key=value`` texts as for ``run``.
    limits
        ``key=value,value`` texts that narrow the space, such as ``tp=4,8``.
    framework
        In whose words the winner is written: layouts that it has not are left out, and its preset holds where none is said.

    Raises
    ------
    ScenarioError
        When something is unknown or cannot be used.
    """
    assumed: list[str] = []
    remarks = _told_of_searched(_searched(overrides), limits, refused=cluster is not None)
    given = _scenario(model, overrides) if cluster is None else _of_cluster(model, cluster, nodes, overrides, assumed)
    base = _for_framework(framework, given, remarks)
    scenario = load_scenario(dict(base))
    hardware = _hardware(scenario, given, nodes)
    loaded = load_model(scenario.document.data.get("model"), document=given.document if cluster is None else None).model
    seq_length = scenario.spec.training.seq_length or loaded.max_positions
    if cluster is not None and not scenario.spec.training.seq_length and loaded.unit == "sequence":
        base, seq_length = _with_length(base, loaded, assumed)
    kinds = [kind for kind, _ in hardware.kinds]
    base, unlisted, note = priced(base, scenario.spec.cost, [kind.accelerator for kind in kinds])
    if note:
        (remarks if unlisted else assumed).append(note)
    n_ranks = hardware.n_nodes * hardware.node.n_accelerators
    base, usual = _of_one_software(base, scenario, circumstances_of(scenario.spec, loaded, kinds, n_ranks=n_ranks))
    alike = [each.message for each in usual if each.message.startswith(AS_IN_TABLE)]
    return PlanRequest(
        base=base,
        space=_space(scenario, loaded, hardware.node, n_ranks, limits),
        assumed=(*assumed, *(each.message.removeprefix(NOT_SAID) for each in usual if each.message not in alike)),
        tokens_per_step=scenario.spec.training.global_batch_size * seq_length,
        scenario=given,
        own=_own_layout(given) if cluster is None else None,
        usual=usual,
        remarks=(*remarks, *alike),
        writes=FRAMEWORKS.get(framework, megatron) if framework else None,
        unpriced=unlisted,
    )


def _hardware(scenario: Scenario, given: Scenario, nodes: int | None) -> Hardware:
    hardware = hardware_of(scenario.spec.cluster, scenario.document)
    try:
        check_size(hardware.n_nodes, hardware.node.n_accelerators)
    except ScenarioError as error:
        raise (ScenarioError(error.message, field="--nodes", hint=error.hint) if nodes is not None else given.located(error)) from error
    return hardware


def _space(scenario: Scenario, model: Model, node: Node, n_ranks: int, limits: Sequence[str]) -> Space:
    """Return the layouts to search, of a model that is not divided those of data parallelism alone unless limits say otherwise."""
    alone: Mapping[str, tuple[int | str, ...]] = {} if model.divisible else {"pp": (1,), "cp": (1,), "recompute": ("none",)}
    return space_of(
        model,
        batch=scenario.spec.training.global_batch_size,
        n_ranks=n_ranks,
        domain_size=node.n_accelerators * node.scale_up.nodes_per_domain,
        limits={**alone, **limits_of(limits)},
    )


def _for_framework(framework: str | None, given: Scenario, remarks: list[str]) -> Mapping[str, Data]:
    """Return a scenario under the settings of a framework, without those of its strategy that every layout replaces."""
    base, held = given.document.data, PRESETS.get(framework or "")
    if not held or given.spec.strategy.preset is not None:
        return base
    said = ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in held.items())
    remarks.append(f"planned for {framework}, which is started with {said}: without --as another layout may win (-s strategy.preset=...)")
    strategy = base.get("strategy")
    merged = dict(held)
    for key, value in strategy.items() if isinstance(strategy, dict) else ():
        of_framework = held.get(key)
        if isinstance(of_framework, dict) and isinstance(value, dict):
            merged[key] = {**of_framework, **value}
        elif key not in _REPLACED:
            merged[key] = value
    return {**base, "strategy": merged}


def _with_length(base: Mapping[str, Data], model: Model, assumed: list[str]) -> tuple[Mapping[str, Data], int]:
    """Return a scenario of which no length is given, and the length: the usual one, or all positions of a model that has fewer."""
    has_fewer = 0 < model.max_positions <= SEQUENCE
    seq_length, which = (model.max_positions, ", which the model has positions for") if has_fewer else (SEQUENCE, "")
    assumed.append(f"no sequence length is given: {seq_length:,} tokens{which} (-s training.seq_length=...)")
    training = base.get("training")
    return {**base, "training": {**(training if isinstance(training, dict) else {}), "seq_length": seq_length}}, seq_length


def _of_cluster(
    model: str | Mapping[str, object], cluster: str, nodes: int | None, overrides: Sequence[str], assumed: list[str]
) -> Scenario:
    try:
        if isinstance(model, str):
            load_model(model)  # a mistake in its name is told first
        return load_scenario(_document(model, cluster, nodes, overrides, assumed), overrides)
    except ScenarioError as error:
        if isinstance(model, str) and Path(model).is_file() and foreign_source(model):
            return open_scenario(model, overrides, (cluster, nodes))
        if nodes is not None and error.field == "cluster.nodes":
            raise ScenarioError(error.message, field="--nodes", hint=error.hint) from error
        if error.place is None or error.place.line is not None:
            raise
        # Nobody wrote the scenario in which the mistake stands.
        raise ScenarioError(error.message, field=error.field, hint=error.hint) from error


def _own_layout(scenario: Scenario) -> ParallelLayout | str | None:
    if not scenario.document.data.get("strategy"):
        return None
    try:
        plan = build(scenario).plan
    except ScenarioError as error:
        return f"{error.field}: {error.message}" if error.field else error.message
    return layout_of(plan.strategy, plan.training.micro_batch_size)


def _of_one_software(base: Mapping[str, Data], scenario: Scenario, run: Circumstances) -> tuple[Mapping[str, Data], tuple[Flag, ...]]:
    """Return a scenario that leaves no setting open whose usual value depends on the layout and says so of its kernels, and notices."""
    if not run.transformer:
        return base, ()
    software = one_software(run)
    flags = software.flags([key for key in software.usual if value_at(scenario.document.data, key.split(".")) is None])
    document = Document(name=scenario.document.name, data=dict(base))
    for key, value in software.held.items():
        if value_at(scenario.document.data, key.split(".")) is None:
            document = document.with_value(key.split("."), [*value] if isinstance(value, tuple) else value)
            if key == KERNELS:
                said = document.data.get("assumed")
                assumed: list[Data] = [*said] if isinstance(said, list) else []
                assumed.append({"code": ASSUMED_KERNELS.code, "message": ASSUMED_KERNELS.message})
                document = document.with_value(["assumed"], assumed)
    return document.data, flags


def _scenario(model: str | Mapping[str, object], overrides: Sequence[str]) -> Scenario:
    """Return the scenario that stands in place of a model and a cluster."""
    shipped = isinstance(model, str) and bool(model in model_names() or hub_model(model))
    named = shipped and model not in example_names() and not Path(str(model)).is_file()
    if named or (isinstance(model, str) and model.startswith(HUB_PREFIX)):
        hint = f"write a node or a cluster behind it, such as '{model} dgx-h100 --nodes 8', or a scenario in its place"
        raise ScenarioError(f"'{model}' is a model, and the cluster to plan for is missing", field="CLUSTER", hint=hint)
    try:
        return open_scenario(model, overrides) if isinstance(model, str) else load_scenario(model, overrides)
    except ScenarioError as error:
        if not isinstance(model, str) or not model.endswith(".json") or (Path(model).is_file() and foreign_source(model)):
            raise
        hint = f"for a model of Hugging Face, write {HUB_PREFIX}{model} and a cluster"
        raise ScenarioError(error.message, field=error.field, hint=hint, place=error.place) from error


def no_price_of(names: str) -> str:
    """Return the notice that no list has a price of accelerators, with the settings that give one."""
    each = f"-s cost.gpu_hour='{{{names.replace(', ', ': 2.50 USD, ')}: 2.50 USD}}'"
    return f"no price of {names} is known, and none is counted; give one for all, -s cost.gpu_hour='2.50 USD', or for each, {each}"


def priced(base: Mapping[str, Data], cost: CostSpec | None, accelerators: Sequence[Accelerator]) -> tuple[Mapping[str, Data], str, str]:
    """Return a scenario with shipped prices where it leaves prices open, the accelerators that have none, and a note on prices or power.

    It leaves open all prices without costs, and those that rents by name leave out.
    """
    named = {} if cost is None else cost.gpu_hour if cost.prices is None else None
    left = [each for each in accelerators if each.name not in named] if isinstance(named, Mapping) else []
    rents = load_price_list(PRICES).gpu_hour
    unlisted = ", ".join(dict.fromkeys(each.name for each in left if each.name not in rents))
    section = given if isinstance(given := base.get("cost"), Mapping) else {}
    if left and not unlisted:
        names = "" if cost is None else f" of {', '.join(dict.fromkeys(each.name for each in left))}"
        note = f"{NO_PRICES}{names}: those of {PRICES} (-s cost.gpu_hour='2.50 USD')"
        return {**base, "cost": {**section, "prices": PRICES}}, "", note
    dark = ", ".join(dict.fromkeys(each.name for each in left if each.power_w is None))
    if not left or (dark and not section):
        return base, unlisted, dark and f"nobody says how much power {dark} draws, and none is counted; give -s cost.power.busy='700 W'"
    return {**base, "cost": {key: value for key, value in section.items() if key != "gpu_hour"}}, unlisted, ""


def _document(
    model: str | Mapping[str, object], cluster: str, nodes: int | None, overrides: Sequence[str], assumed: list[str]
) -> dict[str, object]:
    given = [key for text in overrides for key in _given_keys(parse_override(text))]
    training: dict[str, object] = {}
    if "training.global_batch_size" not in given:
        training["global_batch_size"] = BATCH
        assumed.append(f"no batch is given: {BATCH} sequences a step (-s training.global_batch_size=...)")
    if cluster in profile_names("clusters"):
        machine: dict[str, object] = {"name": cluster}
    elif (written := cluster_of(cluster)) is not None:
        machine = dict(written)
    elif cluster in profile_names("nodes") or cluster.endswith(".yaml"):
        machine = {"node": cluster}
        if nodes is None and "cluster.nodes" not in given:
            raise ScenarioError(f"the number of nodes of {cluster} is missing", field="--nodes", hint="write such as --nodes 64")
    else:
        known = (*profile_names("clusters"), *profile_names("nodes"))
        hint = nodes_with(cluster, known) or did_you_mean(cluster, known) or "see `clustersim show nodes` and `clustersim show clusters`"
        raise ScenarioError(f"there is no cluster or node '{cluster}'", hint=hint)
    if nodes is not None:
        machine["nodes"] = nodes
    return {"version": 1, "name": _name(model, cluster, nodes), "model": model, "cluster": machine, "training": training}


def _given_keys(override: Override) -> Iterator[str]:
    """Yield the dotted keys of one change, those within a mapping too."""
    key = ".".join(override.path)
    yield key
    if isinstance(override.value, dict):
        for inner in override.value:
            yield f"{key}.{inner}"


def _searched(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """Return key and name of the settings, of some, that every layout of a search replaces."""
    keys = {f"strategy.{key}": key for key in _REPLACED}
    keys["training.micro_batch_size"] = "micro_batch_size"
    return [(key, keys[key]) for text in overrides for key in _given_keys(parse_override(text)) if key in keys]


def _told_of_searched(replaced: Sequence[tuple[str, str]], limits: Sequence[str], *, refused: bool) -> list[str]:
    """Return a caution about settings that are searched in spite of their value, or refuse the first: without a layout to begin from."""
    for key, name in replaced if refused else ():
        hint = f"write --only {name}=..." if name != "dp" else "write --only with tp, pp and cp, from which it follows"
        raise ScenarioError(f"plan searches {name}, and would replace what is given", field=key, hint=hint)
    held = {text.partition("=")[0].strip() for text in limits}
    names = [name for _, name in replaced if name not in held]
    return [f"{', '.join(names)} as given: of the layout marked yours alone; --only {names[0]}=... holds it"] if names else []


def _name(model: str | Mapping[str, object], cluster: str, nodes: int | None) -> str:
    """Return the name of a planned scenario: of its model, its node and their number.

    Examples
    --------
    >>> _name("hf:models/llama/config.json", "dgx-h100", 4), _name("config.json", "dgx-h100", 4), _name({}, "selene", None)
    ('llama-dgx-h100-4', 'config-dgx-h100-4', 'plan-selene')
    >>> _name("hf:../llama/x/../config.json", "dgx-h100", 4), _name("hf:_cache/_x.yaml", "dgx-h100", 4)
    ('llama-dgx-h100-4', 'x-dgx-h100-4')
    """
    named = model if isinstance(model, str) else str(model.get("name") or "plan")
    # A shipped name may have a dot in it, which begins no suffix.
    path = Path(named.removeprefix(HUB_PREFIX))
    path = path.resolve() if ".." in path.parts else path
    stem = path.stem if path.suffix in (".json", ".yaml", ".yml") else path.name
    words = [path.parent.name if stem == "config" and path.parent.name else stem, Path(cluster).name.removesuffix(".yaml")]
    name = "-".join([*words, *([str(nodes)] if nodes is not None else [])])
    return re.sub("[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:MOST_LETTERS]


def figure_of(option: str, text: str, unit: str) -> float:
    """Return the figure of an option, which is more than nothing.

    Raises
    ------
    ScenarioError
        When it has no unit, or is not more than nothing.
    """
    try:
        found = parse_quantity(text, unit)
    except ScenarioError as error:
        raise ScenarioError(error.message, field=option, hint=error.hint) from error
    if found <= 0.0:
        raise ScenarioError(f"{text} is not more than nothing", field=option)
    return found
