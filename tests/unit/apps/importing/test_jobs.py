"""Jobs beyond the samples: flags of Megatron-LM, keys that are lost or unknown, files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.config.load import Scenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at

FILES: Final = Path(__file__).parent / "files"


def written(tmp_path: Path, text: str, name: str = "job.txt") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


MEGATRON: Final = (
    "pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 2 --global-batch-size 64 --vocab-size 32000 --bf16 --tensor-model-parallel-size 2 "
)
ON_H100: Final = ImportOptions(cluster="dgx-h100", nodes=1)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--swiglu", {"model.gated_mlp": True, "model.intermediate_size": 1344}),
        ("--group-query-attention --num-query-groups 4", {"model.num_key_value_heads": 4}),
        ("--num-query-groups 4", {"model.num_key_value_heads": None}),
        ("--untie-embeddings-and-output-weights", {"model.tie_word_embeddings": False}),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", {"model.dropout": False}),
        ("--attention-dropout 0.0 --hidden-dropout 0.1", {"model.dropout": True}),
        ("--disable-bias-linear --add-qkv-bias", {"model.mlp_bias": False, "model.qkv_bias": True}),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", {"strategy.virtual_stages": 2}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", {"strategy.recompute_layers": 2}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", {"strategy.recompute": "none"}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2", {"strategy.recompute_layers": None}),
        (
            "--recompute-granularity selective --recompute-modules core_attn layernorm",
            {"strategy.recompute_modules": ["core_attention", "norms"]},
        ),
        ("--use-torch-fsdp2", {"strategy.zero_stage": 3}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"strategy.zero_stage": 2}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"strategy.cp": 2, "strategy.context_parallel": "ulysses"}),
        (
            "--sequence-parallel --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4",
            {"model.num_experts": 8, "strategy.ep": 4},
        ),
        ("--sequence-parallel --num-experts 8 --moe-layer-freq ([0,1]*4)", {"model.mlp_only_layers": [0, 2, 4, 6]}),
        ("--sequence-parallel --tp-comm-overlap", {"strategy.overlap_tp": "gemm_chunks"}),
        ("--fp16", {"training.gradient_precision": "same"}),
        (
            "--sequence-parallel --num-experts 8 --expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm",
            {"strategy.ep": 4, "strategy.overlap_ep": "micro_batches"},
        ),
        (
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --enable-cuda-graph",
            {"training.fused_loss": True, "training.cuda_graphs": ["attention", "mlp", "experts"]},
        ),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", {"training.cuda_graphs": True}),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router", {"training.cuda_graphs": ["attention", "router"]}),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            {"training.moment_precision": "bf16"},
        ),
        (
            "--fp8-format hybrid --fp8-recipe blockwise --first-last-layers-bf16",
            {"training.fp8_scaling": "block", "training.bf16_layers": [1, 1]},
        ),
        ("--cpu-offloading-num-layers 4", {"strategy.offload": ["activations"]}),
        ("--optimizer dist_muon", {"training.optimizer": "muon", "strategy.zero_stage": 1, "strategy.gather": "tensor"}),
        ("--cuda-graph-impl none --cuda-graph-scope attn", {"training.cuda_graphs": False}),
        ("--transformer-impl local", {"training.attention": "unfused"}),
        ("--ddp-bucket-size 10000000", {"strategy.data_parallel.bucket": "40 MB"}),
        ("--train-iters 100", {"training.tokens": str(100 * 64 * 1024)}),
        (
            "--train-iters 100 --rampup-batch-size 32 16 320",
            {"training.batch_ramp": {"start": 32, "increment": 16, "tokens": str(320 * 1024)}},
        ),
        ("--rampup-batch-size 32 16 320", {"training.batch_ramp": None}),
    ],
)
def test_a_flag_of_megatron_lm_is_read(tmp_path: Path, flags: str, expected: dict[str, Data]) -> None:
    text = MEGATRON.replace("--bf16 ", "") if "--fp16" in flags else MEGATRON

    found = import_files([written(tmp_path, text + flags)], ON_H100)

    assert {key: at(found.data, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("flags", "scaling"), [("--fp8-format e4m3 --fp8-recipe mxfp8", "mx"), ("--fp4-format e2m1 --fp4-recipe nvfp4", "nvfp4")]
)
def test_formats_of_blackwell_are_read(tmp_path: Path, flags: str, scaling: str) -> None:
    found = import_files([written(tmp_path, MEGATRON + flags)], ImportOptions(cluster="dgx-b200", nodes=8))

    assert (at(found.data, "training.precision"), at(found.data, "training.fp8_scaling")) == ("fp8", scaling)


def test_a_script_sources_the_files_that_are_named_and_no_others(tmp_path: Path) -> None:
    files = [written(tmp_path, 'source "$DIR/conf.sh"\npython ' + MEGATRON + "--pipeline-model-parallel-size $PP", "train.sh")]
    conf = written(tmp_path, "PP=2\n", "conf.sh")

    assert at(import_files([*files, conf], ON_H100).data, "strategy.pp") == 2
    with pytest.raises(ScenarioError, match=r"--pipeline-model-parallel-size \$PP, which depends on a variable"):
        import_files(files, ON_H100)


def test_a_shipped_model_with_other_dimensions_is_written_out(tmp_path: Path) -> None:
    text = (FILES / "primus-llama3.1-70b.yaml").read_text(encoding="utf-8").replace("overrides:", "overrides:\n      num_layers: 4")

    found = import_files([written(tmp_path, text, "job.yaml")], ImportOptions(cluster="mi300x-oam", nodes=1))

    assert (at(found.data, "model.num_hidden_layers"), at(found.data, "model.hidden_size")) == (4, 8192)


@pytest.mark.parametrize("flag", ["--img-h 336"])
def test_what_is_not_modelled_is_said(tmp_path: Path, flag: str) -> None:
    found = import_files([written(tmp_path, MEGATRON + flag)], ON_H100)

    lost = [key for key in found.keys if key.how == "not_modelled"]
    assert [key.key for key in lost] == [flag.partition(" ")[0]]
    assert lost[0].note


@pytest.mark.parametrize("slip", ["--tensor-model-paralel-siz", "--tensr-parallel"])
def test_an_unknown_key_is_warned_of_and_refused_by_strict(tmp_path: Path, slip: str) -> None:
    path = written(tmp_path, f"{MEGATRON}{slip} 4")

    keys = [key.key for key in import_files([path], ON_H100).keys if key.how == "unknown"]

    assert keys == [slip]
    with pytest.raises(ScenarioError, match="is no key of Megatron-LM that is known; did you mean '--tensor-model-parallel-size'"):
        import_files([path], ImportOptions(cluster="dgx-h100", nodes=1, strict=True))


def test_a_later_file_and_a_later_option_count(tmp_path: Path) -> None:
    found = import_files([written(tmp_path, MEGATRON + "--micro-batch-size 4")], ON_H100)

    assert at(found.data, "training.micro_batch_size") == 4
    assert [key.note for key in found.keys if key.key == "--micro-batch-size"] == ["given again in line 1", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nvalues: [1, 2]\n", "holds keys of no framework that is known"),
        ("axolotl train examples/fft-8b.yaml --num-processes 8\n", "it names examples/fft-8b.yaml: name that too"),
        ("", "is empty"),
        ("just some words", "holds no keys and values"),
        ("version: 1\nmodel: llama3-8b\ncluster: {node: dgx-h100}\ntraining: {global_batch_size: 8}\n", "is a scenario already"),
        ('{"schemaVersion": 1, "traceEvents": []}', "is a trace"),
        (
            "[titan] 2025 - INFO - step: 10  loss: 9.1  memory: 40.1GiB(42.0%)  tps: 7,100  tflops: 411.2\n",
            "is a measurement .log of torchtitan",
        ),
        ("kind: DynamoGraphDeployment\nspec: {}\n", "is a serving deployment"),
        ("[training\nseq_len = 3\n", "holds no|is not"),
    ],
)
def test_another_file_is_refused_by_what_it_is(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        import_files([written(tmp_path, text)], ON_H100)


def test_the_memory_of_accelerators_that_slurm_names_by_their_generation_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, f"#!/bin/bash\n#SBATCH -N 4\n#SBATCH --gres=gpu:a100:8\nsrun python {MEGATRON}", "job.sh")

    with pytest.raises(ScenarioError, match="--cluster dgx-a100-40g or dgx-a100-80g"):
        import_files([path], ImportOptions())


@pytest.mark.parametrize(
    ("header", "nodes"),
    [
        ("#SBATCH -N 4\n#SBATCH --gres=gpu:a100:8\n", 4),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=h100:8\n", 2),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n", 2),
        ("#SBATCH --ntasks=24\n", 3),
    ],
)
def test_the_nodes_of_a_batch_script_are_read(tmp_path: Path, header: str, nodes: int) -> None:
    text = MEGATRON.replace("--global-batch-size 64", "--global-batch-size 96")

    found = import_files([written(tmp_path, f"#!/bin/bash\n{header}srun python {text}", "job.sh")], ImportOptions(cluster="dgx-h100"))

    assert (at(found.data, "cluster.nodes"), at(found.data, "cluster.accelerators_per_node")) == (nodes, None)


def test_overrides_of_a_recipe_are_completed_by_what_recipes_do(tmp_path: Path) -> None:
    text = (
        "model: {tensor_model_parallel_size: 2, expert_model_parallel_size: 4}\n"
        "train: {train_iters: 9, global_batch_size: 64, micro_batch_size: 1}\n"
    )
    asked = ImportOptions(cluster="dgx-h100", nodes=1, model="qwen3-30b-a3b", overrides=("training.seq_length=4096",))

    found = import_files(
        [written(tmp_path, f"{text}mixed_precision: {{dtype: bf16}}\nddp: {{grad_reduce_in_fp32: true}}\n", "job.yaml")], asked
    )

    expected: dict[str, Data] = {"strategy.sequence_parallel": True, "strategy.etp": 1, "training.precision": "bf16"}
    assert (found.framework, {key: at(found.data, key) for key in expected}) == ("megatron_bridge", expected)


def test_attention_of_gpt_neox_is_the_first_of_its_kinds(tmp_path: Path) -> None:
    text = (FILES / "neox-llama2-7b.yml").read_text(encoding="utf-8").rstrip().removesuffix(
        "}"
    ) + '  "attention-config": [[["flash"], 32]],\n}'
    asked = ImportOptions(cluster="dgx-h100", nodes=1, overrides=("model.vocab_size=32000",))

    found = import_files([written(tmp_path, text, "job.yml"), str(FILES / "neox-train.yml")], asked)

    assert at(found.data, "training.attention") == "flash_2"


def test_two_frameworks_that_fit_are_named(tmp_path: Path) -> None:
    both = "base_model: llama\nmicro_batch_size: 1\nsequence_len: 2\nper_device_batch_size: 1\n"

    with pytest.raises(ScenarioError, match="keys of Axolotl and of MaxText; choose with --as axolotl or --as maxtext"):
        import_files([written(tmp_path, both, "job.yaml")], ON_H100)


def test_what_no_file_says_is_asked_for_by_its_option(tmp_path: Path) -> None:
    path = written(tmp_path, '{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', "ds.json")

    with pytest.raises(ScenarioError) as refusal:
        import_files([path], ImportOptions())

    assert all(option in str(refusal.value) for option in ("--model NAME", "--cluster NAME", "--nodes N", "-s training.seq_length"))


def test_a_value_that_the_job_cannot_have_is_told_of_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, MEGATRON.replace(" --bf16", " \\\n--bf16 --num-experts 3 --moe-router-topk 5"))

    with pytest.raises(ScenarioError, match=r"job\.txt.*5 of 3 experts"):
        import_files([path], ON_H100)


def test_the_sharding_strategy_of_an_fsdp_that_is_off_does_not_count(tmp_path: Path) -> None:
    flags = "--tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64 --use-distributed-optimizer"
    flags += " --data-parallel-sharding-strategy optim_grads_params"

    stages = [imported_stage(tmp_path, text) for text in (flags, f"{flags} --use-megatron-fsdp")]

    assert stages == [1, 3]


def imported_stage(folder: Path, flags: str) -> int:
    path = folder / "job.sh"
    path.write_text(f"torchrun pretrain_gpt.py {flags}\n", encoding="utf-8")
    given = ("training.seq_length=2048", "training.micro_batch_size=1", "training.global_batch_size=64")
    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", nodes=1, model="llama3.2-1b", overrides=given))
    assert isinstance(found.scenario, Scenario)
    return found.scenario.spec.strategy.zero_stage or 0


def test_an_array_behind_a_flag_is_no_value_of_it(tmp_path: Path) -> None:
    rest = "--tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64"

    assert imported_stage(tmp_path, f"--use-distributed-optimizer ${{UNKNOWN[@]}} {rest}") == 1
    assert imported_stage(tmp_path, f'--use-distributed-optimizer "$@" {rest}') == 1


def test_a_log_of_several_ranks_gives_arguments_vocabulary_and_steps(tmp_path: Path) -> None:
    arguments = {
        "world_size": 16,
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "async_tensor_model_parallel_allreduce": False,
        "num_layers": 8,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "seq_length": 1024,
        "max_position_embeddings": 1024,
        "bf16": True,
        "micro_batch_size": 2,
        "global_batch_size": 64,
        "padded_vocab_size": None,
        "kv_lora_rank": 32,
        "multi_latent_attention": False,
    }
    printed = "".join(f"[default0]:  {key} {'.' * (48 - len(key))} {value}\n" for key, value in arguments.items())
    steps = "".join(
        f"[default7]: iteration {number}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): {time} | learning rate: 1E-05 |\n"
        for number, time in ((1, 900.0), (2, 50.5), (3, 51.5), (4, 52.5))
    )
    text = f"------------------------ arguments ------------------------\n{printed}-------------------- end of arguments ------\n"

    path = written(tmp_path, text + " > padded vocab (size: 32000) with 0 dummy tokens (new size: 32000)\n" + steps)
    found = import_files([path], ImportOptions(cluster="dgx-h100"))

    assert (at(found.data, "model.vocab_size"), at(found.data, "model.kv_lora_rank"), at(found.data, "strategy.tp")) == (32000, None, 2)
    assert (at(found.data, "cluster.nodes"), at(found.data, "strategy.overlap_tp")) == (2, None)
    assert found.measured is not None
    assert found.measured.step_time_s == pytest.approx(0.0515, rel=1e-12)


def test_a_precision_that_is_left_to_the_trainer_is_asked_for(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}', "ds.json"
    )

    with pytest.raises(ScenarioError, match="the precision, which it leaves to the trainer: -s training"):
        import_files([path], ImportOptions(cluster="dgx-h100", nodes=1, model="llama3-8b"))


def test_variables_of_a_submission_to_mlperf_are_read(tmp_path: Path) -> None:
    degrees = "export TENSOR_MODEL_PARALLEL=4\nexport PIPELINE_MODEL_PARALLEL=8\nexport INTERLEAVED_PIPELINE=5\n"
    text = f"export MINIBS=32\nexport MICRO_BATCH_SIZE=2\nexport DGXNNODES=16\nexport DGXNGPU=8\n{degrees}"

    found = import_files(
        [written(tmp_path, text)], ImportOptions(cluster="dgx-h100", model="llama3-70b", overrides=("training.seq_length=8192",))
    ).data

    expected = {"training.global_batch_size": 128, "training.micro_batch_size": 2, "strategy.virtual_stages": 5, "cluster.nodes": 16}
    assert {key: at(found, key) for key in expected} == expected


MATRIX = """ConfigContainer: {model: {cross_entropy_fusion_impl: te}, train: {train_iters: 50}}
perf_matrix:
  h100:
    num_gpus_64:
      common: {num_gpus_per_node: 8, seq_length: 4096, mbs: 1, gbs: 256, cuda_graphs: false, tp: 4, pp: 4, cp: 1, vp: 5, ep: 1, fsdp: false}
      bf16:
      fp8_cs: {tp: 2}
  b200:
    num_gpus_64:
      common: {num_gpus_per_node: 8, seq_length: 4096, mbs: 1, gbs: 256, tp: 1, pp: 8, cp: 1, ep: 1, fsdp: false}
"""


@pytest.mark.parametrize(("precision", "tp"), [("bf16", 4), ("fp8", 2)])
def test_the_machine_and_the_precision_choose_a_layout(tmp_path: Path, precision: str, tp: int) -> None:
    overrides = (f"training.precision={precision}",)

    found = import_files([written(tmp_path, MATRIX, "m.yaml")], ImportOptions(cluster="dgx-h100", model="llama3-70b", overrides=overrides))

    assert [at(found.data, key) for key in ("strategy.tp", "strategy.virtual_stages", "cluster.nodes")] == [tp, 5, 8]


def test_a_file_with_layouts_of_several_machines_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="layouts of several machines: 64 h100, 64 b200; choose one with --cluster"):
        import_files([written(tmp_path, MATRIX, "m.yaml")], ImportOptions(model="llama3-70b"))


def test_a_recipe_by_name_asks_for_the_degrees_that_it_sets(tmp_path: Path) -> None:
    text = "nemo llm pretrain --factory llama3_8b trainer.num_nodes=2 trainer.devices=8"

    with pytest.raises(ScenarioError, match="the degrees that the recipe sets in its code"):
        import_files([written(tmp_path, text)], ON_H100)


def test_experts_beside_tensor_parallelism_bring_sequence_parallelism(tmp_path: Path) -> None:
    text = (FILES / "nanotron-moe.yaml").read_text(encoding="utf-8")
    text = text.replace("tp: 1", "tp: 2").replace("tp_mode: REDUCE_SCATTER", "tp_mode: ALL_REDUCE")

    found = import_files([written(tmp_path, text, "moe.yaml")], ON_H100)

    told = {key.key: key.note for key in found.keys if key.how == "derived"}
    assert at(found.data, "strategy.sequence_parallel") is True
    assert "memory too small" in str(told["strategy.sequence_parallel"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ray job submit -- python3 train.py --rollout-batch-size 32 --tensor-model-parallel-size 2",
            "is a loop of reinforcement learning",
        ),
        (
            "model:\n  _component_: torchtune.models.llama2.llama2_7b\nbatch_size: 8\ntasks: [truthfulqa_mc2]\n",
            "is an evaluation or a generation",
        ),
        ("torchrun pretrain_t5.py --encoder-num-layers 12 --hidden-size 768 --micro-batch-size 64\n", "is a model of another kind"),
        ("colossalai run --nproc_per_node 8 benchmark.py --tp 4\n", "is a script of Python"),
        ("docker run ghcr.io/huggingface/text-generation-inference:3.0 --num-shard 4\n", "is a serving deployment"),
        (
            MEGATRON + "--encoder-num-layers 12 --decoder-num-layers 12 --decoder-seq-length 128",
            "'t5' is an encoder and a decoder, which is not simulated",
        ),
        (f"{MEGATRON} --hybrid-override-pattern M-M*-", "state-space model"),
        (
            "policy_model:\n  _component_: torchtune.models.mistral.mistral_7b\ncheckpointer:\n  _component_: torchtune.A\nbatch_size: 8\n",
            "is a loop of reinforcement learning",
        ),
    ],
)
def test_another_loop_than_of_training_is_refused_as_such(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        import_files([written(tmp_path, text)], ON_H100)
