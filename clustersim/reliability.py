r"""Interruptions of a job, its goodput, and its best checkpoint interval: closed forms.

Interruptions are a Poisson process of mean distance :math:`M`. After each, nothing happens for the detection time :math:`D`, then a restart
takes :math:`R`; an interruption during the restart begins with :math:`D` again. A checkpoint stalls training for :math:`w` after every
:math:`\tau` and can be read a time :math:`b` later. `docs/theory/goodput.md` derives what follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FOREVER: Final = math.inf
"""MTBF without failures, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Causes of interruptions: independent failures of nodes at constant rates, and stops of the whole job without a failed node."""

    n_nodes: int
    node_mtbf_s: float
    """Mean time between failures of one node; infinite where none fails."""
    job_mtbf_s: float = FOREVER
    """Mean time between interruptions that break no node: software, a link that flaps."""
    sources: tuple[tuple[str, float], ...] = ()
    """Name and rate of each cause in the whole job, in interruptions a second."""

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
    """From the end of the stall until the checkpoint is readable; 0 where training waits for all of it."""

    @property
    def cycle_s(self) -> float:
        """From the start of one checkpoint to that of the next; the one before must be complete."""
        return max(self.interval_s + self.stall_s, self.behind_s)

    @property
    def trained_s(self) -> float:
        """Training in one cycle."""
        return self.cycle_s - self.stall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Phases between an interruption and the first step after it."""

    detection_s: float
    """From a failure to its detection; no work is done."""
    restart_s: float
    """From detection to the first step: processes, communicators, reading the state. A failure meanwhile starts it again."""
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


_NEWTON_STEPS: Final = 60
_LARGEST_EXPONENT: Final = 700.0
"""Safe exponent of a float: e**709 is the largest."""


def steady_shares(upkeep: Upkeep) -> Shares:
    r"""Return the long-run shares of a job's time, with a spare node whenever one is needed.

    Exact for exponential failures. From one interruption of training to the next passes :math:`Z = (M + D) e^{R/M}` in the mean, and in it
    :math:`\tau e^{-b/M} / (e^{(\tau+w)/M} - 1)` of training counts.

    References
    ----------
    .. [1] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", *Future Generation Computer
       Systems* 22, 2006, pages 303-312: the same with D = b = 0.
    """
    mtti_s, points, recovery = upkeep.failures.mtti_s, upkeep.checkpoints, upkeep.recovery
    if math.isinf(mtti_s):
        stalled = points.stall_s / points.cycle_s
        return Shares(useful=1.0 - stalled, checkpoint=stalled, lost_work=0.0, detection=0.0, restart=0.0)
    if max(points.cycle_s + points.behind_s, recovery.restart_s) > _LARGEST_EXPONENT * mtti_s:
        return _standstill(upkeep)
    again = math.exp(recovery.restart_s / mtti_s)
    whole_s = (mtti_s + recovery.detection_s) * again
    cycles = math.exp(-points.behind_s / mtti_s) / math.expm1(points.cycle_s / mtti_s)
    useful, stalls = cycles * points.trained_s, cycles * points.stall_s
    return Shares(
        useful=useful / whole_s,
        checkpoint=stalls / whole_s,
        lost_work=max(mtti_s - useful - stalls, 0.0) / whole_s,
        detection=recovery.detection_s * again / whole_s,
        restart=mtti_s * (again - 1.0) / whole_s,
    )


def first_order_fraction(upkeep: Upkeep) -> float:
    r"""Return the effective training time ratio, to first order in the rate of failures.

    :math:`(1 - (D + R + b + \tau/2) / M) / (1 + w/\tau)`: each interruption costs detection, restart and in the mean half an interval, and
    what was not written yet. At least 0.

    References
    ----------
    .. [1] A. Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv:2410.21680, with
       :math:`u_0 = D + R`, :math:`N r_f = 1/M`.
    """
    points, recovery = upkeep.checkpoints, upkeep.recovery
    each_s = recovery.detection_s + recovery.restart_s + points.behind_s + points.trained_s / 2
    return max(1.0 - each_s / upkeep.failures.mtti_s, 0.0) / (1.0 + points.stall_s / points.trained_s)


def young_interval_s(stall_s: float, mtti_s: float) -> float:
    r"""Return the interval between checkpoints that costs least to first order, :math:`\sqrt{2 w M}`.

    References
    ----------
    .. [1] J. W. Young, "A first order approximation to the optimum checkpoint interval", *CACM* 17(9), 1974, pages 530-531.
    """
    return math.sqrt(2.0 * stall_s * mtti_s)


def daly_interval_s(stall_s: float, mtti_s: float) -> float:
    r"""Return Daly's estimate of the best interval, :math:`\sqrt{2wM}\,[1 + \frac13\sqrt{w/2M} + \frac19 (w/2M)] - w`; M from w = 2M on.

    References
    ----------
    .. [1] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", *Future Generation Computer
       Systems* 22, 2006, pages 303-312, equation 37.
    """
    if stall_s >= 2.0 * mtti_s:
        return mtti_s
    ratio = stall_s / (2.0 * mtti_s)
    return young_interval_s(stall_s, mtti_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - stall_s


def best_interval_s(stall_s: float, mtti_s: float) -> float:
    r"""Return the interval that makes :func:`steady_shares` most useful.

    Where :math:`\tau / (e^{(\tau+w)/M} - 1)` is largest: :math:`x = \tau/M` solves :math:`1 - x = e^{-x - w/M}`, by Newton's method.
    """
    if stall_s == 0 or math.isinf(mtti_s):
        return 0.0 if stall_s == 0 else math.inf
    x = min(young_interval_s(stall_s, mtti_s) / mtti_s, 1.0)
    for _ in range(_NEWTON_STEPS):
        decay = math.exp(-x - stall_s / mtti_s)
        step = (1.0 - x - decay) / (decay - 1.0)
        x -= step
        if abs(step) <= 1e-15 * x:
            break
    return x * mtti_s


def short_of_spares_fraction(failures: Failures, recovery: Recovery) -> float:
    r"""Return the share of time in which more nodes are in repair than there are spares.

    Nodes in repair are Poisson distributed with mean :math:`N r_f Y`, whatever the distribution of the repair time :math:`Y` (Palm's
    theorem), as long as nodes go on failing while others are in repair. 0 where there is always a spare.

    References
    ----------
    .. [1] C. Palm, "Intensitätsschwankungen im Fernsprechverkehr", *Ericsson Technics* 44, 1943: the infinite-server queue M/G/∞.
    """
    if recovery.spares is None:
        return 0.0
    return 1.0 - _poisson_up_to(recovery.spares, failures.node_rate * recovery.repair_s)


def spares_for(failures: Failures, repair_s: float) -> int:
    """Return the least number of spare nodes with which more than that many are in repair for at most 1 % of the time."""
    mean = failures.node_rate * repair_s
    spares, up_to = 0, _poisson(0, mean)
    while 1.0 - up_to > 0.01:
        spares += 1
        up_to += _poisson(spares, mean)
    return spares


def _poisson_up_to(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable is at most ``count``."""
    return min(math.fsum(_poisson(k, mean) for k in range(count + 1)), 1.0)


def _poisson(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable is ``count``."""
    if mean == 0:
        return 1.0 if count == 0 else 0.0
    # By logarithms, since e**-mean is 0 for a large mean.
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _standstill(upkeep: Upkeep) -> Shares:
    """Return the shares of a job that never completes a checkpoint, or never completes a restart."""
    mtti_s, recovery = upkeep.failures.mtti_s, upkeep.recovery
    if recovery.restart_s > _LARGEST_EXPONENT * mtti_s:
        each_s = mtti_s + recovery.detection_s
        return Shares(useful=0.0, checkpoint=0.0, lost_work=0.0, detection=recovery.detection_s / each_s, restart=mtti_s / each_s)
    again = math.exp(recovery.restart_s / mtti_s)
    whole_s = (mtti_s + recovery.detection_s) * again
    parts = recovery.detection_s * again / whole_s, mtti_s * (again - 1.0) / whole_s
    return Shares(useful=0.0, checkpoint=0.0, lost_work=mtti_s / whole_s, detection=parts[0], restart=parts[1])


def with_interval(checkpoints: Checkpoints, interval_s: float) -> Checkpoints:
    """Return the same checkpoints at another interval."""
    return Checkpoints(interval_s=interval_s, stall_s=checkpoints.stall_s, behind_s=checkpoints.behind_s)
