"""Optimizer state per parameter, and memory traffic of the update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil, fsum, sqrt
from types import MappingProxyType
from typing import Final

from clustersim.parallel.gradients import chunk_tensors, moved_into_bucket_bytes
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.shard import ELEMENT_BYTES
from clustersim.parallel.stage import Stage
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.step_settings import MomentPrecision, Optimizer, Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Strategy
from clustersim.parallel.weights import Weights
from clustersim.program.tasks import Block, Compute, Phase, Work
from clustersim.workloads.operators import Convolution, Gemm, GroupedGemm, Operator, Stream
from clustersim.workloads.shapes import FP32_BYTES

NORM_READ_BYTES: Final = 4.0
CLIP_BYTES: Final = 8.0
ZERO_BYTES: Final = 4.0
UNSCALE_BYTES: Final = 8.0
COPY_BACK_BYTES: Final = 4.0
"""Traffic for each fp32 gradient, counted over the kernels of Megatron-LM's mixed-precision optimizer.

The norm reads it, clipping reads and writes it, zeroing writes it, unscaling (fp16 only) reads and writes it; the updated master
weight is read to be copied back.
"""

STATES: Final[Mapping[Optimizer, float]] = MappingProxyType(
    {"adam": 2.0, "lamb": 2.0, "momentum": 1.0, "muon": 1.0, "sgd": 0.0, "adafactor": 0.0}
)
"""Numbers per parameter besides the fp32 master copy of a narrow weight; Adafactor's factors, and what Muon leaves to Adam, are counted
from shapes."""

FUSED_PASSES: Final[Mapping[Optimizer, tuple[float, ...]]] = MappingProxyType(
    {
        "adam": (28.0,),
        "momentum": (20.0,),
        "muon": (12.0, 10.0),
        "sgd": (12.0,),
        "lamb": (28.0, 4.0, 4.0, 12.0),
        "adafactor": (4.0, 4.0, 12.0, 4.0),
    }
)
"""Bytes of a parameter in each pass of an update by multi-tensor kernels, in fp32 numbers of 4 bytes.

One pass of Adam reads gradient, weight and two moments and writes the last three; of momentum, one moment; of SGD, none (NVIDIA Apex,
``multi_tensor_adam``, ``multi_tensor_sgd``). LAMB (Apex, ``multi_tensor_lamb``) writes moments and the direction in place of the
gradient, reads weight and direction for the two norms whose ratio is the trust ratio of a tensor, and then reads both and writes the
weight. Adafactor (N. Shazeer and M. Stern, 2018, algorithms 4 and 5), as a compiler fuses it: row and column means of the squared
gradient; the root mean square of the direction, which clips it; the update; the root mean square of the weight, which scales it. Muon
reads gradient and momentum and writes the momentum, and, around its products, reads the direction in 16 bits and reads and writes the
weight.
"""

MOMENT_BYTES: Final[Mapping[MomentPrecision, float]] = MappingProxyType({"fp32": FP32_BYTES, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0})

NEWTON_SCHULZ: Final = 5
"""Iterations that make a direction orthogonal (K. Jordan et al., *Muon: An optimizer for hidden layers in neural networks*, 2024)."""

UPDATE_BYTES: Final[Mapping[Optimizer, float]] = MappingProxyType({optimizer: fsum(passes) for optimizer, passes in FUSED_PASSES.items()})
"""All passes of a fused update together."""

EAGER_PASSES: Final[Mapping[Optimizer, tuple[float, ...]]] = MappingProxyType(
    {
        "adam": (8.0, 12.0, 8.0, 12.0, 8.0, 8.0, 8.0, 16.0),
        "momentum": (8.0, 12.0, 12.0),
        "muon": (8.0, 12.0, 6.0, 12.0),
        "sgd": (12.0,),
        "lamb": (12.0, 8.0, 12.0, 8.0, 8.0, 8.0, 12.0, 12.0, 4.0, 4.0, 12.0),
        "adafactor": (8.0, 8.0, 4.0, 4.0, 4.0, 12.0, 4.0, 8.0, 8.0, 12.0, 4.0),
    }
)
"""The same by one kernel an operation.

Adam, by PyTorch's ``_multi_tensor_adamw`` (torch/optim/adamw.py): weight decay; first moment; second moment scaled, and added to; its
root; bias correction; epsilon; the update. Momentum and SGD likewise (``_multi_tensor_sgd``). LAMB is Adam's moments and root, the
direction, weight decay added to it, two norms and the update. Adafactor, as in Hugging Face Transformers (``Adafactor.step``): square,
epsilon, two means, their product, the direction, its norm, clipping, the learning rate, the update, the norm of the weight.
"""

CLIPS_ITSELF: Final[tuple[Optimizer, ...]] = ("lamb", "adafactor")
"""Those whose passes clip: LAMB divides by the norm of all gradients as it reads them, Adafactor clips its direction."""

EAGER_COPIES: Final[Mapping[Optimizer, float]] = MappingProxyType(
    {"adam": 2.0, "lamb": 2.0, "momentum": 0.0, "muon": 0.0, "sgd": 0.0, "adafactor": 0.0}
)
"""fp32 numbers for each parameter that an update by one kernel an operation holds meanwhile.

Adam: the root of the second moment and the denominator made of it (torch/optim/adamw.py of PyTorch 1.13 and 2.0; from 2.1 the second
is made in place of the first). Adafactor works tensor by tensor.
"""

CLIP_LAUNCHES: Final = 4
"""Kernels around the update: norm, clipping, copying back, zeroing; each a multi-tensor one, in pieces."""

FUSED_LAUNCHES: Final = 4
"""Kernels of one pass over all tensors: each takes the addresses of as many tensors as fit into its arguments."""

FP8_CAST_BYTES: Final = 4.0
"""Bytes moved by a weight cast to fp8 once a step: 16 bits read, the cast and its transpose written (NVIDIA Transformer Engine)."""

FP8_COPY_BYTES: Final = 2.0
"""Bytes of the copies of a weight in fp8 products: its cast, and the transpose that the backward product reads (NVIDIA Transformer Engine
keeps both from the first micro-batch of a step to the last: ``is_first_microbatch``)."""

FP8_TRANSPOSE_BYTES: Final = 2.0
"""Bytes moved for a weight that the update has written in fp8: its transpose is made from it."""


def narrow_weights(training: Training) -> bool:
    """Return whether weights have fewer than 32 bits, beside an fp32 master copy."""
    return ELEMENT_BYTES[training.precision] < FP32_BYTES


def state_bytes_per_parameter(training: Training, local: LocalModel) -> float:
    """Return the bytes of moments per parameter; Adafactor stores one number for each row and each column of a matrix.

    Vectors keep one for each element. What a lookup needs counts as a square matrix: the table is large, its factors are nothing
    beside it whatever its shape.
    """
    moment_bytes = MOMENT_BYTES[training.moment_precision]
    if training.optimizer not in ("adafactor", "muon"):
        return STATES[training.optimizer] * moment_bytes
    runs = [(local.front, 1), *local.runs(range(local.model.n_layers)), (local.back, 1)]
    weights = [(operator, count) for operators, count in runs for operator in operators if operator.parameters]
    total = fsum(count * operator.parameters for operator, count in weights)
    if training.optimizer == "muon":
        orthogonal = sum(rows * columns * number for (rows, columns), number in layer_matrices(local, range(local.model.n_layers)).items())
        return moment_bytes * (STATES["muon"] * orthogonal + STATES["adam"] * (total - orthogonal)) / total
    return FP32_BYTES * fsum(count * _factors(operator) for operator, count in weights) / total


def layer_matrices(local: LocalModel, layers: range) -> Counter[tuple[int, int]]:
    """Return the matrices of some layers on one rank: how many there are of each number of rows and columns, the fewer ones first."""
    found: Counter[tuple[int, int]] = Counter()
    for operators, count in local.runs(layers):
        for operator in operators:
            match operator.weight_product:
                case Gemm(m=inputs, n=outputs):
                    found[min(inputs, outputs), max(inputs, outputs)] += count
                case GroupedGemm(k=inputs, n=outputs) as experts:
                    found[min(inputs, outputs), max(inputs, outputs)] += count * len(experts.rows)
                case _:
                    pass
    return found


def newton_schulz(stage: Stage) -> tuple[Block, ...]:
    """Return the products that make the directions of Muon orthogonal, of the matrices that a rank updates.

    Each iteration of a matrix X of m rows and n columns, m at most n, has A = X X^T, the square of A, and its product with X, which are
    4 m^2 n + 2 m^3 FLOPs in 16 bits. Whole matrices are dealt to ranks where states are sharded; tensor-parallel ranks take their own
    parts, as in Megatron-LM (``--muon-tp-mode blockwise``).
    """
    if stage.training.optimizer != "muon":
        return ()
    strategy, found = stage.strategy, Counter[tuple[int, int]]()
    for chunk in stage.chunks:
        found += layer_matrices(stage.local, chunk.layers)
    degree = strategy.sharding.degree if strategy.zero_stage else 1
    return tuple(
        Block(name="newton_schulz", body=(_orthogonal(rows, columns),), repeat=NEWTON_SCHULZ * ceil(number / degree))
        for (rows, columns), number in sorted(found.items())
    )


def _orthogonal(rows: int, columns: int) -> Work:
    products = Gemm(rows, rows, columns), Gemm(rows, rows, rows), Gemm(rows, columns, rows)
    return Work(name="newton_schulz", phase="optimizer", kernels=products)


def _factors(operator: Operator) -> float:
    """Return the numbers of the factored second moment of one operator's parameters."""
    match operator.weight_product:
        case Gemm():
            products = [kernel for kernel in operator.kernels("weight_gradient") if isinstance(kernel, Gemm)]
            matrices = sum(product.m * product.n for product in products)
            return sum(product.m + product.n for product in products) + max(0.0, operator.parameters - matrices)
        case GroupedGemm(k=inputs, n=outputs) as experts:
            n_experts = len(experts.rows)
            return n_experts * (inputs + outputs) + max(0.0, operator.parameters - n_experts * inputs * outputs)
        case Convolution(filters=rows, depth=columns):
            matrix = float(rows * columns)
        case _:
            return 2.0 * sqrt(operator.parameters) if operator.role == "embedding" else operator.parameters
    return rows + columns + max(0.0, operator.parameters - matrix)


def optimizer_bytes_per_parameter(training: Training, local: LocalModel) -> float:
    """Return optimizer state for each parameter: fp32 moments, and an fp32 master copy where weights are narrower.

    Adam with 16-bit weights keeps 4 + 4 + 4 = 12 bytes.
    """
    return (FP32_BYTES if narrow_weights(training) else 0.0) + state_bytes_per_parameter(training, local)


def passes_bytes(training: Training) -> tuple[float, ...]:
    """Return what each pass of the update itself reads and writes for one parameter.

    The first of fused passes reads and writes each moment once.
    """
    if training.optimizer_kernels != "fused":
        return EAGER_PASSES[training.optimizer]
    first, *others = FUSED_PASSES[training.optimizer]
    narrower = FP32_BYTES - MOMENT_BYTES[training.moment_precision]
    return (first - 2.0 * STATES[training.optimizer] * narrower, *others)


def update_copies_bytes(training: Training) -> float:
    """Return the bytes for each parameter that only exist while the optimizer updates: copies of gradients in fp32, and temporaries.

    An update that goes tensor by tensor holds temporaries of one tensor at a time, which is nothing beside all of them.
    """
    narrow_gradients = narrow_weights(training) and training.gradient_precision == "same"
    copies = EAGER_COPIES[training.optimizer] if training.optimizer_kernels == "foreach" else 0.0
    return FP32_BYTES * (copies + narrow_gradients)


def update_bytes(training: Training) -> float:
    """Return what updating one parameter reads and writes: gradient, weight and moments, and the copy of a weight in 16 bits."""
    copy_bytes = COPY_BACK_BYTES + ELEMENT_BYTES[training.precision] if narrow_weights(training) else 0.0
    return fsum(passes_bytes(training)) + copy_bytes + (UNSCALE_BYTES if training.precision == "fp16" else 0.0)


def optimizer_update(stage: Stage) -> Compute:
    """Return clipping and update of the parameters of one rank, ZeRO's shard of them where they are sharded.

    Gradients that were copied or cast into buckets are taken out of them first; fp8 copies of weights are made last, of all that the
    rank computes with.
    """
    training, shard = stage.training, stage.shard
    clip_bytes = 0.0 if training.optimizer in CLIPS_ITSELF else CLIP_BYTES
    traffic_bytes = shard * (clip_bytes + update_bytes(training)) + _norm_and_zero_bytes(stage.strategy, stage.weights)
    launches = CLIP_LAUNCHES + len(passes_bytes(training)) * _launches_of_a_pass(stage)
    return _update(*_casts_back(stage), Stream(traffic_bytes, launches=launches), *_fp8_casts(stage), beside=newton_schulz(stage))


def offloaded_update(stage: Stage) -> Compute:
    """Return what an accelerator does where processors update its parameters.

    It takes gradients out of their buckets, reads them for their norm, sets them to zero, and casts the weights that come back to fp8.
    """
    around = Stream(_norm_and_zero_bytes(stage.strategy, stage.weights), launches=2)
    return _update(*_casts_back(stage), around, *_fp8_casts(stage))


def _norm_and_zero_bytes(strategy: Strategy, weights: Weights) -> float:
    """Return the bytes to read gradients for their norm and to set them to zero; whole gradients are cleared whole."""
    shard = weights.shard(strategy.sharding)
    zeroed = shard if strategy.zero_stage >= SHARDS_GRADIENTS else weights.total
    return shard * NORM_READ_BYTES + zeroed * ZERO_BYTES


def _update(*kernels: Stream, beside: tuple[Block, ...] = ()) -> Compute:
    phase: Phase = "optimizer"
    work = Work(name="update", phase=phase, kernels=kernels)
    return Compute(name="optimizer", phase=phase, blocks=(Block(name="update", body=(work,)), *beside))


def _launches_of_a_pass(stage: Stage) -> int:
    """Return the kernels of one pass over all tensors: a few multi-tensor ones, or one for each tensor on its own.

    Where training state is sharded, a tensor is what one layer keeps of its flat parameters.
    """
    if stage.training.optimizer_kernels != "loop":
        return FUSED_LAUNCHES
    strategy, n_layers = stage.strategy, stage.local.model.n_layers
    if strategy.sharding.degree > 1:
        return ceil((n_layers + 1) / strategy.pp)
    chunks = [chunk for each in model_chunks(strategy, n_layers) for chunk in each]
    return ceil(sum(len(chunk_tensors(stage.local, chunk)) for chunk in chunks) / strategy.pp)


def _fp8_casts(stage: Stage) -> tuple[Stream, ...]:
    """Return the casts of new weights; sharded ones are cast whenever they have been gathered."""
    training = stage.training
    if training.precision != "fp8" or stage.strategy.gathers_weights:
        return ()
    return (Stream(stage.weights.held.total * (FP8_TRANSPOSE_BYTES if training.fp8_parameters else FP8_CAST_BYTES)),)


def _casts_back(stage: Stage) -> tuple[Stream, ...]:
    """Return the copy of reduced gradients out of their buckets, for each reduced micro-batch."""
    strategy, weights = stage.strategy, stage.weights
    moved_bytes = moved_into_bucket_bytes(strategy, stage.local.numerics)
    if moved_bytes == 0.0 or strategy.replicas == 1:
        return ()
    scattered = strategy.zero_stage >= SHARDS_GRADIENTS or (strategy.zero_stage == 1 and strategy.sharding.degree == strategy.replicas)
    times = 1 if strategy.data_parallel.no_sync else stage.n_micro_batches
    reduced = weights.shard(strategy.sharding) if scattered else weights.total
    return (Stream(reduced * times * moved_bytes, launches=times),)
