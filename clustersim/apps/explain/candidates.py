"""Changes to a scenario, one at a time, and the gain of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import itemgetter
from typing import Final

from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.run.bound import evaluator_of
from clustersim.apps.run.running import step_metrics
from clustersim.apps.run.simulation import memory_report
from clustersim.config.build import Built
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.deciding import Decision, is_shorter
from clustersim.parallel.shard import WHOLE_VOCABULARY, head_vector_bytes, local_model, padded_vocabulary
from clustersim.parallel.stage import stages_of
from clustersim.parallel.training_plan import SHARDS_PARAMETERS
from clustersim.progress import advanced, phase
from clustersim.units.divisors import count_text
from clustersim.units.quantity import line_rate
from clustersim.workloads.operators import VECTOR_BYTES

RECOMPUTATION: Final = ("none", "selective", "full")
"""From the least work to the least memory."""
INTERLEAVED: Final = "interleaved_1f1b"
GRAPHS: Final = "graphs"
"""Family of changes that save time of the host alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChange:
    """One change."""

    family: str
    """Setting that is changed; of several changes of one family only the best is of interest."""
    what: str
    """In words."""
    overrides: tuple[str, ...]
    """As ``--set`` takes them."""
    remark: str = ""
    """Effects other than on time."""

    def __str__(self) -> str:
        """Return it in words, with its other effects."""
        return f"{self.what} ({self.remark})" if self.remark else self.what


def candidates(built: Built) -> tuple[CandidateChange, ...]:
    """Return changes of a scenario that may shorten its step; whether they can be made shows when they are built.

    Batch size, sequence length, model and number of accelerators stay.
    """
    return tuple(
        candidate
        for family in (_micro_batches, _sharded_alone, _layouts, _schedules, _overlaps, _sharding, _recomputation, _kernels, _machine)
        for candidate in family(built)
    )


def _micro_batches(built: Built) -> Iterator[CandidateChange]:
    size = built.plan.training.micro_batch_size
    for other in (size // 2, 2 * size, 4 * size):
        if other >= 1:
            unit = built.plan.model.unit
            yield CandidateChange(
                family="micro-batch",
                what=f"micro-batches of {count_text(other, unit)} instead of {size}",
                overrides=(f"training.micro_batch_size={other}",),
            )


def _sharded_alone(built: Built) -> Iterator[CandidateChange]:
    """Shard all weights over all ranks in the place of every other dimension, with the present recomputation and with full."""
    strategy = built.plan.strategy
    now = {"tp": strategy.tp, "pp": strategy.pp, "cp": strategy.cp}
    if max(now.values()) == 1 or strategy.data_parallel.central or strategy.data_parallel.mode != "sync":
        return
    stages = ("strategy.schedule=1f1b", "strategy.virtual_stages=1", *_parts(built, 1)) if strategy.pp > 1 else ()
    for recompute in dict.fromkeys((strategy.recompute, RECOMPUTATION[-1])):
        ones = ", ".join(f"{name} 1 instead of {degree}" for name, degree in now.items() if degree > 1)
        more = "" if recompute == strategy.recompute else f", recomputation {recompute} instead of {strategy.recompute}"
        kept = () if recompute == strategy.recompute else (f"strategy.recompute={recompute}",)
        yield CandidateChange(
            family="layout",
            what=f"{ones}, dp {built.plan.n_ranks} with ZeRO stage 3 (FSDP){more}",
            overrides=(
                *(f"strategy.{name}=1" for name, degree in now.items() if degree > 1),
                *("strategy.dp=auto", "strategy.zero_stage=3", *stages, *kept),
            ),
        )


def _layouts(built: Built) -> Iterator[CandidateChange]:
    """Turn one dimension by two, and let another or the replicas take it up; tensor parallelism stays where links are fast."""
    strategy, node = built.plan.strategy, built.cluster.node
    domain = node.n_accelerators * max(1, node.scale_up.nodes_per_domain)
    now = {"tp": strategy.tp, "pp": strategy.pp, "cp": strategy.cp}
    steps = [{"tp": 0.5}, {"tp": 2.0}, {"pp": 0.5}, {"pp": 2.0}, {"cp": 0.5}, {"tp": 0.5, "pp": 2.0}, {"tp": 2.0, "pp": 0.5}]
    for step in steps:
        then = {**now, **{name: now[name] * factor for name, factor in step.items()}}
        if any(value != int(value) for value in then.values()) or any(now[name] == 1 for name, factor in step.items() if factor < 1.0):
            continue
        sizes = {name: int(value) for name, value in then.items()}
        if sizes["tp"] > max(domain, strategy.tp):
            continue  # over the network each layer would wait for its collectives
        dp = built.plan.n_ranks // (sizes["tp"] * sizes["pp"] * sizes["cp"])
        changed = ", ".join(f"{name} {sizes[name]} instead of {now[name]}" for name in step)
        yield CandidateChange(
            family="layout",
            what=f"{changed}, dp {dp}",
            overrides=(*(f"strategy.{name}={sizes[name]}" for name in step), "strategy.dp=auto", *_parts(built, sizes["pp"])),
        )


def _parts(built: Built, pp: int) -> tuple[str, ...]:
    """Return a list of layers per stage for another number of stages."""
    listed = isinstance(built.scenario.spec.strategy.stage_layers, tuple)
    return ("strategy.stage_layers=balanced",) if listed and pp > 1 else ("strategy.stage_layers=even",) if listed else ()


def _schedules(built: Built) -> Iterator[CandidateChange]:
    strategy = built.plan.strategy
    if strategy.pp == 1 or strategy.written is not None:
        return
    n_layers = built.plan.model.n_layers
    for chunks in (2, 3, 4, 5, 6, 8):
        if n_layers % (strategy.pp * chunks) == 0 and (strategy.schedule, strategy.virtual_stages) != (INTERLEAVED, chunks):
            yield CandidateChange(
                family="schedule",
                what=f"interleaved stages of {chunks} chunks instead of {_named(strategy.schedule, strategy.virtual_stages)}",
                overrides=(f"strategy.schedule={INTERLEAVED}", f"strategy.virtual_stages={chunks}", *_parts(built, strategy.pp)),
            )
    for schedule in ("1f1b", "zb_h1", "zb_2p"):
        if strategy.schedule != schedule:
            yield CandidateChange(
                family="schedule",
                what=f"the schedule {schedule} instead of {_named(strategy.schedule, strategy.virtual_stages)}",
                overrides=(f"strategy.schedule={schedule}", "strategy.virtual_stages=1", *_parts(built, strategy.pp)),
            )
    if built.scenario.spec.strategy.stage_layers is None:
        yield CandidateChange(
            family="stages",
            what="layers dealt out to stages by time, embedding and logits counted, instead of evenly",
            overrides=("strategy.stage_layers=balanced",),
        )


def _named(schedule: str, chunks: int) -> str:
    return f"{schedule} of {chunks} chunks" if chunks > 1 else schedule


def _overlaps(built: Built) -> Iterator[CandidateChange]:
    strategy = built.plan.strategy
    if strategy.tp > 1:
        if not strategy.sequence_parallel:
            yield CandidateChange(
                family="sequence parallelism", what="with sequence parallelism", overrides=("strategy.sequence_parallel=true",)
            )
        elif strategy.overlap_tp != "gemm_chunks":
            yield CandidateChange(
                family="tensor overlap",
                what=f"tensor-parallel collectives beside chunks of products instead of {strategy.overlap_tp}",
                overrides=("strategy.overlap_tp=gemm_chunks",),
                remark="needs kernels that do so",
            )
    if strategy.pp > 1 and not strategy.overlap_p2p:
        yield CandidateChange(
            family="stage overlap",
            what="sends between stages beside computation",
            overrides=("strategy.overlap_p2p=true",),
            remark="" if strategy.virtual_stages > 1 else "is for interleaved stages alone in Megatron-LM",
        )
    if strategy.replicas > 1 and not strategy.data_parallel.overlap and strategy.data_parallel.mode == "sync":
        yield CandidateChange(
            family="gradient overlap",
            what="gradients reduced while the backward pass runs",
            overrides=("strategy.data_parallel.overlap=true",),
        )


def _sharding(built: Built) -> Iterator[CandidateChange]:
    strategy = built.plan.strategy
    if strategy.replicas == 1 or strategy.data_parallel.algorithm == "parameter_server":
        return
    for stage in (0, 1, 2, 3):
        if stage != strategy.zero_stage:
            yield CandidateChange(
                family="sharding", what=f"ZeRO stage {stage} instead of {strategy.zero_stage}", overrides=(f"strategy.zero_stage={stage}",)
            )


def _recomputation(built: Built) -> Iterator[CandidateChange]:
    now = built.plan.strategy.recompute
    if now in RECOMPUTATION:
        for other in RECOMPUTATION[: RECOMPUTATION.index(now)]:
            yield CandidateChange(
                family="recomputation", what=f"recomputation {other} instead of {now}", overrides=(f"strategy.recompute={other}",)
            )


def _kernels(built: Built) -> Iterator[CandidateChange]:
    training = built.plan.training
    if training.attention == "unfused" and built.plan.model.divisible:
        yield CandidateChange(family="attention", what="fused attention", overrides=("training.attention=flash",))
    if training.kernels == "eager":
        yield CandidateChange(
            family="kernels", what="fused kernels instead of one for each operation", overrides=("training.kernels=fused",)
        )
    if not (training.cuda_graphs or training.blocking_launches or built.plan.strategy.zero_stage == SHARDS_PARAMETERS):
        # Tokens of experts vary from step to step, and whole passes with them.
        parts = "[attention, router]" if built.plan.model.experts else "true"
        what = "CUDA graphs of attention and router" if built.plan.model.experts else "CUDA graphs of whole passes"
        yield CandidateChange(family=GRAPHS, what=what, overrides=(f"training.cuda_graphs={parts}",))
    local = local_model(built.plan.model, training, built.plan.strategy)
    if local.numerics.amax_group == "stage" and built.plan.strategy.replicas > 1:
        yield CandidateChange(
            family="maxima",
            what="maxima of fp8 agreed on in tensor-parallel groups alone",
            overrides=("training.fp8_amax_group=tensor",),
        )
    if head_vector_bytes(local, training.precision) < VECTOR_BYTES:
        padded = padded_vocabulary(built.plan.model.vocab_size, built.plan.strategy.tp, WHOLE_VOCABULARY)
        yield CandidateChange(
            family="vocabulary",
            what=f"a vocabulary of {padded} words, of which {padded - built.plan.model.vocab_size} are padding",
            overrides=(f"training.vocabulary_multiple={WHOLE_VOCABULARY}",),
        )
    if _has_fp8(built):
        yield CandidateChange(
            family="precision",
            what="products in fp8 instead of bf16",
            overrides=("training.precision=fp8",),
            remark="changes the numbers that are trained with",
        )


def _has_fp8(built: Built) -> bool:
    known = all("fp8" in node.accelerator.peak_flops_per_s for node, _ in built.cluster.kinds)
    return built.plan.training.precision == "bf16" and known and built.plan.model.divisible


def _machine(built: Built) -> Iterator[CandidateChange]:
    spec = built.scenario.spec.cluster
    if built.plan.n_ranks > built.cluster.node.n_accelerators and not isinstance(spec.nodes, list):
        faster = line_rate(2 * built.cluster.node.nic.bandwidth_bytes_per_s)
        yield CandidateChange(
            family="adapters",
            what=f"network adapters of {faster}, twice as fast",
            overrides=(f"cluster.nics.bandwidth={faster}",),
            remark="is another machine",
        )
        if built.cluster.fabric.oversubscription > 1.0:
            yield CandidateChange(
                family="oversubscription",
                what=f"as much bandwidth up as down at every leaf instead of 1:{built.cluster.fabric.oversubscription:.3g}",
                overrides=("cluster.fabric.oversubscription=1",),
                remark="is another machine",
            )
    if spec.stragglers:
        yield CandidateChange(family="stragglers", what="no slow ranks", overrides=("cluster.stragglers=[]",), remark="is another machine")
    if spec.links:
        yield CandidateChange(family="links", what="no changed links", overrides=("cluster.links=[]",), remark="is another machine")


LEAST: Final = 1e-3
"""Share of the step from which on a gain is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One change that shortens the step."""

    change: CandidateChange
    step_time_s: float
    saved_s: float
    peak_bytes: float
    """Memory of the fullest accelerator, in bytes."""
    better_than_base: Decision | None
    """Whether it is shorter, as far as the error bars tell; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """All that were looked for."""

    best: tuple[Gain, ...]
    """Best candidate of each family, the largest gain first."""
    n_tried: int
    n_impossible: int
    """Contradict the scenario."""
    n_misfits: int
    """Could be faster, and need more memory than there is."""
    n_left: int = 0
    """Could be faster, and were not replayed."""


def gains(run: ChangedRun, tried: Sequence[CandidateChange], most: int = sys.maxsize, told: int = sys.maxsize) -> Gains:
    """Return what each of some changes gains over a run, replayed with the same seed.

    A change is not replayed where closed forms say that it does not fit in memory, or that no step of it can be short enough to be the
    best of its family: a step of many ranks takes seconds to replay.

    Parameters
    ----------
    most
        Replays, of every family first the change with the least bound.
    told
        Changes that matter: none is replayed that cannot be among so many.
    """
    base = run.result
    in_turn, n_impossible, n_misfits = _worth_replaying(run, tried)
    n_replayed = n_left = 0
    best: dict[str, Gain] = {}
    with phase("replay changes"):
        for number, (bound_s, candidate, built) in enumerate(in_turn):
            advanced(number, len(in_turn))
            known = best.get(candidate.family)
            enough_s = known.step_time_s if known else (1.0 - LEAST) * base.step_time_s
            limit_s = min([enough_s, *sorted(gain.step_time_s for gain in best.values())[told - 1 : told]])
            if bound_s >= limit_s:
                continue
            if n_replayed == most:
                n_left += 1
                continue
            n_replayed += 1
            try:
                metrics = step_metrics(built, base.seed, regard=base.metrics.engine.told_apart, limit_s=enough_s)
            except (ScenarioError, InfeasibleError):
                n_impossible += 1
                continue
            if metrics.step_time_s < enough_s:
                best[candidate.family] = Gain(
                    change=candidate,
                    step_time_s=metrics.step_time_s,
                    saved_s=base.step_time_s - metrics.step_time_s,
                    peak_bytes=metrics.memory.peak_bytes,
                    better_than_base=is_shorter(metrics, base.metrics),
                )
    ordered = sorted(best.values(), key=lambda gain: -gain.saved_s)
    return Gains(best=tuple(ordered), n_tried=len(tried), n_impossible=n_impossible, n_misfits=n_misfits, n_left=n_left)


def _worth_replaying(run: ChangedRun, tried: Sequence[CandidateChange]) -> tuple[list[tuple[float, CandidateChange, Built]], int, int]:
    """Return changes that fit and could be faster, the least bounds of families first; and how many are impossible, and do not fit."""
    base = run.result
    by_family: dict[str, list[tuple[float, CandidateChange, Built]]] = {}
    n_impossible = n_misfits = 0
    for candidate in tried:
        if candidate.family == GRAPHS and base.metrics.breakdown_s.host < LEAST * base.step_time_s:
            continue
        try:
            overrides, built = run.changed_alone(candidate.overrides)
            bound_s = evaluator_of(built).passes_s(built.plan)
            if bound_s >= (1.0 - LEAST) * base.step_time_s:
                continue
            if not memory_report(stages_of(built.plan), built.cluster).fits:
                n_misfits += 1
                continue
        except (ScenarioError, InfeasibleError):
            n_impossible += 1
            continue
        what = candidate.what + ", in the same software" * (len(overrides) > len(candidate.overrides))
        by_family.setdefault(candidate.family, []).append((bound_s, replace(candidate, what=what, overrides=overrides), built))
    families = sorted((sorted(family, key=itemgetter(0)) for family in by_family.values()), key=lambda family: family[0][0])
    return [each for places in zip_longest(*families) for each in places if each is not None], n_impossible, n_misfits
