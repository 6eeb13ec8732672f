"""Settings that do nothing in a plan, because what they need is not there; and the plan as a file says it, without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue

from clustersim.parallel.gradients import layer_slices
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.offload import offloads
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.settings import Needs, Settings
from clustersim.parallel.shard import local_model
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, Plan, Strategy
from clustersim.workloads.model import Model

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
        """Return whether somebody asked for something: true, also where that is the default; false not, where the default is left open."""
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


def idle(plan: Plan) -> tuple[Idle, ...]:
    """Return the settings that do nothing in a plan."""
    unmet = {name: otherwise for name, (holds, otherwise) in CONDITIONS.items() if not holds(plan)}
    return (*_idle(unmet, plan.training, ("training",)), *_idle(unmet, plan.strategy, ("strategy",)))


def effective(plan: Plan) -> dict[str, JsonValue]:
    """Return training and strategy of a plan by their keys, without settings that do nothing or were left open."""
    unused = {each.path for each in idle(plan)}
    return {"training": _shown(plan.training, ("training",), unused), "strategy": _shown(plan.strategy, ("strategy",), unused)}


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


def _has_experts(model: Model) -> bool:
    return model.experts is not None


def _shares_experts(model: Model) -> bool:
    return model.experts is None or model.experts.shared_size > 0


def _weights_move(strategy: Strategy) -> bool:
    shards = max(strategy.sharding.degree, strategy.sharding.expert_degree) > 1 or strategy.gathers_weights
    return shards or strategy.data_parallel.central


def _drops(strategy: Strategy) -> bool:
    return strategy.expert_load.kind != "balanced" or (strategy.expert_capacity or 0.0) < 1.0


def _checks_later(strategy: Strategy) -> bool:
    schedule = SCHEDULES.get(strategy.schedule)
    return strategy.optimizer_post_validation or (schedule is not None and schedule.validates_later)


def _reduces(strategy: Strategy) -> bool:
    return strategy.reduces_gradients or strategy.data_parallel.service is not None or offloads(strategy)


def _fills_buckets(strategy: Strategy) -> bool:
    in_units = strategy.zero_stage == SHARDS_PARAMETERS and strategy.gather == "layer" and strategy.shard_degree is None
    return not in_units


def _pushes_often(strategy: Strategy, local: LocalModel) -> bool:
    service = strategy.data_parallel.service
    return service is None or len(layer_slices(local, service.bucket_bytes)) > 1


def _is_laid_out(strategy: Strategy) -> bool:
    return sum(degree > 1 for degree in (strategy.dp, strategy.tp, strategy.pp, strategy.cp, strategy.ep)) > 1


CONDITIONS: Final[Mapping[str, tuple[Callable[[Plan], bool], str]]] = {
    "transformer": (lambda plan: plan.model.unit == "sequence", "with a list of layers"),
    "images": (lambda plan: plan.model.unit == "sample", "with a transformer"),
    "unfused loss": (lambda plan: not plan.training.fused_loss, "with fused_loss"),
    "experts": (lambda plan: _has_experts(plan.model), "without experts"),
    "shared experts": (lambda plan: _shares_experts(plan.model), "without shared experts"),
    "skewed load": (lambda plan: plan.strategy.expert_load.kind in ("zipf", "dirichlet"), "without a zipf or dirichlet load"),
    "capacity": (lambda plan: _drops(plan.strategy), "where every expert gets the mean"),
    "tp": (lambda plan: plan.strategy.tp > 1, "with tp 1"),
    "pp": (lambda plan: plan.strategy.pp > 1, "with pp 1"),
    "cp": (lambda plan: plan.strategy.cp > 1, "with cp 1"),
    "ep": (lambda plan: plan.strategy.ep > 1, "with ep 1"),
    "zero_stage 3": (lambda plan: plan.strategy.zero_stage == SHARDS_PARAMETERS, "without zero_stage 3"),
    "gathers": (lambda plan: plan.strategy.gathers_weights, "where every rank has all parameters"),
    "overlap": (lambda plan: plan.strategy.data_parallel.overlap, "with overlap: false"),
    "resharding": (lambda plan: plan.strategy.reshard_after_forward, "where parameters stay after the forward pass"),
    "weights move": (lambda plan: _weights_move(plan.strategy), "where every rank keeps and updates all parameters"),
    "selective recomputation": (lambda plan: plan.strategy.recompute == "selective", "without selective recomputation"),
    "later checks of norms": (lambda plan: _checks_later(plan.strategy), "with a schedule that checks norms before it updates"),
    "replicas": (lambda plan: _reduces(plan.strategy), "with one replica"),
    "buckets": (lambda plan: _fills_buckets(plan.strategy), "where gradients are not reduced in buckets"),
    "collective reduction": (lambda plan: plan.strategy.data_parallel.service is None, "with parameter servers"),
    "own layout": (lambda plan: _is_laid_out(plan.strategy), "where one dimension has all ranks"),
    "several pushes": (lambda plan: _pushes_often(plan.strategy, local_model(plan)), "where servers take all gradients at once"),
    "several processes": (lambda plan: not plan.strategy.data_parallel.single_process, "with single_process"),
    "several servers": (lambda plan: len(plan.strategy.data_parallel.hosts) > 1, "with one server"),
    "update on the accelerator": (lambda plan: plan.strategy.offload.optimizer == "accelerator", "with an offloaded optimizer"),
    "staleness": (lambda plan: plan.strategy.data_parallel.mode == "ssp", "without mode ssp"),
}
"""When each need of a setting is met, and the circumstances in which it is not, for messages."""
