"""Kernels and operators: work as shapes, FLOPs and bytes, never as time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Literal

VECTOR_BYTES = 16
"""Bytes of one load instruction of a kernel."""


def vector_bytes(element_bytes: float, *widths: int) -> int:
    """Return the alignment of consecutive rows of a number of elements, in bytes.

    Examples
    --------
    >>> vector_bytes(2.0, 50304), vector_bytes(2.0, 768, 30522), vector_bytes(2.0, 50257)
    (16, 4, 2)
    """
    return gcd(VECTOR_BYTES, *(int(width * element_bytes) for width in widths))


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
    vector_bytes: int = VECTOR_BYTES
    """Alignment of the rows of operands and result, in bytes: below 16 where they are unaligned."""
    issued: bool = True
    """False where the host does not issue it by itself: it was captured in a graph."""

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
class GroupedGemm:
    """Concurrent products of equal width, one for each group of rows: the experts of a layer.

    Forward, group g multiplies its (rows[g], k) rows by a (k, n) matrix of its own; groups without rows do nothing.
    """

    rows: tuple[int, ...]
    n: int
    k: int
    over_rows: bool = False
    """True for weight gradients: group g multiplies (k, rows[g]) by (rows[g], n), which sums over rows."""
    element_bytes: float = 2.0
    output_bytes: float = 2.0
    accumulates: bool = False
    launches: int = 1
    """Number of launches: one per group where a library issues them separately on several streams."""
    issued: bool = True
    """False where the host does not issue it by itself: it was captured in a graph."""

    @property
    def products(self) -> tuple[Gemm, ...]:
        """The products one by one, without those of no rows."""
        kinds = {rows: self._product(rows) for rows in set(self.rows) if rows}
        return tuple(kinds[rows] for rows in self.rows if rows)

    def _product(self, rows: int) -> Gemm:
        m, depth = (self.k, rows) if self.over_rows else (rows, self.k)
        return Gemm(m, self.n, depth, element_bytes=self.element_bytes, output_bytes=self.output_bytes, accumulates=self.accumulates)

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply-add counted as two."""
        return 2.0 * sum(self.rows) * self.n * self.k

    @property
    def traffic_bytes(self) -> float:
        """Least memory traffic: operands and results of every group that has rows, once."""
        return sum(product.traffic_bytes for product in self.products)


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
    """Generation of the kernel; ``flash`` is the best that the accelerator has."""
    value_dim: int | None = None
    """Width of a head of values where it is not that of queries and keys."""
    window: int | None = None
    """Keys that each query sees at most, itself and those before it."""
    spread: bool = False
    """True where queries lie evenly over all keys; otherwise they are the last of the tokens, as in prefill with a cached prefix."""
    issued: bool = True
    """False where the host does not issue it by itself: it was captured in a graph."""

    @property
    def mean_head_dim(self) -> float:
        """Mean width of the heads of the two products."""
        return (self.head_dim + self._value_dim) / 2

    @property
    def _value_dim(self) -> int:
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def seen_length(self) -> int:
        """Keys that a query sees at most."""
        return self.key_length if self.window is None else min(self.window, self.key_length)

    @property
    def done_fraction(self) -> float:
        """Share of the counted work that a causal mask leaves, in a window also for want of keys before the first queries.

        Of n queries that are the last of m >= n tokens, the mean one sees ``m - n / 2`` keys: one half of all for n = m, all for n = 1.
        """
        if not self.causal:
            return 1.0
        keys, queries = self.key_length, self.key_length if self.spread else self.query_length
        seeing, before = min(queries, keys), max(0, keys - queries)
        if self.window is None or self.window >= keys:
            return seeing * (keys - seeing / 2.0) / (queries * keys)
        most = max(0, self.window - 1 - before)
        short = min(seeing, most)
        missing = short * (2 * most - short + 1) / 2.0 + (queries - seeing) * self.window
        return 1.0 - missing / (queries * self.window)

    @property
    def flops(self) -> float:
        """Two matrix products forward; five backward, one of which repeats the forward pass and is not model work."""
        pairs = 2.0 * self.batch * self.n_heads * self.query_length * self.seen_length
        return pairs * (3 * self.head_dim + 2 * self._value_dim if self.backward else self.head_dim + self._value_dim)

    @property
    def traffic_bytes(self) -> float:
        """Queries, keys, values and output once; twice that and the output gradient backward."""
        rows = self.batch * (self.n_heads * self.query_length + self.n_kv_heads * self.key_length)
        once = rows * (self.head_dim + self._value_dim) * self.element_bytes
        return 2.5 * once if self.backward else once


@dataclass(frozen=True, slots=True)
class Stream:
    """Memory-bound work: bytes read and written by ``launches`` kernels."""

    traffic_bytes: float
    launches: int = 1
    flops: float = 0.0
    one_call: bool = False
    """True where one call of the host issues all of its kernels."""
    awaited: bool = False
    """True where the host waits for its result before it issues anything else."""
    issued: bool = True
    """False where the host does not issue it by itself: it was captured in a graph."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Work of known duration, from a measured or imported trace, without any other cost."""

    duration_s: float
    flops: float = 0.0

    @property
    def traffic_bytes(self) -> float:
        """Nothing; the duration is known."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Interference:
    """Loss of computation to bytes that a collective sends beside it: its kernels hold multiprocessors meanwhile."""

    sent_bytes: float
    flops: float = 0.0

    @property
    def traffic_bytes(self) -> float:
        """Nothing: links carry it."""
        return 0.0


Pair = tuple[int, int]
"""Numbers for rows and columns."""

ConvolutionProduct = Literal["forward", "input_gradient", "weight_gradient"]


def reach(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return how many places a window takes along one side of an image; less than 1 where it does not fit.

    Examples
    --------
    >>> reach(224, kernel=7, stride=2, padding=3)
    112
    """
    return (size + 2 * padding - kernel) // stride + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """``batch`` images of ``channels`` x ``height`` x ``width``, and ``filters`` of ``kernel``; also either gradient of it.

    All three products have as many FLOPs: the forward pass, the gradient of the input, and that of the filters.
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    groups: int = 1
    """Parts into which channels and filters fall; a filter sees the channels of its part only."""
    product: ConvolutionProduct = "forward"
    element_bytes: float = 2.0
    output_bytes: float = 2.0
    """Bytes of one element of the result."""
    accumulates: bool = False
    """True where the result is added to memory, which is then read too."""
    issued: bool = True
    """False where the host does not issue it by itself: it was captured in a graph."""

    @property
    def places(self) -> Pair:
        """Rows and columns of the forward result."""
        sides = zip((self.height, self.width), self.kernel, self.stride, self.padding, strict=True)
        rows, columns = (reach(*side) for side in sides)
        return rows, columns

    @property
    def depth(self) -> int:
        """Multiply-adds of one element of the forward result."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply-add counted as two, taps on padding included."""
        return 2.0 * self._results * self.depth

    @property
    def traffic_bytes(self) -> float:
        """Least memory traffic: each operand once, the result once or, where it is added, twice."""
        images = float(self.batch * self.channels * self.height * self.width)
        weights = float(self.filters * self.depth)
        match self.product:
            case "forward":
                operands, result = images + weights, self._results
            case "input_gradient":
                operands, result = self._results + weights, images
            case "weight_gradient":
                operands, result = images + self._results, weights
        return operands * self.element_bytes + result * self.output_bytes * (2 if self.accumulates else 1)

    @property
    def _results(self) -> float:
        rows, columns = self.places
        return float(self.batch * self.filters * rows * columns)


Product = Gemm | GroupedGemm | Convolution
Kernel = Product | FlashAttention | Stream | Recorded | Interference

GraphPart = Literal["attention", "mlp", "router", "experts"]
"""Part of a layer that a graph may capture: attention, the MLP, what of experts lies before their tokens are sent, or all of experts."""

KernelPhase = Literal["forward", "recompute", "input_gradient", "weight_gradient"]
"""Phases in which an operator has kernels. A further phase is a further word here: nothing else lists them."""

Role = Literal["embedding", "latent_down", "core_attention", "residual", "logits", "loss", "other"]
"""Role of an operator in its model, for memory, recomputation, parallelism and serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operation of the model on one micro-batch, for one rank."""

    name: str
    role: Role = "other"
    phases: Mapping[KernelPhase, tuple[Kernel, ...]] = field(default_factory=dict[KernelPhase, tuple[Kernel, ...]], hash=False)
    """Kernels of each phase; a phase without any may be left out, and recomputation then repeats the forward pass."""
    parameters: float = 0.0
    """Parameters that are trained."""
    frozen: float = 0.0
    """Parameters that are not, those in a narrower format counted by their bytes."""
    expert: bool = False
    """True where the parameters are those of routed experts, which expert parallelism spreads over ranks."""
    saved_bytes: float = 0.0
    """Activations stored from forward to backward."""
    needless: bool = False
    """True where the backward pass needs no output of the forward kernels, so that recomputation may end before it."""
    selective_bytes: float = 0.0
    """Part of ``saved_bytes`` that is not stored where recomputation repeats this operator."""
    forward_flops: float = 0.0
    """Matrix FLOPs of the forward pass as MFU counts them."""
    frozen_flops: float = 0.0
    """Part of ``forward_flops`` with frozen weights, which has one gradient and not two."""
    masked_flops: float = 0.0
    """Part of ``forward_flops`` that a causal mask spares: half of attention over whole sequences."""
    column: bool = False
    """True for a linear layer of which tensor parallelism divides the outputs: what stands before it works on a slice of the rows."""
    row: bool = False
    """True for a linear layer or a table of which tensor parallelism divides the inputs: ranks sum what it gives."""

    def kernels(self, phase: KernelPhase, *further: KernelPhase) -> tuple[Kernel, ...]:
        """Return the kernels of one or several phases, in order.

        Examples
        --------
        >>> norm = Operator(name="norm", phases={"forward": (Stream(8.0),), "input_gradient": (Stream(12.0),)})
        >>> norm.kernels("recompute", "weight_gradient") == norm.kernels("forward")
        True
        """
        own = self.phases.get(phase, self.phases.get("forward", ()) if phase == "recompute" else ())
        return (*own, *self.kernels(*further)) if further else own

    @property
    def weight_product(self) -> Product | None:
        """The product that gives the gradient of the weight; None where that gradient is a by-product, as of a norm."""
        first = next(iter(self.kernels("weight_gradient")), None)
        return first if isinstance(first, Product) else None


def captured(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return consecutive operators whose kernels are captured in one graph each way, which the host issues with its first kernel.

    Examples
    --------
    >>> norm = Operator(name="norm", phases={"forward": (Stream(8.0),), "input_gradient": (Stream(12.0),)})
    >>> [[kernel.issued for kernel in each.kernels("forward", "input_gradient")] for each in captured((norm, norm))]
    [[True, False], [False, True]]
    """
    opens: dict[KernelPhase, int] = {"forward": 0, "recompute": 0, "input_gradient": len(operators) - 1}
    return tuple(
        replace(each, phases={phase: _in_graph(kernels, opens=opens.get(phase) == place) for phase, kernels in each.phases.items()})
        for place, each in enumerate(operators)
    )


def _in_graph(kernels: tuple[Kernel, ...], *, opens: bool) -> tuple[Kernel, ...]:
    kept = int(opens)
    return kernels[:kept] + tuple(
        kernel if isinstance(kernel, Recorded | Interference) else replace(kernel, issued=False) for kernel in kernels[kept:]
    )
