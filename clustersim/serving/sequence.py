"""A request in a replica."""

from __future__ import annotations

from collections.abc import Sequence as Items


class Sequence:
    """Tokens of one request: how many there are, are cached, and have been produced.

    Parameters
    ----------
    index
        Number of the request.
    n_input
        Tokens of its prompt.
    n_output
        Tokens that it asks for.
    prefix
        Ids of the blocks of its prompt that others may share, in order; each id stands for the content up to there.
    """

    __slots__ = (
        "index",
        "last_tick",
        "n_blocks",
        "n_cached",
        "n_input",
        "n_left",
        "n_output",
        "n_reserved",
        "n_shared",
        "n_shared_blocks",
        "n_target",
        "offset",
        "prefix",
        "rank",
        "ready_step",
        "steps_end",
    )

    def __init__(self, index: int, n_input: int, n_output: int, prefix: Items[int] = ()) -> None:
        self.index = index
        self.n_input = n_input
        self.n_output = n_output
        self.prefix = prefix
        self.n_left = n_output
        """Tokens that are still to be produced."""
        self.n_cached = 0
        """Tokens in the KV cache."""
        self.n_target = n_input
        """Tokens that must be in the KV cache before the next token is produced: the prompt, after a preemption also the output so far."""
        self.n_blocks = 0
        """Its blocks."""
        self.n_shared = 0
        """Entries of ``prefix`` that it holds together with others."""
        self.n_shared_blocks = 0
        """Their blocks."""
        self.offset = 0
        """Tokens in the KV cache less the decode steps of the replica, constant while it decodes."""
        self.steps_end = 0
        """Decode step of the replica after which it is complete."""
        self.ready_step = 0
        """Engine step from which on it may be admitted."""
        self.last_tick = -1
        """Time of its last token; negative before the first."""
        self.rank = 0
        """Rank of attention data parallelism that it is on, where ranks wait for each other."""
        self.n_reserved = 0
        """Blocks reserved for it, where the engine guarantees no eviction."""
