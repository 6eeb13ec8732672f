"""Constraints between values; every refusal names a right value."""

from __future__ import annotations

import re

import pytest

from clustersim.config.constraints import check_size
from clustersim.errors import DomainError, ScenarioError
from clustersim.parallel.contributors.tensor_parallel import TensorParallelism
from clustersim.parallel.training_plan import StrategySettings
from tests.unit.config.samples import built, refusal
from tests.unit.config.test_planning import MIXTURE

HEADS = [(64, 8), (64, 64), (12, 12), (40, 8), (7, 7)]


def full(*overrides: str) -> str:
    error = refusal(*overrides)
    return f"{error.field}: {error.message}; {error.hint}"


def test_dp_auto_fills_the_cluster() -> None:
    assert built("strategy.dp=auto").plan.strategy.dp == 4


def test_the_example_of_the_promise() -> None:
    overrides = [
        "cluster.node=dgx-h100",
        "cluster.nodes=64",
        "strategy.tp=8",
        "strategy.pp=4",
        "strategy.dp=15",
        "model.num_key_value_heads=8",
    ]

    assert full(*overrides) == "strategy.dp: tp*pp*cp*dp = 480 does not match 512 GPUs; dp: auto gives 16"


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_exactly_the_degrees_that_are_offered_are_taken(heads: int, kv_heads: int) -> None:
    shape = [
        f"model.num_attention_heads={heads}",
        f"model.num_key_value_heads={kv_heads}",
        "model.head_dim=64",
        "model.intermediate_size=13440",
    ]
    model = built(*shape, "strategy.tp=1").plan.model
    taken: list[int] = []
    offered = ""
    for degree in range(1, heads + 2):
        try:
            TensorParallelism.refuse_model(model, StrategySettings(tp=degree))
            taken.append(degree)
        except DomainError as error:
            offered = error.hint or ""

    assert [int(number) for number in re.findall(r"\d+", offered)] == taken


def test_key_and_value_heads_may_be_repeated() -> None:
    assert built("strategy.tp=8").plan.model.n_kv_heads == 4


def test_heads_of_a_state_that_cannot_be_shared_evenly_are_refused() -> None:
    types = f"model.layer_types=[{', '.join(['linear_attention', 'full_attention'] * 4)}]"
    heads = ("model.linear_num_key_heads=6", "model.linear_num_value_heads=12")
    widths = ("model.linear_key_head_dim=64", "model.linear_value_head_dim=64", "model.linear_conv_kernel_dim=4")
    key, value = (refusal(types, *heads, *widths, f"strategy.tp={tp}") for tp in (4, 8))

    assert key.message == "6 key heads of layers with a state can neither be divided nor be repeated evenly among 4 ranks"
    assert value.message == "8 does not divide 12 value heads of layers with a state"
    assert key.hint == value.hint == "use 1 or 2"


def test_the_batches_that_are_offered_are_taken() -> None:
    for batch in (8, 16):
        plan = built("strategy.schedule=interleaved_1f1b", "strategy.virtual_stages=2", f"training.global_batch_size={batch}").plan
        assert plan.n_micro_batches % 2 == 0


INTERLEAVED = ["strategy.schedule=interleaved_1f1b"]


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (
            ["model.num_hidden_layers=24", "strategy.pp=3"],
            "strategy.pp: tp*pp*cp = 6 does not divide 16 GPUs",
            "with the other degrees as they are, use pp 1, 2, 4 or 8",
        ),
        (
            ["strategy.dp=2", "model.num_hidden_layers=24", "strategy.pp=3"],
            "strategy.dp: tp*pp*cp*dp = 12 does not match 16 GPUs",
            "tp*pp*cp = 6 does not divide 16",
        ),
        (
            ["cluster.nodes=1", "cluster.accelerators_per_node=6", "strategy.tp=4", "strategy.pp=1"],
            "strategy.tp: tp*pp*cp = 4 does not divide 6 GPUs",
            "with the other degrees as they are, use tp 1, 2, 3 or 6",
        ),
        (
            ["model.num_attention_heads=12", "model.head_dim=64", "model.num_key_value_heads=6", "strategy.tp=4"],
            "strategy.tp: 6 key and value heads can neither be divided nor be repeated evenly among 4 ranks",
            "use 1 or 2",
        ),
        (["model.intermediate_size=1022", "strategy.tp=4"], "strategy.tp: 4 does not divide the intermediate size 1022", "use 1 or 2"),
        (
            ["training.global_batch_size=30"],
            "training.global_batch_size: 30 is not a multiple of dp * micro_batch_size = 4 * 1 = 4",
            "the nearest is 28 or 32",
        ),
        (
            ["training.global_batch_size=2"],
            "training.global_batch_size: 2 is not a multiple of dp * micro_batch_size = 4 * 1 = 4",
            "the nearest is 4",
        ),
        (
            [*INTERLEAVED, "strategy.pp=8", "strategy.virtual_stages=2", "strategy.tp=1"],
            "strategy.pp: 8 layers are too few for 8 stages of 2 chunks",
            "use pp 1, 2 or 4 with virtual_stages 2",
        ),
        (
            [*INTERLEAVED, "strategy.pp=1", "strategy.virtual_stages=2"],
            "strategy.schedule: interleaved_1f1b needs at least 2 stages",
            "use pp of 2 or more, or schedule 1f1b",
        ),
        (
            INTERLEAVED,
            "strategy.schedule: interleaved_1f1b with 1 chunk per stage is 1f1b",
            "use virtual_stages 2 or 4, or schedule 1f1b",
        ),
        (
            [*INTERLEAVED, "strategy.virtual_stages=2", "training.global_batch_size=12"],
            "training.global_batch_size: interleaved_1f1b needs a multiple of pp = 2 micro-batches, and 12 / (4 * 1) is 3",
            "the nearest that works is 8 or 16",
        ),
        (
            ["strategy.schedule=zb_v", "strategy.virtual_stages=4"],
            "strategy.virtual_stages: schedule zb_v has 2 chunks per stage, not 4",
            "use 2, or schedule interleaved_1f1b or breadth_first",
        ),
        (
            ["strategy.schedule=zb_h1", "strategy.pp=1"],
            "strategy.schedule: zb_h1 needs at least 2 stages",
            "use pp of 2 or more, or schedule 1f1b",
        ),
        (
            ["strategy.schedule=dualpipe", "strategy.tp=1", "strategy.pp=3", "strategy.dp=1"],
            "strategy.pp: dualpipe needs an even number of stages, not 3",
            "use pp 2 or 4, or schedule dualpipe_v",
        ),
        (
            ["strategy.schedule=dualpipe", "training.global_batch_size=24", "strategy.pp=4", "strategy.tp=1"],
            "training.global_batch_size: dualpipe needs an even number of micro-batches, at least 2 pp = 8, and 24 / (4 * 1) is 6",
            "the nearest that works is 32",
        ),
        (
            ["strategy.schedule=dualpipe", "training.global_batch_size=44", "strategy.pp=4", "strategy.tp=1"],
            "training.global_batch_size: dualpipe needs an even number of micro-batches, at least 2 pp = 8, and 44 / (4 * 1) is 11",
            "the nearest that works is 40 or 48",
        ),
        (
            ["strategy.schedule=dualpipe_v", "training.global_batch_size=4"],
            "training.global_batch_size: dualpipe_v needs at least 2 pp = 4 micro-batches, and 4 / (4 * 1) is 1",
            "the nearest that works is 16",
        ),
        (
            ["strategy.stage_layers=[4, 3]"],
            "strategy.stage_layers: 7 layers in all, and the model has 8",
            "write numbers that add up to 8",
        ),
        (
            ["strategy.stage_layers=[4, 3, 1]"],
            "strategy.stage_layers: 3 numbers for 2 chunks of the model",
            "write one for each chunk, in the order of the model",
        ),
        (
            ["strategy.pp=4", "strategy.tp=1", "strategy.stage_layers=[4, 0, 3, 1]"],
            "strategy.stage_layers: chunk 1 has no layer, and neither embedding nor logits",
            "only the first and the last chunk may be without layers",
        ),
    ],
)
def test_what_a_schedule_or_a_layout_cannot_take_is_refused_with_what_would_be_right(overrides: list[str], message: str, hint: str) -> None:
    error = refusal(*overrides)

    assert (f"{error.field}: {error.message}", error.hint) == (message, hint)


@pytest.mark.parametrize("overlap", ["gemm_chunks", "async_tp"])
def test_products_in_chunks_need_sequence_parallelism(overlap: str) -> None:
    assert full(f"strategy.overlap_tp={overlap}", "strategy.sequence_parallel=false") == (
        f"strategy.overlap_tp: {overlap} needs sequence parallelism: a chunk of a product is the slice of the sequence of one rank;"
        " use sequence_parallel: true, or overlap_tp: weight_gradient"
    )


@pytest.mark.parametrize(("written", "meant"), [("true", "weight_gradient"), ("false", "none"), ("gemm_chunks", "gemm_chunks")])
def test_what_tensor_parallel_collectives_run_beside_may_be_written_as_yes_or_no(written: str, meant: str) -> None:
    assert built(f"strategy.overlap_tp={written}").plan.strategy.overlap_tp == meant


def test_sequences_must_divide_for_sequence_parallelism() -> None:
    assert full("training.seq_length=255") == (
        "training.seq_length: 255 tokens do not divide among tp = 2 ranks for sequence parallelism, which is on with tp > 1 unless switched"
        " off; use a multiple of 2 such as 256, or sequence_parallel: false"
    )


def test_a_cluster_beyond_all_that_exist_is_refused() -> None:
    with pytest.raises(ScenarioError, match="use at most 250000"):
        check_size(300_000, 8)


def test_a_step_of_too_many_passes_is_refused() -> None:
    error = refusal("training.global_batch_size=40000000")

    assert error.message == "10000000 micro-batches make 40000000 passes, more than the 200000 that are simulated"


@pytest.mark.parametrize(
    ("node", "attention", "known"),
    [
        ("dgx-a100-80g", "flash_3", "flash, flash_2, flash_1"),
        ("dgx-h100", "flash_4", "flash, flash_3, flash_2, flash_1"),
        ("dgx1-v100-32g", "flash_2", "flash, flash_1"),
    ],
)
def test_attention_of_another_generation_of_accelerators_is_refused(node: str, attention: str, known: str) -> None:
    message = full(f"cluster.node={node}", "training.precision=fp16", f"training.attention={attention}")

    assert message.startswith(f"training.attention: nothing is known of {attention} on ")
    assert message.endswith(f"; use {known} or unfused")


def test_older_attention_and_none_at_all_are_taken() -> None:
    for attention in ("flash", "flash_1", "flash_2", "unfused"):
        assert built(f"training.attention={attention}").plan.training.attention == attention


@pytest.mark.parametrize(("key", "value"), [("recompute_layers", "1"), ("recompute_stops_early", "true")])
def test_details_of_full_recomputation_need_it(key: str, value: str) -> None:
    message = full("strategy.recompute=selective", f"strategy.{key}={value}")

    assert message.startswith(f"strategy.{key}: a detail of full recomputation, and recompute is selective")


def test_no_more_layers_are_recomputed_than_a_chunk_has() -> None:
    plan = built().plan
    most = plan.model.n_layers // plan.strategy.pp

    assert built("strategy.recompute=full", f"strategy.recompute_layers={most}").plan.strategy.recompute_layers == most
    message = full("strategy.recompute=full", f"strategy.recompute_layers={most + 1}")
    assert message == f"strategy.recompute_layers: {most + 1} layers of a model chunk that has {most}; use {most} or fewer"


def test_a_budget_of_less_than_a_step_is_told_how_a_budget_is_written() -> None:
    assert built("training.tokens=8192").tokens == 32 * 256

    message = full("training.tokens=15")
    assert message.startswith("training.tokens: 15 tokens are fewer than one step has, 32 * 256 = 8192; did you mean 15T?")
    assert full("training.tokens=8191").endswith("write all that the model is trained on, such as 15T")


def test_no_more_tokens_are_scored_than_there_are() -> None:
    plan = built("training.scored_tokens=20").plan

    assert plan.training.scored_tokens == 20
    most = plan.training.seq_length
    message = full(f"training.scored_tokens={most + 1}")
    assert message == f"training.scored_tokens: {most + 1} tokens are scored of a sequence of {most}; use {most} or fewer"


@pytest.mark.parametrize(("node", "scaling"), [("dgx-b200", "mx"), ("dgx-h100", "delayed"), ("pcie-rtxpro6000", "tensor")])
def test_scales_in_8_bits_are_those_of_the_accelerator(node: str, scaling: str) -> None:
    assert built(f"cluster.node={node}", "training.precision=fp8").plan.training.fp8_scaling == scaling


@pytest.mark.parametrize("scaling", ["mx", "nvfp4"])
def test_blocks_with_a_scale_each_need_matrix_units_that_take_them(scaling: str) -> None:
    message = full("cluster.node=dgx-h100", "training.precision=fp8", f"training.fp8_scaling={scaling}")

    assert message.startswith(f"training.fp8_scaling: Transformer Engine has no {scaling} on h100-sxm5-80g")


def test_an_own_accelerator_says_which_blocks_its_matrix_units_take() -> None:
    own = "cluster.accelerator={base: h100-sxm5-80g, scaled_formats: [mx]}"

    assert built("cluster.node=dgx-h100", own, "training.precision=fp8").plan.training.fp8_scaling == "mx"


def test_transformer_engine_refuses_mxfp8_on_compute_capability_12() -> None:
    message = full("cluster.node=pcie-rtxpro6000", "training.precision=fp8", "training.fp8_scaling=mx")

    assert message.startswith("training.fp8_scaling: Transformer Engine has no mx on rtxpro6000")


def test_weights_are_kept_in_fp8_only_for_products_in_fp8() -> None:
    assert built("cluster.node=dgx-h100", "training.precision=fp8", "training.fp8_parameters=true").plan.training.fp8_parameters
    message = full("training.precision=bf16", "training.fp8_parameters=true")
    assert message.startswith("training.fp8_parameters: weights cannot be kept in fp8 alone where products take them in bf16")
    assert message.endswith("; set training.precision to fp8")


def test_sharded_weights_are_not_kept_in_fp8_alone() -> None:
    message = full(
        "cluster.node=dgx-h100", "training.precision=fp8", "training.fp8_parameters=true", "strategy.zero_stage=3", "strategy.pp=1"
    )

    assert message.startswith("training.fp8_parameters: sharded weights are cast to fp8 as they are gathered")


@pytest.mark.parametrize(
    ("written", "grouped"), [((), True), (("training.kernels=eager",), False), (("training.grouped_experts=false",), False)]
)
def test_experts_are_grouped_with_fused_kernels_unless_told(written: tuple[str, ...], *, grouped: bool) -> None:
    assert built(*written, model=MIXTURE).plan.training.grouped_experts is grouped


def test_gradients_that_a_product_adds_up_cannot_be_clipped_before() -> None:
    apart = built("training.clip_micro_batches=true", "training.fused_gradient_accumulation=false").plan

    assert apart.training.clip_micro_batches
    message = full("training.clip_micro_batches=true", "training.fused_gradient_accumulation=true")
    assert message.startswith("training.clip_micro_batches: gradients cannot be clipped before they are added up")
    assert message.endswith("; set training.fused_gradient_accumulation to false")


def test_a_graph_cannot_be_waited_for_kernel_by_kernel() -> None:
    assert full("training.cuda_graphs=true", "training.blocking_launches=true") == (
        "training.cuda_graphs: kernels of a graph are issued together, and the host cannot wait for each;"
        " leave out cuda_graphs or blocking_launches"
    )
