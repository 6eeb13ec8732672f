"""Variation of the computation of a rank from step to step, as a scenario says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema, model_validator

from clustersim.engine.pace import Jitter, JitterDistribution
from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import mistake

_MOST: Final = 3.0
"""Sigma beyond which one step in a million is more than a million times as long as the median."""
_PERCENT: Final = 100.0
_HINT: Final = "write a share such as '3 %', or {sigma: 0.03, distribution: lognormal}"


class JitterSpec(Checked):
    """``cluster.jitter``: a share, which stands for a lognormal factor, or a mapping."""

    sigma: Annotated[float, Field(strict=True, ge=0, le=_MOST, allow_inf_nan=False)] | None = None
    distribution: JitterDistribution = "lognormal"

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


JitterField = Annotated[
    JitterSpec,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["3 %"]},
                {
                    "type": "object",
                    "properties": {
                        "sigma": {"type": "number", "minimum": 0, "maximum": _MOST},
                        "distribution": {"enum": ["lognormal", "exponential"]},
                    },
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""A field that holds one."""
