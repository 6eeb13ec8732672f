"""Records of the operations of the ranks of a job, whatever wrote them down."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
HOST: Final = "host"
"""Operation of the time between the last dependency of a kernel and its start."""

NOT_A_NAME: Final = re.compile(r"\W+")
"""Characters of a class of kernels that the name of an operation in a case cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One operation of one rank; times in seconds by the clock of its rank."""

    step: int
    rank: int
    stage: int
    operation: str
    """Kind of operation, by which cases name it."""
    computes: bool
    shared: Hashable
    """Equal in the records of one operation of a step: those of the ranks of a collective, and of both ends of a send."""
    alike: Hashable
    """Equal in operations that last the same where no rank is a straggler."""
    stream: str
    start_s: float
    end_s: float
    group: Hashable = None
    """Name of the process group of a collective, or of the two ends of a send."""
    is_send: bool = False
    n_ends: int = 0
    """Records that its operation has; 0 for those that are there."""
    title: str = ""
    """Place of the operation, for errors."""
    after: tuple[int, ...] | None = None
    """Places among all records of those that it waits for; None where times say it."""

    @property
    def duration_s(self) -> float:
        """From its start to its end, in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecords:
    """Records of some steps of a job."""

    records: tuple[JobRecord, ...]
    n_ranks: int
    """Ranks of the job, of which some may have no records."""
    overlap_s: float
    """By how much an operation may begin before the one that it waits for has ended, in seconds."""
    delays: bool
    """Whether the time between what an operation waits for and its start is replayed."""
    whole_steps: bool
    """Whether every step has the same operations."""
    clocks: Literal["one", "of ranks", "none"]
    """Clocks of starts and ends: one for all ranks, one for each, or none, so that they give an order only."""
    notes: Sequence[str] = ()
    """Remarks on gaps and assumptions."""
