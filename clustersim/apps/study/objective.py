"""Objective of a decision between runs: a quantity, and conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from clustersim.apps.study.point import ResultRow
from clustersim.config.checks import lacking
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, Quantity, parse_condition, parse_quantity_of
from clustersim.measure.deciding import Decision, is_better

E = TypeVar("E", Quantity, Condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedExpression:
    """An expression, and where it was written."""

    text: str
    field: str
    """Option of the command line, or key of a file."""
    place: Place | None = None

    def quantity(self, names: Mapping[str, bool], given: Mapping[str, bool] | None = None) -> Quantity:
        """Return the number of the expression; arguments and errors as for a condition."""
        return self._parsed(parse_quantity_of, names, given)

    def condition(self, names: Mapping[str, bool], given: Mapping[str, bool] | None = None) -> Condition:
        """Return the condition that the text states.

        Parameters
        ----------
        names
            Names that it may hold, and whether each is true or false and not a number.
        given
            Keys without which some metrics have no value, and whether the scenario has them; None where that is known otherwise.

        Raises
        ------
        ScenarioError
            When it is none, with its place.
        """
        return self._parsed(parse_condition, names, given)

    def mistake(self, error: ScenarioError) -> ScenarioError:
        """Return an error about the text with its place."""
        return ScenarioError(error.message, field=self.field, hint=error.hint, place=self.place)

    def _parsed(self, parse: Callable[[str, Mapping[str, bool]], E], names: Mapping[str, bool], given: Mapping[str, bool] | None) -> E:
        try:
            found = parse(self.text, names)
        except ExpressionError as error:
            raise self.mistake(error) from error
        missing = None if given is None else lacking(found.names, given)
        if missing is not None:
            raise self.mistake(missing)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Quantity for the ranking of runs, and their conditions."""

    quantity: Quantity
    higher_is_better: bool = False
    where: tuple[Condition, ...] = ()
    keys: frozenset[str] = frozenset()
    """Keys of the scenario that the quantity and conditions may name beside metrics."""

    def number(self, row: ResultRow) -> float | None:
        """Return the quantity of a run; None where it has no value."""
        values = self._values(row)
        return self.quantity.value(values) if set(self.quantity.names) <= values.keys() else None

    def refusal(self, row: ResultRow) -> str:
        """Return why a run is not eligible; empty if it runs, fits, meets all conditions, and has a number."""
        if row.outcome.status != "ok":
            return row.outcome.reason or row.outcome.status
        values = self._values(row)
        for condition in self.where:
            if not set(condition.names) <= values.keys():
                return f"'{condition.text}' has no value"
            if not condition.holds(values):
                return f"{condition.text} is false"
        return "" if set(self.quantity.names) <= values.keys() else f"'{self.quantity.text}' has no value"

    def judged(self, row: ResultRow) -> float | None:
        """Return the quantity of a run that may be chosen; None of another."""
        return None if self.refusal(row) else self.number(row)

    def ranked(self, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the runs that may be chosen, the best first, equal ones in their order."""
        judged = [(number, row) for row in rows if (number := self.judged(row)) is not None]
        return [row for _, row in sorted(judged, key=lambda each: self._score(each[0]))]

    def better(self, one: ResultRow, other: ResultRow) -> Decision | None:
        """Return whether a run is better than another, as far as the error bars tell; None of equal runs, or where one has no number."""
        if any(self.number(row) is None for row in (one, other)):
            return None
        return is_better(
            *(
                row.outcome.judged(
                    self.quantity.names, lambda figures, row=row: self._score(self.quantity.value({**figures, **self._given(row)}))
                )
                for row in (one, other)
            )
        )

    def undecided(self, ranked: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the runs within the error bars of the first one, the best."""
        return [row for row in ranked[1:] if self.better(ranked[0], row) == "not decided"]

    def _score(self, number: float) -> float:
        """Return the number with its sign such that less is better."""
        return -number if self.higher_is_better else number

    def _values(self, row: ResultRow) -> dict[str, float | bool]:
        return {**row.outcome.figures, **self._given(row)}

    def _given(self, row: ResultRow) -> dict[str, float | bool]:
        return {key: value for key, value in row.point.values.items() if key in self.keys and isinstance(value, int | float)}
