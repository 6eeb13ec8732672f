"""Duration of an engine step from named terms: what each kernel, collective and the host takes for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

import numpy as np

from clustersim.collectives.timing import SmallCollectives
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import FORMATS, Borrowed, KernelConstants, KernelFamily, kernel_constants, without_casts
from clustersim.kernels.kernel_model import TILE_ROWS, expected_largest, kernel_s, tiled_rows
from clustersim.serving.attention_terms import OF_ARRAYS, OF_NUMBERS, AttentionCost, BatchTerms, DecodeLaw, Maths, N, prompt_tile_rows
from clustersim.serving.batch import Chunk, FloatArray, ServingLayout, StepBatch, StepTime
from clustersim.serving.busiest_rank import POPULARITY_SHAPE, busiest_rank
from clustersim.serving.engines import EngineConstants
from clustersim.serving.formats import KV_BYTES, ServedFormats
from clustersim.serving.rules import EngineRules
from clustersim.units.grouping import grouped
from clustersim.workloads.inference import ELEMENT_BYTES, ExpertWork, InferenceLayer, InferenceWork, Projection, inference_work
from clustersim.workloads.model import Model

STREAM_FRACTION: Final = 0.8
"""Share of the memory bandwidth that kernels between products reach, as ``memory_fraction`` of the calibrations of Ampere and Hopper."""

FUSED_EXPERTS: Final = ("mxfp4_mxfp8",)
"""Formats whose experts are one launch (trtllm-gen kernels of Blackwell)."""
FUSED_EXPERT_LAUNCHES: Final = 3
"""Launches that such experts have beside those of an MLP: the choice of experts, the cast and the sum."""

LOGIT_PASSES: Final = 4.0
"""Passes over the logits in fp32 by temperature, softmax and choice."""
FP32_BYTES: Final = 4.0
SCALED_BYTES: Final = 1.0 + FP32_BYTES / 128
"""Bytes of a number of 8 bits on its way to experts, with its share of a scale for 128 (DeepEP)."""


_OF_TOKENS: Final = ("projections", "elementwise", "experts", "collectives", "pipeline")
_FIXED: Final = (*_OF_TOKENS, "attention_prefill", "head", "sampling")
"""Terms that do not depend on the context of decoding sequences, in the order in which they are added."""


_Laws = tuple[DecodeLaw[float], ...]
_Decodes = tuple[BatchTerms[float], BatchTerms[FloatArray]]


@dataclass(slots=True)
class TermStepModel:
    """Durations of the engine steps of one replica, by terms.

    Products, experts, collectives and the head depend on token counts only and are remembered by them; attention is worked out for each
    batch. Terms in ``without`` are left out.
    """

    accelerator: Accelerator
    work: InferenceWork
    layout: ServingLayout
    formats: ServedFormats
    engine: EngineConstants
    rules: EngineRules
    collectives: SmallCollectives
    without: frozenset[str] = frozenset()
    under_load: Mapping[str, float] = field(default_factory=lambda: {"default": 1.0})
    """Share of the rate of products under sustained load, at the power limit, by precision."""
    popularity_shape: float = POPULARITY_SHAPE
    borrowed: tuple[Borrowed, ...] = field(init=False, default=())
    """Constants that were not measured."""
    _constants: dict[tuple[str, str], KernelConstants] = field(init=False, default_factory=dict[tuple[str, str], KernelConstants])
    _attention: tuple[AttentionCost, ...] = field(init=False, default=())
    _laws: dict[tuple[int, int], _Laws] = field(init=False, default_factory=dict[tuple[int, int], _Laws])
    """Decode attention of each kind of layer, by the tokens that a sequence computes in a step and the tile of a prompt kernel."""
    _by_tokens: dict[tuple[int, int], tuple[float, ...]] = field(init=False, default_factory=dict[tuple[int, int], tuple[float, ...]])
    _by_decodes: dict[tuple[int, int], _Decodes] = field(init=False, default_factory=dict[tuple[int, int], _Decodes])
    _n_kernels: int = field(init=False, default=0)
    _n_outside: int = field(init=False, default=0)
    """Launches where all but attention is in graphs."""
    _tile_rows: int = field(init=False, default=0)
    """Query rows that are computed for each decoding sequence in a step with prompts; 0 where its attention has a kernel of its own."""
    _by_sampled: dict[int, tuple[float, ...]] = field(init=False, default_factory=dict[int, tuple[float, ...]])

    def __post_init__(self) -> None:
        """Look up the constants of every kernel that the model has."""
        borrowed: dict[Borrowed, None] = {}
        for layer in self.work.layers:
            for projection in layer.projections:
                self._look_up("product", self.formats.of(projection), borrowed)
            if layer.experts is not None:
                self._look_up("experts", self.formats.experts, borrowed)
                if self.layout.exchange is not None:
                    self._look_up("product", self.formats.experts, borrowed)
        plain = self._look_up("product", "bf16", borrowed)
        self._constants = {key: without_casts(each, plain) for key, each in self._constants.items()}
        launches = FUSED_EXPERT_LAUNCHES if self.formats.experts in FUSED_EXPERTS else self.engine.expert_launches
        attention = self.engine.attention_launches
        self._n_kernels = sum(
            layer.n_layers * (len(layer.projections) + layer.n_streams + attention + (launches if layer.experts is not None else 0))
            for layer in self.work.layers
        )
        self._n_outside = attention * sum(layer.n_layers for layer in self.work.layers)
        self._attention = tuple(self._attention_cost(layer, borrowed) for layer in self.work.layers)
        self._tile_rows = prompt_tile_rows(self.accelerator, self.engine.split_attention)
        exchange = self.layout.exchange
        lent = () if exchange is None or exchange.borrowed is None else (exchange.borrowed,)
        self.borrowed = (*borrowed, *self.collectives.borrowed, *lent)

    def _look_up(self, family: KernelFamily, number_format: str, borrowed: dict[Borrowed, None]) -> KernelConstants:
        found, lent = kernel_constants(self.accelerator, self.engine.framework, family, number_format)
        if lent is not None:
            borrowed[lent] = None
        self._constants[family, number_format] = found
        return found

    def _attention_cost(self, layer: InferenceLayer, borrowed: dict[Borrowed, None]) -> AttentionCost:
        latent, state_bytes = layer.attention.latent, layer.attention.state_bytes(self.engine.state_element_bytes)
        decode = self._look_up("latent_decode" if latent else "decode_attention", self.formats.kv, borrowed)
        if decode.framework != self.engine.framework and not latent:
            reads = 1.0 + self.engine.reread_fraction.get(self.accelerator.vendor, 0.0) * (layer.attention.heads_of_a_group - 1.0)
            decode = replace(decode, bandwidth_fraction=decode.bandwidth_fraction / reads)
        return AttentionCost(
            n_layers=layer.n_layers,
            work=layer.attention,
            query_bytes=layer.attention.moved_elements * ELEMENT_BYTES,
            # A state is read and written.
            cached_bytes=layer.attention.cache_elements * KV_BYTES[self.formats.kv] + 2.0 * state_bytes,
            decode=decode,
            prefill=self._look_up("prefill_attention", "bf16" if latent else self.formats.kv, borrowed),
            bandwidth_bytes_per_s=self.accelerator.memory_bandwidth_bytes_per_s,
            peak_flops_per_s=self._peak("bf16"),
        )

    def step_s(self, batch: StepBatch) -> float:
        """Return the duration of a step."""
        return self._total(batch, self._summed(batch), float(batch.context_tokens), OF_NUMBERS)[0]

    def step(self, batch: StepBatch) -> StepTime:
        """Return the duration of a step, and its terms."""
        fixed = self._summed(batch)
        total_s, decode_s = self._total(batch, fixed, float(batch.context_tokens), OF_NUMBERS)
        terms = {name: term_s for name, term_s in zip(_FIXED, fixed.terms, strict=True) if name not in self.without}
        terms["attention_decode"] = decode_s
        exposed_s = max(fixed.shared_s - fixed.added_s - decode_s, 0.0)
        if self.layout.overlaps_batches and "collectives" in terms:
            terms["collectives"] = exposed_s
        terms["host"] = total_s - (fixed.added_s + decode_s + exposed_s)
        return StepTime(total_s, terms)

    def decode_stretch_s(self, batch: StepBatch, n_steps: int) -> FloatArray:
        """Return the duration of each of the next decode-only steps; see :class:`~clustersim.serving.batch.StepModel`."""
        first, each = batch.context_tokens, batch.n_decode
        contexts = np.arange(first, first + n_steps * each, each, dtype=np.float64)
        return self._total(batch, self._of_decodes(batch)[1], contexts, OF_ARRAYS)[0]

    def _summed(self, batch: StepBatch) -> BatchTerms[float]:
        """Return the terms that do not depend on the context of decoding sequences."""
        return self._added(batch) if batch.chunks else self._of_decodes(batch)[0]

    def _of_decodes(self, batch: StepBatch) -> _Decodes:
        """Return these terms of a decode-only step as numbers and as arrays, and remember them."""
        key = batch.n_decode, batch.tokens_per_decode
        found = self._by_decodes.get(key)
        if found is None:
            fixed = self._added(batch)
            found = self._by_decodes[key] = fixed, fixed.in_arrays()
        return found

    def _added(self, batch: StepBatch) -> BatchTerms[float]:
        n_prompt, layout, engine, ahead = batch.n_prefill_tokens, self.layout, self.engine, self.rules.asynchronous
        fits = ceil((n_prompt + batch.n_decode * batch.tokens_per_decode) / layout.dp) <= self.rules.largest_graph
        captured = fits and not n_prompt
        n_kernels = self._n_outside if fits and engine.piecewise else self._n_kernels
        terms = self._fixed(batch, n_prompt, captured=captured)
        # Each rank of attention data parallelism has a process of its own.
        n_sequences = ceil((batch.n_decode + len(batch.chunks)) / layout.dp)
        hosted = "host" not in self.without
        key = batch.tokens_per_decode, self._tile_rows if n_prompt else 0
        host_s = engine.host_base_s + engine.host_per_sequence_s * n_sequences if hosted else 0.0
        launched_s = engine.launch_s * n_kernels if hosted and not captured else 0.0
        added_s, shared_s = sum(terms), 0.0
        if layout.overlaps_batches:
            *_, exchanged_s, pipeline_s, _, head_s, sampling_s = terms
            added_s -= exchanged_s
            shared_s = exchanged_s + (pipeline_s + head_s + sampling_s)
        least_s = max(shared_s, launched_s, host_s if ahead else 0.0)
        return BatchTerms(
            terms,
            added_s,
            shared_s,
            least_s if least_s > added_s else 0.0,
            0.0 if ahead else host_s,
            self._laws.get(key) or self.decode_laws(*key),
        )

    def _total(self, batch: StepBatch, fixed: BatchTerms[N], context: N, maths: Maths[N]) -> tuple[N, N]:
        """Return the duration of each step with these contexts, and the part of it that is attention of decoding sequences."""
        n_decode = batch.n_decode
        if not n_decode or not fixed.laws:
            decode = context * 0.0
        else:
            here = ceil(n_decode / self.layout.dp)
            # In whole tokens: the same in every step of a stretch, to the last bit.
            excess = max(batch.longest_context * n_decode - batch.context_tokens, 0) / n_decode
            if here != n_decode:
                context = context * (here / n_decode)
            decode = fixed.laws[0].seconds(here, context, excess, maths)
            for law in fixed.laws[1:]:
                decode = decode + law.seconds(here, context, excess, maths)
        device = fixed.added_s + decode
        if fixed.least_s:
            device = maths.larger(device, fixed.least_s)
        return (device + fixed.host_s if fixed.host_s else device), decode

    def decode_laws(self, tokens_each: int, tile_rows: int = 0) -> _Laws:
        """Return the time law of decode attention of layers of each window, for sequences with a number of tokens per step."""
        costs = self._attention if "attention_decode" not in self.without else ()
        by_window = grouped((cost.work.window, cost.decode_law(tokens_each, tile_rows)) for cost in costs)
        kernels = 2.0 if self.layout.overlaps_batches else 1.0  # one kernel for each half of the batch
        found = self._laws[tokens_each, tile_rows] = tuple(
            DecodeLaw(
                window=window,
                floor_s=kernels * sum(law.floor_s for law in laws),
                per_token_s=sum(law.per_token_s for law in laws),
                per_root_token_s=sum(law.per_root_token_s for law in laws),
            )
            for window, laws in by_window.items()
        )
        return found

    def _fixed(self, batch: StepBatch, n_prompt: int, *, captured: bool) -> tuple[float, ...]:
        """Return the terms that do not depend on the context of decoding sequences, with a number of new tokens of prompts."""
        n_decode, dp = batch.n_decode, self.layout.dp
        prompt_here = n_prompt if dp == 1 else max([chunk.n_tokens for chunk in batch.chunks] + [ceil(n_prompt / dp)])
        decode_here = ceil(n_decode / dp) * batch.tokens_per_decode
        here, everywhere = prompt_here + decode_here, n_prompt + n_decode * batch.tokens_per_decode
        if captured:
            here = self.engine.padded(here)
            everywhere = max(everywhere, here * dp)
        sampled = decode_here + ceil(len(batch.chunks) / dp)
        of_tokens = self._by_tokens.get((here, everywhere)) or self._token_terms(here, everywhere)
        prefill_s = self._prefill_s(batch.chunks) if n_prompt and "attention_prefill" not in self.without else 0.0
        if self.layout.overlaps_batches:
            # Products run on the multiprocessors that the exchange of the other half leaves.
            taken = max(
                (self._exchange(layer.experts, ceil(here / 2))[1] for layer in self.work.layers if layer.experts is not None), default=0.0
            )
            of_tokens = (*(term_s / (1.0 - taken) for term_s in of_tokens[:3]), *of_tokens[3:])
            prefill_s /= 1.0 - taken
        return (*of_tokens, prefill_s, *(self._by_sampled.get(sampled) or self._sampled_terms(sampled)))

    def _prefill_s(self, chunks: tuple[Chunk, ...]) -> float:
        if self.layout.dp > 1 and len(chunks) > 1:
            # The busiest rank has the longest chunk, or its share of all.
            chunks = tuple(sorted(chunks, key=lambda chunk: -(chunk.n_tokens + chunk.n_cached)))[: ceil(len(chunks) / self.layout.dp)]
        return sum([cost.prefill_s(chunks) for cost in self._attention])

    def _token_terms(self, here: int, everywhere: int) -> tuple[float, ...]:
        """Return the terms of all layers for a number of tokens, and remember them."""
        n_halves = 2 if self.layout.overlaps_batches and here > 1 else 1
        each, all_each = ceil(here / n_halves), ceil(everywhere / n_halves)
        layers = self.work.layers
        of_layers = (
            sum(layer.n_layers * self._projections_s(layer, each) for layer in layers),
            sum(layer.n_layers * self._elementwise_s(layer, each) for layer in layers),
            sum(layer.n_layers * self._experts_s(layer.experts, each, all_each) for layer in layers if layer.experts is not None),
            sum(layer.n_layers * self._collectives_s(layer, each, all_each) for layer in layers),
            self._pipeline_s(each),
        )
        found = self._by_tokens[here, everywhere] = self._kept(_OF_TOKENS, [n_halves * term_s for term_s in of_layers])
        return found

    def _kept(self, names: Sequence[str], terms: Sequence[float]) -> tuple[float, ...]:
        return tuple([0.0 if name in self.without else term_s for name, term_s in zip(names, terms, strict=True)])

    def _projections_s(self, layer: InferenceLayer, rows: int) -> float:
        time_s = sum(self._product_s(each, rows, self.formats.of(each)) for each in layer.projections)
        return time_s + (self._product_s(layer.router, rows, "bf16") if layer.router is not None else 0.0)

    def _product_s(self, projection: Projection, rows: int, number_format: str) -> float:
        outputs, inputs = projection.outputs, projection.inputs
        bandwidth = self.accelerator.memory_bandwidth_bytes_per_s
        return kernel_s(
            self._constants["product", number_format],
            read_s=projection.parameters * FORMATS[number_format].weight_bytes / bandwidth,
            compute_s=2.0 * tiled_rows(rows) * projection.parameters / self._peak(number_format),
            activation_s=rows * (outputs + inputs) * ELEMENT_BYTES / bandwidth,
            cast_elements=float(rows) * inputs,
        )

    def _peak(self, number_format: str) -> float:
        """Return the dense peak, held at the power limit: kernels were timed in bursts."""
        kept = self.under_load["default"]
        if FORMATS[number_format].rate > 1.0:
            kept = self.under_load.get(number_format, self.under_load.get("fp8", kept))
        return self._burst_peak(number_format) * kept

    def _burst_peak(self, number_format: str) -> float:
        return self.accelerator.peak_16_flops_per_s * FORMATS[number_format].rate

    def _elementwise_s(self, layer: InferenceLayer, rows: int) -> float:
        moved = rows * layer.stream_elements * ELEMENT_BYTES
        moved_s = moved / (self.accelerator.memory_bandwidth_bytes_per_s * STREAM_FRACTION)
        return moved_s + layer.n_streams * self.engine.stream_floor_s

    def _experts_s(self, work: ExpertWork, here: int, everywhere: int) -> float:
        """Return the time of the routed experts of one layer on the rank with the most work.

        The last tile of each expert is half empty. Nothing is switched in empty rows, so that they do not count at the power limit.
        """
        rows, hit = busiest_rank(work, everywhere, self.layout.redundant_experts, self.popularity_shape)
        bandwidth = self.accelerator.memory_bandwidth_bytes_per_s
        number_format = self.formats.experts
        full_s, empty_s = rows / self._peak(number_format), hit * TILE_ROWS / 2.0 / self._burst_peak(number_format)
        read_s = hit * work.parameters_each * FORMATS[number_format].weight_bytes / bandwidth
        compute_s = 2.0 * work.parameters_each * (full_s + empty_s)
        if self.layout.exchange is None or not self.layout.exchange.sorts(here):
            moved_s = rows * 4.0 * (work.hidden + work.width) * ELEMENT_BYTES / bandwidth
            return kernel_s(self._constants["experts", number_format], read_s=read_s, compute_s=compute_s, activation_s=moved_s)
        # Tokens arrive by expert and in the format of the product: two products, and the cast between them.
        up = (work.n_matrices - 1) * work.width
        return sum(
            kernel_s(
                self._constants["product", number_format],
                read_s=read_s * matrices / work.n_matrices,
                compute_s=compute_s * matrices / work.n_matrices,
                activation_s=rows * (inner + work.hidden) * ELEMENT_BYTES / bandwidth,
                cast_elements=cast * rows,
            )
            for matrices, inner, cast in ((work.n_matrices - 1, up, 0.0), (1, work.width, float(work.width)))
        )

    def _collectives_s(self, layer: InferenceLayer, here: int, everywhere: int) -> float:
        size = here * self.work.hidden * ELEMENT_BYTES
        if layer.experts is None or self.layout.dp == 1:
            return layer.n_row_split * self.collectives.all_reduce_s(size, self.layout.tp)
        if self.layout.exchange is not None:
            return self.collectives.all_reduce_s(size, self.layout.tp) + self._exchange(layer.experts, here)[0]
        ranks = self.layout.tp * self.layout.dp
        n = everywhere * self.work.hidden
        gathered_bytes = FORMATS[self.formats.experts].gathered_bytes if self.engine.gathers_cast else ELEMENT_BYTES
        exchanged_s = self.collectives.all_gather_s(n * gathered_bytes, ranks) + self.collectives.reduce_scatter_s(n * ELEMENT_BYTES, ranks)
        return self.collectives.all_reduce_s(size, self.layout.tp) + exchanged_s

    def _exchange(self, work: ExpertWork, here: int) -> tuple[float, float]:
        """Return the time of sending tokens to their experts and back, and the share of the multiprocessors that it takes."""
        if self.layout.exchange is None:
            return 0.0, 0.0
        dispatched = SCALED_BYTES if FORMATS[self.formats.experts].weight_bytes < ELEMENT_BYTES else ELEMENT_BYTES
        return self.layout.exchange.seconds(here, work.top_k, self.work.hidden, dispatched, ELEMENT_BYTES)

    def _pipeline_s(self, here: int) -> float:
        return (self.layout.pp - 1) * self.collectives.send_s(here * self.work.hidden * ELEMENT_BYTES)

    def _sampled_terms(self, sampled: int) -> tuple[float, ...]:
        """Return the terms of the tokens that are sampled, and remember them."""
        logits = float(sampled) * self.work.logits.outputs * self.layout.tp
        gathered_s = self.collectives.all_gather_s(logits * ELEMENT_BYTES, self.layout.tp)
        passed_s = logits * FP32_BYTES * LOGIT_PASSES / (self.accelerator.memory_bandwidth_bytes_per_s * STREAM_FRACTION)
        head_s = self._product_s(self.work.logits, sampled, "bf16") + gathered_s
        found = self._by_sampled[sampled] = self._kept(("head", "sampling"), (head_s, self.engine.sampling_base_s + passed_s))
        return found


def step_model(
    model: Model,
    accelerator: Accelerator,
    layout: ServingLayout,
    *,
    engine: EngineConstants,
    rules: EngineRules,
    formats: ServedFormats,
) -> TermStepModel:
    """Return the step model of one replica.

    Parameters
    ----------
    formats
        Number format of each part, of :func:`~clustersim.serving.formats.served_formats`.
    """
    expert_tp, calibration = max(1, layout.tp * layout.dp // layout.ep), calibration_for(accelerator)
    usual, largest = calibration.gemm.clock_spread, expected_largest(layout.n_accelerators)
    kept = 1.0 if accelerator.clock_spread is None else (1.0 + usual * largest) / (1.0 + accelerator.clock_spread * largest)
    under_load = {name: share * kept for name, share in calibration.gemm.under_load.items()}
    if "nvfp4" in (formats.attention, formats.linear, formats.experts):
        # The power limit leaves products in 4 bits the share of their peak that it leaves those in 8.
        of_8, of_4 = (kernel_constants(accelerator, engine.framework, "product", each)[0].peak_fraction for each in ("fp8", "nvfp4"))
        under_load["nvfp4"] = min(1.0, under_load.get("fp8", under_load["default"]) * of_8 / of_4)
    work = inference_work(model, tp=layout.tp, expert_tp=expert_tp, ep=layout.ep, copies=layout.redundant_experts)
    return TermStepModel(
        accelerator=accelerator,
        work=work,
        layout=layout,
        formats=formats,
        engine=engine,
        rules=rules,
        collectives=SmallCollectives(accelerator, engine.collectives),
        under_load=under_load,
    )
