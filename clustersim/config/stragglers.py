"""Ranks that compute slower, or faster, than their accelerator should: always, as a scenario names them, or from step to step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from clustersim.engine.pace import Jitter, JitterDistribution
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import Numbers, PositiveRatio, mistake


def _listed(value: object) -> object:
    """Return a lone number as a list of one; `true` stays what it is, and is refused."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


OneOrMore = Annotated[
    Numbers,
    BeforeValidator(_listed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "examples": ["0-7"]},
                {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            ]
        }
    ),
]
"""A field that holds a number, or a list as :mod:`clustersim.units.fields` reads it."""


class StragglerSpec(Checked):
    """One entry of ``cluster.stragglers``."""

    ranks: OneOrMore | None = Field(default=None, description="Ranks: 3, [0, 2, 4-6] or '0-7'.")
    nodes: OneOrMore | None = Field(default=None, description="Nodes whose ranks are all meant, in place of ranks.")
    slowdown: PositiveRatio = Field(description="Factor of their computation time; below 1 they are faster.")

    @model_validator(mode="after")
    def _check_says_who(self) -> StragglerSpec:
        if (self.ranks is None) == (self.nodes is None):
            message = "nobody is named" if self.ranks is None else "ranks and nodes both say who is meant"
            hint = "write ranks, such as 3 or [0-7], or nodes"
            raise mistake(message, hint)
        return self


def slowdowns_of(stragglers: Sequence[StragglerSpec], node_sizes: Sequence[int]) -> dict[int, float]:
    """Return how many times as long the computation of each rank takes that is not as it should be, by rank, ascending.

    Parameters
    ----------
    node_sizes
        Accelerators of each node of the cluster.

    Raises
    ------
    ScenarioError
        There is no such rank or node, or a rank is named in two entries.
    """
    first_rank = [0, *accumulate(node_sizes)]
    named: dict[int, int] = {}
    for index, straggler in enumerate(stragglers):
        for rank in _ranks(straggler, first_rank, f"cluster.stragglers.{index}"):
            if rank in named:
                raise ScenarioError(
                    f"rank {rank} is slowed down by cluster.stragglers.{named[rank]} and by cluster.stragglers.{index}",
                    field=f"cluster.stragglers.{index}.{'ranks' if straggler.nodes is None else 'nodes'}",
                    hint="name each rank once, with all that slows it down in one number",
                )
            named[rank] = index
    return {rank: stragglers[named[rank]].slowdown for rank in sorted(named) if stragglers[named[rank]].slowdown != 1.0}


def _ranks(straggler: StragglerSpec, first_rank: Sequence[int], field: str) -> tuple[int, ...]:
    numbers, key, count = (
        (straggler.ranks or (), "rank", first_rank[-1]) if straggler.nodes is None else (straggler.nodes, "node", len(first_rank) - 1)
    )
    for number in numbers:
        if number >= count:
            raise ScenarioError(f"there is no {key} {number}", field=f"{field}.{key}s", hint=f"{key}s are 0 to {count - 1}")
    if key == "rank":
        return numbers
    return tuple(rank for node in numbers for rank in range(first_rank[node], first_rank[node + 1]))


_MOST: Final = 3.0
"""Sigma beyond which one step in a million is more than a million times as long as the median."""
_PERCENT: Final = 100.0
_HINT: Final = "write a share such as '3 %', or {sigma: 0.03, distribution: lognormal}"


class JitterSpec(Checked):
    """``cluster.jitter``: a share, for a lognormal factor, or a mapping."""

    sigma: Annotated[float, Field(strict=True, ge=0, le=_MOST, allow_inf_nan=False)] | None = Field(
        default=None, description="Standard deviation of the logarithm of the factor."
    )
    distribution: JitterDistribution = Field(default="lognormal", description="Distribution of the factor.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of a share or a mapping."""
        return {"anyOf": [{"type": "string", "examples": ["3 %"]}, handler(schema)]}

    @model_validator(mode="before")
    @classmethod
    def _read_share(cls, value: object) -> object:
        return value if _is_written_out(value) else {"sigma": _share(value)}

    @model_validator(mode="after")
    def _check_sigma(self) -> JitterSpec:
        if self.distribution == "lognormal" and self.sigma is None:
            raise mistake("'sigma' is missing", "write how much steps vary, such as sigma: 0.03")
        if self.distribution == "exponential" and self.sigma is not None:
            raise mistake("an exponential factor of mean 1 has no sigma to choose", "delete sigma, or use distribution: lognormal")
        return self


def jitter_of(spec: JitterSpec | None) -> Jitter | None:
    """Return how much steps vary; None where they do not."""
    if spec is None or spec.sigma == 0.0:
        return None
    return Jitter(sigma=1.0 if spec.sigma is None else spec.sigma, distribution=spec.distribution)


def _is_written_out(value: object) -> bool:
    return isinstance(value, Mapping | JitterSpec)


def _share(value: object) -> float:
    text = value.strip() if isinstance(value, str) else ""
    try:
        percent = float(text.removesuffix("%")) if text.endswith("%") else math.nan
    except ValueError:
        percent = math.nan
    if not 0.0 <= percent <= _MOST * _PERCENT:
        shown = f"'{value}'" if isinstance(value, str) else str(value) if isinstance(value, int | float) else "that"
        raise mistake(f"{shown} is not a share from 0 % to {_MOST * _PERCENT:.0f} %", _HINT)
    return percent / _PERCENT
