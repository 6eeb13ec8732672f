"""Timeline of a replay: spans on (rank class, stream), stored as columns; and text for lists of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from clustersim.trace.memory_curves import MemoryCurve
from clustersim.trace.step_log import StepLog

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

KINDS: Final = ("forward", "backward", "input", "weight", "recompute", "optimizer", "host", "load", "communication")
"""Kinds of span and of slice; ``communication`` spans carry their dimension in ``dimension``."""

PASS_KINDS: Final = ("forward", "backward", "input", "weight")
"""Kinds of span that are passes of a micro-batch; a backward pass may fall into the two last ones."""

DIMENSIONS: Final = ("tp", "pp", "dp", "ep", "cp", "ps", "offload")
"""Dimensions of communication: a parallel dimension, or transfers to the host and host work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that behave alike, replayed once."""

    name: str
    """Such as ``stage 2``."""
    stage: int
    representative_rank: int
    ranks: NDArray[np.int64] = field(compare=False)
    """All of them, ascending."""

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDetail:
    """One repeated slice inside a span: ``n`` times ``duration_s``, for display.

    A pass over 20 layers is one span; its detail is the ordered tuple of the slices that one repetition
    consists of, so that a trace can be unfolded to single layers without having been replayed so.
    """

    name: str
    kind: str
    dimension: str
    """Empty for compute."""
    duration_s: float
    bytes: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailBlock:
    """``repeat`` repetitions of ``slices`` in order."""

    name: str
    repeat: int
    slices: tuple[SpanDetail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stretch of time on one stream of one rank class."""

    rank_class: int
    stream: str
    """``compute``, ``send_forward``, ``recv_forward``, ``send_backward``, ``recv_backward``, ``dp``, ``dp_gather``; those of transfers that
    go another way than along the stages and around end in ``_up`` or ``_down``."""
    kind: str
    """``forward``, ``backward``, or ``input`` and ``weight`` where a backward pass falls into two; ``optimizer``, ``host``; or
    ``communication``, whose dimension stands in ``dimension``."""
    name: str
    start_s: float
    end_s: float
    dimension: str = ""
    """Parallel dimension for communication, empty otherwise."""
    micro_batch: int = -1
    chunk: int = -1
    """Model chunk on this stage (interleaving); -1 where it means nothing."""
    bytes: float = 0.0
    flops: float = 0.0
    compute_s: float = 0.0
    """Part of the span spent computing (a pass may contain tensor-parallel communication)."""
    recompute_s: float = 0.0
    """Part of the span spent on activation recomputation."""
    host_s: float = 0.0
    """Part of the span in which the accelerator waits for the host to issue work."""
    waiting_s: float = 0.0
    """Part of the span, and of its exposed time, in which ranks wait for those with more tokens."""
    exposed_s: tuple[tuple[str, float], ...] = ()
    """(dimension, seconds) of communication that runs inside the span and stops its computation."""
    hidden_s: tuple[tuple[str, float], ...] = ()
    """(dimension, seconds) of communication that runs inside the span beside its computation."""
    detail: tuple[DetailBlock, ...] = ()
    """Layers at the usual pace of the class, of a pass without contention."""
    step: int = 0
    """Step of the rank class, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Operations that were on a link at the same time."""

    names: tuple[str, ...]
    """Sorted; one name alone where an operation met another of its own kind. Operations that load the links alike, such as the
    all-gather and the reduce-scatter of a group, are one kind, whose name joins theirs by ``or``."""
    seconds: float
    """Seconds of a step; of several, the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Load of a group of equal links during the step; of several steps, the mean."""

    tier: str
    name: str
    """One representative link of the group."""
    n_links: int
    bandwidth_bytes_per_s: float
    bytes: float
    """Bytes per link."""
    busy_s: float
    """Time with anything in flight."""
    peak_utilisation: float
    """Highest instantaneous rate over the data-sheet bandwidth, in [0, 1]."""
    users: tuple[str, ...] = ()
    """Dimension and operation of what used it, in the order in which the program first calls them."""
    meetings: tuple[Meeting, ...] = ()
    """Longest first."""
    bytes_of: tuple[tuple[tuple[str, ...], float], ...] = field(default=(), compare=False)
    """Bytes that each of the users carried over one link; of several names, what loads the links alike, in one sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveChoice:
    """Algorithm and protocol of one kind of collective."""

    dimension: str
    op: str
    ranks: int
    """In one group; 2 for sends."""
    bytes: float
    """The tensor of one call, in full."""
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Progress of another job on the same cluster meanwhile."""

    name: str
    steps: int
    """Finished."""
    steps_s: float
    """Total duration of these tasks in sequence, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Statistics of the replay."""

    events: int
    """Events fired by SimPy; 0 where no operation shared a link, so that all durations were known."""
    n_tasks: int
    """Tasks with a computed start and end, with or without events; repeated tasks count once."""
    ranks: int
    rank_classes: int
    folded: bool
    wall_s: float
    passes: tuple[str, ...] = ()
    """Passes that made the replay shorter: ``fold``, ``collapse`` and ``repeat``."""
    told_apart: str = "all"
    """Which links told groups apart: ``all``; ``nodes``, those inside nodes and adapters only, where to tell apart all that differs on
    the fabric would take too many tasks; or ``none``. What was not told apart went at the pace of the slowest."""
    spread: float = 0.0
    """Largest relative change of the step when computation varies by a millionth; 0 where nothing is contended, and where it was not
    looked for."""
    events_per_s: float = field(init=False)
    """In a second of wall time."""

    def __post_init__(self) -> None:
        """Work out the rate."""
        object.__setattr__(self, "events_per_s", self.events / self.wall_s if self.wall_s > 0.0 else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One training step replayed, or several."""

    rank_classes: tuple[RankClass, ...]
    spans: Sequence[Span]
    """Sorted by (rank class, stream, start); those of a replay are made when they are looked at."""
    step_time_s: float
    """Seconds of a step; of several, the mean: ``duration_s`` divided by their number."""
    links: tuple[LinkUse, ...] = ()
    collectives: tuple[CollectiveChoice, ...] = ()
    """In the order in which the program first calls them."""
    jobs: tuple[JobProgress, ...] = ()
    engine: EngineStats = field(default_factory=lambda: EngineStats(events=0, n_tasks=0, ranks=0, rank_classes=0, folded=False, wall_s=0.0))
    steps: StepLog | None = None
    """Log of the steps; None where one step was requested."""
    memory: Sequence[MemoryCurve] = ()
    """Memory of a rank of each class, in their order."""
    alone: Timeline | None = field(default=None, compare=False, repr=False)
    """The same step without contention; None where it is not known."""

    @property
    def duration_s(self) -> float:
        """All that was recorded, from the start of the first step to the end of the last."""
        return self.step_time_s if self.steps is None else self.steps.duration_s

    def to_frame(self) -> pandas.DataFrame:
        """Return the spans as a tidy frame, one row per span.

        Returns
        -------
        pandas.DataFrame
            Columns ``rank_class, stream, kind, name, micro_batch, start_s, end_s, bytes, flops, dimension, chunk, step``;
            times in seconds from the start of the first step.
        """
        import pandas

        columns = (
            "rank_class",
            "stream",
            "kind",
            "name",
            "micro_batch",
            "start_s",
            "end_s",
            "bytes",
            "flops",
            "dimension",
            "chunk",
            "step",
        )
        names = [rank_class.name for rank_class in self.rank_classes]
        rows = [(names[span.rank_class], *(getattr(span, column) for column in columns[1:])) for span in self.spans]
        return pandas.DataFrame(rows, columns=list(columns))


_RUNS_SHOWN: Final = 3


def ranks_text(ranks: Sequence[int] | NDArray[np.int64]) -> str:
    """Return ranks as people write them, at most three stretches of them.

    Examples
    --------
    >>> ranks_text([3]), ranks_text([0, 1, 2, 4]), ranks_text(range(0, 12, 2))
    ('rank 3', 'ranks 0-2, 4', 'ranks 0, 2, 4 and 3 more')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    import numpy as np

    ordered = np.sort(np.asarray(ranks, dtype=np.int64), kind="stable")
    begins = np.concatenate(([0], np.flatnonzero(np.diff(ordered) != 1) + 1, [len(ordered)])).tolist()
    runs = [(ordered.item(first), ordered.item(end - 1)) for first, end in pairwise(begins[: _RUNS_SHOWN + 1])]
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    left = len(ordered) - begins[len(runs)]
    return f"ranks {shown}" + (f" and {left} more" if left else "")
