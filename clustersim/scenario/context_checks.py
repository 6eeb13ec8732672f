"""What context parallelism asks of sequences, heads and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.errors import ScenarioError
from clustersim.units.divisors import divisors, listed

if TYPE_CHECKING:
    from clustersim.strategy.step_settings import Training
    from clustersim.workload.model import Model
    from clustersim.workload.shapes import ContextKind


def check_context(model: Model, training: Training, *, cp: int, tp: int, kind: ContextKind) -> None:
    """Refuse sequences, heads and kernels that so many ranks cannot divide among them.

    Raises
    ------
    ScenarioError
        At the value to change, with those that would do.
    """
    if cp == 1:
        return
    if training.attention == "unfused":
        message = f"cp = {cp} divides fused attention only, which keeps no scores"
        raise ScenarioError(message, field="training.attention", hint="use flash, or cp: 1")
    if kind == "ring" and model.window is not None and model.window.tokens < training.seq_length:
        message = f"a ring passes all keys on, but {model.name} has layers that see a window only"
        raise ScenarioError(message, field="strategy.context_parallel", hint="use all_gather or ulysses")
    if kind == "ulysses":
        _check_heads(model, cp, tp)
    # Under a causal mask a rank has a piece of the front and one of the back.
    balanced = model.causal and kind != "ulysses"
    pieces = cp * tp * (2 if balanced else 1)
    if training.seq_length % pieces:
        why = "two pieces for each" if balanced else "one piece for each"
        nearest = max(1, round(training.seq_length / pieces)) * pieces
        raise ScenarioError(
            f"{training.seq_length} tokens do not divide among cp * tp = {cp} * {tp} ranks, {why}",
            field="training.seq_length",
            hint=f"use a multiple of {pieces} such as {nearest}",
        )
    if training.scored_tokens is not None and training.scored_tokens % cp:
        message = f"{training.scored_tokens} scored tokens do not divide among cp = {cp} ranks"
        raise ScenarioError(message, field="training.scored_tokens", hint=f"use a multiple of {cp}")


def _check_heads(model: Model, cp: int, tp: int) -> None:
    heads, kv_heads = model.n_heads // tp, max(1, model.n_kv_heads // tp)
    good = [degree for degree in divisors(heads) if kv_heads % degree == 0 or degree % kv_heads == 0]
    if cp in good:
        return
    among = f" that tp = {tp} leaves" if tp > 1 else ""
    message = f"ulysses deals out heads, and cp = {cp} does not divide the {heads} heads and {kv_heads} key and value heads{among}"
    raise ScenarioError(message, field="strategy.cp", hint=f"use {listed(good)}, or context_parallel: ring")
