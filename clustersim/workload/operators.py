"""Kernels and operators: work as shapes, FLOPs and bytes, never as time."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.workload.convolution import Convolution


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` products of an (m, k) by a (k, n) matrix; 2 m n k FLOPs each."""

    m: int
    n: int
    k: int
    batch: int = 1
    element_bytes: float = 2.0
    output_bytes: float = 2.0
    """Bytes of one element of the result; 4 for a weight gradient that is added into an fp32 buffer."""
    accumulates: bool = False
    """True where the result is added to memory, which is then read too."""

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply-add counted as two."""
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def traffic_bytes(self) -> float:
        """Least memory traffic: each operand once."""
        operands = (self.m * self.k + self.k * self.n) * self.element_bytes
        results = self.m * self.n * self.output_bytes * (2 if self.accumulates else 1)
        return self.batch * (operands + results)


@dataclass(frozen=True, slots=True)
class FlashAttention:
    """Fused attention over ``batch`` sequences; FLOPs counted in full, also when causal."""

    batch: int
    n_heads: int
    n_kv_heads: int
    query_length: int
    key_length: int
    head_dim: int
    causal: bool
    backward: bool
    element_bytes: float = 2.0
    generation: str = "flash"
    """Of the kernel; ``flash`` is the best that the accelerator has."""

    @property
    def flops(self) -> float:
        """Two matrix products forward; five backward, one of which repeats the forward pass and is not model work."""
        forward = 4.0 * self.batch * self.n_heads * self.query_length * self.key_length * self.head_dim
        return 2.5 * forward if self.backward else forward

    @property
    def traffic_bytes(self) -> float:
        """Queries, keys, values and output once; twice that and the output gradient backward."""
        queries = self.batch * self.n_heads * self.query_length * self.head_dim
        keys = self.batch * self.n_kv_heads * self.key_length * self.head_dim
        once = (2 * queries + 2 * keys) * self.element_bytes
        return 2.5 * once if self.backward else once


@dataclass(frozen=True, slots=True)
class Stream:
    """Memory-bound work: bytes read and written by ``launches`` kernels."""

    traffic_bytes: float
    launches: int = 1
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Work of known duration, as a measured or imported trace has it: it takes that long and costs nothing else."""

    duration_s: float
    flops: float = 0.0

    @property
    def traffic_bytes(self) -> float:
        """Nothing: the time says all."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Carriage:
    """What computation loses to bytes that a collective sends beside it: its kernels hold multiprocessors meanwhile."""

    sent_bytes: float
    flops: float = 0.0

    @property
    def traffic_bytes(self) -> float:
        """Nothing: links carry it."""
        return 0.0


Kernel = Gemm | Convolution | FlashAttention | Stream | Recorded | Carriage


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operation of the model on one micro-batch, for one rank.

    ``model_flops`` counts what MFU counts: matrix products of forward and backward pass, no recomputation.
    """

    name: str
    forward: tuple[Kernel, ...]
    backward_input: tuple[Kernel, ...]
    backward_weight: tuple[Kernel, ...]
    parameters: float = 0.0
    expert: bool = False
    """True where the parameters are those of routed experts, which expert parallelism spreads over ranks."""
    saved_bytes: float = 0.0
    """Activations kept from forward to backward."""
    needless: bool = False
    """True where the backward pass needs nothing of what the forward kernels give, so that recomputation may end before."""
    selective: bool = False
    """True where selective recomputation repeats the forward kernels in the backward pass."""
    selective_bytes: float = 0.0
    """Part of ``saved_bytes`` that selective recomputation does not keep."""
    forward_flops: float = 0.0
    """Matrix FLOPs of the forward pass as MFU counts them."""
