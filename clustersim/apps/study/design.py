"""Points of a sweep: the product of its axes, linked axes as one, without excluded points."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from clustersim.apps.study.axis import Axis
from clustersim.apps.study.point import Point
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, parse_condition

MOST_POINTS: Final = 100_000
"""Default limit of points of a sweep: on two cores, half an hour of short runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Points that are left out: those for which a condition on numbers holds, or those with some values."""

    condition: Condition | None = None
    values: Mapping[str, tuple[Data, ...]] | None = None
    """By key, the values that are meant."""

    def matches(self, values: Mapping[str, Data]) -> bool:
        """Return whether a combination is left out."""
        if self.condition is not None:
            return self.condition.holds({name: value for name, value in values.items() if isinstance(value, int | float)})
        return all(values[key] in meant for key, meant in (self.values or {}).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The axes of a sweep and its exclusions."""

    blocks: tuple[tuple[Axis, ...], ...]
    """Their product is taken; the axes of one block move together."""
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, the slowest-varying first."""
        return tuple(axis for block in self.blocks for axis in block)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all axes."""
        return tuple(axis.key for axis in self.axes)

    @property
    def count(self) -> int:
        """Number of combinations, those that are excluded among them; nothing is written out to know it."""
        return prod(block[0].count for block in self.blocks)

    def points(self, most: int = MOST_POINTS) -> list[Point]:
        """Return all points, the first axis varying slowest.

        Raises
        ------
        ScenarioError
            When there are more than ``most``, none is left, or an axis holds a value twice.
        """
        if self.count > most:
            sizes = " x ".join(f"{block[0].count:,}" for block in self.blocks)
            product = f"{sizes} = {self.count:,}" if len(self.blocks) > 1 else sizes
            raise ScenarioError(
                f"{product} points are more than {most:,}",
                hint="vary less, or allow more with --max-points",
            )
        columns = [list(zip(*(axis.values() for axis in block), strict=True)) for block in self.blocks]
        found = [values for values in self._combinations(columns) if not any(each.matches(values) for each in self.exclusions)]
        if not found:
            raise ScenarioError("every point is excluded", hint="exclude less")
        return [Point(number=number, values=values) for number, values in enumerate(found, 1)]

    def _combinations(self, columns: Sequence[Sequence[tuple[Data, ...]]]) -> Iterator[dict[str, Data]]:
        for rows in itertools.product(*columns):
            yield dict(zip(self.keys, (value for row in rows for value in row), strict=True))


def design_of(blocks: Sequence[Sequence[Axis]]) -> Design:
    """Return the design of some axes.

    Raises
    ------
    ScenarioError
        When there is no axis, two have the same key or one is inside another, or axes that move together are not of equal length.
    """
    axes = [axis for block in blocks for axis in block]
    if not axes:
        raise ScenarioError("nothing is varied", hint="name a key and its values, such as --over strategy.tp=1,2,4,8")
    for one, other in itertools.permutations(axes, 2):
        if one.key == other.key:
            raise ScenarioError(f"'{one.key}' is varied twice", hint="write all its values into one list", place=other.place)
        if one.key.startswith(f"{other.key}."):
            raise ScenarioError(f"'{one.key}' is a part of '{other.key}'", hint="vary one of them", place=one.place)
    for block in blocks:
        for axis in block[1:]:
            if axis.count != block[0].count:
                message = f"'{block[0].key}' has {block[0].count} values and '{axis.key}' has {axis.count}, and they move together"
                raise ScenarioError(message, field=axis.key, hint="give both as many", place=axis.place)
    return Design(blocks=tuple(tuple(block) for block in blocks))


def exclusion_of(data: Data, design: Design, place: Place) -> Exclusion:
    """Return what leaves points out: a condition such as ``strategy.tp * strategy.pp > 64``, or a mapping of keys to values.

    Raises
    ------
    ScenarioError
        When it is neither, or names a key that is not varied.
    """
    if isinstance(data, str):
        return Exclusion(condition=_condition(data, design, place))
    if not isinstance(data, dict) or not data:
        raise ScenarioError(
            "is no condition and no mapping of values", hint="write such as 'strategy.tp > 8' or {strategy.tp: 8}", place=place
        )
    for key in data:
        if key not in design.keys:
            raise ScenarioError(f"'{key}' is not varied", hint=choices_hint(key, design.keys), place=place)
    return Exclusion(values={key: tuple(meant) if isinstance(meant, list) else (meant,) for key, meant in data.items()})


def axis_names(design: Design) -> dict[str, bool]:
    """Return the keys whose values are all numbers, or all true or false, for conditions; the value says whether it is the latter."""
    names: dict[str, bool] = {}
    for axis in design.axes:
        kinds = {type(part.first) if not part.unit else str for part in axis.parts}
        if kinds <= {int, float} or kinds == {bool}:
            names[axis.key] = kinds == {bool}
    return names


def _condition(text: str, design: Design, place: Place) -> Condition:
    names = axis_names(design)
    try:
        return parse_condition(text, names)
    except ExpressionError as error:
        hint = error.hint
        if "there is no metric" in error.message:
            words = [key for key in design.keys if key not in names and key in text]
            hint = (
                f"'{words[0]}' is no number: write a mapping such as {{{words[0]}: value}}" if words else f"it may name {', '.join(names)}"
            )
        message = re.sub(r"there is no metric ('.*')", r"\1 is not varied", error.message)
        raise ScenarioError(message, field="exclude", hint=hint, place=place) from error
