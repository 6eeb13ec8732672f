"""Error bars of a served run, from runs that no constant was fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, JsonValue

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.profile_schema import Checked
from clustersim.measure.error_bars import Band
from clustersim.measure.serving_metrics import Interval
from clustersim.serving.records import LatencyStatistics
from clustersim.units.fields import PositiveInt, PositiveRatio

SHIPPED: Final = Path("residuals") / "serving.yaml"
"""Below ``hardware_profiles``."""


class _Band(Checked):
    metric: str
    least: PositiveRatio
    most: PositiveRatio
    rows: PositiveInt
    coverage: Annotated[float, Field(ge=0.0, le=1.0)]


class _Residuals(Checked):
    sources: list[str]
    level: Annotated[PositiveRatio, Field(lt=1.0)]
    bands: list[_Band]
    folds: list[JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedIntervals:
    """Least and most that is expected of the mean of each headline; None where it has none."""

    ttft_s: Interval | None
    tpot_s: Interval | None
    itl_s: Interval | None
    e2e_s: Interval | None
    output_tokens_per_s: Interval


def served_intervals(found: Mapping[str, LatencyStatistics | None], output_tokens_per_s: float, *, asked_rate: bool) -> ServedIntervals:
    """Return the intervals of a run.

    Gaps between tokens have the band of the time per token. The whole time is that to the first token and the gaps behind it, each with
    its own band.

    Parameters
    ----------
    found
        Statistics of ``ttft``, ``tpot``, ``itl`` and ``e2e``.
    asked_rate
        Whether requests come at a rate of their own and are all answered: no more tokens are then produced than are asked for.
    """
    bands = _bands()
    ttft, tpot, itl, e2e = (found[name] for name in ("ttft", "tpot", "itl", "e2e"))
    first, later = bands["ttft_s"], bands["tpot_s"]
    rate = bands["output_tokens_per_s"].interval_s(output_tokens_per_s)
    whole: Interval | None = None
    if e2e is not None and ttft is not None:
        begin, rest = first.interval_s(ttft.mean), later.interval_s(e2e.mean - ttft.mean)
        whole = begin[0] + rest[0], begin[1] + rest[1]
    return ServedIntervals(
        ttft_s=_interval(first, ttft),
        tpot_s=_interval(later, tpot),
        itl_s=_interval(later, itl),
        e2e_s=whole,
        output_tokens_per_s=(min(rate[0], output_tokens_per_s), output_tokens_per_s) if asked_rate else rate,
    )


def _interval(band: Band, statistics: LatencyStatistics | None) -> Interval | None:
    return None if statistics is None else band.interval_s(statistics.mean)


@lru_cache
def _bands() -> Mapping[str, Band]:
    read = validate_document(_Residuals, read_document(data_path("hardware_profiles") / SHIPPED))
    return {each.metric: Band(least_fraction=each.least, most_fraction=each.most) for each in read.bands}
