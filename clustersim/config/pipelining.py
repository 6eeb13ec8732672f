"""Resolved pipeline keys of a scenario: chunks on each stage, layers of each chunk; and files of schedules that do not go with them.

A file is refused here because it is read here; everything else is refused by ``parallel/contributors/pipeline_parallel.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from clustersim.documents.files import MB, read_text
from clustersim.errors import DomainError, Place, ScenarioError
from clustersim.notices import Flag
from clustersim.parallel.contributors.pipeline_parallel import check_layers
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.written import WrittenSchedule, read_schedule
from clustersim.parallel.stages import N_ENDS, with_ends
from clustersim.parallel.training_plan import StageLayers, StrategySettings
from clustersim.units.divisors import count_text

_MAX_FILE_BYTES: Final = 50 * MB
_DIGITS: Final = 8


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
    """Defaults for keys that the scenario leaves out."""
    stage_layers: StageLayers = None
    flags: tuple[Flag, ...] = ()
    """Assumptions about the layers of each chunk."""
    written: WrittenSchedule | None = None


def pipelining_of(strategy: StrategySettings, n_layers: int, folder: Path) -> Pipelining:
    """Return the settings of a scenario's schedule.

    Parameters
    ----------
    folder
        What the path of a schedule is relative to.
    """
    if strategy.schedule.endswith(".csv"):
        found = _written(strategy, folder)
    else:
        schedule = SCHEDULES[strategy.schedule]
        chunks = schedule.n_chunks or strategy.virtual_stages
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
        rows = f"{path.name} has {count_text(n_rows, 'row')}, one for each rank of a pipeline"
        hint = f"use pp {n_rows}" if n_rows > 1 else "write a row for each rank"
        raise ScenarioError(f"{rows}, and pp is {strategy.pp}", field="strategy.pp", hint=hint)
    n_parts = written.places.n_parts
    chunks, asked = n_parts // strategy.pp, strategy.virtual_stages
    if strategy.gives("virtual_stages") and asked != chunks:
        message = f"{path.name} has {chunks} per stage, not {asked}"
        raise ScenarioError(message, field="strategy.virtual_stages", hint=f"use {chunks}, or leave it out")
    # Without the digits that tell files of one name apart, so that a copy is called the same.
    stem = re.sub(rf"-[0-9a-f]{{{_DIGITS}}}$", "", path.stem)
    name = f"{stem}-{sha256(written.text.encode()).hexdigest()[:_DIGITS]}.csv"
    return Pipelining(name=name, chunks=chunks, n_parts=n_parts, sends_beside=True, validates_later=False, written=written)


def dealt_layers(n_layers: int, strategy: StrategySettings, n_parts: int) -> tuple[StageLayers, tuple[Flag, ...]]:
    """Return the division of a model's layers into parts, and the assumption behind a default.

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
