"""Lower a plan to a Program: passes in schedule order, and beside them the tasks of each parallel technique."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from clustersim.parallel.contributors import CONTRIBUTORS, layer_techniques
from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.division import Part, divided, place
from clustersim.parallel.groups import parallel_groups
from clustersim.parallel.pipeline import Labelled, Pipeline, StagePieces
from clustersim.parallel.stage import stages_of
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stage_work import WHOLE, StageWork
from clustersim.parallel.stages import places_of, waits_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.program import Program

MOST_RANKS: Final = 1 << 15
"""Maximum ranks of a plan, times its parts, whose Program is kept. Larger ones would take too much memory."""


def lower(plan: Plan, parts: Sequence[Part] | None = None, *, n_micro_batches: int | None = None) -> Program:
    """Return what every rank class does in one optimizer step.

    The order of passes comes from the schedule. A pass waits for what it receives and, unless the plan overlaps
    point-to-point transfers, for what its stage has sent. Everything else comes from the contributors that the plan asks for.

    Parameters
    ----------
    parts
        Replicas that are alike, by their data-parallel index, where some are slower than others; all are alike when left out.
    n_micro_batches
        How many there are passes of, where those of others are left out: what a step does once is that of the plan.
    """
    lowered = _kept if plan.n_ranks * len(parts or (0,)) <= MOST_RANKS else _lowered
    return lowered(plan, None if parts is None else tuple(parts), plan.n_micro_batches if n_micro_batches is None else n_micro_batches)


def _lowered(plan: Plan, parts: tuple[Part, ...] | None, n_passes: int) -> Program:
    step = Step(stages=stages_of(plan), n_micro_batches=n_passes, division=divided(place(plan.strategy), parts))
    contributors = [contributor(step) for contributor in CONTRIBUTORS if contributor.applies(plan.strategy)]
    for contributor in contributors:
        contributor.begin()
    _add_pipeline(step, contributors)
    for contributor in contributors:
        contributor.finish()
    return step.builder.build(step.division.rank_classes())


_kept = lru_cache(maxsize=4)(_lowered)
"""Programs of the last plans: the lower bound of a step has the Program of the step."""


def _add_pipeline(step: Step, contributors: Sequence[Contributor]) -> None:
    """Add the passes of all stages, and the tasks beside them."""
    strategy = step.strategy
    pipelines = [
        Pipeline(
            builder=step.builder,
            division=step.division,
            places=places_of(strategy),
            pair_bytes=step.stages[0].local.boundary_bytes / strategy.tp,
            overlap=strategy.overlap_p2p,
            waits_per_transfer=waits_of(strategy),
            part=part,
        )
        for part in range(step.division.n_parts)
    ]
    for stage, order in enumerate(step.orders):
        beside = [each for contributor in contributors if (each := contributor.stage(stage, order)) is not None]
        parts = [_add_passes(step, pipeline, stage, beside) for pipeline in pipelines]
        for position in range(len(order)):
            for each in beside:
                each.beside(position, parts)


def _add_passes(step: Step, pipeline: Pipeline, stage: int, beside: Sequence[StageContributor]) -> StagePieces:
    """Add the passes of one part of a stage, as contributors cut and delay them."""
    local, strategy = step.stages[stage].local, step.strategy
    groups = parallel_groups(local.model, strategy, step.division, stage=stage, part=pipeline.part)
    techniques = layer_techniques(local, strategy, groups)
    work = StageWork(passes=ChunkPasses(local=local, strategy=strategy, techniques=techniques), chunks=step.stages[stage].chunks)
    added = StagePieces(part=pipeline.part)
    together: list[Labelled] = []
    for position, each in enumerate(step.orders[stage]):
        cut = WHOLE
        for contributor in beside:
            cut = contributor.cut(position, cut)
        pieces = work.pieces(each, cut)
        for contributor in beside:
            pieces = contributor.pieces(position, pieces, added)
        together.append((each, pieces))
        if each.beside_next:
            continue
        for keys, (_, done) in zip(pipeline.add_together(stage, work.overlapped_passes(together)), together, strict=True):
            added.starts.append(len(added.keys))
            added.keys += keys
            added.pieces.append(tuple(done))
        together = []
    return added
