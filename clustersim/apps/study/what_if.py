"""A what-if from end to end, in plain data and in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from clustersim.apps.study.axis import KeyRange, parse_span, value_text
from clustersim.apps.study.point import ResultRow, software_lines
from clustersim.apps.study.sampled import Method, Sampled, check_method, sampled
from clustersim.apps.study.sensitivity import HARDWARE, Input, inputs_of, sensitivity
from clustersim.apps.study.study_file import Source, Study, StudyRequest, open_study
from clustersim.apps.study.what_if_cases import BASE, BreakEven, Crossing, WhatIfQuestion, break_even, check_span, what_if_of
from clustersim.config.build import build
from clustersim.config.load import Scenario
from clustersim.config.resolve import resolved_scenario
from clustersim.config.yaml_text import plain
from clustersim.documents.check import value_at
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.measure.deciding import UNDECIDED, Decision, standing_text
from clustersim.report.pictures import Sensitivity, Tornado
from clustersim.report.text_tables import CLOSE, TextAnswer, TextTable, shown, shown_alike, signed
from clustersim.units.divisors import listed, shortened
from clustersim.units.quantity import line_rate, parse_quantity

if TYPE_CHECKING:
    from clustersim.report.plots.kinds import Plots

_LONGEST: Final = 40
"""Characters of a value of the base."""
ONE_AT_A_TIME: Final = "one"
"""Name of the method that varies one figure at a time."""


_RATE_BINDS: Final = "Throughput is the rate that requests come at"
_CAPACITY: Final = "full_load_output_tokens_per_s is what full batches would give"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """Further questions beside which case is best."""

    span: KeyRange | None = None
    """Span of a break-even search."""
    inputs: tuple[Input, ...] = ()
    method: Method | None = None
    """None varies one figure at a time."""
    samples: int | None = None
    jobs: int | None = 1
    """None for one for each processor."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhatIfAnswer(TextAnswer):
    """Outcomes of all cases."""

    question: WhatIfQuestion
    rows: tuple[ResultRow, ...]
    """In the order of the cases, the base first."""
    break_even: BreakEven | None = None
    sensitivity: Sensitivity | None = None
    sampled: Sampled | None = None

    @property
    def best(self) -> str | None:
        """Name of the best case; None where none may be chosen."""
        return self.question.best(self.rows)

    @property
    def numbers(self) -> dict[str, float | None]:
        """The number of each case that may be chosen."""
        return self.question.numbers(self.rows)

    @property
    def ranked(self) -> list[str]:
        """Cases that may be chosen, the best first."""
        return [row.point.name for row in self.question.objective.ranked(self.rows)]

    def row(self, name: str) -> ResultRow:
        """Return what came of a case."""
        return next(row for row in self.rows if row.point.name == name)

    def better(self, name: str, other: str) -> Decision | None:
        """Return whether a case is better than another, as far as the error bars tell; None where it is the same run, or has no number."""
        return self.question.objective.better(self.row(name), self.row(other))

    @property
    def undecided(self) -> list[str]:
        """Cases that may be chosen, and that the best cannot be told apart from."""
        objective = self.question.objective
        return [row.point.name for row in objective.undecided(objective.ranked(self.rows))]

    @property
    def plot(self) -> Plots:
        """Pictures, by name: ``answer.plot.tornado(ax=None)`` returns the axes that it drew on; it needs a sensitivity."""
        from clustersim.report.plots.kinds import ANSWER_PLOTS, Plots

        return Plots(ANSWER_PLOTS, lambda: self.tornado)

    @property
    def tornado(self) -> Tornado:
        """Picture of what each figure does to the number of the best case.

        Raises
        ------
        ScenarioError
            When no figure was varied one at a time.
        """
        if self.sensitivity is None:
            raise not_varied()
        metric = self.question.objective.quantity.text
        return Tornado(scenario=self._scenario, metric=metric, best=self.best, undecided=self.undecided, sensitivity=self.sensitivity)

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``what-if --json`` prints."""
        objective = self.question.objective
        return {
            "schema_version": 1,
            "scenario": self._scenario,
            "answer": self.headline(),
            "metric": objective.quantity.text,
            "higher_is_better": objective.higher_is_better,
            "where": [each.text for each in objective.where],
            "best": self.best,
            "undecided": list[Data](self.undecided),
            "cases": [self._case(row) for row in self.rows],
            "break_even": None if self.break_even is None else _break_even_data(self.break_even),
            "sensitivity": None if self.sensitivity is None else self.sensitivity.model_dump(),
            "sampled": plain(self.sampled),
        }

    @property
    def _scenario(self) -> str:
        return self.question.base.any_scenario({}).name

    def headline(self) -> str:
        """Return the answer in one sentence."""
        numbers, ranked = self.numbers, self.ranked
        if self.best is None:
            return f"No case can be chosen: {'; '.join(f'{row.point.name}: {self._why(row)}' for row in self.rows)}"
        metric = self.question.objective.quantity.text
        figure = f"{metric} {shown(metric, numbers[self.best])}"
        if len(self.rows) == 1:
            return f"The base, {self._scenario}, has {figure}"
        if len(ranked) == 1:
            return f"{self.best} is the only case that can be chosen, with {figure}"
        against = ranked[1] if self.best == BASE else BASE if BASE in ranked else ranked[1]
        return f"{standing_text(self.best, self.undecided)}: {figure}, {self._relative(self.best, against)} {against}"

    def lines(self) -> list[str]:
        """Return what follows from the break-even and the sensitivity, in sentences."""
        bound = [row.point.name for row in self.rows if row.outcome.figures.get("rate_binds")]
        found = software_lines(self.rows)
        found += [f"{_RATE_BINDS} in {listed(bound, 'and')}; {_CAPACITY}"] if bound else []
        if self.break_even is not None:
            found += _break_even_lines(self.break_even)
        if self.sensitivity is not None:
            found += _sensitivity_lines(self.sensitivity, len(self.rows))
        if self.sampled is not None and self.sampled.best_fraction is not None:
            found.append(f"{self.best} stays best in {100 * self.sampled.best_fraction:.0f} % of {self.sampled.samples} samples")
        return found

    def _base(self) -> str:
        """Return the name of the base, with what it has where cases differ from it."""
        scenario, changed = (
            self.question.base.any_scenario({}),
            {key: value for row in self.rows for key, value in row.point.values.items()},
        )
        parts = ([f"{key}.{part}" for part in value] if isinstance(value, dict) else [key] for key, value in changed.items())
        runs = self.rows[0].outcome.status == "ok"
        whole = resolved_scenario(build(scenario)) if runs and isinstance(scenario, Scenario) else {}
        values = {
            key: value_at(scenario.document.data, key.split(".")) or value_at(whole, key.split(".")) for key in chain.from_iterable(parts)
        }
        if "bit/s" in str(changed):  # as its cases have it
            values |= {key: line_rate(parse_quantity(rate, "B/s")) for key, rate in values.items() if str(rate).endswith("B/s")}
        has = ", ".join(
            f"{key.rpartition('.')[2]} {shortened(value_text(value), _LONGEST)}" for key, value in values.items() if value is not None
        )
        return f"base: {scenario.name}{f' ({has})' if has else ''}"

    def case_table(self) -> TextTable:
        """Return name, changes, number and difference from the base of each case, and why it may not be chosen if that is so of any."""
        metric, rows = self.question.objective.quantity.text, list[tuple[str, ...]]()
        numbers = shown_alike(metric, [self.question.objective.number(row) for row in self.rows])
        for row, number in zip(self.rows, numbers, strict=True):
            name, relative = row.point.name, self._fraction(row)
            values = " ".join(f"{key}={value_text(value)}" for key, value in row.point.values.items())
            changes = self._base() if name == BASE else values
            against = "" if relative is None or name == BASE else signed(relative)
            if name != BASE and self.better(name, BASE) == "not decided":
                against += ", not decided"
            rows.append((name, changes, number, against, self._why(row)))
        columns = ("case", "changes", f">{metric}", ">against base", "cannot be chosen")
        width = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
        return TextTable("", columns[:width], tuple(row[:width] for row in rows))

    def tornado_table(self, found: Sensitivity) -> TextTable:
        """Return a row for each figure: its ends, the number at each, how far that moves, and which case is best there."""
        metric, decides = self.question.objective.quantity.text, len(self.rows) > 1
        columns = ("figure", ">from", ">to", f">{metric} at low", f">{metric} at high", ">swing")
        rows: list[tuple[str, ...]] = []
        for bar in found.inputs:
            low, high = bar.ends(found.case)
            swing = "-" if low is None or high is None else f"{100 * bar.swing(found.case) / abs(found.value):.1f} %"
            best = (bar.best_at_low or "none", bar.best_at_high or "none") if decides else ()
            rows.append((bar.input, bar.low, bar.high, shown(metric, low), shown(metric, high), swing, *best))
        heading = f"One figure at a time, {found.case}"
        return TextTable(heading, (*columns, *(("best at low", "best at high") if decides else ())), tuple(rows))

    def tables(self) -> list[TextTable]:
        """Return the cases, and the figures that were varied."""
        tables = [self.case_table()]
        if self.sensitivity is not None:
            tables.append(self.tornado_table(self.sensitivity))
        if self.sampled is not None:
            tables.append(_sampled_table(self.sampled))
        return tables

    def _case(self, row: ResultRow) -> Data:
        name = row.point.name
        return {
            "name": name,
            "changes": dict(row.point.values),
            "status": row.outcome.status,
            "reason": self._why(row) or None,
            "value": self.question.objective.number(row),
            "relative_fraction": self._fraction(row),
            "better_than_base": None if name == BASE else self.better(name, BASE),
            "figures": dict(row.outcome.figures),
        }

    def _why(self, row: ResultRow) -> str:
        return self.question.objective.refusal(row)

    def _fraction(self, row: ResultRow) -> float | None:
        number, first = (self.question.objective.number(each) for each in (row, self.rows[0]))
        return None if number is None or not first else number / first - 1.0

    def _relative(self, name: str, against: str) -> str:
        number, other = self.numbers[name], self.numbers[against]
        if number is None or not other or abs(number / other - 1.0) < CLOSE:
            return "as much as"
        fraction = number / other - 1.0
        return f"{100 * abs(fraction):.1f} % {'more' if fraction > 0 else 'less'} than"


def not_varied(place: Place | None = None) -> ScenarioError:
    """Return the error of an answer without a sensitivity."""
    hint = "ask again with --sensitivity hardware, without --method"
    return ScenarioError("no figure was varied one at a time", field="sensitivity", place=place, hint=hint)


def answered(question: WhatIfQuestion, options: WhatIfOptions) -> WhatIfAnswer:
    """Return what comes of all cases, and of what else is asked."""
    if len(question.cases) < 2 and not options.inputs:
        raise ScenarioError("no case is named", field="--case", hint="write such as --case wide:strategy.tp=8, or --sensitivity hardware")
    rows = question.rows()
    best = question.best(rows)
    number = None if best is None else question.numbers(rows)[best]
    found_even = None if options.span is None else break_even(question, options.span)
    found_one, found_many = None, None
    if options.inputs and best is not None and number is not None:
        if options.method is None:
            found_one = sensitivity(question, options.inputs, best, number, jobs=options.jobs)
        else:
            found_many = sampled(question, options.inputs, best, options.method, samples=options.samples, jobs=options.jobs)
    return WhatIfAnswer(question=question, rows=rows, break_even=found_even, sensitivity=found_one, sampled=found_many)


def asked_what_if(source: Source, request: StudyRequest) -> tuple[WhatIfQuestion, WhatIfOptions]:
    """Return what is to be decided, and what else is asked, from a file and the command line together."""
    method = None if request.method in (None, ONE_AT_A_TIME) else check_method(request.method)
    study = open_study(source, request)
    question = what_if_of(study)
    texts = request.sensitivity or study.spec.sensitivity or ((HARDWARE,) if method else ())
    inputs = inputs_of(question, texts)
    return question, WhatIfOptions(span=_span(question, study), inputs=inputs, method=method, samples=request.samples, jobs=request.jobs)


def _span(question: WhatIfQuestion, study: Study) -> KeyRange | None:
    even = study.request.break_even or study.spec.break_even
    if even is None:
        return None
    span = parse_span(even, "--break-even")
    if len(question.cases) < 2:
        raise ScenarioError("the base alone breaks even with nothing", field="--break-even", hint="add a --case")
    check_span(question, span, "--break-even")
    for case in question.cases:
        if span.key in case.values:
            place = Place(file=f"--break-even {even}")
            raise ScenarioError(f"case {case.name} sets '{span.key}' itself", hint="vary another key", place=place)
    return span


def _break_even_lines(found: BreakEven) -> list[str]:
    span = found.span
    low, high = span.value(span.low), span.value(span.high)
    if not found.crossings:
        return [f"Break-even: none; {_who(found.best_at_low)} from {span.key} {low} to {high}{_doubt(span, found.undecided)}"]
    return [_crossing_line(span, each) for each in found.crossings]


def _crossing_line(span: KeyRange, crossing: Crossing) -> str:
    # As many digits as are known.
    digits = 4 if crossing.undecided is None else 2
    close = crossing.above - crossing.below < 1
    below, above = (span.value(float(f"{number:.{digits}g}") if close else number) for number in (crossing.below, crossing.above))
    best, then = _who(crossing.best_below), _who(crossing.best_above)
    answer = f"Break-even: {best} up to {span.key} {below}, {then} from {'there' if below == above else above}"
    return f"{answer} on{_doubt(span, crossing.undecided)}"


def _doubt(span: KeyRange, undecided: tuple[float, float] | None) -> str:
    if undecided is None:
        return ""
    least, most = (span.value(float(f"{number:.2g}")) for number in undecided)
    return f"; {UNDECIDED} {f'at {least}' if least == most else f'from {least} to {most}'}"


def _who(name: str | None) -> str:
    return f"{name} is best" if name else "no case can be chosen"


def _sensitivity_lines(found: Sensitivity, n_cases: int) -> list[str]:
    if n_cases == 1:
        return []
    if not found.deciding:
        return [f"{found.case} stays best whatever figure is varied"]
    return [
        f"The decision turns on {bar.input}: {bar.best_at_low or 'no case'} is best at {bar.low}, "
        f"{bar.best_at_high or 'no case'} is best at {bar.high}"
        for bar in found.deciding
    ]


def _break_even_data(found: BreakEven) -> dict[str, Data]:
    span = found.span
    crossings: list[Data] = [
        {
            "below": span.value(each.below),
            "above": span.value(each.above),
            "best_below": each.best_below,
            "best_above": each.best_above,
            "undecided": _undecided_data(span, each.undecided),
        }
        for each in found.crossings
    ]
    ends: dict[str, Data] = {"low": span.value(span.low), "high": span.value(span.high)}
    return {
        "key": span.key,
        **ends,
        "best_at_low": found.best_at_low,
        "undecided": _undecided_data(span, found.undecided),
        "crossings": crossings,
    }


def _undecided_data(span: KeyRange, undecided: tuple[float, float] | None) -> Data:
    return None if undecided is None else [span.value(number) for number in undecided]


def _sampled_table(found: Sampled) -> TextTable:
    names, ahead = list(found.inputs[0].of_value), found.inputs[0].of_margin is not None
    heading = f"All figures at once: {found.method}, {found.runs:,} runs; of the number{' and of the lead' if ahead else ''}"
    columns = ("figure", ">from", ">to", *(f">{name}" for name in names), *(f">{name} of the lead" for name in names if ahead))
    rows = (
        (
            each.input,
            each.low,
            each.high,
            *(f"{value:.4g}" for values in (each.of_value, each.of_margin or {}) for value in values.values()),
        )
        for each in found.inputs
    )
    return TextTable(heading, columns, tuple(rows))
