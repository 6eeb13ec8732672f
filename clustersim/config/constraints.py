"""Constraints between the values of a scenario, one function each; every refusal names what would be right.

They stand here because no parallel technique reads them alone: they are about the size of the run (GPUs, batch, tokens), or about two
settings of one section. A technique refuses its own settings in ``parallel/contributors``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Accelerator, ScaledFormat
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.units.divisors import count_text, divisors, listed
from clustersim.units.fields import MOST_GPUS
from clustersim.workloads.shapes import AttentionKind, Scaling

TOKENS: Final = "training.tokens"
_MOST_TRILLIONS: Final = 1000.0
"""Below this a number of tokens that lacks its prefix is one of trillions."""
MAX_PASSES: Final = 200_000
"""Forward and backward passes of all stages that a replay takes on: minutes of computing."""


def resolve_dp(strategy: StrategySettings, n_gpus: int) -> int:
    """Return the data-parallel degree that fills the cluster.

    Raises
    ------
    ScenarioError
        When the degrees do not multiply to the number of GPUs.
    """
    others = strategy.tp * strategy.pp * strategy.cp
    fills = n_gpus % others == 0
    if not strategy.gives("dp"):
        if not fills:
            field, advice = _shrink(strategy, n_gpus)
            raise ScenarioError(f"tp*pp*cp = {others} does not divide {count_text(n_gpus, 'GPU')}", field=field, hint=advice)
        return n_gpus // others
    world = others * strategy.dp
    if world != n_gpus:
        advice = f"dp: auto gives {n_gpus // others}" if fills else f"tp*pp*cp = {others} does not divide {n_gpus}"
        raise ScenarioError(f"tp*pp*cp*dp = {world} does not match {count_text(n_gpus, 'GPU')}", field="strategy.dp", hint=advice)
    return strategy.dp


def check_size(n_nodes: int, n_accelerators: int) -> None:
    """Refuse clusters beyond what anybody has."""
    if n_nodes * n_accelerators > MOST_GPUS:
        raise ScenarioError(
            f"{n_nodes} nodes of {n_accelerators} GPUs are more than {MOST_GPUS}",
            field="cluster.nodes",
            hint=f"use at most {MOST_GPUS // n_accelerators}",
        )


def check_training(training: Training, *, seq_length: int, precision: str) -> None:
    """Refuse settings of one step that contradict each other, the length of the sequences or the precision.

    Raises
    ------
    ScenarioError
        With what would do.
    """
    scored, tokens, batch = training.scored_tokens, training.tokens, training.global_batch_size
    if scored is not None and scored > seq_length:
        message = f"{scored} tokens are scored of a sequence of {seq_length}"
        raise ScenarioError(message, field="training.scored_tokens", hint=f"use {seq_length} or fewer")
    of_step = batch * seq_length
    if tokens is not None and tokens < of_step:
        message = f"{tokens:.0f} tokens are fewer than one step has, {batch} * {seq_length} = {of_step}"
        hint = f"did you mean {tokens:g}T?" if tokens < _MOST_TRILLIONS else "write all that the model is trained on, such as 15T"
        raise ScenarioError(message, field=TOKENS, hint=hint)
    ramp = training.batch_ramp
    if ramp is not None and (tokens is None or tokens < ramp.tokens):
        message = "a batch that grows matters to a whole training, of at least as many tokens"
        raise ScenarioError(message, field="training.batch_ramp", hint="give training.tokens, such as 15T, or leave it out")
    if ramp is not None and (ramp.start >= batch or (batch - ramp.start) % ramp.increment):
        message = f"{ramp.start} does not grow to {batch} by steps of {ramp.increment}"
        hint = f"use an increment that divides {batch - ramp.start}" if ramp.start < batch else f"start below {batch}"
        raise ScenarioError(message, field="training.batch_ramp", hint=hint)
    if training.cuda_graphs and training.blocking_launches:
        message = "kernels of a graph are issued together, and the host cannot wait for each"
        raise ScenarioError(message, field="training.cuda_graphs", hint="leave out cuda_graphs or blocking_launches")
    if training.fp8_parameters and precision != "fp8":
        message = f"weights cannot be kept in fp8 alone where products take them in {precision}"
        raise ScenarioError(message, field="training.fp8_parameters", hint="set training.precision to fp8")


WITHOUT_MX: Final = 12.0
"""Compute capability from which Transformer Engine refuses MXFP8: its kernels lack some layouts of products."""


def scaling_of(training: Training, accelerators: Iterable[Accelerator]) -> Scaling:
    """Return the scales of operands in 8 bits: as asked, or the recipe that Transformer Engine takes on the accelerators [1]_.

    Raises
    ------
    ScenarioError
        When an accelerator lacks the scales of the format.

    References
    ----------
    .. [1] NVIDIA, *Transformer Engine*, ``pytorch/fp8.py``: ``check_mxfp8_support``, ``check_nvfp4_support`` and
       ``get_default_fp8_recipe``; of AMD's, the first.
    """
    wanted: Scaling = training.fp8_scaling if training.gives("fp8_scaling") else "mx"
    lacking = [each for each in accelerators if not _takes(each, wanted)]
    if not lacking:
        return wanted
    if not training.gives("fp8_scaling"):
        return "tensor" if any("mx" in each.scaled_formats for each in lacking) else "delayed"
    capability = f" and compute capability below {WITHOUT_MX:g}" if wanted == "mx" else ""
    hint = f"use tensor, delayed or block, or an accelerator with {wanted} among its scaled_formats{capability}"
    raise ScenarioError(f"Transformer Engine has no {wanted} on {lacking[0].name}", field="training.fp8_scaling", hint=hint)


def _takes(accelerator: Accelerator, scaling: Scaling) -> bool:
    refused = scaling == "mx" and (accelerator.compute_capability or 0.0) >= WITHOUT_MX
    return (scaling not in get_args(ScaledFormat) or scaling in accelerator.scaled_formats) and not refused


def check_attention(attention: AttentionKind, accelerators: Iterable[Accelerator]) -> None:
    """Refuse a generation of fused attention that an accelerator does not run, or without measured constants on it.

    Raises
    ------
    ScenarioError
        At the first such accelerator.
    """
    for accelerator in accelerators:
        known = calibration_for(accelerator).attention
        if attention != "unfused" and attention not in known:
            hint = f"use {', '.join(known)} or unfused"
            raise ScenarioError(f"nothing is known of {attention} on {accelerator.name}", field="training.attention", hint=hint)


def check_batch(training: Training, strategy: Strategy) -> None:
    """Refuse a batch that does not divide evenly among replicas, or makes more passes than are simulated.

    Raises
    ------
    ScenarioError
        With the batches next to it.
    """
    batch, micro, dp = training.global_batch_size, training.micro_batch_size, strategy.dp
    unit = dp * micro
    if batch % unit:
        below, above = batch // unit * unit, (batch // unit + 1) * unit
        near = f"{below} or {above}" if below else str(above)
        raise ScenarioError(
            f"{batch} is not a multiple of dp * micro_batch_size = {dp} * {micro} = {unit}",
            field="training.global_batch_size",
            hint=f"the nearest is {near}",
        )
    n_micro_batches = batch // unit
    passes = 2 * n_micro_batches * strategy.pp * strategy.virtual_stages
    if passes > MAX_PASSES:
        raise ScenarioError(
            f"{n_micro_batches} micro-batches make {passes} passes, more than the {MAX_PASSES} that are simulated",
            field="training.global_batch_size",
            hint="use a larger micro_batch_size or a smaller batch",
        )


def _shrink(strategy: StrategySettings, n_gpus: int) -> tuple[str, str]:
    """Return which degree to blame for not dividing the cluster, and what it may be instead."""
    for name, rest in (("pp", strategy.tp * strategy.cp), ("tp", strategy.pp * strategy.cp), ("cp", strategy.tp * strategy.pp)):
        if getattr(strategy, name) == 1:
            continue
        good = divisors(n_gpus // rest) if n_gpus % rest == 0 else []
        if good:
            return f"strategy.{name}", f"with the other degrees as they are, use {name} {listed(good)}"
    return "strategy.tp", f"use degrees whose product divides {n_gpus}"
