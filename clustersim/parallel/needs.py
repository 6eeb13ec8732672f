"""Settings without effect in a plan, because a need is not met; and the plan as written to a file, without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue

from clustersim.parallel.gradients import gradient_buckets, layer_slices
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.offload import offloads
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.settings import Needs, Settings
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage import ActivationMemory
from clustersim.parallel.stages import model_chunks, orders_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, Strategy, micro_batches
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Convolution, Operator

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A setting that does nothing in a plan."""

    path: tuple[str, ...]
    """Attributes from the plan, or from a scenario, to the setting."""
    reason: str

    def written_in(self, settings: BaseModel) -> bool:
        """Return whether something else than its default was written."""
        section = self._section(settings)
        return getattr(section, self.path[-1]) != type(section).model_fields[self.path[-1]].default

    def asked_in(self, settings: BaseModel) -> bool:
        """Return whether a setting was requested: true, even where it is the default; false not, where the default is open."""
        section = self._section(settings)
        value, default = getattr(section, self.path[-1]), type(section).model_fields[self.path[-1]].default
        return section.gives(self.path[-1]) if value is True else value != default and not (value is False and default is None)

    def _section(self, settings: BaseModel) -> Settings:
        section: object = attrgetter(".".join(self.path[:-1]))(settings)
        assert isinstance(section, Settings)
        return section

    def left_out(self, settings: M) -> M:
        """Return the settings as if this one had not been written."""
        return _left_out(settings, self.path)


def idle(model: Model, training: Training, strategy: Strategy) -> tuple[Idle, ...]:
    """Return the settings of training and strategy that do nothing."""
    local = local_model(model, training, strategy)
    # The gradients of a single micro-batch are reduced once, with or without no_sync.
    single = strategy.changed(data_parallel=strategy.data_parallel.changed(no_sync=True))
    seen = strategy if _several(training, strategy) else single
    unmet = {name: otherwise for name, (holds, otherwise) in CONDITIONS.items() if not holds(local, seen)}
    unmet |= {name: otherwise for name, (holds, otherwise) in OF_TRAINING.items() if not holds(training, strategy)}
    return (*_idle(unmet, training, ("training",)), *_idle(unmet, strategy, ("strategy",)))


def effective(model: Model, training: Training, strategy: Strategy) -> dict[str, JsonValue]:
    """Return training and strategy by their keys, without settings that do nothing or were left open."""
    unused = {each.path for each in idle(model, training, strategy)}
    return {"training": _shown(training, ("training",), unused), "strategy": _shown(strategy, ("strategy",), unused)}


def _left_out(settings: M, path: Sequence[str]) -> M:
    name, *rest = path
    if not rest:
        assert isinstance(settings, Settings)
        return settings.without({name})
    return settings.model_copy(update={name: _left_out(getattr(settings, name), rest)})


def _shown(settings: Settings, path: tuple[str, ...], unused: Collection[tuple[str, ...]]) -> dict[str, JsonValue]:
    parts = {name: part for name, part in _values(settings) if isinstance(part, Settings)}
    left = {name for name, _ in _values(settings) if (*path, name) in unused}
    shown = settings.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={*parts, *left})
    return shown | {name: _shown(part, (*path, name), unused) for name, part in parts.items()}


def _idle(unmet: Mapping[str, str], settings: Settings, path: tuple[str, ...]) -> Iterator[Idle]:
    for name, value in _values(settings):
        field = type(settings).model_fields[name]
        here = (*path, name)
        if isinstance(value, Settings):
            yield from _idle(unmet, value, here)
        reasons = (unmet[need.condition] for need in field.metadata if isinstance(need, Needs) and need.condition in unmet)
        yield from (Idle(path=here, reason=reason) for reason in islice(reasons, 1))


def _values(settings: Settings) -> Iterator[tuple[str, object]]:
    return ((name, getattr(settings, name)) for name in type(settings).model_fields)


def _weights_move(strategy: Strategy) -> bool:
    shards = max(strategy.sharding.degree, strategy.sharding.expert_degree) > 1 or strategy.gathers_weights
    return shards or strategy.data_parallel.central


def _divides(strategy: Strategy) -> bool:
    away = strategy.offload.gradients != "accelerator" or strategy.offload.parameters != "accelerator"
    return strategy.reduces_gradients or strategy.zero_stage == SHARDS_PARAMETERS or away


def _works_beside_experts(local: LocalModel, strategy: Strategy) -> bool:
    experts = local.model.experts
    return experts is None or experts.shared_size > 0 or strategy.overlap_ep == "micro_batches"


def _several(training: Training, strategy: Strategy) -> bool:
    return micro_batches(training, strategy) > 1


def _overlaps_gradients(strategy: Strategy) -> bool:
    chunks = strategy.overlap_tp in ("gemm_chunks", "async_tp")
    return chunks or any(each.kind == "B" for order in orders_of(strategy, 2 * strategy.pp) for each in order)


def _loss_is_largest(local: LocalModel, strategy: Strategy) -> bool:
    copied = replace(local, numerics=replace(local.numerics, loss_in_place=False)) if local.numerics.loss_in_place else local
    memory = ActivationMemory(local=copied, strategy=strategy)
    stages = [chunks for chunks in model_chunks(strategy, local.model.n_layers) if any(chunk.last for chunk in chunks)]
    return any("loss" in memory.backward_bytes(chunk, memory.fullest_place(chunks)) for chunks in stages for chunk in chunks if chunk.last)


def _checks_later(strategy: Strategy) -> bool:
    schedule = SCHEDULES.get(strategy.schedule)
    return strategy.optimizer_post_validation or (schedule is not None and schedule.validates_later)


def _reduces_often(local: LocalModel, strategy: Strategy) -> bool:
    gradients, service = strategy.data_parallel, strategy.data_parallel.service
    if service is not None:
        return len(layer_slices(local, service.bucket_bytes)) > 1
    if gradients.overlap or not gradients.no_sync or strategy.gathers_weights:
        return True
    stages = model_chunks(strategy, local.model.n_layers)
    return any(more or len(gradient_buckets(local, gradients, first)) > 1 for first, *more in stages)


def _has(local: LocalModel, wanted: Callable[[Operator], bool]) -> bool:
    return any(wanted(operator) for first, _ in local.equal_layers(range(local.model.n_layers)) for operator in local.layer(first))


def _captures(local: LocalModel) -> bool:
    plain = replace(local, captured=())
    return not local.captured or any(
        local.layer(first) != plain.layer(first) for first, _ in local.equal_layers(range(local.model.n_layers))
    )


def _alone(local: LocalModel) -> bool:
    share = local.shape().experts
    return share is not None and share.n_local == 1 and not local.numerics.fused_experts


CONDITIONS: Final[Mapping[str, tuple[Callable[[LocalModel, Strategy], bool], str]]] = {
    "transformer": (lambda local, _: local.model.unit == "sequence", "with a list of layers"),
    "images": (
        lambda local, _: _has(local, lambda operator: any(isinstance(kernel, Convolution) for kernel in operator.kernels("forward"))),
        "without convolutions",
    ),
    "fp8": (lambda local, _: local.numerics.casts_weights, "without precision: fp8"),
    "delayed scaling": (lambda local, _: local.numerics.scaling == "delayed", "without fp8_scaling: delayed"),
    "adapters": (lambda local, _: local.adapters is not None, "without lora_rank"),
    "experts": (lambda local, _: local.model.experts is not None, "without experts"),
    "rows of experts beside each other": (
        lambda local, _: local.numerics.grouped_experts and not local.numerics.fused_experts,
        "without grouped_experts: true",
    ),
    "experts beside each other": (lambda local, _: not _alone(local), "with one expert on each rank"),
    "captured parts": (lambda local, _: _captures(local), "where layers have none of these parts"),
    "work beside experts": (_works_beside_experts, "without shared experts"),
    "skewed load": (lambda _, strategy: strategy.expert_load.kind in ("zipf", "dirichlet"), "without a zipf or dirichlet load"),
    "capacity": (
        lambda _, strategy: strategy.expert_load.kind != "balanced" or (strategy.expert_capacity or 0.0) <= 1.0,
        "where every expert gets the mean",
    ),
    "tp": (lambda _, strategy: strategy.tp > 1, "with tp 1"),
    "pp": (lambda _, strategy: strategy.pp > 1, "with pp 1"),
    "waited sends": (lambda _, strategy: not strategy.overlap_p2p, "where sends overlap (overlap_p2p: true)"),
    "cp": (lambda _, strategy: strategy.cp > 1, "with cp 1"),
    "ep": (lambda _, strategy: strategy.ep > 1, "with ep 1"),
    "stages of several ranks": (lambda _, strategy: strategy.n_ranks > strategy.pp, "with one rank for each stage"),
    "zero_stage 3": (lambda _, strategy: strategy.zero_stage == SHARDS_PARAMETERS, "without zero_stage 3"),
    "weights by tensors": (
        lambda _, strategy: strategy.gathers_weights or (strategy.deals_tensors and _weights_move(strategy)),
        "where no weights are gathered by layers or dealt by tensors",
    ),
    "gathers": (lambda _, strategy: strategy.gathers_weights, "where every rank has all parameters"),
    "overlap": (lambda _, strategy: strategy.data_parallel.overlap, "with overlap: false"),
    "resharding": (lambda _, strategy: strategy.reshard_after_forward, "where parameters stay after the forward pass"),
    "weights move": (lambda _, strategy: _weights_move(strategy), "where every rank keeps and updates all parameters"),
    "selective recomputation": (lambda _, strategy: strategy.recompute == "selective", "without selective recomputation"),
    "later checks of norms": (lambda _, strategy: _checks_later(strategy), "with a schedule that checks norms before it updates"),
    "replicas": (
        lambda _, strategy: strategy.reduces_gradients or strategy.data_parallel.service is not None or offloads(strategy),
        "with one replica",
    ),
    "buckets": (
        lambda _, strategy: strategy.zero_stage < SHARDS_PARAMETERS or strategy.gather != "layer",
        "where gradients are not reduced in buckets",
    ),
    "collective reduction": (lambda _, strategy: strategy.data_parallel.service is None, "with parameter servers"),
    "own layout": (
        lambda _, strategy: [strategy.dp, strategy.tp, strategy.pp, strategy.cp].count(1) < 3 or 1 < strategy.ep < strategy.n_ranks,
        "where one dimension has all ranks",
    ),
    "several buckets": (_reduces_often, "where all gradients are reduced or pushed at once"),
    "buckets in order": (lambda _, strategy: strategy.zero_stage < SHARDS_PARAMETERS, "where each layer has buckets of its own"),
    "divided state": (lambda _, strategy: _divides(strategy), "with one replica"),
    "needless products": (
        lambda local, _: _has(local, lambda operator: operator.needless),
        "where the backward pass needs the last product of each layer",
    ),
    "several processes": (lambda _, strategy: not strategy.data_parallel.single_process, "with single_process"),
    "several servers": (lambda _, strategy: len(strategy.data_parallel.hosts) > 1, "with one server"),
    "update on the accelerator": (lambda _, strategy: strategy.offload.optimizer == "accelerator", "with an offloaded optimizer"),
    "places that differ": (lambda _, strategy: not strategy.symmetric, "where all ranks reach each other alike"),
    "whole backward passes": (
        lambda _, strategy: strategy.tp == 1 or _overlaps_gradients(strategy),
        "with a schedule that computes the gradients of weights apart",
    ),
    "gradient of the logits": (_loss_is_largest, "where the backward pass of a layer takes more memory than that of the loss"),
    "staleness": (lambda _, strategy: strategy.data_parallel.mode == "ssp", "without mode ssp"),
}
"""Condition under which each need of a setting is met, and the words for messages."""

OF_TRAINING: Final[Mapping[str, tuple[Callable[[Training, Strategy], bool], str]]] = {
    "products below fp32": (lambda training, _: training.precision != "fp32", "with precision: fp32"),
    "several micro-batches": (
        lambda training, strategy: strategy.virtual_stages > 1 or _several(training, strategy),
        "with one micro-batch",
    ),
    "several passes": (
        lambda training, strategy: (
            _several(training, strategy) or (strategy.pp > 1 and strategy.schedule not in ("naive", "gpipe", "1f1b"))
        ),
        "with one micro-batch, which has the order of 1f1b",
    ),
    "several operations": (
        lambda training, _: training.optimizer != "sgd" or training.optimizer_kernels == "loop",
        "with sgd, whose update is one operation",
    ),
}
"""The same for needs that depend on the training."""
