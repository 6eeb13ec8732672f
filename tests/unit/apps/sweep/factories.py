"""Small sweeps of a small scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clustersim.apps.sweep.axis import parse_axis
from clustersim.apps.sweep.design import MOST_POINTS, design_of
from clustersim.apps.sweep.point import Base
from clustersim.apps.sweep.question import BEST, SweepQuestion, Wishes, question_of
from clustersim.config.load import read_source
from clustersim.documents.spots import Data

SMALL: dict[str, Data] = {
    "name": "small",
    "model": "gpt2",
    "cluster": {"node": "dgx-a100-40g", "nodes": 1},
    "training": {"global_batch_size": 64, "precision": "bf16"},
}


def make_base(*, seed: int = 0, **sections: Data) -> Base:
    return base_of(sections, seed=seed)


def base_of(sections: Mapping[str, Data], *, seed: int = 0) -> Base:
    return Base(source=read_source({**SMALL, **sections}), seed=seed)


def make_question(
    *over: str, where: Sequence[str] = (), sort: str = BEST, metrics: Sequence[str] = (), base: Base | None = None, most: int = MOST_POINTS
) -> SweepQuestion:
    axes = [[parse_axis(text)] for text in over or ("strategy.tp=1,2,3,4", "training.micro_batch_size=1,2,4")]
    wishes = Wishes(where=tuple(where), sort=sort, metrics=tuple(metrics), most_points=most)
    return question_of("small", base or make_base(), design_of(axes), wishes)
