"""Highest model FLOPs utilisation that was published, beside that of a run.

The layout that a search chooses is the best of thousands, and so the one whose error is most in its favour. Its MFU is held against
what anybody has measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from clustersim.config.build import Built
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.profile_schema import Checked
from clustersim.notices import Flag
from clustersim.report.facts import percent_text
from clustersim.units.fields import PositiveInt, PositiveRatio

SHIPPED: Final = Path("residuals") / "mfu.yaml"
"""Below ``hardware_profiles``."""
ABOVE_PUBLISHED: Final = "above_published"


class PublishedMfu(Checked):
    """The published run with the highest MFU of its class."""

    generation: str
    precision: str
    """``fp16`` counts as ``bf16``, which has the same peak."""
    experts: bool
    mfu: Annotated[PositiveRatio, Field(le=1.0)]
    """By the FLOPs that this program counts, which need not be those of the source."""
    row: str
    source: str
    model: str
    accelerators: PositiveInt
    accelerator: str
    runs: PositiveInt
    """Published runs of the class."""

    def text(self) -> str:
        """Return the run in words."""
        return f"{percent_text(self.mfu)}: {self.model} on {self.accelerators:,} {self.accelerator} ({self.source}, {self.row})"


@dataclass(frozen=True, slots=True)
class MfuClass:
    """Runs whose MFU are held against each other."""

    generation: str
    precision: str
    experts: bool


def class_of(built: Built) -> MfuClass:
    """Return the class of a run."""
    precision = built.plan.training.precision
    kind = "bf16" if precision == "fp16" else precision
    return MfuClass(built.cluster.node.accelerator.generation, kind, built.plan.model.experts is not None)


def beside_published(found: PublishedMfu | None) -> str:
    """Return the highest MFU that was published in a class, in words."""
    if found is None:
        return "no run like it was published"
    kind = f"{'models with experts' if found.experts else 'dense models'} in {found.precision} on {found.generation}"
    return f"the highest published of {kind} is {found.text()}"


def above_published(mfu: float, found: PublishedMfu | None) -> tuple[Flag, ...]:
    """Return a flag where a predicted MFU is higher than any that was published of its class."""
    if found is None or mfu <= found.mfu:
        return ()
    return (Flag(code=ABOVE_PUBLISHED, message=f"an MFU of {percent_text(mfu)} is above all published runs; {beside_published(found)}"),)


class _File(Checked):
    """``mfu.yaml`` in ``hardware_profiles/residuals``."""

    sources: list[str]
    highest: list[PublishedMfu] = Field(min_length=1)


def shipped_path() -> Path:
    """Return where the highest MFU of this version are kept."""
    return data_path("hardware_profiles") / SHIPPED


@lru_cache(maxsize=1)
def shipped_highest() -> tuple[PublishedMfu, ...]:
    """Return the highest published MFU of each class in this version."""
    return tuple(validate_document(_File, read_document(shipped_path())).highest)


def published_beside(built: Built) -> PublishedMfu | None:
    """Return the published run with the highest MFU of the class of a run; None where none was published."""
    of = class_of(built)
    return next((each for each in shipped_highest() if MfuClass(each.generation, each.precision, each.experts) == of), None)
