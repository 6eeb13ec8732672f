"""Which layouts are looked at, and how one becomes a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd
from typing import Final, TypeVar

from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.training_plan import Strategy
from clustersim.units.divisors import divisors
from clustersim.workloads.model import Model

PLACEMENTS: Final = (("tp", "cp", "ep", "dp", "pp"), ("tp", "cp", "ep", "pp", "dp"))
SEARCHED_SCHEDULES: Final = ("1f1b", "interleaved_1f1b")
"""Schedules of most frameworks. Others may be requested: bounds are less tight with delayed weight gradients."""
MICRO_BATCHES: Final = (1, 2, 4, 8)
MOST_CONTEXT: Final = 16
MOST_CHUNKS: Final = 8
HEAVY: Final = 2.0
"""Layers whose weights those of the logits are as many as, from which on balanced stages are searched too where layers divide evenly."""
STAGE_LAYERS: Final = ("even", "balanced")
NUMBERS: Final = ("tp", "pp", "cp", "ep", "micro_batch_size", "virtual_stages", "zero_stage")
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": tuple(SCHEDULES),
    "stage_layers": STAGE_LAYERS,
    "recompute": ("none", "selective", "alternate", "full"),
}
MOST_SMALL: Final = 2000
"""Families of a space that are bounded in a second or two."""
T = TypeVar("T")

NARROWED: Final = ("schedule=1f1b,interleaved_1f1b", "micro_batch_size=1,2", "offload=none", "zero_stage=1,3")
"""Default space of a comparison of clusters: settings that frameworks run every day."""


def usual_limits(limits: Sequence[str]) -> tuple[str, ...]:
    """Return limits of a space, with those of ``NARROWED`` for every key that they do not name."""
    given = [text.split("=", 1)[0] for text in limits]
    return (*limits, *(text for text in NARROWED if text.split("=", 1)[0] not in given))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayoutFamily:
    """Layouts whose passes are the same: how the model is cut and scheduled."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    micro_batch_size: int
    schedule: str
    virtual_stages: int
    balanced: bool
    recompute: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ParallelLayout:
    """One layout: a family, the placement of its ranks, and the sharding of its training state."""

    family: LayoutFamily
    zero_stage: int
    placement: tuple[str, ...]
    offload: tuple[str, ...]

    def changes(self) -> dict[str, Data]:
        """Return the settings of a layout in a scenario, by dotted key."""
        family = self.family
        chunked = SCHEDULES[family.schedule].n_chunks is None
        return {
            "strategy.dp": "auto",
            "strategy.tp": family.tp,
            "strategy.pp": family.pp,
            "strategy.cp": family.cp,
            "strategy.ep": family.ep,
            "strategy.schedule": family.schedule,
            "strategy.virtual_stages": family.virtual_stages if chunked else None,
            "strategy.stage_layers": "balanced" if family.balanced else "even",
            "strategy.recompute": family.recompute,
            "strategy.zero_stage": self.zero_stage,
            "strategy.placement": list(self.placement),
            "strategy.offload": list(self.offload),
            "training.micro_batch_size": family.micro_batch_size,
        }

    @property
    def kind(self) -> tuple[bool, ...]:
        """Techniques in use: each degree, sharded weights, and offloading."""
        family = self.family
        degrees = (family.tp, family.cp, family.pp, family.ep)
        return *(degree > 1 for degree in degrees), self.zero_stage == 3, bool(self.offload)

    @property
    def effort(self) -> tuple[int, ...]:
        """Rank of simplicity: dimensions in use, chunks, sharding, offloading, and unusual placement."""
        family = self.family
        n_degrees = sum(degree > 1 for degree in (family.tp, family.cp, family.pp, family.ep, family.dp))
        return n_degrees, family.virtual_stages, self.zero_stage, len(self.offload), int(self.placement != PLACEMENTS[0])

    def words(self) -> str:
        """Return the layout in one line, as people write it."""
        family = self.family
        degrees = [
            f"{name} {value}"
            for name, value in (("tp", family.tp), ("cp", family.cp), ("pp", family.pp), ("ep", family.ep), ("dp", family.dp))
            if value > 1
        ]
        chunks = f" of {family.virtual_stages} chunks" if family.virtual_stages > 1 else ""
        schedule = [f"{family.schedule}{chunks}{', balanced' if family.balanced else ''}"] if family.pp > 1 else []
        kept = [f"zero {self.zero_stage}", f"micro-batch {family.micro_batch_size}", f"recompute {family.recompute}"]
        moved = [f"offload {', '.join(self.offload)}"] if self.offload else []
        placed = [f"placement {'-'.join(self.placement)}"] if self.placement != PLACEMENTS[0] else []
        return ", ".join([" ".join(degrees) or "one rank", *schedule, *kept, *moved, *placed])


def layout_of(strategy: Strategy, micro_batch_size: int) -> ParallelLayout:
    """Return the layout of a strategy, as far as a search distinguishes layouts."""
    family = LayoutFamily(
        tp=strategy.tp,
        pp=strategy.pp,
        cp=strategy.cp,
        ep=strategy.ep,
        dp=strategy.dp,
        micro_batch_size=micro_batch_size,
        schedule=strategy.schedule,
        virtual_stages=strategy.virtual_stages,
        balanced=strategy.stage_layers is not None,
        recompute=strategy.recompute,
    )
    return ParallelLayout(family=family, zero_stage=strategy.zero_stage, placement=strategy.placement, offload=strategy.offload.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Search space: a batch of a model on a number of ranks, and the values of each key."""

    n_ranks: int
    n_layers: int
    batch: int
    tp: tuple[int, ...]
    pp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]
    micro_batch_size: tuple[int, ...] = MICRO_BATCHES
    schedule: tuple[str, ...] = SEARCHED_SCHEDULES
    virtual_stages: tuple[int, ...] | None = None
    """None: all that divide the layers of a stage, up to ``MOST_CHUNKS``."""
    stage_layers: tuple[str, ...] | None = None
    """None: even where the layers divide, balanced elsewhere."""
    recompute: tuple[str, ...] = ("none", "selective", "full")
    zero_stage: tuple[int, ...] = (0, 1, 2, 3)
    placement: tuple[tuple[str, ...], ...] = PLACEMENTS
    offload: tuple[tuple[str, ...], ...] = ((), ("optimizer",))
    least_dimensions: int = 0
    """Least number of dimensions, out of tp, pp and cp, along which a layout is divided."""


def space_of(model: Model, *, batch: int, n_ranks: int, domain_size: int, limits: Mapping[str, Sequence[object]]) -> Space:
    """Return every value that could be legal, within limits.

    Parameters
    ----------
    domain_size
        Accelerators of a scale-up domain: tensor parallelism across the fabric is searched only on request.
    limits
        Values to be searched instead, by key of the space.

    Raises
    ------
    ScenarioError
        When no value of a limit can be.
    """
    n_experts = model.experts.n_experts if model.experts else 1
    found: dict[str, Sequence[object]] = {
        "tp": [degree for degree in divisors(model.n_heads) if n_ranks % degree == 0 and degree <= domain_size],
        "pp": [degree for degree in divisors(n_ranks) if degree <= model.n_layers],
        "cp": [degree for degree in divisors(n_ranks) if degree <= MOST_CONTEXT],
        "ep": [degree for degree in divisors(n_experts) if n_ranks % degree == 0],
        **({"stage_layers": STAGE_LAYERS} if _has_heavy_head(model) else {}),
        **limits,
    }
    if "tp" in limits and all(model.n_heads % int(str(degree)) for degree in limits["tp"]):
        hint = f"use some of {', '.join(map(str, divisors(model.n_heads)))}"
        message = f"tp {' and '.join(map(str, limits['tp']))} does not divide the {model.n_heads} heads of the model"
        raise ScenarioError(message, field="--only", hint=hint)
    sizes = {"n_ranks": n_ranks, "n_layers": model.n_layers, "batch": batch}
    return Space(**sizes, **{key: tuple(values) for key, values in found.items()})  # pyright: ignore[reportArgumentType] - checked by whoever reads limits


def _has_heavy_head(model: Model) -> bool:
    """Return whether the logits make the last of evenly divided stages much longer than the others."""
    logits = model.vocab_size * model.hidden_size if model.lm_head else 0
    return model.n_layers * logits >= HEAVY * (model.n_active - logits)


def left_out(space: Space) -> tuple[str, ...]:
    """Return what a scenario can have and a space has not, with the option that searches it."""
    found = [("schedules", "schedule", [name for name in SCHEDULES if name not in space.schedule])]
    if space.stage_layers is None:
        found.append(("kinds of stages where layers divide evenly", "stage_layers", ["balanced"]))
    return tuple(f"{what}: {', '.join(names)} (--only {key}=...)" for what, key, names in found if names and max(space.pp) > 1)


def small_part(space: Space) -> Space:
    """Return a space itself, or of a large one a part in which a good layout is found soon."""
    part = space
    if sum(1 for _ in families(space)) > MOST_SMALL:
        part = replace(
            space,
            micro_batch_size=space.micro_batch_size[:1],
            recompute=_those(space.recompute, ("none", "full")),
            zero_stage=_those(space.zero_stage, (1, 3)),
            placement=space.placement[:1],
            offload=space.offload[:1],
        )
    return replace(part, cp=part.cp[:1]) if sum(1 for _ in families(part)) > MOST_SMALL else part


def _those(values: tuple[T, ...], wanted: Sequence[T]) -> tuple[T, ...]:
    """Return the wanted ones of some values, or all where there are none."""
    return tuple(value for value in values if value in wanted) or values


def families(space: Space) -> Iterator[LayoutFamily]:
    """Give every family that divides ranks, layers and batch."""
    n_ranks, batch = space.n_ranks, space.batch
    for tp in space.tp:
        for pp in space.pp:
            for cp in space.cp:
                dp, rest = divmod(n_ranks, tp * pp * cp)
                if rest or not dp or batch % dp or sum(degree > 1 for degree in (tp, pp, cp)) < space.least_dimensions:
                    continue
                for ep in space.ep:
                    if (dp * cp * tp) % ep:
                        continue
                    for size in space.micro_batch_size:
                        if batch // dp % size == 0:
                            yield from _scheduled(space, (tp, pp, cp, ep, dp, size))


def _scheduled(space: Space, cut: tuple[int, int, int, int, int, int]) -> Iterator[LayoutFamily]:
    tp, pp, cp, ep, dp, size = cut
    n_layers, n_micro_batches = space.n_layers, space.batch // dp // size
    for name in space.schedule if pp > 1 else ("1f1b",):
        schedule = SCHEDULES[name]
        if (schedule.in_pairs and pp % 2) or not _takes(name, pp, n_micro_batches):
            continue
        for chunks in _chunks(space, name, n_layers, pp):
            n_parts = schedule.layout(pp, chunks).n_parts
            if n_parts > n_layers:
                continue
            for balanced, recompute in product(_dealt(space, n_parts), space.recompute):
                yield LayoutFamily(
                    tp=tp,
                    pp=pp,
                    cp=cp,
                    ep=ep,
                    dp=dp,
                    micro_batch_size=size,
                    schedule=name,
                    virtual_stages=chunks,
                    balanced=balanced,
                    recompute=recompute,
                )


def _dealt(space: Space, n_parts: int) -> tuple[bool, ...]:
    """Return whether layers are dealt out by time, in each way that is searched for a number of parts."""
    divides, asked = space.n_layers % n_parts == 0, space.stage_layers
    if asked is None:
        return (not divides,)
    return tuple(way == "balanced" for way in asked if divides or way == "balanced") if 1 < n_parts < space.n_layers else (False,)


def _takes(name: str, pp: int, n_micro_batches: int) -> bool:
    schedule = SCHEDULES[name]
    if schedule.whole_rounds and n_micro_batches % pp:
        return False
    return not schedule.least_rounds or (n_micro_batches >= schedule.least_rounds * pp and not (schedule.in_pairs and n_micro_batches % 2))


def _chunks(space: Space, name: str, n_layers: int, pp: int) -> tuple[int, ...]:
    asked = SCHEDULES[name].n_chunks
    if asked is not None:
        return (asked,)
    if space.virtual_stages is not None:
        return tuple(chunks for chunks in space.virtual_stages if chunks > 1)
    per_stage = -(-n_layers // pp)
    return tuple(chunks for chunks in divisors(per_stage) if 1 < chunks <= MOST_CHUNKS)


def layouts(space: Space, family: LayoutFamily) -> Iterator[ParallelLayout]:
    """Give every layout of a family."""
    alone = family.pp == 1 or family.dp == 1
    for zero_stage in space.zero_stage if family.dp * family.cp > 1 else (0,):
        for placement in space.placement[:1] if alone else space.placement:
            for offload in space.offload:
                if not (offload and zero_stage == 0 and family.dp > 1):
                    yield ParallelLayout(family=family, zero_stage=zero_stage, placement=placement, offload=offload)


def limits_of(texts: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Return the values to be searched of each key that is narrowed.

    Examples
    --------
    >>> limits_of(["tp=4,8", "schedule=1f1b"])
    {'tp': (4, 8), 'schedule': ('1f1b',)}

    Raises
    ------
    ScenarioError
        For a key that is not searched, or a value that it cannot have.
    """
    found: dict[str, tuple[object, ...]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        key = key.strip()
        items = [item.strip() for item in values.split(",") if item.strip()]
        if not sign or not items:
            raise ScenarioError(f"'{text}' does not say key=values", field="--only", hint="write such as tp=4,8")
        if key in NUMBERS:
            found[key] = tuple(_number(key, item) for item in items)
        elif key in WORDS:
            for item in items:
                if item not in WORDS[key]:
                    hint = did_you_mean(item, WORDS[key]) or f"use {', '.join(WORDS[key])}"
                    raise ScenarioError(f"'{item}' is no {key}", field="--only", hint=hint)
            found[key] = tuple(items)
        elif key == "offload":
            found[key] = tuple(() if item == "none" else tuple(item.split("+")) for item in items)
        elif key == "placement":
            found[key] = tuple(_placement(item) for item in items)
        else:
            known = (*NUMBERS, *WORDS, "offload", "placement")
            hint = did_you_mean(key, known) or f"use {', '.join(known)}"
            raise ScenarioError(f"'{key}' is not searched", field="--only", hint=hint)
    return found


def _placement(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split("-"))
    if sorted(found) != sorted(PLACEMENTS[0]):
        raise ScenarioError(f"'{text}' is no placement", field="--only", hint="write all five, such as tp-cp-ep-dp-pp")
    return found


def _number(key: str, text: str) -> int:
    least = 0 if key == "zero_stage" else 1
    if not text.isdecimal() or int(text) < least:
        raise ScenarioError(f"'{text}' is no value of {key}", field="--only", hint=f"write whole numbers from {least}")
    return int(text)


def adapted_batch(batch: int, n_ranks: int) -> int:
    """Return the batch nearest to a given one that divides among the ranks about as well as powers of two do.

    Data parallelism divides the batch, and takes the odd factors of the ranks wherever tensor and pipeline parallelism do not. A batch that
    has these factors stays as it is. Any other becomes the nearest multiple of them and of the power of two that batch and ranks share, or
    of a smaller one where that is more than half of the batch.

    Examples
    --------
    >>> adapted_batch(1024, 512), adapted_batch(1024, 384), adapted_batch(1000, 384), adapted_batch(1024, 10240)
    (1024, 1152, 1008, 960)
    """
    odd = n_ranks // (n_ranks & -n_ranks)
    if batch % odd == 0:
        return batch
    shared = gcd(batch & -batch, n_ranks & -n_ranks)
    while shared > 1 and odd * shared > batch / 2:
        shared //= 2
    unit = odd * shared
    return unit * max(1, round(batch / unit))
