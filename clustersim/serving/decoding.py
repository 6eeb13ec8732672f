"""The sequences that decode: what they hold, and when the next is complete."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import attrgetter

from clustersim.serving.sequence import Sequence


class DecodingSet:
    """Sequences that produce one token each in every decode step.

    Each operation takes constant or logarithmic time, so that a stretch of steps costs as much as one.

    Parameters
    ----------
    block_tokens
        Tokens of one block of the KV cache.
    """

    __slots__ = ("_block_tokens", "_by_residue", "_ends", "_longest", "context_tokens", "members", "n_steps", "tokens_per_step")

    def __init__(self, block_tokens: int) -> None:
        self.members: dict[Sequence, None] = {}
        """In order of admission."""
        self.context_tokens = 0
        """Tokens in the KV cache over all of them."""
        self.n_steps = 0
        """Decode steps of the replica so far."""
        self.tokens_per_step = 1
        """Tokens that each sequence computes in a step."""
        self._block_tokens = block_tokens
        self._by_residue = [0] * block_tokens
        self._ends: list[tuple[int, int, Sequence]] = []
        self._longest: Sequence | None = None

    @property
    def longest_context(self) -> int:
        """Tokens in the KV cache of the longest."""
        if self._longest is None:
            if not self.members:
                return 0
            self._longest = max(self.members, key=attrgetter("offset"))
        return self._longest.offset + self.n_steps

    def add(self, sequence: Sequence) -> None:
        """Decode a sequence until it has all its tokens."""
        sequence.offset = sequence.n_cached - self.n_steps
        sequence.steps_end = self.n_steps + sequence.n_left
        self.members[sequence] = None
        self.context_tokens += sequence.n_cached
        self._by_residue[sequence.offset % self._block_tokens] += 1
        heappush(self._ends, (sequence.steps_end, sequence.index, sequence))
        if len(self.members) == 1 or (self._longest is not None and sequence.offset > self._longest.offset):
            self._longest = sequence

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out before it is complete."""
        sequence.n_left = sequence.steps_end - self.n_steps
        self._take_out(sequence)
        sequence.steps_end = -1

    def n_to_next_end(self) -> int:
        """Return the number of steps until the next sequence is complete."""
        while self._ends[0][0] != self._ends[0][2].steps_end or self._ends[0][2] not in self.members:
            heappop(self._ends)
        return self._ends[0][0] - self.n_steps

    def n_blocks_next(self) -> int:
        """Return how many further blocks the next step needs."""
        return self._by_residue[-self.n_steps % self._block_tokens]

    def n_affordable_steps(self, most: int, n_free: int) -> int:
        """Return the number of steps after the next one with enough free blocks, up to a limit."""
        per_round = len(self.members)
        if per_round * (most // self._block_tokens + 1) <= n_free:
            return most
        rounds = min(most // self._block_tokens, n_free // per_round)
        n_steps, free = rounds * self._block_tokens, n_free - rounds * per_round
        while n_steps < most:
            free -= self._by_residue[-(self.n_steps + 1 + n_steps) % self._block_tokens]
            if free < 0:
                break
            n_steps += 1
        return n_steps

    def n_blocks_behind(self, n_steps: int) -> int:
        """Return how many further blocks a number of steps need behind the next one, which is the first of them."""
        size = self._block_tokens
        rounds, rest = divmod(n_steps - 1, size)
        # Residues of the steps that are left over, from the last to the first: a slice of the table, seen twice.
        last = -(self.n_steps + rest) % size
        found = sum(self._by_residue[last : last + rest]) if rest else 0
        return rounds * len(self.members) + found + (sum(self._by_residue[: last + rest - size]) if last + rest > size else 0)

    def n_wanted(self, sequence: Sequence) -> int:
        """Return how many further blocks a sequence needs in the next step."""
        return int((sequence.offset + self.n_steps) % self._block_tokens == 0)

    def advance(self, n_steps: int) -> list[Sequence]:
        """Decode all sequences for a number of steps, and return the complete ones, in order of admission where it matters."""
        self.n_steps += n_steps
        self.context_tokens += n_steps * len(self.members)
        done: list[Sequence] = []
        ends = self._ends
        while ends and ends[0][0] <= self.n_steps:
            end, _, sequence = heappop(ends)
            if end == sequence.steps_end and sequence in self.members:
                done.append(sequence)
                sequence.steps_end = -1  # the heap may have it twice, where it was preempted and came back without a step in between
        for sequence in done:
            sequence.n_left = 0
            self._take_out(sequence)
        return done

    def n_held(self, sequence: Sequence) -> int:
        """Return the blocks that a sequence held when it was taken out."""
        return -(-sequence.n_cached // self._block_tokens)

    def n_to_produce(self, sequence: Sequence) -> int:
        """Return the tokens that a decoding sequence has still to produce."""
        return sequence.steps_end - self.n_steps

    def _take_out(self, sequence: Sequence) -> None:
        del self.members[sequence]
        sequence.n_cached = sequence.offset + self.n_steps
        self.context_tokens -= sequence.n_cached
        self._by_residue[sequence.offset % self._block_tokens] -= 1
        if sequence is self._longest:
            self._longest = None
