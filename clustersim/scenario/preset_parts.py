"""Settings that several presets have."""

from __future__ import annotations

from typing import Final

from clustersim.documents.spots import Data
from clustersim.scenario.preset_sources import CHECKPOINT, MEMORY_FORMAT, Reference, Refusal, Setting
from clustersim.strategy.schedules import SCHEDULES

OVERLAP: Final = "strategy.data_parallel.overlap"
NO_SYNC: Final = "strategy.data_parallel.no_sync"

ALL_AT_ONCE: Final = "1 TB"
"""More than any gradients: a bucket that holds them all."""

PLAIN: Final[tuple[str, tuple[Data, ...]]] = ("strategy.virtual_stages", (None, 1))
"""Where a stage is one part of the model."""
UNDIVIDED: Final[tuple[str, tuple[Data, ...]]] = ("strategy.pp", (None, 1))
"""Where there is no pipeline."""


def whole_model(source: Reference) -> Setting:
    """Return that nothing is sharded."""
    return Setting(key="strategy.zero_stage", value=0, fixed=True, source=source, reason="every replica keeps the whole training state")


def own_processes(source: Reference) -> Setting:
    """Return that every accelerator has a process of its own."""
    return Setting(
        key="strategy.data_parallel.single_process", value=False, fixed=True, source=source, reason="one process for each accelerator"
    )


def eager(source: Reference) -> tuple[Setting, ...]:
    """Return how an uncompiled model runs."""
    return (
        Setting(key="training.kernels", value="eager", source=source, reason="one kernel for each operation, unless the model is compiled"),
        Setting(
            key="training.fused_gradient_accumulation",
            value=False,
            source=source,
            reason="gradients are added to those of earlier micro-batches by a kernel of their own",
        ),
    )


def pytorch(source: Reference) -> tuple[Setting, ...]:
    """Return how an uncompiled model of PyTorch runs."""
    return (
        *eager(source),
        Setting(key="training.channels_last", value=False, source=MEMORY_FORMAT, reason="images are stored channel by channel"),
    )


def early_stop() -> Setting:
    """Return where recomputation of whole layers stops."""
    return Setting(
        key="strategy.recompute_stops_early",
        value=True,
        source=CHECKPOINT,
        reason="checkpoint() without reentrant autograd stops as soon as it has what the backward pass needs",
        where=("strategy.recompute", ("full",)),
    )


def refused(known: tuple[str, ...], reason: str) -> tuple[Refusal, ...]:
    """Return the refusals of all schedules but some."""
    return tuple(Refusal(key="strategy.schedule", value=name, reason=reason) for name in SCHEDULES if name not in known)


def one_forward_one_backward(source: Reference, chunks: str) -> tuple[Setting, ...]:
    """Return the schedule of Megatron-LM, which several frameworks have."""
    return (
        Setting(key="strategy.schedule", value="1f1b", source=source, reason=f"interleaved only with {chunks}", where=PLAIN),
        Setting(key="strategy.schedule", value="interleaved_1f1b", source=source, reason=f"interleaved with {chunks}"),
    )
