"""Error bars of a serving run, from measured runs beside predictions: of each metric, and of two runs beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.catalog import load_accelerator
from clustersim.hardware.models import Accelerator
from clustersim.hardware.profile_schema import Checked
from clustersim.hardware.serving_constants import Borrowed
from clustersim.measure.error_bars import Band, ErrorBar
from clustersim.measure.serving_metrics import Interval
from clustersim.notices import Flag
from clustersim.serving.records import LatencyStatistics
from clustersim.units.fields import PositiveInt, PositiveRatio

SHIPPED: Final = Path("residuals") / "serving.yaml"
"""Below ``hardware_profiles``."""


class ServedBand(Checked):
    """Least and most share of the prediction that a measured metric is expected to have."""

    metric: str
    least: PositiveRatio
    most: PositiveRatio
    ratio: Annotated[float, Field(ge=1.0)]
    """Largest expected error of the ratio of two values, as a factor, of runs of one model, machine and engine."""
    rows: PositiveInt
    coverage: Annotated[float, Field(ge=0.0, le=1.0)]
    """Runs of a source that lie in the band of the other sources, a mean over sources."""
    borrowed: Annotated[float, Field(ge=1.0)]
    """Growth of errors, as a factor of their logarithms, where another generation lends the constants of kernels."""

    def widened(self) -> ServedBand:
        """Return the band with borrowed constants, around the same middle."""
        middle, most = sqrt(self.least * self.most), sqrt(self.most / self.least) ** self.borrowed
        return self.model_copy(update={"least": middle / most, "most": middle * most, "ratio": self.ratio**self.borrowed})


class ServedFold(Checked):
    """Error of one metric of the runs that were left out, as a fraction, and the constants fitted to the others."""

    kind: str
    """``source`` or ``accelerator``."""
    left_out: str
    metric: str
    rows: PositiveInt
    median: float
    p90: float
    constants: dict[str, float]


class ServedResiduals(Checked):
    """``serving.yaml`` in ``hardware_profiles/residuals``: predictions of served runs by constants that they had no share in."""

    sources: list[str]
    level: Annotated[PositiveRatio, Field(lt=1.0)]
    bands: list[ServedBand]
    folds: list[ServedFold]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedIntervals:
    """Least and most that is expected of the mean of each headline; None where it has none."""

    ttft_s: Interval | None
    tpot_s: Interval | None
    itl_s: Interval | None
    e2e_s: Interval | None
    output_tokens_per_s: Interval
    borrowed: bool

    def of(self, name: str, found_s: float, mean_s: float) -> Interval | None:
        """Return the interval of a statistic such as ``ttft_p99``, from its own band or else in proportion to that of the mean."""
        own, of_mean = _bands(borrowed=self.borrowed).get(f"{name}_s"), getattr(self, f"{name.partition('_')[0]}_s")
        if own is not None:
            return own.least * found_s, own.most * found_s
        return None if of_mean is None else (of_mean[0] * found_s / mean_s, of_mean[1] * found_s / mean_s)


def served_intervals(
    found: Mapping[str, LatencyStatistics | None],
    output_tokens_per_s: float,
    full_load_tokens_per_s: float | None,
    *,
    borrowed: bool = False,
) -> ServedIntervals:
    """Return the intervals of a run.

    Gaps between tokens have the band of the time per token. The whole time is that to the first token and the gaps behind it, each with
    its own band.

    Parameters
    ----------
    found
        Statistics of ``ttft``, ``tpot``, ``itl`` and ``e2e``.
    full_load_tokens_per_s
        Output tokens a second of full batches, where requests come at a rate of their own and are answered as fast: no more tokens are
        then produced than are asked for, and fewer only if the full load is less than that. None where the batches follow the requests.
    borrowed
        Whether another generation lends the constants of kernels, so that errors are larger.
    """
    bands = {name: Band(least_fraction=each.least, most_fraction=each.most) for name, each in _bands(borrowed=borrowed).items()}
    ttft, tpot, itl, e2e = (found[name] for name in ("ttft", "tpot", "itl", "e2e"))
    first, later = bands["ttft_s"], bands["tpot_s"]
    rate = bands["output_tokens_per_s"].interval_s(full_load_tokens_per_s or output_tokens_per_s)
    whole: Interval | None = None
    if e2e is not None and ttft is not None:
        begin, rest = first.interval_s(ttft.mean), later.interval_s(e2e.mean - ttft.mean)
        whole = begin[0] + rest[0], begin[1] + rest[1]
    return ServedIntervals(
        ttft_s=_interval(first, ttft),
        tpot_s=_interval(later, tpot),
        itl_s=_interval(later, itl),
        e2e_s=whole,
        output_tokens_per_s=rate if full_load_tokens_per_s is None else (min(rate[0], output_tokens_per_s), output_tokens_per_s),
        borrowed=borrowed,
    )


def _interval(band: Band, statistics: LatencyStatistics | None) -> Interval | None:
    return None if statistics is None else band.interval_s(statistics.mean)


def lenders(accelerator: Accelerator, borrowed: Iterable[Borrowed]) -> tuple[str, ...]:
    """Return the accelerators of other generations that lend constants to one on which no served run was measured."""
    names = () if _is_measured(accelerator.name) else dict.fromkeys(each.lender for each in borrowed)
    return tuple(name for name in names if load_accelerator(name).generation != accelerator.generation)


def not_measured_flag(accelerator: Accelerator, borrowed: Iterable[Borrowed]) -> Flag | None:
    """Return a notice where no served run on an accelerator was measured, on how wide its intervals are."""
    if _is_measured(accelerator.name):
        return None
    names = lenders(accelerator, borrowed)
    least, most = (f"{end(each.borrowed for each in _bands().values()):.2g}" for end in (min, max))
    wide = "intervals are not wider, since its kernels or those of its generation were measured"
    if names:
        wide = f"intervals are {least} to {most} times as wide: constants of kernels are those of {', '.join(names)}, of another generation"
    return Flag(code="interval_not_measured", message=f"no served run on {accelerator.name} was measured; {wide}")


def _is_measured(accelerator: str) -> bool:
    return any(each.kind == "accelerator" and each.left_out == accelerator for each in _residuals().folds)


@lru_cache
def _residuals() -> ServedResiduals:
    return validate_document(ServedResiduals, read_document(data_path("hardware_profiles") / SHIPPED))


@lru_cache
def _bands(*, borrowed: bool = False) -> Mapping[str, ServedBand]:
    return {each.metric: each.widened() if borrowed else each for each in _residuals().bands}


_BAND_OF: Final[Mapping[str, str]] = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "itl": "tpot_s",
    "requests": "output_tokens_per_s",
    "output": "output_tokens_per_s",
    "total": "output_tokens_per_s",
    "full": "output_tokens_per_s",
    "cost.per": "output_tokens_per_s",
}
"""Metric whose band figures have, by how their names begin."""


def served_bar(names: Sequence[str], figures: Mapping[str, float | bool], machine: str) -> ErrorBar | None:
    """Return the error bar of some figures of a run, in multiples of the time of its steps; None where no band is known of one of them.

    Of several figures the one with the largest error counts. The whole time of a request has the errors of its two parts, each with its
    share.
    """
    found = [_bar(name.partition("_")[0], figures, machine) for name in names]
    bars = [each for each in found if each is not None]
    return max(bars, key=lambda each: each.ratio_most_fraction) if bars and len(bars) == len(found) else None


def _bar(begin: str, figures: Mapping[str, float | bool], machine: str) -> ErrorBar | None:
    bands = _bands(borrowed=bool(figures.get("kernels_borrowed", False)))
    if begin == "e2e":
        first = figures.get("ttft_s.mean", 0.0) / figures.get("e2e_s.mean", 1.0)
        shares = {"ttft_s": first, "tpot_s": 1.0 - first}
    elif begin in _BAND_OF:
        shares = {_BAND_OF[begin]: 1.0}
    else:
        return None
    least, most, ratio = (sum(share * getattr(bands[name], end) for name, share in shares.items()) for end in ("least", "most", "ratio"))
    if "output_tokens_per_s" in shares:  # a longer step is a lower rate
        least, most = 1.0 / most, 1.0 / least
    return ErrorBar(machine=machine, least_fraction=least, most_fraction=most, ratio_most_fraction=ratio)
