"""The ``reliability`` section of a scenario, and from it the share of time in which its job trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import fsum
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, StrictBool, model_validator

from clustersim.engine.failures import SimulatedTraining, replay_training
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.hardware.models import Node
from clustersim.hardware.profile_schema import Checked
from clustersim.measure.goodput_report import (
    BestInterval,
    CheckpointReport,
    ClosedForm,
    GoodputReport,
    InterruptionSource,
    IntervalPoint,
    SparesReport,
    TrainingTime,
)
from clustersim.notices import Flag
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import optimizer_bytes_per_parameter
from clustersim.parallel.stage import Stage
from clustersim.parallel.step_settings import Training
from clustersim.reliability import (
    Checkpoints,
    Failures,
    Recovery,
    Shares,
    Upkeep,
    best_interval_s,
    combined_mtbf_s,
    daly_interval_s,
    first_order_fraction,
    short_of_spares_fraction,
    spares_for,
    steady_shares,
    with_interval,
    young_interval_s,
)
from clustersim.trace.step_log import confidence_interval, quantile
from clustersim.units.fields import MOST_GPUS, Bytes, BytesPerSecond, NonNegativeInt, Seconds, mistake
from clustersim.units.quantity import format_quantity

PositiveSeconds = Annotated[Seconds, Field(gt=0)]


class ComponentsSpec(Checked):
    """Mean times between failures of single parts; their rates add up."""

    accelerator: PositiveSeconds | None = Field(default=None, description="MTBF of one accelerator; its node leaves the job.")
    host: PositiveSeconds | None = Field(default=None, description="MTBF of one host: processors, memory, drives, power; its node leaves.")
    nic: PositiveSeconds | None = Field(default=None, description="MTBF of one adapter; its node leaves the job.")
    cable: PositiveSeconds | None = Field(
        default=None, description="MTBF of the connection of one adapter to the fabric: cable and its share of switches; nodes stay."
    )
    software: PositiveSeconds | None = Field(default=None, description="MTBF of the whole job, by causes that break no node.")


class CheckpointSpec(Checked):
    """Mode, size and times of a checkpoint."""

    mode: Literal["sync", "async"] = Field(
        default="sync", description="sync: training waits until it is written; async: until it is copied to host memory."
    )
    size: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="Size of the whole checkpoint; default: weights, master copy and optimizer state of the model."
    )
    bandwidth: Annotated[BytesPerSecond, Field(gt=0)] | None = Field(
        default=None,
        description="Write bandwidth of the storage; default: of the NVMe drives of the nodes, with two copies if nodes fail.",
    )
    stall: Seconds | None = Field(
        default=None, description="Waiting time of training at each; default: of the write, or with async of the copy over PCIe."
    )


class ReliabilitySpec(Checked):
    """Failure rates, checkpoints, and recovery of a job."""

    node_mtbf: PositiveSeconds | None = Field(default=None, description="Mean time between failures of one node, whatever their cause.")
    component_mtbf: ComponentsSpec | None = Field(default=None, description="The same for parts of a node; rates add to that of node_mtbf.")
    checkpoint_every: Literal["auto"] | PositiveSeconds = Field(
        default="auto", description="Training time between two checkpoints; auto: the best interval of the closed form."
    )
    checkpoint: CheckpointSpec = CheckpointSpec()
    detection: Seconds = Field(default=0.0, description="Time from a failure to its detection, if restart does not include it.")
    restart: Seconds | None = Field(default=None, description="Time from detection to the first step, with the reading of the checkpoint.")
    repair: Seconds | None = Field(default=None, description="Time until a failed node can be used again.")
    spares: Annotated[NonNegativeInt, Field(le=MOST_GPUS)] | None = Field(
        default=None, description="Number of spare nodes; default: none with repair, else always enough."
    )
    shrink: StrictBool = Field(default=False, description="Without a spare the job continues with fewer data-parallel replicas.")
    replays: Annotated[int, Field(strict=True, ge=4, le=10_000)] = Field(
        default=32, description="Replays of the whole training, each with different failures."
    )

    @model_validator(mode="after")
    def _check_repair(self) -> ReliabilitySpec:
        if self.repair is None and (self.spares is not None or self.shrink):
            because = "spares are used up" if self.spares is not None else "a job that shrinks grows again"
            raise mistake(f"{because} as nodes are repaired, and 'repair' is missing", "add 'repair: 1 day'")
        return self


ASSUMED_GPU_HOURS: Final = 50_677.0
"""Between two interruptions, of one accelerator: 419 unexpected ones in 54 days on 16,384 H100 (Llama 3 405B). Per 1,000 days of 8-GPU
nodes that is 3.79; two clusters of Meta had 2.34 and 6.5 (arXiv:2410.21680)."""
ASSUMED_RESTART_S: Final = 600.0
"""Near the median of 11 minutes in which retries of a cluster of 63 B200 nodes came back (operations report of Lablup)."""
HORIZON_S: Final = 30 * 86400.0
"""Length of a replay without a token budget; more where it would hold few interruptions."""
ENOUGH_INTERRUPTIONS: Final = 100
MOST_INTERRUPTIONS: Final = 5_000
"""In one replay; a longer training is replayed in part."""
INTERVAL_REPLAYS: Final = 12
INTERVAL_FACTORS: Final = tuple(2.0 ** (step / 2) for step in range(-4, 5))
LEAST_GOODPUT: Final = 0.02
"""Below it a replay would take for ever, and so would the training."""
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """Upkeep of a job, and the assumptions made for it."""

    upkeep: Upkeep
    checkpoint: CheckpointReport
    flags: tuple[Flag, ...]


def goodput_report(maintained: Maintained, *, work_s: float | None, replays: int, seed: int) -> GoodputReport:
    """Return how much of its time the job trains: replayed, in closed form, and at other intervals between checkpoints.

    Parameters
    ----------
    maintained
        Failures, checkpoints and what follows a failure.
    work_s
        Seconds of training without failures; None where nobody said how much there is to train.
    replays
        How many, each with random numbers of its own.
    seed
        Of all of them.

    Raises
    ------
    InfeasibleError
        When the job would make next to no progress.
    """
    upkeep = maintained.upkeep
    shares = steady_shares(upkeep)
    _check_progress(upkeep, shares)
    mtti_s = upkeep.failures.mtti_s
    replayed_s = min(work_s or _horizon_s(mtti_s), MOST_INTERRUPTIONS * mtti_s * shares.useful)
    runs = _replays(upkeep, replayed_s, replays, seed)
    fractions, wall_s = [run.useful_s / run.wall_s for run in runs], fsum(run.wall_s for run in runs)
    return GoodputReport(
        goodput_fraction=fsum(run.useful_s for run in runs) / wall_s,
        confidence_interval_fraction=_interval(fractions),
        parts_fraction=Shares(**{share.name: fsum(getattr(run, f"{share.name}_s") for run in runs) / wall_s for share in fields(Shares)}),
        mean_time_to_interruption_s=mtti_s if math.isfinite(mtti_s) else None,
        interruption_sources=tuple(InterruptionSource(name=name, per_day=rate * _DAY_S) for name, rate in upkeep.failures.sources),
        interruptions_per_day=_DAY_S / mtti_s,
        checkpoint=maintained.checkpoint,
        closed_form=ClosedForm(goodput_fraction=shares.useful, parts_fraction=shares, first_order_fraction=first_order_fraction(upkeep)),
        best_interval=_best_interval(upkeep, seed),
        spares=_spares(upkeep),
        time_to_train=_training_time(runs, work_s, replayed_s),
        replays=replays,
        replayed_work_s=replayed_s,
    )


def maintained_job(spec: ReliabilitySpec, stage: Stage, nodes: Sequence[Node]) -> Maintained:
    """Return the handling of failures of a plan's job, with all defaults."""
    failures, flags = _failures(spec, nodes)
    report = _checkpoint(spec, checkpoint_bytes(stage.training, stage.local), nodes, breaks_nodes=math.isfinite(failures.node_mtbf_s))
    behind_s = max(report.write_s - report.stall_s, 0.0) if report.asynchronous else 0.0
    if report.interval_s == 0.0:
        # Not so often that one checkpoint is not through when the next begins.
        best_s = min(best_interval_s(report.stall_s, failures.mtti_s), HORIZON_S)
        report = replace(report, interval_s=max(best_s, behind_s - report.stall_s, 1.0))
    if report.interval_s + report.stall_s < behind_s:
        asked, instead = format_quantity(report.interval_s, "s"), behind_s - report.stall_s
        message = f"checkpoints every {asked} would overtake each other: every {format_quantity(instead, 's')} instead"
        flags = (*flags, Flag(code="checkpoints_overtake", message=message))
        report = replace(report, interval_s=instead)
    if spec.restart is None:
        message = f"no restart time is given: {format_quantity(ASSUMED_RESTART_S, 's')} are assumed"
        flags = (*flags, Flag(code="assumed_restart", message=message))
    if spec.checkpoint.bandwidth is None:
        message = "checkpoints go to the NVMe drives of the nodes"
        if report.n_copies > 1:
            message += ", each part to those of two, as what is on a node that fails may be lost with it"
        elif report.lost_with_node:
            message += ", where what is on the node that fails may be lost with it: give reliability.checkpoint.bandwidth of other storage"
        flags = (*flags, Flag(code="assumed_checkpoint_storage", message=message))
    recovery = Recovery(
        detection_s=spec.detection,
        restart_s=ASSUMED_RESTART_S if spec.restart is None else spec.restart,
        repair_s=spec.repair or 0.0,
        spares=None if spec.repair is None else spec.spares or 0,
        replica_nodes=len(nodes) / stage.strategy.dp if spec.shrink else None,
        n_replicas=stage.strategy.dp,
    )
    checkpoints = Checkpoints(interval_s=report.interval_s, stall_s=report.stall_s, behind_s=behind_s)
    return Maintained(upkeep=Upkeep(failures=failures, checkpoints=checkpoints, recovery=recovery), checkpoint=report, flags=flags)


def checkpoint_bytes(training: Training, local: LocalModel) -> float:
    """Return weights, master copy and optimizer state of the whole model: 14 bytes a parameter with bf16 and Adam."""
    return local.model.n_parameters * (local.numerics.element_bytes + optimizer_bytes_per_parameter(training, local))


def _failures(spec: ReliabilitySpec, nodes: Sequence[Node]) -> tuple[Failures, tuple[Flag, ...]]:
    """Return failures of the nodes of a plan, all taken as their mean where they are of several kinds."""
    components, n_nodes = spec.component_mtbf or ComponentsSpec(), float(len(nodes))
    per_node = fsum(node.n_accelerators for node in nodes) / n_nodes
    nics = fsum(node.n_nics for node in nodes) / n_nodes
    of_nodes = {
        "nodes": (spec.node_mtbf, 1.0),
        "accelerators": (components.accelerator, per_node),
        "hosts": (components.host, 1.0),
        "adapters": (components.nic, nics),
    }
    of_job = {"cables": (components.cable, nics * n_nodes), "software": (components.software, 1.0)}
    parts = {name: (mtbf_s, count) for name, (mtbf_s, count) in of_nodes.items() if mtbf_s is not None}
    whole = {name: (mtbf_s, count) for name, (mtbf_s, count) in of_job.items() if mtbf_s is not None}
    flags: tuple[Flag, ...] = ()
    if not parts and not whole:
        parts = {"accelerators": (ASSUMED_GPU_HOURS * _HOUR_S, per_node)}
        days = ASSUMED_GPU_HOURS * _HOUR_S / per_node / _DAY_S
        message = f"no failure rate is given: one interruption in {days:,.0f} days of a node is assumed, as in the training of Llama 3 405B"
        flags = (Flag(code="assumed_failure_rate", message=message),)
    mtbfs_s = combined_mtbf_s([*parts.values()]), combined_mtbf_s([*whole.values()])
    rates = {name: n_nodes * count / mtbf_s for name, (mtbf_s, count) in parts.items()}
    rates |= {name: count / mtbf_s for name, (mtbf_s, count) in whole.items()}
    return Failures(n_nodes=len(nodes), node_mtbf_s=mtbfs_s[0], job_mtbf_s=mtbfs_s[1], sources=tuple(rates.items())), flags


def _checkpoint(spec: ReliabilitySpec, whole_bytes: float, nodes: Sequence[Node], *, breaks_nodes: bool) -> CheckpointReport:
    asked = spec.checkpoint
    size_bytes = whole_bytes if asked.size is None else asked.size
    of_nodes = asked.bandwidth is None and breaks_nodes
    n_copies = 2 if of_nodes and len(nodes) > 1 else 1
    bandwidth = _storage_bandwidth(nodes, n_copies) if asked.bandwidth is None else asked.bandwidth
    write_s, asynchronous = size_bytes / bandwidth, asked.mode == "async"
    copy_s = size_bytes / fsum(node.n_accelerators * node.accelerator.pcie_bandwidth_bytes_per_s for node in nodes)
    usual_s = copy_s if asynchronous else write_s
    return CheckpointReport(
        size_bytes=size_bytes,
        bandwidth_bytes_per_s=bandwidth,
        write_s=write_s,
        stall_s=usual_s if asked.stall is None else asked.stall,
        interval_s=0.0 if spec.checkpoint_every == "auto" else spec.checkpoint_every,
        asynchronous=asynchronous,
        n_copies=n_copies,
        lost_with_node=of_nodes and n_copies == 1,
    )


def _storage_bandwidth(nodes: Sequence[Node], n_copies: int) -> float:
    """Return the rate at which the drives of all nodes take a checkpoint, at that of the slowest.

    Each further copy of what a node writes crosses its adapters to the drives of another node.
    """
    each = [node.host.storage_write_bandwidth_bytes_per_s for node in nodes]
    known = [bandwidth for bandwidth in each if bandwidth is not None]
    if len(known) < len(each):
        lacking = next(node.name for node, bandwidth in zip(nodes, each, strict=True) if bandwidth is None)
        raise ScenarioError(
            f"{lacking} has no NVMe drives, and nothing says how fast checkpoints are written",
            field="reliability.checkpoint",
            hint="add 'checkpoint: {bandwidth: 100 GB/s}' to reliability, of the storage for all nodes together",
        )
    rates = [bandwidth / n_copies for bandwidth in known]
    if n_copies > 1:
        rates += [node.n_nics * node.nic.bandwidth_bytes_per_s / (n_copies - 1) for node in nodes if node.n_nics]
    return len(known) * min(rates)


def _check_progress(upkeep: Upkeep, shares: Shares) -> None:
    if shares.useful < LEAST_GOODPUT:
        every, restart = format_quantity(upkeep.failures.mtti_s, "s"), format_quantity(upkeep.recovery.restart_s, "s")
        cycle = format_quantity(upkeep.checkpoints.cycle_s, "s")
        raise InfeasibleError(
            f"reliability: the job would train {100 * shares.useful:.1g} % of the time; it is interrupted every {every}, saves every"
            f" {cycle} and takes {restart} to restart"
        )
    recovery, failures = upkeep.recovery, upkeep.failures
    if recovery.spares is None:
        return
    there, in_repair = failures.n_nodes + recovery.spares, failures.node_rate * recovery.repair_s
    if in_repair > there or (not recovery.shrinks and short_of_spares_fraction(failures, recovery) > 1.0 - LEAST_GOODPUT):
        repair = format_quantity(recovery.repair_s, "s")
        raise InfeasibleError(
            f"reliability: the job would wait for nodes all the time; repairs take {repair}, so that {in_repair:.3g} nodes are in repair in"
            f" the mean, of {there} with {recovery.spares} spares"
        )


def _replays(upkeep: Upkeep, work_s: float, count: int, seed: int) -> list[SimulatedTraining]:
    """Return a number of replays; those of equal seed and index have the same failures for all other settings."""
    return [replay_training(upkeep, work_s, np.random.default_rng([seed, index])) for index in range(count)]


def _horizon_s(mtti_s: float) -> float:
    return max(HORIZON_S, ENOUGH_INTERRUPTIONS * mtti_s) if math.isfinite(mtti_s) else HORIZON_S


def _interval(values: Sequence[float]) -> tuple[float, float]:
    found = confidence_interval(values)
    return found if found is not None else (values[0], values[0])


def _best_interval(upkeep: Upkeep, seed: int) -> BestInterval | None:
    stall_s, mtti_s = upkeep.checkpoints.stall_s, upkeep.failures.mtti_s
    if stall_s == 0.0 or math.isinf(mtti_s):
        return None
    closed_s = max(best_interval_s(stall_s, mtti_s), upkeep.checkpoints.behind_s - stall_s)
    points: list[IntervalPoint] = []
    for factor in INTERVAL_FACTORS:
        tried = replace(upkeep, checkpoints=with_interval(upkeep.checkpoints, factor * closed_s))
        useful = steady_shares(tried).useful
        # A checkpoint that begins before the last one is through waits for it: the same as a longer interval.
        overtakes = factor < 1.0 and factor * closed_s + stall_s < upkeep.checkpoints.behind_s
        if useful >= LEAST_GOODPUT and not overtakes:
            work_s = min(_horizon_s(mtti_s), MOST_INTERRUPTIONS / 10 * mtti_s * useful)
            runs = _replays(tried, work_s, INTERVAL_REPLAYS, seed)
            mean = fsum(run.useful_s for run in runs) / fsum(run.wall_s for run in runs)
            interval = _interval([run.useful_s / run.wall_s for run in runs])
            points.append(IntervalPoint(interval_s=factor * closed_s, goodput_fraction=mean, confidence_interval_fraction=interval))
    best = replace(upkeep, checkpoints=with_interval(upkeep.checkpoints, closed_s))
    return BestInterval(
        young_s=young_interval_s(stall_s, mtti_s),
        daly_s=daly_interval_s(stall_s, mtti_s),
        closed_form_s=closed_s,
        goodput_fraction=steady_shares(best).useful,
        replayed_s=max(points, key=lambda point: point.goodput_fraction).interval_s if points else closed_s,
        replayed=tuple(points),
    )


def _spares(upkeep: Upkeep) -> SparesReport | None:
    recovery = upkeep.recovery
    if recovery.spares is None:
        return None
    return SparesReport(
        spares=recovery.spares,
        short_fraction=short_of_spares_fraction(upkeep.failures, recovery),
        enough=spares_for(upkeep.failures, recovery.repair_s),
    )


def _training_time(runs: Sequence[SimulatedTraining], work_s: float | None, replayed_s: float) -> TrainingTime | None:
    """Return how long the whole training takes; where a part was replayed, the mean grows with its length and the spread with the root."""
    if work_s is None:
        return None
    times = work_s / replayed_s
    mean_s = fsum(run.wall_s for run in runs) / len(runs)
    whole_s = [times * mean_s + math.sqrt(times) * (run.wall_s - mean_s) for run in runs]
    return TrainingTime(
        mean_s=times * mean_s,
        confidence_interval_s=_interval(whole_s),
        p5_s=quantile(whole_s, 0.05),
        p95_s=quantile(whole_s, 0.95),
        interruptions=times * fsum(run.interruptions for run in runs) / len(runs),
    )
