"""Activations in host memory: copies overlapped with later layers forward, and fetches overlapped with the backward pass.

References
----------
.. [1] S. Rajbhandari et al., "ZeRO-Infinity", SC 2021, arXiv 2104.07857, section 5.1.2 (checkpoints of activations on the host).
.. [2] NVIDIA, Transformer Engine, ``transformer_engine/pytorch/cpu_offload.py``: copies on streams of their own, layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import Final

from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.layers import heaviest_run
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import Pass, StageOrder
from clustersim.parallel.stage import Stage
from clustersim.parallel.stage_work import Cut
from clustersim.parallel.training_plan import Strategy
from clustersim.program.holds import GATHER_TO_LAST_PASS, Hold
from clustersim.program.program import Key

LAYERS_IN_USE: Final = 2
"""Layers on the accelerator at a time: one computes while the one before it, or the next, is copied."""


def offloads_activations(strategy: Strategy) -> bool:
    """Return whether activations live on the host between their passes."""
    return strategy.offload.activations != "accelerator"


class ActivationOffload(Contributor):
    """Activations on the host between their passes."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether activations are offloaded."""
        return offloads_activations(strategy)

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the layers that are on the accelerator, the one in use and the one that is copied."""
        fullest = stage.activations.fullest_place(stage.chunks)
        size_bytes = max(heaviest_run(stage.activations.kept_by_layer(chunk, fullest), LAYERS_IN_USE) for chunk in stage.chunks)
        return (Hold(category="buffers", owner="activation_offload", bytes=size_bytes, interval=GATHER_TO_LAST_PASS),)

    def stage(self, stage: int, order: StageOrder) -> StageContributor:
        """Return the copies of activations of a stage."""
        return _StageCopies(self.step, stage, order)


class _StageCopies(StageContributor):
    """Copies of activations of one stage.

    Two layers are on the accelerator at a time. Forward a layer waits until the one before the last is on the host; backward it is fetched
    as soon as the one behind the next is through. The two last layers stay where the backward pass of a micro-batch follows at once. A
    pass is cut so that a few copies do for all of its layers: those of all but the last two layers run beside all but the first and the
    last layer.
    """

    def __init__(self, step: Step, stage: int, order: StageOrder) -> None:
        self.host, self.chunks, self.order = step.host(stage), step.stages[stage].chunks, order
        self._kept = tuple(step.stages[stage].activations.kept_by_layer(chunk) for chunk in self.chunks)
        self._stored: dict[tuple[int, int], Key] = {}
        """For each micro-batch and chunk its last copy to the host."""

    def cut(self, position: int, cut: Cut) -> Cut:
        """Return the division of a pass with its first and last layer as separate pieces."""
        step = self.order[position]
        n_layers = self.chunks[step.chunk].n_layers
        if not self._copies(step):
            return cut
        return replace(cut, borders=cut.borders | {layer for layer in (1, n_layers - 1) if 0 < layer < n_layers})

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass, which wait for free memory or for fetched activations."""
        step = self.order[position]
        if not self._copies(step):
            return pieces
        waiting = {place: [self._key(position, name)] for name, place in self._waits(position, pieces).items()}
        if not step.goes_back and position and self._leaves_second(position - 1):
            waiting.setdefault(0, []).append(self._key(position - 1, "second"))
        return tuple(replace(piece, after=(*piece.after, *waiting.get(place, ()))) for place, piece in enumerate(pieces))

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the copies of a pass."""
        step = self.order[position]
        if not self._copies(step):
            return
        stored, pieces = self._stored.get((step.micro_batch, step.chunk)), parts[0].pieces[position]
        for name, layers in self._groups(position).items():
            if not step.goes_back:
                # Copies of many layers begin behind the first of them.
                behind = _holding(pieces, layers[0])
                after = [part.own(position)[behind] for part in parts]
            elif name == "many":
                after = [part.own(position)[0] for part in parts]
            else:
                away = 2 if name == "last" else 1
                after = [key for part in parts for key in part.before(position, away=away)]
            self._copy(position, name, layers, [*after, *([stored] if stored and step.goes_back else [])])

    def _copy(self, position: int, name: str, layers: Sequence[int], after: Sequence[Key]) -> None:
        step = self.order[position]
        size_bytes, label = fsum(self._kept[step.chunk][layer] for layer in layers), (step.micro_batch, step.chunk)
        key = self._key(position, name)
        if step.goes_back:
            self.host.copy_as(key, "activations from host", ("host", "accelerator"), size_bytes, after=after, label=label)
        else:
            self.host.copy_as(key, "activations to host", ("accelerator", "host"), size_bytes, after=after, label=label)
            self._stored[step.micro_batch, step.chunk] = key

    def _groups(self, position: int) -> dict[str, tuple[int, ...]]:
        """Return which layers of a pass are copied together, in the order of the copies; none are empty."""
        step = self.order[position]
        layers = tuple(range(self.chunks[step.chunk].n_layers))
        many, second, last = layers[:-LAYERS_IN_USE], layers[-LAYERS_IN_USE:-1], layers[-1:]
        if self._stays(position):
            second = last = ()
        groups = {"many": many, "second": second, "last": last}
        order = reversed(groups) if step.goes_back else groups
        return {name: groups[name] for name in order if groups[name]}

    def _waits(self, position: int, pieces: Sequence[Piece]) -> dict[str, int]:
        """Return which piece of a pass waits for which of its copies."""
        step, groups = self.order[position], self._groups(position)
        n_layers = self.chunks[step.chunk].n_layers
        if not step.goes_back:
            return {"many": _holding(pieces, n_layers - 1)} if "many" in groups else {}
        needed = {"last": n_layers - 1, "second": n_layers - 2, "many": 0}
        return {name: _holding(pieces, needed[name]) for name in groups}

    def _stays(self, position: int) -> bool:
        """Return whether the last two layers of a pass stay, because the backward pass of the micro-batch follows at once."""
        step = self.order[position]
        other = position - 1 if step.goes_back else position + 1
        if not 0 <= other < len(self.order):
            return False
        beside = self.order[other]
        return (beside.micro_batch, beside.chunk) == (step.micro_batch, step.chunk) and beside.goes_back != step.goes_back

    def _leaves_second(self, position: int) -> bool:
        step = self.order[position]
        return not step.goes_back and self._copies(step) and "second" in self._groups(position)

    @staticmethod
    def _copies(step: Pass) -> bool:
        return step.kind != "W"

    def _key(self, position: int, name: str) -> Key:
        return ("activations", self.host.stage.number, position, name)


def _holding(pieces: Sequence[Piece], layer: int) -> int:
    """Return the number of the piece that holds a layer."""
    return next(number for number, piece in enumerate(pieces) if layer in piece.layers)
