"""A what-if from end to end, in plain data and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustersim.apps.compare.side_by_side_text import aligned, shown
from clustersim.apps.sweep.axis import KeyRange, canonical
from clustersim.apps.sweep.point import PointOutcome
from clustersim.apps.what_if.break_even import BreakEven, Crossing, break_even
from clustersim.apps.what_if.cases import BASE, Matter
from clustersim.apps.what_if.sampled import Method, Sampled, sampled
from clustersim.apps.what_if.sensitivity import Input, Sensitivity, SensitivityBar, sensitivity
from clustersim.documents.spots import Data
from clustersim.measure.deciding import UNDECIDED, Decision, is_better, undecided_text

_EQUAL = 5e-5
"""Relative: what one decimal of a percentage would show as 0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Further questions beside which case is best."""

    span: KeyRange | None = None
    """Span of a break-even search."""
    inputs: tuple[Input, ...] = ()
    method: Method | None = None
    """None varies one figure at a time."""
    samples: int | None = None
    jobs: int | None = 1
    """None for one for each processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """Outcomes of all cases."""

    matter: Matter
    outcomes: Mapping[str, PointOutcome]
    best: str | None
    break_even: BreakEven | None = None
    sensitivity: Sensitivity | None = None
    sampled: Sampled | None = None

    @property
    def numbers(self) -> dict[str, float | None]:
        """The number of each case that may be chosen."""
        return {name: self.matter.judged(outcome) for name, outcome in self.outcomes.items()}

    @property
    def ranked(self) -> list[str]:
        """Cases that may be chosen, the best first."""
        numbers = {name: number for name, number in self.numbers.items() if number is not None}
        sign = -1.0 if self.matter.number.higher_is_better else 1.0
        return sorted(numbers, key=lambda name: sign * numbers[name])

    def better(self, name: str, other: str) -> Decision | None:
        """Return whether a case is better than another, as far as the error bars tell; None where it is the same run, or has no number."""
        one, two = self.outcomes[name], self.outcomes[other]
        number = self.matter.number
        if one.scenario_hash == two.scenario_hash or any(number.of(each) is None for each in (one, two)):
            return None
        sign = -1.0 if number.higher_is_better else 1.0
        judged = [each.judged(lambda figures: sign * number.quantity.value(figures)) for each in (one, two)]
        return None if judged[0] is None or judged[1] is None else is_better(judged[0], judged[1])

    @property
    def undecided(self) -> list[str]:
        """Cases that may be chosen, and that the best cannot be told apart from."""
        best = self.best
        return [] if best is None else [name for name in self.ranked if name != best and self.better(best, name) == "not decided"]

    def __repr__(self) -> str:
        """Return the answer in one sentence; all of it is in ``print(answer)`` and :meth:`to_dict`."""
        return f"<Answer: {self.headline()}>"

    def __str__(self) -> str:
        """Return the answer with what follows from it, and the cases."""
        cases = aligned(*self.case_table())
        return "\n".join((self.headline(), *self.lines(), "", cases))

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``what-if --json`` prints."""
        return {
            "schema_version": 1,
            "scenario": self.matter.base.any_scenario({}).name,
            "answer": self.headline(),
            "metric": self.matter.number.quantity.text,
            "higher_is_better": self.matter.number.higher_is_better,
            "where": [each.text for each in self.matter.where],
            "best": self.best,
            "undecided": list[Data](self.undecided),
            "cases": [self._case(name) for name in self.outcomes],
            "break_even": None if self.break_even is None else _break_even_data(self.break_even),
            "sensitivity": None if self.sensitivity is None else _sensitivity_data(self.sensitivity),
            "sampled": None if self.sampled is None else _sampled_data(self.sampled),
        }

    def headline(self) -> str:
        """Return the answer in one sentence."""
        numbers, ranked = self.numbers, self.ranked
        if self.best is None:
            return f"No case can be chosen: {'; '.join(f'{name}: {self._why(name)}' for name in self.outcomes)}"
        metric = self.matter.number.quantity.text
        figure = f"{metric} {shown(metric, numbers[self.best])}"
        if len(self.outcomes) == 1:
            return f"The base has {figure}"
        if len(ranked) == 1:
            return f"{self.best} is the only case that can be chosen, with {figure}"
        against = ranked[1] if self.best == BASE else BASE if BASE in ranked else ranked[1]
        answer = f"{self.best} is best: {figure}, {self._relative(self.best, against)} {against}"
        doubt = UNDECIDED if self.undecided == [against] else undecided_text(self.undecided)
        return f"{answer}; {doubt}" if doubt else answer

    def lines(self) -> list[str]:
        """Return what follows from the break-even and the sensitivity, in sentences."""
        found: list[str] = []
        if self.break_even is not None:
            found += _break_even_lines(self.break_even)
        if self.sensitivity is not None:
            found += _sensitivity_lines(self.sensitivity, len(self.outcomes))
        if self.sampled is not None and self.sampled.best_fraction is not None:
            found.append(f"{self.best} stays best in {100 * self.sampled.best_fraction:.0f} % of {self.sampled.n_samples} samples")
        return found

    def case_rows(self) -> list[tuple[str, ...]]:
        """Return a row for each case: name, what it changes, the number, against the base, and why it may not be chosen."""
        metric, rows = self.matter.number.quantity.text, list[tuple[str, ...]]()
        for case in self.matter.cases:
            number = self.matter.number.of(self.outcomes[case.name])
            changes = " ".join(f"{key}={value if isinstance(value, str) else canonical(value)}" for key, value in case.changes.items())
            relative = self._fraction(case.name)
            against = "" if relative is None or case.name == BASE else "=" if abs(relative) < _EQUAL else f"{100 * relative:+.1f} %"
            if case.name != BASE and self.better(case.name, BASE) == "not decided":
                against += ", not decided"
            rows.append((case.name, changes, shown(metric, number), against, self._why(case.name)))
        return rows

    def case_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return columns and :meth:`case_rows`, without the last column where it says nothing."""
        columns = ("case", "changes", f">{self.matter.number.quantity.text}", ">against base", "cannot be chosen")
        rows = self.case_rows()
        return (columns, rows) if any(row[-1] for row in rows) else (columns[:-1], [row[:-1] for row in rows])

    def _case(self, name: str) -> Data:
        case = next(each for each in self.matter.cases if each.name == name)
        outcome = self.outcomes[name]
        return {
            "name": name,
            "changes": dict(case.changes),
            "status": outcome.status,
            "reason": self._why(name) or None,
            "value": self.matter.number.of(outcome),
            "relative_fraction": self._fraction(name),
            "better_than_base": None if name == BASE else self.better(name, BASE),
            "figures": dict(outcome.figures),
        }

    def _why(self, name: str) -> str:
        return self.matter.refusal(self.outcomes[name])

    def _fraction(self, name: str) -> float | None:
        number, first = (self.matter.number.of(self.outcomes[each]) for each in (name, BASE))
        return None if number is None or not first else number / first - 1.0

    def _relative(self, name: str, against: str) -> str:
        number, other = self.numbers[name], self.numbers[against]
        if number is None or not other or abs(number / other - 1.0) < _EQUAL:
            return "as much as"
        fraction = number / other - 1.0
        return f"{100 * abs(fraction):.1f} % {'more' if fraction > 0 else 'less'} than"


def answered(matter: Matter, probe: Probe) -> WhatIfAnswer:
    """Return what comes of all cases, and of what else is asked.

    Raises
    ------
    ScenarioError
        When a key that is varied does not exist, or cannot have such values.
    """
    outcomes = {case.name: matter.outcome(case) for case in matter.cases}
    numbers = {name: matter.judged(outcome) for name, outcome in outcomes.items()}
    best = matter.best(numbers)
    number = None if best is None else numbers[best]
    found_even = None if probe.span is None else break_even(matter, probe.span)
    found_one, found_many = None, None
    if probe.inputs and best is not None and number is not None:
        if probe.method is None:
            found_one = sensitivity(matter, probe.inputs, best, number, jobs=probe.jobs)
        else:
            found_many = sampled(matter, probe.inputs, best, probe.method, samples=probe.samples, jobs=probe.jobs)
    return WhatIfAnswer(matter=matter, outcomes=outcomes, best=best, break_even=found_even, sensitivity=found_one, sampled=found_many)


def _break_even_lines(found: BreakEven) -> list[str]:
    span = found.span
    low, high = span.value(span.low), span.value(span.high)
    if not found.crossings:
        return [f"Break-even: none; {_who(found.best_at_low)} from {span.key} {low} to {high}"]
    return [_crossing_line(span, each) for each in found.crossings]


def _crossing_line(span: KeyRange, crossing: Crossing) -> str:
    below, above = _end(span, crossing, crossing.below), _end(span, crossing, crossing.above)
    return f"Break-even: {_who(crossing.best_below)} up to {span.key} {below}, {_who(crossing.best_above)} from {above}"


def _end(span: KeyRange, crossing: Crossing, number: float) -> Data:
    # As many digits as are known.
    return span.value(number if crossing.above - crossing.below >= 1 else float(f"{number:.4g}"))


def _who(name: str | None) -> str:
    return f"{name} is best" if name else "no case can be chosen"


def _sensitivity_lines(found: Sensitivity, n_cases: int) -> list[str]:
    if n_cases == 1:
        return []
    if not found.deciding:
        return [f"{found.best} stays best whatever figure is varied"]
    return [f"The decision turns on {bar.input.name}: {_turn(bar)}" for bar in found.deciding]


def _turn(bar: SensitivityBar) -> str:
    ends = ((bar.input.span.low, bar.best_at_low), (bar.input.span.high, bar.best_at_high))
    return ", ".join(f"{best or 'no case'} is best at {bar.input.text(number)}" for number, best in ends)


def _break_even_data(found: BreakEven) -> dict[str, Data]:
    span = found.span
    crossings: list[Data] = [
        {
            "below": span.value(each.below),
            "above": span.value(each.above),
            "best_below": each.best_below,
            "best_above": each.best_above,
        }
        for each in found.crossings
    ]
    ends: dict[str, Data] = {"low": span.value(span.low), "high": span.value(span.high)}
    return {"key": span.key, **ends, "best_at_low": found.best_at_low, "crossings": crossings}


def _sensitivity_data(found: Sensitivity) -> dict[str, Data]:
    bars: list[Data] = [
        {
            "input": bar.input.name,
            "low": bar.input.text(bar.input.span.low),
            "high": bar.input.text(bar.input.span.high),
            "values_at_low": dict(bar.low),
            "values_at_high": dict(bar.high),
            "best_at_low": bar.best_at_low,
            "best_at_high": bar.best_at_high,
        }
        for bar in found.bars
    ]
    return {"case": found.case, "value": found.number, "inputs": bars}


def _sampled_data(found: Sampled) -> dict[str, Data]:
    effects: list[Data] = [
        {
            "input": each.input.name,
            "low": each.input.text(each.input.span.low),
            "high": each.input.text(each.input.span.high),
            "of_value": dict(each.of_number),
            "of_margin": None if each.of_margin is None else dict(each.of_margin),
        }
        for each in found.effects
    ]
    return {
        "method": found.method,
        "samples": found.n_samples,
        "runs": found.n_runs,
        "best_fraction": found.best_fraction,
        "inputs": effects,
    }
