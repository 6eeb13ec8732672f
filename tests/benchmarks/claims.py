"""Claim of a benchmark: a figure and its limit, for the table in the documentation and for whoever reads a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Literal

from pytest_benchmark.fixture import BenchmarkFixture

Better = Literal["less", "more"]

RATIOS: Final = Path(__file__).parent / "ratios.json"
"""Ratios as they were when somebody last looked at them; better to be less, or more, than that."""
REGRESSION: Final = 4 / 3
"""Largest worsening of a ratio, as a factor, that is no fault."""


def best_s(benchmark: BenchmarkFixture) -> float:
    """Return the shortest round of what was timed."""
    assert benchmark.stats is not None
    return min(float(seconds) for seconds in benchmark.stats.stats.data)


def held(benchmark: BenchmarkFixture, measured: float, limit: float, unit: str = "s", *, better: Better = "less") -> bool:
    """Note a figure and its limit beside the timings of a benchmark, and return whether it is within."""
    benchmark.extra_info |= {"measured": measured, "limit": limit, "unit": unit, "better": better}
    return measured <= limit if better == "less" else measured >= limit


def has_not_regressed(benchmark: BenchmarkFixture, name: str, measured: float) -> bool:
    """Note a ratio, and return whether it is no more than a third worse than the one on record."""
    record = json.loads(RATIOS.read_text(encoding="utf-8"))[name]
    better: Better = record["better"]
    limit = record["ratio"] * REGRESSION if better == "less" else record["ratio"] / REGRESSION
    return held(benchmark, measured, limit, "", better=better)
