"""Sensitivity of the number and the decision to each figure: one at a time, from a low value to a high one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from clustersim.apps.serve.deployment import BuiltServing, build_serving
from clustersim.apps.serve.deployment_run import resolved_serving
from clustersim.apps.study.axis import KeyRange, parse_span
from clustersim.apps.study.point import evaluated
from clustersim.apps.study.what_if_cases import WhatIfQuestion, check_span
from clustersim.config.build import Built, build
from clustersim.config.resolve import resolved_scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.config.stragglers import slowdowns_of
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.progress import phase
from clustersim.report.pictures import Sensitivity, VariedFigure
from clustersim.units.grouping import grouped
from clustersim.units.quantity import parse_quantity

HARDWARE: Final = "hardware"
"""Asks for the figures of the hardware."""
SWING: Final = 0.2
"""Variation of hardware figures to either side, as a share of them."""
SPEED: Final = "accelerator_speed"
"""Not a key: how fast accelerators compute, as a multiple of what they do."""
_FIGURES: Final = (
    *(("scale_up", "bandwidth", "B/s", "GB/s"), ("scale_up", "latency", "s", "us")),
    *(("nics", "bandwidth", "B/s", "Gbit/s"), ("nics", "latency", "s", "us")),
)
"""Section, key, unit, and the unit in which people write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A figure that is varied."""

    span: KeyRange
    slowdowns: tuple[tuple[tuple[str, ...], float], ...] = ()
    """Ranks and their slowdown as the scenario has it, for the speed of all accelerators."""

    @property
    def name(self) -> str:
        """Name of the figure."""
        return self.span.key

    def values(self, number: float) -> dict[str, Data]:
        """Return what a scenario has where the figure has a value."""
        if self.span.key != SPEED:
            return {self.span.key: self.span.value(number)}
        return {"cluster.stragglers": [{"ranks": list(ranks), "slowdown": slowdown / number} for ranks, slowdown in self.slowdowns]}

    @property
    def ends(self) -> tuple[str, str]:
        """Least and largest value as people read them."""
        return self.text(self.span.low), self.text(self.span.high)

    def text(self, number: float) -> str:
        """Return a value as people read it."""
        return f"{self.span.value(number)}" if self.span.key != SPEED else f"{number:.3g} x"


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
        VariedFigure(
            input=each.name,
            low=each.ends[0],
            high=each.ends[1],
            values_at_low=question.numbers(low),
            values_at_high=question.numbers(high),
            best_at_low=question.best(low),
            best_at_high=question.best(high),
        )
        for each, low, high in zip(inputs, found[::2], found[1::2], strict=True)
    ]
    return Sensitivity(case=best, value=number, inputs=sorted(bars, key=lambda bar: (-bar.swing(best), bar.input)))


def _input(question: WhatIfQuestion, text: str) -> Input:
    span = parse_span(text, "--sensitivity")
    if span.key == SPEED:
        if span.low <= 0:
            raise ScenarioError("a speed is above 0", field="--sensitivity", hint="write such as accelerator_speed=0.9..1.1")
        return Input(span=span, slowdowns=_slowdowns(_built(question)))
    check_span(question, span, "--sensitivity")
    return Input(span=span)


def _hardware(question: WhatIfQuestion) -> tuple[Input, ...]:
    built = _built(question)
    cluster = (resolved_serving(built) if isinstance(built, BuiltServing) else resolved_scenario(built))["cluster"]
    found = [Input(span=_around(SPEED, 1.0, ""), slowdowns=_slowdowns(built))]
    for part, figure, unit, label in _FIGURES:
        section = cluster.get(part) if isinstance(cluster, dict) else None
        text = section.get(figure) if isinstance(section, dict) else None
        value = 0.0 if text is None else parse_quantity(text, unit)
        if value > 0:
            found.append(Input(span=_around(f"cluster.{part}.{figure}", value / parse_quantity(f"1 {label}", unit), label)))
    return tuple(found)


def _around(key: str, value: float, unit: str) -> KeyRange:
    return KeyRange(key=key, low=value * (1 - SWING), high=value * (1 + SWING), unit=unit)


def _built(question: WhatIfQuestion) -> Built | BuiltServing:
    scenario = question.base.any_scenario({})
    return build_serving(scenario) if isinstance(scenario, ServingScenario) else build(scenario)


def _slowdowns(built: Built | BuiltServing) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Return all ranks, such as ``0-2``, by their slowdown."""
    kinds = [(built.node, built.n_nodes)] if isinstance(built, BuiltServing) else built.cluster.kinds
    sizes = [node.n_accelerators for node, count in kinds for _ in range(count)]
    slow = slowdowns_of(built.scenario.spec.cluster.stragglers, sizes)
    together = grouped((slow.get(rank, 1.0), rank) for rank in range(sum(sizes)))
    return tuple((tuple(_ranges(ranks)), slowdown) for slowdown, ranks in together.items())


def _ranges(ranks: Sequence[int]) -> list[str]:
    ends = [place for place, (rank, after) in enumerate(pairwise(ranks)) if after != rank + 1]
    starts = [0, *(place + 1 for place in ends)]
    return [f"{ranks[start]}-{ranks[end]}" for start, end in zip(starts, [*ends, len(ranks) - 1], strict=True)]
