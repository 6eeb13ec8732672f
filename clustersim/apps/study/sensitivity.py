"""Sensitivity of the number and the decision to each figure: one at a time, from a low value to a high one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import resolved_serving
from clustersim.apps.study.axis import KeyRange, parse_span
from clustersim.apps.study.point_runs import evaluated
from clustersim.apps.study.what_if_cases import WhatIfQuestion, check_span
from clustersim.config.build import build
from clustersim.config.resolve import resolved_scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.progress import phase
from clustersim.units.quantity import parse_quantity

HARDWARE: Final = "hardware"
"""Asks for the figures of the hardware."""
SWING: Final = 0.2
"""Variation of hardware figures to either side, as a share of them."""
SPEED: Final = "accelerator_speed"
"""Not a key: how fast accelerators compute, as a multiple of what they do."""
_FIGURES: Final = (("scale_up", "bandwidth", "B/s"), ("scale_up", "latency", "s"), ("nics", "bandwidth", "B/s"), ("nics", "latency", "s"))
_READABLE: Final[Mapping[str, tuple[float, str]]] = {"B/s": (1e9, "GB/s"), "s": (1e-6, "us")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A figure that is varied."""

    span: KeyRange
    n_nodes: int = 0
    """Nodes of the cluster, for the speed of all its accelerators."""

    @property
    def name(self) -> str:
        """Name of the figure."""
        return self.span.key

    def values(self, number: float) -> dict[str, Data]:
        """Return what a scenario has where the figure has a value."""
        if self.span.key != SPEED:
            return {self.span.key: self.span.value(number)}
        return {"cluster.stragglers": [{"nodes": f"0-{self.n_nodes - 1}", "slowdown": 1.0 / number}]}

    def text(self, number: float) -> str:
        """Return a value as people read it."""
        return f"{self.span.value(number)}" if self.span.key != SPEED else f"{number:.3g} x"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityBar:
    """Effect of one figure on all cases."""

    input: Input
    low: Mapping[str, float | None]
    """Number of each case where the figure is low; None where it may not be chosen."""
    high: Mapping[str, float | None]
    best_at_low: str | None
    best_at_high: str | None

    def swing(self, case: str) -> float:
        """Return how far the number of a case moves."""
        low, high = self.low[case], self.high[case]
        return abs(high - low) if low is not None and high is not None else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """All figures, the one that moves the number most first."""

    case: str
    """Whose number is meant."""
    number: float
    best: str
    bars: tuple[SensitivityBar, ...]

    @property
    def deciding(self) -> tuple[SensitivityBar, ...]:
        """Figures that change which case is the best."""
        return tuple(bar for bar in self.bars if {bar.best_at_low, bar.best_at_high} != {self.best})


def inputs_of(question: WhatIfQuestion, texts: Sequence[str]) -> tuple[Input, ...]:
    """Return the figures that are named, each with its range; ``hardware`` stands for those of the hardware.

    Raises
    ------
    ScenarioError
        When one is no figure of the scenario, or named twice.
    """
    found: dict[str, Input] = {}
    for text in texts:
        some = _hardware(question) if text.strip() == HARDWARE else (_input(question, text),)
        for each in some:
            if each.name in found and text.strip() != HARDWARE:
                raise ScenarioError(f"'{each.name}' is varied twice", field="--sensitivity", hint="name it once")
            found.setdefault(each.name, each)
    return tuple(found.values())


def sensitivity(question: WhatIfQuestion, inputs: Sequence[Input], best: str, number: float, *, jobs: int | None = 1) -> Sensitivity:
    """Return what each figure does to the number of the best case, and to which case that is.

    Parameters
    ----------
    jobs
        Processes, None for one for each processor.
    """
    ends = [each.values(end) for each in inputs for end in (each.span.low, each.span.high)]
    asked = [replace(case, values={**case.values, **values}) for values in ends for case in question.cases]
    with phase("vary figures one by one"):
        rows = evaluated(question.base, asked, jobs=jobs)
    n_cases = len(question.cases)
    found = [rows[at : at + n_cases] for at in range(0, len(rows), n_cases)]
    bars = [
        SensitivityBar(
            input=each,
            low=question.numbers(low),
            high=question.numbers(high),
            best_at_low=question.best(low),
            best_at_high=question.best(high),
        )
        for each, low, high in zip(inputs, found[::2], found[1::2], strict=True)
    ]
    bars.sort(key=lambda bar: (-bar.swing(best), bar.input.name))
    return Sensitivity(case=best, number=number, best=best, bars=tuple(bars))


def _input(question: WhatIfQuestion, text: str) -> Input:
    span = parse_span(text, "--sensitivity")
    if span.key == SPEED:
        if span.low <= 0:
            raise ScenarioError("a speed is above 0", field="--sensitivity", hint="write such as accelerator_speed=0.9..1.1")
        return Input(span=span, n_nodes=_n_nodes(question))
    check_span(question, span, "--sensitivity")
    return Input(span=span)


def _hardware(question: WhatIfQuestion) -> tuple[Input, ...]:
    scenario = question.base.any_scenario({})
    served = isinstance(scenario, ServingScenario)
    cluster = (resolved_serving(build_serving(scenario)) if served else resolved_scenario(build(scenario)))["cluster"]
    found = [] if scenario.spec.cluster.stragglers else [Input(span=_around(SPEED, 1.0, ""), n_nodes=_n_nodes(question))]
    for part, figure, unit in _FIGURES:
        section = cluster.get(part) if isinstance(cluster, dict) else None
        text = section.get(figure) if isinstance(section, dict) else None
        value = 0.0 if text is None else parse_quantity(text, unit)
        if value > 0:
            size, label = _READABLE[unit]
            found.append(Input(span=_around(f"cluster.{part}.{figure}", value / size, label)))
    return tuple(found)


def _around(key: str, value: float, unit: str) -> KeyRange:
    return KeyRange(key=key, low=value * (1 - SWING), high=value * (1 + SWING), unit=unit)


def _n_nodes(question: WhatIfQuestion) -> int:
    scenario = question.base.any_scenario({})
    return build_serving(scenario).n_nodes if isinstance(scenario, ServingScenario) else build(scenario).cluster.n_nodes
