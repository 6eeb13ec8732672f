"""Pipeline parallelism: stages, chunks, layers and micro-batches that a schedule refuses; lowering adds its passes and sends."""

from __future__ import annotations

from typing import Final

from clustersim.errors import DomainError
from clustersim.parallel.contributors.contributor import Contributor, check_division
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import Schedule
from clustersim.parallel.stages import N_ENDS
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.units.divisors import divisors, listed
from clustersim.workloads.model import Model

_UNEVEN: Final = "use stage_layers with_ends or balanced"


class PipelineParallelism(Contributor):
    """Layers divided among stages."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether layers are divided."""
        return strategy.pp > 1

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse models that are lists of layers, and schedules for other numbers of stages or chunks."""
        check_division(model, "pp", asked.pp)
        if asked.schedule in SCHEDULES:
            _check_stages(SCHEDULES[asked.schedule], asked)
            _check_chunks(SCHEDULES[asked.schedule], asked, model.n_layers)
        elif asked.pp < 2:
            message = "a schedule is for at least 2 stages"
            raise DomainError(message, path=("strategy", "pp"), hint="use pp of 2 or more, or schedule 1f1b")

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse numbers of micro-batches that the schedule cannot take."""
        name, unit = asked.schedule, strategy.dp * training.micro_batch_size
        batch, n_micro_batches = training.global_batch_size, training.global_batch_size // unit
        came = f"{batch} / ({strategy.dp} * {training.micro_batch_size}) is {n_micro_batches}"
        path = ("training", "global_batch_size")
        if strategy.written is not None:
            wanted = strategy.written.n_micro_batches
            if wanted != n_micro_batches:
                raise DomainError(f"{name} is for {wanted} micro-batches, and {came}", path=path, hint=f"use {wanted * unit}")
            return
        least, step, what = _micro_batches(SCHEDULES[name], strategy.pp)
        if n_micro_batches >= least and n_micro_batches % step == 0:
            return
        below = n_micro_batches // step * step
        near = f"{below * unit} or {(below + step) * unit}" if below >= least else str(least * unit)
        raise DomainError(f"{name} needs {what}, and {came}", path=path, hint=f"the nearest that works is {near}")


def check_layers(n_layers: int, asked: StrategySettings, n_parts: int) -> None:
    """Refuse parts of the model without a layer, ``even`` where layers do not divide, and lists that do not add up.

    Parameters
    ----------
    n_parts
        Into how many parts the schedule divides the model.

    Raises
    ------
    DomainError
        With the ways out.
    """
    wanted = asked.stage_layers
    if isinstance(wanted, tuple):
        _check_list(wanted, n_layers, n_parts)
    too_few = n_layers < n_parts - (0 if wanted == "balanced" else N_ENDS)
    even = wanted is None and "stage_layers" in asked.model_fields_set
    if isinstance(wanted, tuple) or not (too_few or (even and n_layers % n_parts)):
        return
    chunks = n_parts // asked.pp
    parts = f"{asked.pp} stages" + (f" of {chunks} chunks" if chunks > 1 else "")
    good = [degree for degree in divisors(n_layers) if n_layers % (degree * chunks) == 0]
    ways = [f"use pp {listed(good)}" + (f" with virtual_stages {chunks}" if chunks > 1 else "")] if good else []
    if too_few:
        hint = ways[0] if ways else "use fewer stages or chunks"
        raise DomainError(f"{n_layers} layers are too few for {parts}", path=("strategy", "pp"), hint=hint)
    hint = ", or ".join([*ways, _UNEVEN.removeprefix("use ") if ways else _UNEVEN])
    raise DomainError(f"{n_layers} layers do not divide evenly into {parts}", path=("strategy", "stage_layers"), hint=hint)


def _check_list(asked: tuple[int, ...], n_layers: int, n_parts: int) -> None:
    path = ("strategy", "stage_layers")
    if len(asked) != n_parts:
        message = f"{len(asked)} numbers for {n_parts} chunks of the model"
        raise DomainError(message, path=path, hint="write one for each chunk, in the order of the model")
    if sum(asked) != n_layers:
        message = f"{sum(asked)} layers in all, and the model has {n_layers}"
        raise DomainError(message, path=path, hint=f"write numbers that add up to {n_layers}")
    empty = [place for place, layers in enumerate(asked) if not layers and 0 < place < n_parts - 1]
    if empty:
        message = f"chunk {empty[0]} has no layer, and neither embedding nor logits"
        raise DomainError(message, path=path, hint="only the first and the last chunk may be without layers")


def _check_stages(schedule: Schedule, asked: StrategySettings) -> None:
    name, stages = asked.schedule, asked.pp
    if stages < 2 and asked.gives("optimizer_post_validation") and asked.optimizer_post_validation:
        message = "without stages there is nobody whose update could be earlier"
        raise DomainError(message, path=("strategy", "optimizer_post_validation"), hint="leave it out, or use pp of 2 or more")
    if stages < 2 and (schedule.splits or schedule.n_chunks != 1):
        hint = "use pp of 2 or more, or schedule 1f1b"
        raise DomainError(f"{name} needs at least 2 stages", path=("strategy", "schedule"), hint=hint)
    if schedule.in_pairs and stages % 2:
        hint = f"use pp {stages - 1} or {stages + 1}, or schedule dualpipe_v"
        raise DomainError(f"{name} needs an even number of stages, not {stages}", path=("strategy", "pp"), hint=hint)


def _check_chunks(schedule: Schedule, asked: StrategySettings, n_layers: int) -> None:
    """Refuse another number of chunks than the schedule has."""
    chunks, given, name = asked.virtual_stages, asked.gives("virtual_stages"), asked.schedule
    if schedule.n_chunks is None and (not given or chunks < 2):
        plain = "1f1b" if name == "interleaved_1f1b" else "gpipe"
        choices = [2] if n_layers % asked.pp else [count for count in divisors(n_layers // asked.pp) if count > 1]
        more = f"virtual_stages {listed(choices)}, or " if choices else ""
        hint = f"use {more}schedule {plain}"
        raise DomainError(f"{name} with 1 chunk per stage is {plain}", path=("strategy", "schedule"), hint=hint)
    if schedule.n_chunks is not None and given and chunks != schedule.n_chunks:
        chunked = " or ".join(other for other, each in SCHEDULES.items() if each.n_chunks is None)
        has = f"{'one chunk' if schedule.n_chunks == 1 else f'{schedule.n_chunks} chunks'} per stage"
        hint = f"use {schedule.n_chunks}, or schedule {chunked}"
        raise DomainError(f"schedule {name} has {has}, not {chunks}", path=("strategy", "virtual_stages"), hint=hint)


def _micro_batches(schedule: Schedule, stages: int) -> tuple[int, int, str]:
    """Return the least number of micro-batches of a schedule, the step between numbers that it takes, and both in words."""
    if schedule.least_rounds:
        least = schedule.least_rounds * stages
        even = "an even number of micro-batches, " if schedule.in_pairs else ""
        what = f"{even}at least {schedule.least_rounds} pp = {least}{'' if even else ' micro-batches'}"
        return least, 2 if schedule.in_pairs else 1, what
    if schedule.whole_rounds:
        return stages, stages, f"a multiple of pp = {stages} micro-batches"
    return 1, 1, ""
