"""A small scenario that every test can change a little."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_spec import LoadedModel
from clustersim.workloads.transformer import Transformer

MODEL: Mapping[str, Data] = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 256,
}

TEXT = """\
version: 1
name: small
model:
  model_type: llama
  num_hidden_layers: 8
  hidden_size: 512
  num_attention_heads: 8
  num_key_value_heads: 4
  intermediate_size: 1024
  vocab_size: 1000
  max_position_embeddings: 256
cluster:
  node: dgx-a100-40g
  nodes: 2
training:
  global_batch_size: 32
  micro_batch_size: 1
  precision: bf16
strategy:
  tp: 2
  pp: 2
"""
"""The same as :func:`small`."""


def small(**sections: Data) -> dict[str, Data]:
    """Return 16 A100s that train a toy; a keyword replaces a section, or adds one."""
    base: dict[str, Data] = {
        "version": 1,
        "name": "small",
        "model": dict(MODEL),
        "cluster": {"node": "dgx-a100-40g", "nodes": 2},
        "training": {"global_batch_size": 32, "micro_batch_size": 1, "precision": "bf16"},
        "strategy": {"tp": 2, "pp": 2},
    }
    return base | sections


def built(*overrides: str, **sections: Data) -> Built:
    """Return the small scenario, changed and built."""
    return build(load_scenario(small(**sections), overrides))


def transformer_of(loaded: LoadedModel) -> Transformer:
    """Return the model that was loaded, which is no list of layers."""
    assert isinstance(loaded.model, Transformer)
    return loaded.model


def refusal(*overrides: str, **sections: Data) -> ScenarioError:
    """Return the error that the small scenario ends with after a change."""
    with pytest.raises(ScenarioError) as caught:
        built(*overrides, **sections)
    return caught.value
