"""A small model that is written into a scenario, changed and loaded."""

from __future__ import annotations

import json

import pytest

from clustersim.documents.text import Data, Document, parse_document
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_spec import LoadedModel, load_model

SMALL: dict[str, Data] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def scenario(model: dict[str, Data]) -> Document:
    """Return a scenario with a model in it."""
    lines = [f"  {key}: {json.dumps(value)}" for key, value in model.items()]
    return parse_document("name: test\nmodel:\n" + "\n".join(lines) + "\n", "scenario.yaml")


def inline(model: dict[str, Data]) -> LoadedModel:
    """Return the model of a scenario."""
    document = scenario(model)
    return load_model(document.data["model"], document=document)


def refused(model: dict[str, Data]) -> ScenarioError:
    """Return the error that a model ends with."""
    with pytest.raises(ScenarioError) as caught:
        inline(model)
    return caught.value


def without(*keys: str, **changes: Data) -> dict[str, Data]:
    """Return the small model without some keys, and with others."""
    return {key: value for key, value in SMALL.items() if key not in keys} | changes
