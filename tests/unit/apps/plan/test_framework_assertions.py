"""Nothing is written that its framework would refuse: what they assert, over layouts of every kind that a search returns.

Megatron-LM core 0.16: ``training/arguments.py`` (validate_args), ``core/model_parallel_config.py``, ``core/parallel_state.py``,
``core/transformer/transformer_config.py``, ``core/optimizer/optimizer_config.py``, ``core/distributed/fsdp/mcore_fsdp_adapter.py``.
torchtitan 0.2.2: ``train.py``, ``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py``,
``models/llama3/infra/parallelize.py``.
DeepSpeed 0.18: ``runtime/config.py``, ``runtime/engine.py``, ``runtime/pipe/engine.py``, ``runtime/zero/offload_config.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
from functools import cache
from math import ceil

import pytest

from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.flags import FrameworkFiles, deepspeed, megatron, torchtitan
from clustersim.apps.plan.space import families, layouts, space_of
from clustersim.errors import ScenarioError
from clustersim.parallel.training_plan import Plan
from clustersim.workloads.reading.model_spec import load_model

pytestmark = pytest.mark.xdist_group("plans")  # drawn once

MODELS = ("llama3.2-1b", "qwen2.5-7b", "mixtral-8x7b")
"""The second has 28 layers, which do not divide among 8 or 16 stages."""
RANKS = 16
EVERY = {"llama3.2-1b": 13, "qwen2.5-7b": 13, "mixtral-8x7b": 61}
"""Distance between sampled layouts; prime, so that no key keeps one value."""


@cache
def plans(name: str) -> tuple[Plan, ...]:
    """Return the plans of a sample of all layouts on 16 ranks."""
    training = {"global_batch_size": 32, "micro_batch_size": 1, "seq_length": 2048, "precision": "bf16"}
    cluster = {"node": "dgx-h100", "nodes": 2}
    drafts = Drafts(base={"version": 1, "name": "drawn", "model": name, "cluster": cluster, "training": training, "strategy": {}})
    space = space_of(load_model(name).model, batch=32, n_ranks=RANKS, domain_size=8, limits={})
    every = (layout for family in families(space) for layout in layouts(space, family))
    sample = (drafts.whole_plan(layout) for number, layout in enumerate(every) if number % EVERY[name] == 0)
    return tuple(plan for plan in sample if isinstance(plan, Plan))


def taken(written: FrameworkFiles) -> argparse.Namespace:
    """Return the flags as Megatron's parser takes them, with its defaults."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name, default in (("tensor", 1), ("pipeline", 1), ("expert", 1)):
        parser.add_argument(f"--{name}-model-parallel-size", type=int, default=default)
    parser.add_argument("--context-parallel-size", type=int, default=1)
    parser.add_argument("--cp-comm-type", choices=["p2p", "a2a", "all_gather"])
    for name in ("micro-batch-size", "global-batch-size", "seq-length", "expert-tensor-parallel-size"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("make-vocab-size-divisible-by", "recompute-num-layers", "num-virtual-stages-per-pipeline-rank"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--num-distributed-optimizer-instances", type=int, default=1)
    for name in ("bf16", "fp16", "sequence-parallel", "use-distributed-optimizer", "use-megatron-fsdp", "overlap-grad-reduce"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("overlap-param-gather", "use-tp-pp-dp-mapping", "optimizer-cpu-offload", "use-precision-aware-optimizer"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--fp8-format", choices=["e4m3", "hybrid"])
    strategies = ["no_shard", "optim", "optim_grads", "optim_grads_params"]
    parser.add_argument("--data-parallel-sharding-strategy", choices=strategies, default="no_shard")
    parser.add_argument("--ckpt-format", choices=["torch", "torch_dist", "torch_dcp", "fsdp_dtensor"], default="torch_dist")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"])
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--moe-token-dispatcher-type", choices=["allgather", "alltoall", "flex"], default="allgather")
    parser.add_argument("--moe-flex-dispatcher-backend", choices=["deepep", "hybridep"])
    parser.add_argument("--pipeline-model-parallel-layout")
    return parser.parse_args(shlex.split(written.text))


def parts_of(layout: str) -> list[str]:
    """Return the parts of Megatron's pipeline layout, one letter for each layer."""
    return re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), layout).split("|")


def megatron_asserts(args: argparse.Namespace, plan: Plan) -> None:
    tp, pp, cp = args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.context_parallel_size
    ep, etp = args.expert_model_parallel_size, args.expert_tensor_parallel_size or tp
    assert RANKS % (tp * pp * cp) == 0
    dp = RANKS // (tp * pp * cp)
    assert args.global_batch_size % (args.micro_batch_size * dp) == 0
    assert RANKS % (etp * ep * pp) == 0
    assert not args.use_tp_pp_dp_mapping or pp == 1 or RANKS // (etp * ep * pp) == dp
    assert (args.pipeline_model_parallel_layout is None) or (args.num_virtual_stages_per_pipeline_rank is None)
    chunks = args.num_virtual_stages_per_pipeline_rank or 1
    if args.pipeline_model_parallel_layout is not None:
        parts = parts_of(args.pipeline_model_parallel_layout)
        assert len(parts) % pp == 0
        chunks = len(parts) // pp
        letters = "".join(parts)
        assert (letters[0], letters[-1], letters.count("t")) == ("E", "L", plan.model.n_layers)
    else:
        assert plan.model.n_layers % (pp * chunks) == 0
    if chunks > 1:
        assert pp > 1
        assert args.global_batch_size // (args.micro_batch_size * dp) % pp == 0
    assert not args.overlap_param_gather or (args.overlap_grad_reduce and args.use_distributed_optimizer)
    assert args.use_megatron_fsdp == (args.ckpt_format == "fsdp_dtensor")
    if args.use_megatron_fsdp:
        assert args.data_parallel_sharding_strategy in ("optim_grads", "optim_grads_params")
        # The mesh of its FSDP is made of data, context, expert and tensor ranks; stages have no place in it.
        assert pp == 1
        assert not args.use_tp_pp_dp_mapping
    assert cp == 1 or args.seq_length % (2 * cp) == 0
    assert not args.sequence_parallel or tp > 1
    if ep > 1 or plan.strategy.ep > 1:
        assert tp == 1 or args.sequence_parallel
    assert (args.recompute_granularity == "full") == (args.recompute_method is not None) == (args.recompute_num_layers is not None)
    assert not args.optimizer_cpu_offload or (args.use_precision_aware_optimizer and args.use_distributed_optimizer)


@pytest.mark.parametrize("model", MODELS)
def test_megatron_takes_all_flags_that_are_written_for_it(model: str) -> None:
    written = 0
    for plan in plans(model):
        try:
            flags = megatron(plan)
        except ScenarioError:
            continue
        args = taken(flags)
        megatron_asserts(args, plan)
        strategy = plan.strategy
        assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (strategy.tp, strategy.pp)
        written += 1

    assert written > 100


@pytest.mark.parametrize("model", MODELS)
def test_torchtitan_takes_all_tables_that_are_written_for_it(model: str) -> None:
    written = 0
    for plan in plans(model):
        try:
            found = tomllib.loads(torchtitan(plan).text)
        except ScenarioError:
            continue
        own, training = found["parallelism"], found["training"]
        replicate, shard = own["data_parallel_replicate_degree"], own["data_parallel_shard_degree"]
        tp, cp, pp = (own[f"{name}_parallel_degree"] for name in ("tensor", "context", "pipeline"))
        assert replicate * shard * cp * tp * pp == RANKS
        assert own["expert_parallel_degree"] == 1 or own["expert_tensor_parallel_degree"] in (1, tp)
        assert replicate in (1, RANKS) or shard * cp > 1  # "DDP has not supported > 1D parallelism"
        assert training["seq_len"] % (tp * (2 * cp if cp > 1 else 1)) == 0
        assert training["global_batch_size"] % (training["local_batch_size"] * replicate * shard) == 0
        if pp > 1:
            ends = own["pipeline_parallel_first_stage_less_layers"] + own["pipeline_parallel_last_stage_less_layers"]
            parts = ceil((plan.model.n_layers + ends) / own["pipeline_parallel_layers_per_stage"])
            assert parts % pp == 0
            assert (parts // pp == 1) == (own["pipeline_parallel_schedule"] in ("1F1B", "GPipe"))
            assert training["local_batch_size"] % own["pipeline_parallel_microbatch_size"] == 0
        written += 1

    assert written > 50


@pytest.mark.parametrize("model", MODELS)
def test_deepspeed_takes_all_configurations_that_are_written_for_it(model: str) -> None:
    written = 0
    for plan in plans(model):
        try:
            config = json.loads(deepspeed(plan).text)
        except ScenarioError:
            continue
        strategy, stage = plan.strategy, config["zero_optimization"]["stage"]
        replicas = RANKS // (strategy.tp * strategy.pp)
        samples = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
        assert config["train_batch_size"] == samples * replicas
        assert not (config["fp16"]["enabled"] and config["bf16"]["enabled"])
        assert strategy.pp == 1 or stage < 2  # "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"
        assert "tensor_parallel" not in config or stage < 3
        assert strategy.ep == 1 or stage < 3  # "MoE not supported with Stage 3"
        assert "offload_optimizer" not in config["zero_optimization"] or stage >= 1
        assert "stages" not in config.get("pipeline", {})
        written += 1

    assert written > 5
