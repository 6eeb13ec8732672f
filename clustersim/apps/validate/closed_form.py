"""A closed form of seven constants for the times of a served run, to compare the simulation with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp
from typing import Final

from clustersim.apps.serve.deployment import BuiltServing
from clustersim.hardware.serving_constants import FORMATS
from clustersim.serving.formats import weight_bytes
from clustersim.serving.step_model import TermStepModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedClosedForm:
    """Seven constants, the same for all accelerators, engines, formats and models."""

    bandwidth_fraction: float
    """Share of the memory bandwidth with which weights are read."""
    cache_fraction: float
    """Share of the memory bandwidth with which the KV cache is read."""
    peak_fraction: float
    """Share of the peak at which prompts are computed."""
    step_s: float
    """Time of a step beside."""
    sequence_s: float
    """Time of each sequence in a step."""
    collective_s: float
    """Time of an all-reduce, twice in a layer."""
    frontend_s: float
    """Time of the front end."""


BASELINE: Final = ServedClosedForm(
    bandwidth_fraction=0.81,
    cache_fraction=0.88,
    peak_fraction=0.35,
    step_s=1.6e-3,
    sequence_s=2.9e-5,
    collective_s=2.9e-5,
    frontend_s=0.17,
)
"""Fitted to 220 of the shipped rows of all sources, so that it has seen what it is asked for: least mean logarithms of predicted over
measured values, at most 0.8 each."""


_ROUNDS: Final = 20
"""Rounds in which the batch and the time that a request stays agree."""


def closed_form_of(built: BuiltServing, constants: ServedClosedForm = BASELINE) -> Mapping[str, float]:
    """Return mean times and output tokens a second of a batch as large as clients, limits and KV cache allow.

    A step reads the weights, of experts those that are hit, and the cache; of each token of an answer every other sequence of the batch
    has its prompt computed once in as many steps as answers have tokens.
    """
    prefill, decode, requests = built.pools[0], built.pools[-1], built.asked.requests
    n_input, n_output = float(requests.input_tokens.mean()), float(requests.output_tokens.mean())
    prompt_s = _prompt_s(prefill.model, n_input, constants)
    most = max(1, min(decode.rules.max_num_seqs, int(decode.kv_tokens / (n_input + n_output)) * decode.layout.pp))

    def token_s(batch: int) -> float:
        """Return the time between two tokens in a batch of this size."""
        between_s = prompt_s / prefill.layout.dp * (batch - 1) / n_output if len(built.pools) == 1 else 0.0
        return _step_s(decode.model, batch, n_input + n_output / 2.0, constants) + between_s

    span_s = float(requests.arrival_s[-1]) if requests.arrival_s is not None else 0.0
    asked = requests.concurrency or (1 if span_s else len(requests))
    for _ in range(_ROUNDS if span_s else 0):  # Little's law
        asked = ceil(len(requests) / span_s * (prompt_s + n_output * token_s(min(asked, most))))
    here = asked / decode.n_replicas
    batch = min(ceil(here), most)
    whole_s = prompt_s + n_output * token_s(batch)
    rate = decode.n_replicas * batch * n_output / whole_s
    return {
        "ttft_s": constants.frontend_s + prompt_s + (max(here / batch, 1.0) - 1.0) * whole_s / 2.0,
        "tpot_s": token_s(batch),
        "output_tokens_per_s": min(rate, len(requests) * n_output / span_s) if span_s else rate,
    }


def _step_s(model: TermStepModel, batch: int, context: float, constants: ServedClosedForm) -> float:
    layout, bandwidth = model.layout, model.accelerator.memory_bandwidth_bytes_per_s
    here = batch / layout.dp
    dense = routed = cache = 0.0
    for layer in model.work.layers:
        dense += layer.n_layers * sum(each.parameters * weight_bytes(model.formats.of(each)) for each in layer.projections)
        cache += layer.n_layers * layer.attention.cache_elements
        if (experts := layer.experts) is not None:
            hit = 1.0 - exp(-batch * experts.top_k / experts.n_experts)
            routed += layer.n_layers * hit * experts.n_local * experts.parameters_each * weight_bytes(model.formats.experts)
    cached_bytes = here * context * cache * (1.0 if model.formats.kv == "fp8" else 2.0)
    read_s = (dense + routed) / (constants.bandwidth_fraction * bandwidth) + cached_bytes / (constants.cache_fraction * bandwidth)
    summed_s = 2.0 * model.work.n_layers * constants.collective_s if layout.tp * layout.dp > 1 else 0.0
    return constants.step_s + constants.sequence_s * here + read_s + summed_s


def _prompt_s(model: TermStepModel, n_input: float, constants: ServedClosedForm) -> float:
    flops_s = 0.0
    for layer in model.work.layers:
        products = sum(each.parameters / FORMATS[model.formats.of(each)].rate for each in layer.projections)
        if (experts := layer.experts) is not None:
            products += experts.top_k * experts.parameters_each * experts.n_local / experts.n_experts / FORMATS[model.formats.experts].rate
        flops_s += layer.n_layers * 2.0 * products
    return n_input * flops_s / (constants.peak_fraction * model.accelerator.peak_flops_per_s["bf16"])
