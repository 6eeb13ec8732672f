"""Resolved pipeline keys of a scenario: chunks on each stage, layers of each chunk; and settings that a schedule refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.documents.files import MB, read_text
from clustersim.errors import DomainError, Place, ScenarioError
from clustersim.notices import Flag
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.written import WrittenSchedule, read_schedule
from clustersim.parallel.stages import N_ENDS, with_ends
from clustersim.units.divisors import divisors, listed

if TYPE_CHECKING:
    from clustersim.parallel.schedules.pipeline_schedule import Schedule
    from clustersim.parallel.training_plan import StageLayers, StrategySettings

_MAX_FILE_BYTES: Final = 50 * MB
_DIGITS: Final = 8
_UNEVEN: Final = "use stage_layers with_ends or balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """Resolved pipeline schedule of a scenario."""

    name: str
    chunks: int
    """Number of model chunks on each stage."""
    n_parts: int
    """Into how many parts the model is divided."""
    sends_beside: bool
    validates_later: bool
    """Defaults, unless the scenario says otherwise."""
    stage_layers: StageLayers = None
    flags: tuple[Flag, ...] = ()
    """Assumptions about the layers of each chunk."""
    written: WrittenSchedule | None = None


def pipelining_of(strategy: StrategySettings, n_layers: int, folder: Path) -> Pipelining:
    """Return what the schedule of a scenario comes to.

    Parameters
    ----------
    folder
        What the path of a schedule is relative to.

    Raises
    ------
    ScenarioError
        When a file cannot be used, or the schedule does not go with the stages, chunks or layers.
    """
    if strategy.schedule.endswith(".csv"):
        found = _written(strategy, folder)
    else:
        schedule, chunks = SCHEDULES[strategy.schedule], virtual_stages(strategy, n_layers)
        n_least = strategy.pp * (chunks if schedule.n_chunks is None else 1)
        if n_least > n_layers + N_ENDS:
            # Before so many are laid out.
            check_layers(n_layers, strategy, n_least)
        found = Pipelining(
            name=strategy.schedule,
            chunks=chunks,
            n_parts=schedule.layout(strategy.pp, chunks).n_parts,
            sends_beside=schedule.sends_beside,
            validates_later=schedule.validates_later,
        )
    check_layers(n_layers, strategy, found.n_parts)
    dealt, flags = dealt_layers(n_layers, strategy, found.n_parts)
    return replace(found, stage_layers=dealt, flags=flags)


def _written(strategy: StrategySettings, folder: Path) -> Pipelining:
    path = folder / strategy.schedule
    if strategy.pp < 2:
        raise ScenarioError("a schedule is for at least 2 stages", field="strategy.pp", hint="use pp of 2 or more, or schedule 1f1b")
    try:
        text = read_text(path, _MAX_FILE_BYTES)
    except ScenarioError as error:
        hint = error.hint or "write the path of a file, or the name of a schedule"
        raise ScenarioError(f"{path}: {error.message}", field="strategy.schedule", hint=hint) from error
    try:
        written = read_schedule(text)
    except DomainError as error:
        raise ScenarioError(error.message, field="strategy.schedule", hint=error.hint, place=Place(file=path.name)) from error
    n_rows = len(written.orders)
    if n_rows != strategy.pp:
        rows = f"{path.name} has {n_rows} {'row' if n_rows == 1 else 'rows'}, one for each rank of a pipeline"
        hint = f"use pp {n_rows}" if n_rows > 1 else "write a row for each rank"
        raise ScenarioError(f"{rows}, and pp is {strategy.pp}", field="strategy.pp", hint=hint)
    n_parts = written.places.n_parts
    chunks, asked = n_parts // strategy.pp, strategy.virtual_stages
    if strategy.gives("virtual_stages") and asked != chunks:
        message = f"{path.name} has {chunks} per stage, not {asked}"
        raise ScenarioError(message, field="strategy.virtual_stages", hint=f"use {chunks}, or leave it out")
    name = f"{_digest_free(path.stem)}-{sha256(written.text.encode()).hexdigest()[:_DIGITS]}.csv"
    return Pipelining(name=name, chunks=chunks, n_parts=n_parts, sends_beside=True, validates_later=False, written=written)


def _digest_free(stem: str) -> str:
    """Return a name without the digits that tell files of one name apart, so that a copy is called the same."""
    return re.sub(rf"-[0-9a-f]{{{_DIGITS}}}$", "", stem)


def virtual_stages(strategy: StrategySettings, n_layers: int) -> int:
    """Return how many chunks of the model each stage holds.

    Raises
    ------
    ScenarioError
        When the schedule has another number of them, or too few stages.
    """
    asked, given, name = strategy.virtual_stages, strategy.gives("virtual_stages"), strategy.schedule
    schedule = SCHEDULES[name]
    _check_stages(schedule, strategy)
    if schedule.n_chunks is None:
        if not given or asked < 2:
            plain = "1f1b" if name == "interleaved_1f1b" else "gpipe"
            choices = _chunk_choices(n_layers, strategy.pp)
            more = f"virtual_stages {listed(choices)}, or " if choices else ""
            hint = f"use {more}schedule {plain}"
            raise ScenarioError(f"{name} with 1 chunk per stage is {plain}", field="strategy.schedule", hint=hint)
        return asked
    if given and asked != schedule.n_chunks:
        chunked = " or ".join(other for other, each in SCHEDULES.items() if each.n_chunks is None)
        has = f"{'one chunk' if schedule.n_chunks == 1 else f'{schedule.n_chunks} chunks'} per stage"
        hint = f"use {schedule.n_chunks}, or schedule {chunked}"
        raise ScenarioError(f"schedule {name} has {has}, not {asked}", field="strategy.virtual_stages", hint=hint)
    return schedule.n_chunks


def _check_stages(schedule: Schedule, strategy: StrategySettings) -> None:
    name, stages = strategy.schedule, strategy.pp
    if stages < 2 and strategy.gives("optimizer_post_validation") and strategy.optimizer_post_validation:
        message = "without stages there is nobody whose update could be earlier"
        raise ScenarioError(message, field="strategy.optimizer_post_validation", hint="leave it out, or use pp of 2 or more")
    if stages < 2 and (schedule.splits or schedule.n_chunks != 1):
        raise ScenarioError(f"{name} needs at least 2 stages", field="strategy.schedule", hint="use pp of 2 or more, or schedule 1f1b")
    if schedule.in_pairs and stages % 2:
        hint = f"use pp {stages - 1} or {stages + 1}, or schedule dualpipe_v"
        raise ScenarioError(f"{name} needs an even number of stages, not {stages}", field="strategy.pp", hint=hint)


def dealt_layers(n_layers: int, strategy: StrategySettings, n_parts: int) -> tuple[StageLayers, tuple[Flag, ...]]:
    """Return how the layers of a model are dealt out to its parts, and what was assumed where nobody says so.

    Layers that divide are dealt evenly. Where they do not, embedding and logits count as a layer each, as torchtitan has it and
    Megatron-LM with ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``.
    """
    asked = strategy.stage_layers
    assumed = asked is None and n_layers % n_parts > 0
    if asked != "with_ends" and not assumed:
        return asked, ()
    counts = with_ends(n_layers, n_parts)
    if not assumed:
        return (None if len(set(counts)) == 1 else counts), ()
    message = (
        f"{n_layers} layers do not divide evenly into {n_parts} parts: embedding and logits count as a layer each"
        f" (stage_layers: with_ends), {min(counts)} to {max(counts)} layers a part"
    )
    return counts, (Flag(code="uneven_layers", message=message),)


def check_layers(n_layers: int, strategy: StrategySettings, n_parts: int) -> None:
    """Refuse parts of the model without a layer, ``even`` where layers do not divide, and lists that do not add up.

    Parameters
    ----------
    n_parts
        Into how many parts the schedule divides the model.

    Raises
    ------
    ScenarioError
        With the ways out.
    """
    asked = strategy.stage_layers
    if isinstance(asked, tuple):
        _check_list(asked, n_layers, n_parts)
    too_few = n_layers < n_parts - (0 if asked == "balanced" else N_ENDS)
    even = asked is None and "stage_layers" in strategy.model_fields_set
    if isinstance(asked, tuple) or not (too_few or (even and n_layers % n_parts)):
        return
    chunks = n_parts // strategy.pp
    parts = f"{strategy.pp} stages" + (f" of {chunks} chunks" if chunks > 1 else "")
    good = [degree for degree in divisors(n_layers) if n_layers % (degree * chunks) == 0]
    ways = [f"use pp {listed(good)}" + (f" with virtual_stages {chunks}" if chunks > 1 else "")] if good else []
    if too_few:
        hint = ways[0] if ways else "use fewer stages or chunks"
        raise ScenarioError(f"{n_layers} layers are too few for {parts}", field="strategy.pp", hint=hint)
    hint = ", or ".join([*ways, _UNEVEN.removeprefix("use ") if ways else _UNEVEN])
    raise ScenarioError(f"{n_layers} layers do not divide evenly into {parts}", field="strategy.stage_layers", hint=hint)


def _check_list(asked: tuple[int, ...], n_layers: int, n_parts: int) -> None:
    if len(asked) != n_parts:
        message = f"{len(asked)} numbers for {n_parts} chunks of the model"
        raise ScenarioError(message, field="strategy.stage_layers", hint="write one for each chunk, in the order of the model")
    if sum(asked) != n_layers:
        message = f"{sum(asked)} layers in all, and the model has {n_layers}"
        raise ScenarioError(message, field="strategy.stage_layers", hint=f"write numbers that add up to {n_layers}")
    empty = [place for place, layers in enumerate(asked) if not layers and 0 < place < n_parts - 1]
    if empty:
        message = f"chunk {empty[0]} has no layer, and neither embedding nor logits"
        raise ScenarioError(message, field="strategy.stage_layers", hint="only the first and the last chunk may be without layers")


def check_micro_batches(strategy: StrategySettings, found: Pipelining, n_micro_batches: int, *, unit: int, batch: str) -> None:
    """Refuse numbers of micro-batches that a schedule cannot take.

    Parameters
    ----------
    unit
        Samples of one micro-batch of all replicas.
    batch
        How the number came about, for the message.

    Raises
    ------
    ScenarioError
        With the nearest batches that work.
    """
    name, stages = strategy.schedule, strategy.pp
    if found.written is not None:
        wanted = found.written.n_micro_batches
        if wanted != n_micro_batches:
            message = f"{name} is for {wanted} micro-batches, and {batch} is {n_micro_batches}"
            raise ScenarioError(message, field="training.global_batch_size", hint=f"use {wanted * unit}")
        return
    schedule = SCHEDULES[name]
    least, step, what = 1, 1, ""
    if schedule.whole_rounds:
        least = step = stages
        what = f"a multiple of pp = {stages} micro-batches"
    if schedule.least_rounds:
        least, step = schedule.least_rounds * stages, 2 if schedule.in_pairs else 1
        even = "an even number of micro-batches, " if schedule.in_pairs else ""
        what = f"{even}at least {schedule.least_rounds} pp = {least}{'' if even else ' micro-batches'}"
    if n_micro_batches >= least and n_micro_batches % step == 0:
        return
    below = n_micro_batches // step * step
    near = f"{below * unit} or {(below + step) * unit}" if below >= least else str(least * unit)
    raise ScenarioError(
        f"{name} needs {what}, and {batch} is {n_micro_batches}",
        field="training.global_batch_size",
        hint=f"the nearest that works is {near}",
    )


def _chunk_choices(n_layers: int, pp: int) -> list[int]:
    return [chunks for chunks in divisors(n_layers // pp) if chunks > 1] if n_layers % pp == 0 else [2]
