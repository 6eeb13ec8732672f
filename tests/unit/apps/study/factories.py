"""Small studies of a small scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from clustersim.apps.study.design import MOST_POINTS
from clustersim.apps.study.point import Base
from clustersim.apps.study.study_file import Study, StudyRequest, StudySpec
from clustersim.apps.study.sweep_question import SweepQuestion, sweep_of
from clustersim.apps.study.what_if_cases import WhatIfQuestion, what_if_of
from clustersim.config.load import read_source
from clustersim.documents.text import Data

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


def make_study(request: StudyRequest, base: Base | None = None) -> Study:
    base = base or make_base()
    return Study(spec=StudySpec(scenario={}), document=base.source.document, base=base, request=request)


def make_question(
    *over: str,
    where: Sequence[str] = (),
    sort: str | None = None,
    metrics: Sequence[str] = (),
    base: Base | None = None,
    most: int = MOST_POINTS,
) -> SweepQuestion:
    over = over or ("strategy.tp=1,2,3,4", "training.micro_batch_size=1,2,4")
    request = StudyRequest(over=over, where=tuple(where), metric=sort, metrics=tuple(metrics), most_points=most)
    return sweep_of(make_study(request, base))


def make_what_if(*cases: str, metric: str | None = None, where: Sequence[str] = ()) -> WhatIfQuestion:
    return what_if_of(make_study(StudyRequest(cases=cases, metric=metric, where=tuple(where))))


TEXT: Final = """\
version: 1
name: small
question: Is twice as much more?
scenario:
  model: gpt2
  cluster: {node: dgx1-v100-32g, nodes: 1}
  training: {global_batch_size: 8, micro_batch_size: 1, seq_length: 256, precision: fp16, attention: unfused}
  strategy: {}
cases:
  plain: {label: plain copies}
  sharded: {set: {strategy.zero_stage: 3}}
points:
  label: accelerators
  values:
    '4': {set: {cluster.accelerators_per_node: 4}}
    '8': {}
leave_out: [sharded.4]
columns:
  step_time_s: step_time_s
  states_bytes: memory.states_bytes
  sent_bytes: links.nvlink_bytes / gpus
values:
  ratio: plain.4.step_time_s / plain.8.step_time_s
  whole_bytes: plain.8.states_bytes
  part_bytes: sharded.8.states_bytes
answer:
  - {when: ratio < 1, say: Less}
  - {when: ratio > 1, say: 'More, {ratio} times'}
claims:
  - {says: Shards are smaller., holds: part_bytes < whole_bytes, found: '{part_bytes} of {whole_bytes}.'}
  - {says: Twice is twice., holds: ratio > 1.99, found: 'It is {ratio}.'}
picture:
  subtitle: GPT-2
  panels:
    - {column: step_time_s, label: step time}
    - {column: states_bytes, label: states, cases: [plain]}
"""


def written(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Write the sample with some texts in the place of others."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path
