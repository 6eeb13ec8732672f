"""Configurations with keys of their own; other spellings and left-out keys say nothing."""

from __future__ import annotations

import pytest

from clustersim.documents.text import Data
from clustersim.workloads.reading.model_adapters import dbrx, exaone, gpt_neo, llama4, qwen_windows

WHOLE, LOCAL = "full_attention", "sliding_attention"
LISTED: Data = [WHOLE, WHOLE, WHOLE]


def test_qwen_s_windows_begin_at_a_layer() -> None:
    config: dict[str, Data] = {"num_hidden_layers": 3, "max_window_layers": 1, "use_sliding_window": True}

    assert qwen_windows(config) == {"layer_types": [WHOLE, LOCAL, LOCAL]}
    assert qwen_windows({**config, "use_sliding_window": False}) == {"layer_types": [WHOLE] * 3}
    assert qwen_windows(config | {"layer_types": LISTED}) == {}


@pytest.mark.parametrize("layers", [None, "3", True, -1, 10**9])
def test_a_number_of_layers_that_is_none_says_nothing(layers: Data) -> None:
    for adapt in (qwen_windows, gpt_neo, exaone):
        assert adapt({"num_hidden_layers": layers, "sliding_window_pattern": "LG"}) == {}


def test_exaone_writes_its_pattern_in_letters_or_as_a_number() -> None:
    assert exaone({"num_hidden_layers": 4, "sliding_window_pattern": "LLG"})["layer_types"] == [LOCAL, LOCAL, WHOLE, LOCAL]
    assert exaone({"num_hidden_layers": 4, "sliding_window_pattern": 4}) == {}


@pytest.mark.parametrize("written", [[["global", 2]], [3], [[["local"], "2"]]])
def test_lists_that_are_no_pairs_say_nothing(written: Data) -> None:
    assert gpt_neo({"num_layers": 2, "attention_types": written}) == {}


def test_llama_4_s_layers_without_experts_are_as_wide_as_experts_unless_it_says_otherwise() -> None:
    assert llama4({"intermediate_size": 8})["intermediate_size"] == 8
    assert llama4({"intermediate_size": 8, "intermediate_size_mlp": 16})["intermediate_size"] == 16
    assert llama4({"intermediate_size": 8, "intermediate_size_mlp": 16})["moe_intermediate_size"] == 8


def test_dbrx_says_heads_and_experts_in_parts() -> None:
    parts: dict[str, Data] = {"attn_config": {"kv_n_heads": 2}, "ffn_config": {"moe_num_experts": 4, "moe_top_k": 1, "ffn_hidden_size": 8}}

    assert dbrx(parts) == {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 1, "intermediate_size": 8}
    assert dbrx({"attn_config": 3}) == {}
