"""What passes through each layer and through both ends of a model take, and from these those through any chunk of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from clustersim.program.tasks import Block, Item
from clustersim.scenario.bounds.prices import WIDTH, Prices, Row
from clustersim.strategy.division import divided
from clustersim.strategy.experts import ExpertGroups
from clustersim.strategy.halves import ParallelGroups, parallel_groups
from clustersim.strategy.layers import first_alike, layer_at
from clustersim.strategy.mesh import place
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.plan import Plan
from clustersim.strategy.works import Gradients, backward_work, forward_work
from clustersim.topology.cluster import FloatArray
from clustersim.workload.layered import Layered

PassName = Literal["F", "B", "again", "I", "I again", "W"]
"""Forward; backward; backward with the recomputation of whole layers; gradients of inputs, alone and with it; of weights."""

GRADIENTS: Final[dict[PassName, Gradients]] = {"F": "all", "B": "all", "again": "all", "I": "input", "I again": "input", "W": "weight"}


@dataclass(slots=True, kw_only=True)
class LayerPrices:
    """Passes of a model cut in one way, layer by layer, each kind priced when it is asked for first."""

    prices: Prices
    plan: Plan
    name: str
    """Of groups, which no other cut may share."""
    _groups: ParallelGroups = field(init=False)
    _sums: dict[PassName, FloatArray] = field(default_factory=dict[PassName, FloatArray])
    _ends: dict[PassName, tuple[Row, Row]] = field(default_factory=dict[PassName, tuple[Row, Row]])

    def __post_init__(self) -> None:
        """Say who works together."""
        groups = parallel_groups(self.plan, divided(place(self.plan.strategy)), 0, 0)
        near, name = self.prices.near, self.name
        experts = groups.experts
        self._groups = ParallelGroups(
            tp=near(groups.tp, name),
            cp=near(groups.cp, name),
            experts=None
            if experts is None
            else ExpertGroups(
                whole=near(experts.whole, name),
                slices=near(experts.slices, name),
                between=None if experts.between is None else near(experts.between, name),
                inside=None if experts.inside is None else near(experts.inside, name),
            ),
        )

    def sums(self, kind: PassName) -> FloatArray:
        """Return the parts of passes through the first layers, shape (n_layers + 1, WIDTH): of so many of them at each place."""
        found = self._sums.get(kind)
        if found is None:
            n_layers = self.plan.model.n_layers
            known: dict[int, Row] = {}
            rows = np.zeros((n_layers + 1, WIDTH))
            for layer in range(n_layers):
                first = first_alike(self.plan, layer)
                if first not in known:
                    known[first] = self.prices.row((Block(name="layer", body=self._layer(kind, layer)),))
                rows[layer + 1] = known[first]
            found = self._sums[kind] = rows.cumsum(axis=0)
        return found

    def ends(self, kind: PassName) -> tuple[Row, Row]:
        """Return the parts of passes through what stands before the layers, and through what stands behind them."""
        found = self._ends.get(kind)
        if found is None:
            found = self._ends[kind] = (np.zeros(WIDTH), np.zeros(WIDTH))
            if not isinstance(self.plan.model, Layered):
                passes = self._passes(kind)
                forward = kind == "F"
                first = passes.embedding_forward() if forward else () if kind == "W" else passes.embedding_backward()
                last = passes.head_forward() if forward else passes.head_backward()
                found = self._ends[kind] = (self._row(first), self._row(last))
        return found

    def _row(self, items: tuple[Item, ...]) -> Row:
        return self.prices.row((Block(name="end", body=items),)) if items else np.zeros(WIDTH)

    def _passes(self, kind: PassName) -> ChunkPasses:
        return ChunkPasses(plan=self.plan, groups=self._groups, gradients=GRADIENTS[kind])

    def _layer(self, kind: PassName, layer: int) -> tuple[Item, ...]:
        again = kind in ("again", "I again")
        if isinstance(self.plan.model, Layered):
            operators = layer_at(self.plan, layer)
            if kind == "F":
                return (forward_work("layer", operators),)
            repeated = (forward_work("layer", operators, "recompute"),) if again else ()
            return (*repeated, backward_work("layer", operators, GRADIENTS[kind]))
        passes = self._passes(kind)
        return passes.layer_forward(layer) if kind == "F" else passes.layer_backward(layer, again=again)
