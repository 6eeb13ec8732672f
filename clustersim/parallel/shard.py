"""Shard that tensor, sequence and pipeline parallelism leave to one rank."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import Final

from clustersim.errors import DomainError
from clustersim.kernels.kernel_model import expected_largest
from clustersim.parallel.expert_shares import ExpertSpread
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.step_settings import Precision, Training
from clustersim.parallel.training_plan import Strategy
from clustersim.workloads.adapters import Adapters
from clustersim.workloads.model import Model
from clustersim.workloads.operators import VECTOR_BYTES, vector_bytes
from clustersim.workloads.shapes import FP32_BYTES, SCALINGS, ContextShare, LocalShape, Numerics, Packed

ELEMENT_BYTES: Final[Mapping[str, float]] = MappingProxyType({"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0})
"""Bytes of one activation; under fp8 the activations between products stay in 16 bits."""

CLIPPING_PASSES: Final = 3
UNSCALING_PASSES: Final = 3
"""Reads and writes of all gradients to clip them by their norm; and to undo the scaling of the loss and see that they are finite."""

WHOLE_VOCABULARY: Final = 64
"""Words to a multiple of which a vocabulary is usually padded: rows of logits are then whole lines of 128 bytes."""


@lru_cache(maxsize=64)
def numerics(training: Training) -> Numerics:
    """Return the bytes of each kind of number."""
    element_bytes = ELEMENT_BYTES[training.precision]
    return Numerics(
        element_bytes=element_bytes,
        elementwise_bytes=FP32_BYTES if training.elementwise_precision == "fp32" else element_bytes,
        gemm_element_bytes=SCALINGS[training.fp8_scaling].element_bytes if training.precision == "fp8" else element_bytes,
        scaling=training.fp8_scaling,
        amax_group=training.fp8_amax_group if training.precision == "fp8" and training.fp8_scaling == "delayed" else "none",
        gradient_bytes=FP32_BYTES if training.gradient_precision == "fp32" else element_bytes,
        fused_gradient_accumulation=training.fused_gradient_accumulation,
        gradient_passes=_gradient_passes(training),
        kernels=training.kernels,
        fused_loss=training.fused_loss,
        loss_in_place=training.loss_gradient == "in_place",
        loss_metrics=training.loss_metrics,
        grouped_experts=training.grouped_experts is not False,
        fused_experts=training.grouped_experts == "fused",
        router_padding=training.router_padding,
        attention=training.attention,
        transposes_images=not training.channels_last and training.precision != "fp32",
    )


def _gradient_passes(training: Training) -> int:
    """Return how often gradients of a micro-batch are read or written where they are clipped before they are added up.

    The norm reads them, and clipping reads and writes them. In fp16 the loss is scaled: one kernel undoes that, which reads and writes, and
    one reads them to see whether all are finite.

    Raises
    ------
    DomainError
        The product itself adds gradients up, so that there are none of one micro-batch alone.
    """
    if not training.clip_micro_batches:
        return 0
    if training.fused_gradient_accumulation:
        message = "gradients cannot be clipped before they are added up where the product itself adds them up"
        hint = "set training.fused_gradient_accumulation to false"
        raise DomainError(message, path=("training", "clip_micro_batches"), hint=hint)
    return CLIPPING_PASSES + (UNSCALING_PASSES if training.precision == "fp16" else 0)


def padded_vocabulary(vocab_size: int, tp: int, multiple: int | None = None) -> int:
    """Return the padded vocabulary: equal on all ranks, and a multiple of a number.

    Parameters
    ----------
    multiple
        Megatron-LM's ``--make-vocab-size-divisible-by``; if None its 128 with tensor parallelism, and 1 without.
    """
    divisor = tp * (multiple or (1 if tp == 1 else 128))
    return ceil(vocab_size / divisor) * divisor


def head_vector_bytes(local: LocalModel, precision: Precision) -> int:
    """Return the alignment of rows of logits over a rank's part of the vocabulary, in bytes."""
    if not local.model.lm_head or precision == "fp32":
        return VECTOR_BYTES
    return vector_bytes(local.numerics.element_bytes, local.whole.vocab_size)


def _packed(model: Model, training: Training, strategy: Strategy) -> Packed | None:
    """Return the documents of packed sequences.

    All replicas wait for the one with most work: once in a step, or in each micro-batch where they gather weights or exchange tokens.
    """
    if training.document_tokens is None or model.unit != "sequence":
        return None
    documents, longest = training.document_tokens, training.seq_length
    each = strategy.gathers_weights or strategy.ep > 1
    n_sequences = training.micro_batch_size if each else training.global_batch_size / strategy.dp
    mean, most = documents.seen(longest), expected_largest(strategy.dp)
    return Packed(mean=mean, busiest=mean * (1.0 + most * documents.spread(longest, n_sequences * longest)))


@lru_cache(maxsize=64)
def local_model(model: Model, training: Training, strategy: Strategy) -> LocalModel:
    """Return the model on one rank.

    Column-split layers keep ``1/tp`` of the heads, of the MLP width and of the vocabulary; key and value heads are repeated
    when there are fewer of them than ranks. Norm, dropout and residual work keeps ``1/tp`` of the rows under sequence parallelism, and
    context parallelism leaves ``1/cp`` of every sequence.
    """
    tp, cp = strategy.tp, strategy.cp
    rows = training.micro_batch_size * training.seq_length // cp
    shape = LocalShape(
        batch=training.micro_batch_size,
        seq_length=training.seq_length // cp,
        sequence_rows=rows // tp if strategy.sequence_parallel else rows,
        n_heads=model.n_heads // tp,
        n_kv_heads=max(model.n_kv_heads // tp, 1),
        intermediate_size=model.intermediate_size // tp,
        vocab_size=padded_vocabulary(model.vocab_size, tp, training.vocabulary_multiple) // tp,
        scored_tokens=None if training.scored_tokens is None else training.scored_tokens // cp,
        packed=_packed(model, training, strategy),
        context=ContextShare(degree=cp, kind=strategy.context_parallel) if cp > 1 else None,
        shared_size=model.experts.shared_size // tp if model.experts else 0,
    )
    spread = model.experts and ExpertSpread(
        experts=model.experts,
        load=strategy.expert_load,
        n_tokens=shape.sequence_rows,
        n_ranks=strategy.ep,
        copies=strategy.expert_tp,
        counts_first=strategy.dispatch == "all_to_all" and strategy.ep > 1,
    )
    graphs = () if isinstance(training.cuda_graphs, bool) else training.cuda_graphs
    adapters = (
        Adapters(rank=training.lora_rank, layers=training.lora_layers, precision=training.frozen_precision)
        if training.lora_rank and model.unit == "sequence"
        else None
    )
    return LocalModel(
        model=model,
        numerics=numerics(training),
        whole=shape,
        spread=spread,
        seq_length=training.seq_length,
        captured=graphs,
        wide_layers=training.bf16_layers,
        adapters=adapters,
    )
