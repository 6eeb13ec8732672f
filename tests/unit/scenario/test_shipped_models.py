"""Every shipped model has as many parameters as its makers say."""

from __future__ import annotations

from decimal import Decimal

import pytest

from clustersim.scenario.model_spec import load_model, model_names
from clustersim.workload.parameters import parameters_as_published

# Counts once more, apart from the files: from the makers' papers and model cards, so that a slip in a file cannot agree with itself.
EXACT = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "bloom-176b": 176_247_271_424,
    "gemma-7b": 8_537_680_896,
    "gemma2-27b": 27_227_128_320,
    "gemma2-9b": 9_241_705_984,
    "gpt-neox-20b": 20_554_567_680,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama2-7b": 6_738_415_616,
    "llama3-70b": 70_553_706_496,
    "llama3-8b": 8_030_261_248,
    "llama3.1-405b": 405_853_388_800,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "olmo-7b": 6_888_095_744,
    "olmo2-7b": 7_298_617_344,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-32b": 32_762_123_264,
    "qwen3-8b": 8_190_735_360,
    "smollm3-3b": 3_075_098_624,
}
BILLIONS = {
    "gpt-1.7b": "1.7",
    "gpt-145b": "145.6",
    "gpt-175b": "175",
    "gpt-18b": "18.4",
    "gpt-1t": "1008.0",
    "gpt-22b": "22",
    "gpt-3.6b": "3.6",
    "gpt-310b": "310.1",
    "gpt-39b": "39.1",
    "gpt-530b": "529.6",
    "gpt-7.5b": "7.5",
    "gpt-76b": "76.1",
    "gpt3-175b": "174.6",
    "opt-175b": "175",
}
TRAINED_WITH_DROPOUT = ("bert-", "gpt-1", "gpt-2", "gpt-3", "gpt-5", "gpt-7", "gpt2", "gpt3", "opt-")


def test_every_shipped_model_is_checked_here() -> None:
    assert sorted({**EXACT, **BILLIONS}) == list(model_names())


@pytest.mark.parametrize(("name", "parameters"), EXACT.items())
def test_a_model_has_exactly_its_published_parameters(name: str, parameters: int) -> None:
    loaded = load_model(name)

    assert parameters_as_published(loaded.model) == parameters
    assert loaded.model.published_parameters == parameters


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_a_model_has_its_published_parameters_to_the_printed_digits(name: str, billions: str) -> None:
    loaded = load_model(name)

    count = Decimal(parameters_as_published(loaded.model)) / 10**9

    assert count.quantize(Decimal(billions)) == Decimal(billions)
    assert loaded.spec.published_parameters_rounded == f"{billions}B"


@pytest.mark.parametrize("name", model_names())
def test_every_figure_of_a_model_has_a_source(name: str) -> None:
    spec = load_model(name).spec

    covered = {item for source in spec.sources for item in source.covers}

    published = "published_parameters" if spec.published_parameters else "published_parameters_rounded"
    assert covered == {"shape", published}
    assert all(source.url.startswith("https://") for source in spec.sources)


@pytest.mark.parametrize("name", model_names())
def test_nothing_is_assumed_about_a_shipped_model(name: str) -> None:
    codes = {code for code, _ in load_model(name).flags}

    assert codes <= {"sliding_window", "parallel_residual"}


@pytest.mark.parametrize("name", model_names())
def test_a_shipped_model_says_its_context_and_is_named_after_its_file(name: str) -> None:
    model = load_model(name).model

    assert model.name == name
    assert model.max_positions >= 512


@pytest.mark.parametrize("name", model_names())
def test_dropout_is_on_in_models_that_were_trained_with_it(name: str) -> None:
    assert load_model(name).model.dropout == name.startswith(TRAINED_WITH_DROPOUT)


def test_windows_and_parallel_blocks_are_flagged() -> None:
    assert [code for code, _ in load_model("mistral-7b").flags] == ["sliding_window"]
    assert [code for code, _ in load_model("gpt-neox-20b").flags] == ["parallel_residual"]
