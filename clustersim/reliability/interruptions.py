"""Frequency of interruptions of a job, and their consequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FOREVER: Final = math.inf
"""MTBF without failures, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Causes of interruptions: nodes that fail one by one, each at any moment alike, and stops of all of it without harm to a node."""

    n_nodes: int
    node_mtbf_s: float
    """Mean time between failures of one node; infinite where none fails."""
    job_mtbf_s: float = FOREVER
    """Mean time between interruptions that break no node: software, a link that flaps."""

    @property
    def mtti_s(self) -> float:
        """Mean time to interruption of the job: the inverse of the sum of all rates."""
        rate = self.node_rate + 1.0 / self.job_mtbf_s
        return 1.0 / rate if rate > 0 else FOREVER

    @property
    def node_rate(self) -> float:
        """Failures of nodes in a second."""
        return self.n_nodes / self.node_mtbf_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Interval and duration of checkpoints, in seconds."""

    interval_s: float
    """Training between two checkpoints."""
    stall_s: float
    """Training stands still for so long at each."""
    behind_s: float = 0.0
    """From the end of the stall until the checkpoint can be read again; 0 where training waits for all of it."""

    @property
    def cycle_s(self) -> float:
        """From the beginning of one checkpoint to that of the next; the one before must be through."""
        return max(self.interval_s + self.stall_s, self.behind_s)

    @property
    def trained_s(self) -> float:
        """Training in one cycle."""
        return self.cycle_s - self.stall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Phases between an interruption and the first step after it."""

    detection_s: float
    """Until somebody notices; nothing gets done."""
    restart_s: float
    """From then to the first step: processes, communicators, the state read again. A failure meanwhile begins all anew."""
    repair_s: float = 0.0
    """From the failure of a node until it can be used again."""
    spares: int | None = None
    """Nodes that stand by; None where there is always one more."""
    replica_nodes: float | None = None
    """Nodes of one data-parallel replica, where the job goes on without those that miss a node; None where it waits for a node."""
    n_replicas: int = 1
    """Replicas of the whole job."""

    @property
    def shrinks(self) -> bool:
        """Whether the job goes on with fewer replicas."""
        return self.replica_nodes is not None and self.n_replicas > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """All that decides how much of its time a job trains."""

    failures: Failures
    checkpoints: Checkpoints
    recovery: Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Breakdown of a long time, as shares of it; they sum to one."""

    useful: float
    """Training that counts, as at full size."""
    checkpoint: float
    """Stalls for checkpoints that were completed."""
    lost_work: float
    """Training, and stalls, after the last checkpoint that could be read."""
    detection: float
    restart: float
    waiting: float = 0.0
    """For a node to be repaired."""
    shrunk: float = 0.0
    """Training that missing replicas would have done."""


def combined_mtbf_s(parts: Sequence[tuple[float, float]]) -> float:
    """Return the mean time between failures of something made of parts that it needs all, each given as (MTBF in s, how many).

    Rates of exponential failures add up: ``1 / sum(n / mtbf)``.

    Examples
    --------
    >>> combined_mtbf_s([(8.0, 8.0), (2.0, 1.0)])
    0.6666666666666666
    """
    rate = math.fsum(count / mtbf_s for mtbf_s, count in parts)
    return 1.0 / rate if rate > 0 else FOREVER
