"""A small published source that every test can change a little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.validate.rows import RowPlace, RowResult
from clustersim.apps.validate.sources import read_source
from clustersim.errors import ScenarioError
from clustersim.measure.metrics import Parallelism

TEXT = """\
source_id: small
title: A. Author, "Timings", 2024
urls: [https://example.org/paper]
retrieved: 2026-11-21
notes: [Timed by hand.]
conventions:
  training.precision: as stated
common:
  model:
    model_type: llama
    num_hidden_layers: 8
    hidden_size: 512
    num_attention_heads: 8
    num_key_value_heads: 4
    intermediate_size: 1024
    vocab_size: 1000
    max_position_embeddings: 256
  cluster: {node: dgx-a100-40g, nodes: 2}
  training: {global_batch_size: 32, precision: bf16}
  strategy: {tp: 2, pp: 2}
rows:
  - id: one
    source: {table: table 1, row: first}
    quality: A
    measured: {step_time: 100 ms}
    scenario: {}
  - id: two
    source: {table: table 2, row: second, url: https://example.org/appendix}
    quality: B
    measured: {step_time: 0.2 s, hardware_rate: 1 TFLOP/s}
    derived_from: the rate
    assumed: [one sequence in a micro-batch]
    scenario:
      training: {global_batch_size: 64}
      strategy: {tp: 4}
"""


ROW: Final = RowResult(
    id="row",
    source=RowPlace(table="table 1", row="first", url="https://example.org"),
    quality="A",
    model="small",
    accelerator="a100-sxm4-40g",
    machine="0123abcd",
    generation="ampere",
    gpus=16,
    parallelism=Parallelism(dp=1, tp=8, pp=2, cp=1, ep=1),
    virtual_stages=1,
    global_batch_size=64,
    seq_length=2048,
    measured_s=1.0,
    derived_from=None,
    predicted_s=1.0,
    predicted_range_s=None,
    bound_s=0.5,
    peak_s=0.4,
    error_fraction=0.0,
    interval_s=None,
    kind=(),
    capabilities=("dense", "many nodes"),
    features={"tensor-parallel degree": 8.0, "share of host": 0.1},
    fits=True,
    peak_bytes=1e9,
    capacity_bytes=2e9,
    measured_peak_bytes=None,
    memory_error_fraction=None,
    assumed=(),
    explained=None,
    flags=(),
)


def rows(*errors: float) -> list[RowResult]:
    """Return rows with these errors."""
    return [replace(ROW, id=f"row-{index}", predicted_s=1.0 + error, error_fraction=error) for index, error in enumerate(errors)]


def write(folder: Path, text: str = TEXT, name: str = "small.yaml") -> Path:
    """Return a file with the text of a source."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> ScenarioError:
    """Return the error that reading a source ends with."""
    with pytest.raises(ScenarioError) as caught:
        read_source(write(folder, text))
    return caught.value
