"""Limits that the time of an engine step must respect, from data sheets and counts alone."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_accelerator
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import KernelConstants, borrowed_notes
from clustersim.kernels.kernel_model import kernel_s
from clustersim.serving.batch import TERMS, Chunk, ServingLayout, StepBatch
from clustersim.serving.capacity import KvCapacity, kv_capacity, rank_weight_bytes
from clustersim.serving.engines import engine_constants
from clustersim.serving.formats import served_formats
from clustersim.serving.policies import rules_of
from clustersim.serving.rules import EngineDevice, EngineRules
from clustersim.serving.step_model import TermStepModel, step_model
from clustersim.workloads.inference import inference_work
from clustersim.workloads.model import Model
from clustersim.workloads.reading.model_spec import load_model
from clustersim.workloads.transformer import Transformer


def _model(name: str) -> Model:
    return load_model(name).model


def _rules(engine: str, device: Accelerator) -> EngineRules:
    return rules_of(engine, EngineDevice(name=device.name, memory_bytes=device.memory_bytes))


def _steps(
    name: str,
    accelerator: str = "h100-sxm5-80g",
    *,
    layout: ServingLayout | None = None,
    precision: str = "bf16",
    engine: str = "vllm",
    without: frozenset[str] = frozenset(),
) -> TermStepModel:
    device, model = load_accelerator(accelerator), _model(name)
    rules, formats = _rules(engine, device), served_formats(model, device, precision)
    found = step_model(model, device, layout or ServingLayout(), engine=engine_constants(engine), rules=rules, formats=formats)
    return replace(found, without=without)


def _decode(n: int, context: int) -> StepBatch:
    return StepBatch((), n, n * context, context)


@pytest.mark.parametrize("accelerator", ["a100-sxm4-80g", "h100-sxm5-80g", "h200-sxm", "b200-sxm", "mi300x", "rtx4090"])
def test_one_token_takes_no_less_than_reading_all_weights(accelerator: str) -> None:
    model = _model("llama3.1-8b")
    read_s = 2.0 * (model.n_parameters - model.vocab_size * model.hidden_size) / load_accelerator(accelerator).memory_bandwidth_bytes_per_s

    step_s = _steps("llama3.1-8b", accelerator).step(_decode(1, 128)).total_s

    assert read_s < step_s < 2.0 * read_s + 0.02


def test_a_long_prompt_takes_no_less_than_its_flops_at_the_dense_peak() -> None:
    model = _model("llama3.1-8b")
    layers = model.n_parameters - 2 * model.vocab_size * model.hidden_size
    least_s = 2.0 * 8192 * layers / 989e12

    step_s = _steps("llama3.1-8b").step(StepBatch((Chunk(8192, 0),), 0, 0, 0)).total_s

    assert least_s < step_s < 2.5 * least_s


def test_a_chunked_prompt_takes_at_least_as_long_as_the_whole_one() -> None:
    steps = _steps("llama3.1-8b")
    whole_s = steps.step(StepBatch((Chunk(8192, 0),), 0, 0, 0)).total_s

    chunked_s = sum(steps.step(StepBatch((Chunk(2048, done),), 0, 0, 0)).total_s for done in range(0, 8192, 2048))

    assert whole_s < chunked_s < 1.5 * whole_s


@pytest.mark.parametrize(
    ("name", "precision", "layout"),
    [
        ("llama3.1-70b", "fp8", ServingLayout(tp=4)),
        ("deepseek-v3", "fp8_block", ServingLayout(dp=8, ep=8)),
        ("gpt-oss-120b", "mxfp4", ServingLayout(tp=2)),
        ("llama3.1-70b", "bf16", ServingLayout(tp=2, pp=4)),
    ],
)
def test_a_stretch_of_decode_steps_equals_the_steps_one_by_one(name: str, precision: str, layout: ServingLayout) -> None:
    steps = _steps(name, "h200-sxm", layout=layout, precision=precision)
    stretch = steps.decode_stretch_s(StepBatch((), 37, 41_000, 3_000), 200)

    one_by_one = [steps.step(StepBatch((), 37, 41_000 + 37 * passed, 3_000 + passed)).total_s for passed in range(200)]

    assert stretch.tolist() == one_by_one


def test_the_terms_of_a_step_sum_to_its_duration() -> None:
    step = _steps("gpt-oss-120b", precision="mxfp4").step(StepBatch((Chunk(700, 0), Chunk(300, 900)), 12, 30_000, 9_000))

    assert set(step.terms) <= set(TERMS)
    assert sum(step.terms.values()) == pytest.approx(step.total_s, rel=1e-12)
    assert min(step.terms.values()) >= 0.0


@pytest.mark.parametrize("term", ["host", "projections", "collectives", "attention_decode", "head", "sampling", "elementwise"])
def test_a_term_that_is_left_out_costs_nothing_and_leaves_the_others_alone(term: str) -> None:
    batch, layout = _decode(16, 1000), ServingLayout(tp=2)
    every = _steps("llama3.1-8b", layout=layout, engine="tensorrt_llm", without=frozenset({"host"} - {term})).step(batch)

    less = _steps("llama3.1-8b", layout=layout, engine="tensorrt_llm", without=frozenset({"host", term})).step(batch)

    assert less.terms.get(term, 0.0) == pytest.approx(0.0, abs=1e-15)
    assert less.total_s == pytest.approx(every.total_s - every.terms[term], rel=1e-9)


def test_a_cache_of_fewer_heads_than_ranks_is_replicated() -> None:
    eight, sixteen = (_steps("llama3.1-70b", layout=ServingLayout(tp=tp)).work.cache_elements() for tp in (8, 16))

    assert eight == sixteen == 80 * 2 * 128


def test_a_latent_cache_is_not_divided_and_far_smaller() -> None:
    latent = _steps("deepseek-v3", "h200-sxm", layout=ServingLayout(tp=8), precision="fp8").work.cache_elements()

    assert latent == 61 * 576


def test_attention_in_a_window_stops_growing_with_the_context() -> None:
    short, long = (_steps("mistral-7b", without=frozenset({"host"})).step(_decode(8, context)).total_s for context in (4096, 32768))

    assert short == pytest.approx(long, rel=1e-9)


def test_unequal_contexts_cost_more_than_equal_ones_of_the_same_sum() -> None:
    steps = _steps("llama3.1-8b")
    equal_s = steps.step(StepBatch((), 4, 8000, 2000)).total_s

    assert equal_s < steps.step(StepBatch((), 4, 8000, 7000)).total_s


def test_a_product_computes_whole_tiles_of_rows() -> None:
    steps = _steps("llama3.1-8b")

    parted_s, whole_s, more_s = (steps.step(StepBatch((Chunk(rows, 0),), 0, 0, 0)).terms["projections"] for rows in (1921, 2048, 2049))

    assert parted_s == pytest.approx(whole_s, rel=0.01)  # what is left are activations, which are moved by rows
    assert more_s > whole_s * (1.0 + 0.9 * 128 / 2048)


def test_a_sequence_that_decodes_beside_a_prompt_takes_a_tile_of_flash_attention_2_and_no_more_of_3() -> None:
    chunk, decode = (Chunk(16, 0),), _decode(64, 1024)
    beside = decode._replace(chunks=chunk)

    shared, split = (
        [_steps("llama3.1-8b", accelerator).step(batch).terms["attention_decode"] for batch in (decode, beside)]
        for accelerator in ("rtx4090", "h100-sxm5-80g")
    )

    # Measured on RTX 4090: 333 us alone, 633 us beside 16 tokens and 815 us beside 2,048, in each of 32 layers.
    assert shared[0] == pytest.approx(32 * 333e-6, rel=0.05)
    assert 32 * 590e-6 < shared[1] < 32 * 860e-6
    assert split[0] == split[1]


@pytest.mark.parametrize(("precision", "is_slower"), [("fp8", True), ("nvfp4", False)])
def test_products_of_8_and_of_4_bits_have_their_own_shares_under_load(precision: str, is_slower: bool) -> None:
    whole = StepBatch((Chunk(8192, 0),), 0, 0, 0)
    steps, even = (_steps("llama3.1-8b", "b200-sxm", precision=precision) for _ in range(2))
    even.under_load = {"default": steps.under_load["default"]}

    assert (steps.step(whole).terms["projections"] > even.step(whole).terms["projections"]) == is_slower


def test_experts_that_no_token_chooses_are_not_read() -> None:
    steps = _steps("qwen3-235b-a22b", "h200-sxm", layout=ServingLayout(tp=8))
    model = _model("qwen3-235b-a22b")
    assert model.experts is not None

    one, many = (steps.step(_decode(n, 100)).terms["experts"] for n in (1, 1024))

    # One token chooses 8 of 128 experts; a thousand choose nearly all.
    assert 4.0 < many / one < model.experts.n_experts / model.experts.top_k


def test_the_last_tile_of_each_expert_is_half_empty() -> None:
    # One layer of gpt-oss-120b on one H200 with vLLM, measured by aiconfigurator at its full clock.
    steps = _steps("gpt-oss-120b", "h200-sxm", precision="mxfp4")
    steps.under_load = {"default": 1.0}

    predicted = [steps.step(StepBatch((Chunk(n, 0),), 0, 0, 0)).terms["experts"] / 36 for n in (512, 1024, 4096)]

    assert predicted == pytest.approx([1067e-6, 1378e-6, 2595e-6], rel=0.2)


def test_a_format_that_was_not_measured_is_flagged_and_borrows_by_generation() -> None:
    (note,) = borrowed_notes(_steps("llama3.1-8b", "gh200").borrowed)

    assert note.startswith("not measured on gh200, and taken from h")
    assert "product in bf16, decode attention in bf16, prefill attention in bf16" in note
    assert _steps("llama3.1-8b", "h100-sxm5-80g").borrowed == ()


def test_what_a_host_does_beside_the_accelerator_is_not_added() -> None:
    device, model = load_accelerator("h100-sxm5-80g"), _model("llama3.1-8b")
    formats, engine = served_formats(model, device, "bf16"), engine_constants("vllm")
    beside, before = (
        step_model(model, device, ServingLayout(), engine=engine, rules=_rules(name, device), formats=formats)
        .step(_decode(64, 1000))
        .terms["host"]
        for name in ("vllm@0.15", "vllm@0.11")
    )

    assert beside == pytest.approx(0.0, abs=1e-12)
    assert before == pytest.approx(engine.host_base_s + 64 * engine.host_per_sequence_s, rel=1e-9)


def test_reading_and_computing_overlap_but_for_a_fifth_where_they_are_equal() -> None:
    ideal = KernelConstants(
        accelerator="any",
        framework="any",
        family="product",
        format="bf16",
        floor_s=0.0,
        bandwidth_fraction=1.0,
        peak_fraction=1.0,
        activation_passes=0.0,
        cast_s=0.0,
        spread=0.0,
    )

    assert kernel_s(ideal, read_s=1.0, compute_s=1.0) == pytest.approx(sqrt(sqrt(2.0)), rel=1e-15)
    assert kernel_s(ideal, read_s=1.0, compute_s=0.1) == pytest.approx(1.0, rel=1e-4)
    assert kernel_s(ideal, read_s=0.0, compute_s=1.0) == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("pp", [1, 2])
def test_the_categories_of_memory_sum_to_the_accelerator(engine: str, pp: int) -> None:
    layout = ServingLayout(tp=2, pp=pp)
    steps, device = _steps("llama3.1-70b", precision="fp8", layout=layout, engine=engine), load_accelerator("h100-sxm5-80g")

    found = kv_capacity(
        steps.work,
        steps.formats,
        device,
        layout,
        engine=steps.engine,
        rules=replace(steps.rules, max_batched_tokens=8192, max_num_seqs=256),
    )

    assert sum(found.by_category.values()) == pytest.approx(device.memory_bytes, rel=1e-12)
    assert found.tokens * found.bytes_per_token == pytest.approx(found.by_category["kv_cache"], rel=1e-12)
    assert min(found.by_category.values()) >= 0.0


def test_the_cache_of_llama_8b_on_a_4090_is_what_vllm_reports() -> None:
    # 2,588 blocks of 16 tokens in vLLM 0.19.0 with a budget of 2,048 tokens (casys-kaist/LLMServingSim, bench/examples/RTX4090).
    steps, layout = _steps("llama3.1-8b", "rtx4090"), ServingLayout()

    found = kv_capacity(
        steps.work,
        steps.formats,
        load_accelerator("rtx4090"),
        layout,
        engine=steps.engine,
        rules=replace(steps.rules, max_batched_tokens=2048, max_num_seqs=256),
    )

    assert found.tokens == pytest.approx(2588 * 16, rel=0.03)


def test_weights_of_one_rank_are_those_of_the_model() -> None:
    model = _model("llama3.1-8b")
    steps = _steps("llama3.1-8b")

    # Norms, 65 vectors, are left out.
    assert rank_weight_bytes(steps.work, steps.formats, ServingLayout()) == pytest.approx(2.0 * model.n_parameters, rel=1e-4)


def test_a_model_that_does_not_fit_says_what_to_do() -> None:
    steps = _steps("llama3.1-70b")

    with pytest.raises(DomainError, match="leave no room for a cache") as caught:
        kv_capacity(
            steps.work,
            steps.formats,
            load_accelerator("h100-sxm5-80g"),
            ServingLayout(),
            engine=steps.engine,
            rules=replace(steps.rules, max_batched_tokens=8192, max_num_seqs=256),
        )

    assert caught.value.hint is not None
    assert "more accelerators" in caught.value.hint


def test_a_model_without_tokens_and_degrees_that_do_not_divide_are_refused() -> None:
    with pytest.raises(DomainError, match="does not generate tokens"):
        _steps("resnet-50")
    with pytest.raises(DomainError, match="tp: 3 does not divide 32 attention heads"):
        _steps("llama3.1-8b", layout=ServingLayout(tp=3))


def test_a_step_is_cheap_and_a_stretch_is_an_array() -> None:
    stretch = _steps("llama3.1-8b").decode_stretch_s(_decode(8, 100), 1000)

    assert isinstance(stretch, np.ndarray)
    assert stretch.shape == (1000,)
    assert bool((np.diff(stretch) >= 0.0).all())


def test_a_step_with_prompts_takes_the_launches_that_no_graph_holds() -> None:
    steps, layers = _steps("qwen3-30b-a3b", layout=ServingLayout(tp=8)), _model("qwen3-30b-a3b").n_layers
    launch_s = engine_constants("vllm").launch_s

    short, inside, outside = (steps.step(StepBatch((Chunk(n, 0),), 0, 0, 0)).total_s for n in (64, 512, 513))

    assert short == pytest.approx(layers * 4 * launch_s, rel=1e-9)
    assert inside < layers * 5 * launch_s
    assert outside > layers * (16 + 8) * launch_s


def _of_decode(name: str, n: int, context: int) -> float:
    return _steps(name).step(_decode(n, context)).terms["attention_decode"]


def test_a_state_is_read_and_written_once_a_token_however_long_the_context() -> None:
    # 36 of 40 layers of Granite have a state, and the others keys and values of 8 heads.
    steps, work = _steps("granite-4.0-h-small"), inference_work(_model("granite-4.0-h-small"), tp=1, expert_tp=1, ep=1)
    bandwidth = steps.accelerator.memory_bandwidth_bytes_per_s
    state_bytes = 36 * 2 * (128 * 128 * 64 + 3 * (2 * 128 + 128 * 64))
    kept_bytes = 4 * 2 * 8 * 128 * 2.0

    more_s = _of_decode("granite-4.0-h-small", 64, 4096) - _of_decode("granite-4.0-h-small", 64, 2048)

    assert work.state_bytes(2.0) == state_bytes
    assert work.state_bytes(4.0) == state_bytes + 36 * 2 * 128 * 128 * 64
    assert work.cache_elements() * 2.0 == kept_bytes
    assert _of_decode("granite-4.0-h-small", 64, 2048) > 2 * 64 * state_bytes / bandwidth
    assert 0.7 < more_s / (64 * 2048 * kept_bytes / bandwidth) < 2.0


def test_states_are_a_share_of_the_memory_in_sglang_and_take_blocks_of_the_cache_in_vllm() -> None:
    work, device = inference_work(_model("qwen3-next-80b-a3b"), tp=4, expert_tp=4, ep=1), load_accelerator("h100-sxm5-80g")
    formats = served_formats(_model("qwen3-next-80b-a3b"), device, "bf16")

    def capacity(engine: str, n: int, *, prefix_cache: bool = True) -> KvCapacity:
        rules = replace(_rules(engine, device), max_batched_tokens=8192, max_num_seqs=n, prefix_cache=prefix_cache)
        return kv_capacity(work, formats, device, ServingLayout(tp=4), engine=engine_constants(engine), rules=rules)

    of_sglang, of_vllm = [capacity("sglang", n) for n in (64, 4096)], [capacity("vllm", n) for n in (128, 256)]
    # 36 layers of 8 value heads of 128 x 128, and 3 tokens of 4 key and 8 value heads on each of four ranks.
    matrices, convolution = 36 * 8 * 128 * 128, 36 * 3 * (2 * 4 + 8) * 128

    n_states = of_sglang[1].by_category["states"] / (4 * matrices + 2 * convolution)
    assert of_sglang[1].by_category["states"] == pytest.approx(0.9 * of_sglang[1].by_category["kv_cache"], rel=0.002)
    assert [(each.max_num_seqs, each.states_limit) for each in of_sglang] == [(64, False), (n_states // 3, True)]
    # Activations are those of the batch that has states, so that to ask for it changes nothing.
    assert replace(capacity("sglang", of_sglang[1].max_num_seqs), states_limit=True) == of_sglang[1]
    assert capacity("sglang", 4096, prefix_cache=False).max_num_seqs == n_states
    assert of_sglang[1].state_blocks == 0
    assert "states" not in of_vllm[1].by_category
    assert of_vllm[1].tokens == of_vllm[0].tokens
    # 12 layers of 1 key and value head of 256 on a rank.
    assert of_vllm[1].state_blocks == ceil(2 * (matrices + convolution) / (16 * 12 * 2 * 256 * 2))


def test_four_bit_weights_of_latent_attention_are_those_of_its_output_and_tokens_are_gathered_in_them() -> None:
    layout = ServingLayout(dp=4, ep=4)
    steps = _steps("deepseek-v3", "b200-sxm", layout=layout, precision="nvfp4", engine="tensorrt_llm")
    (layer,) = (each for each in steps.work.layers if each.experts is not None)
    whole, cast = (replace(steps, engine=replace(steps.engine, gathers_cast=casts)).step(_decode(4096, 1000)) for casts in (False, True))
    size_bytes = 4096 * 7168 * 2.0
    saved_s = steps.collectives.all_gather_s(size_bytes, 4) - steps.collectives.all_gather_s(size_bytes / 4, 4)

    assert [each.name for each in layer.projections if steps.formats.of(each) == "bf16"] == ["q_down", "q_up", "kv_up"]
    assert whole.terms["collectives"] - cast.terms["collectives"] == pytest.approx(58 * saved_s)


@pytest.mark.parametrize(
    ("tp", "n_kv_heads", "text"), [(4, 2, "6 key heads"), (8, 2, "does not divide 12 value"), (4, 3, "4 ranks cannot share 3 key heads")]
)
def test_heads_that_ranks_cannot_share_are_refused(tp: int, n_kv_heads: int, text: str) -> None:
    model = _model("qwen3-next-80b-a3b")
    assert isinstance(model, Transformer)
    assert model.linear is not None
    odd = replace(model, n_kv_heads=n_kv_heads, linear=replace(model.linear, n_key_heads=6, n_value_heads=12))

    with pytest.raises(DomainError, match=text):
        inference_work(odd, tp=tp, expert_tp=tp, ep=1)

    states = [inference_work(replace(odd, n_kv_heads=2), tp=n, expert_tp=n, ep=1).state_bytes(2.0) for n in (1, 2)]
    assert states[0] == 2 * states[1]
