"""The block pool of a KV cache, and the prefixes that stay in it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import takewhile

from clustersim.serving.sequence import Sequence


@dataclass(slots=True)
class BlockPool:
    """Blocks of the KV cache of one replica; without prefix caching a count is all there is."""

    n_blocks: int
    block_tokens: int
    """Tokens of one block."""
    state_blocks: int = 0
    """Blocks that a sequence holds for its states."""
    n_used: int = 0
    """Blocks that sequences hold."""
    peak_used: int = 0
    caches: bool = False
    """Whether prefixes stay in the cache."""
    prefix_block_tokens: int = 512
    """Tokens of one id of a prefix."""
    n_prefix_asked: int = 0
    """Ids of the prompts that were admitted."""
    n_prefix_hit: int = 0
    """Those whose tokens were in the cache."""
    _held: dict[int, int] = field(default_factory=dict[int, int])
    """Number of sequences that hold each cached id."""
    _sizes: dict[int, int] = field(default_factory=dict[int, int])
    """Whole blocks of each cached id."""
    _idle: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])
    """Unused entries, the least recently used first, with their blocks: ids, and as negative numbers those left by sequences."""
    _n_idle: int = 0

    @property
    def n_free(self) -> int:
        """Free blocks; their content is evicted when they are taken."""
        return self.n_blocks - self.n_used

    @property
    def room_tokens(self) -> int:
        """Tokens of the longest sequence that there is room for."""
        return max(0, self.n_blocks - self.state_blocks) * self.block_tokens

    def blocks(self, n_tokens: int) -> int:
        """Return the blocks of a sequence of a number of tokens."""
        return -(-n_tokens // self.block_tokens) + self.state_blocks

    def take(self, n_blocks: int) -> None:
        """Take further blocks; there must be enough free ones."""
        used = self.n_used = self.n_used + n_blocks
        if used > self.peak_used:  # noqa: PLR1730 - twice as fast as max(), in the innermost loop
            self.peak_used = used
        if self._n_idle > self.n_blocks - used:
            self._evict()

    def grow(self, sequence: Sequence, n_tokens: int) -> bool:
        """Take blocks for a sequence of a number of tokens; return whether there were enough."""
        more = -(-n_tokens // self.block_tokens) + self.state_blocks - sequence.n_shared_blocks - sequence.n_blocks
        if more <= 0:
            return True
        if more > self.n_blocks - self.n_used:
            return False
        sequence.n_blocks += more
        self.take(more)
        return True

    def lookup(self, sequence: Sequence) -> int:
        """Return how many entries of the prefix of a sequence are in the cache."""
        return len(list(takewhile(self._held.__contains__, sequence.prefix)))

    def n_free_beside(self, sequence: Sequence, n_hit: int) -> int:
        """Return the free blocks beside those that a sequence would take over with entries of its prefix."""
        revived = sum(self._sizes[entry] for entry in sequence.prefix[:n_hit] if not self._held[entry])
        return self.n_free - revived

    def n_hit_tokens(self, sequence: Sequence, n_hit: int) -> int:
        """Return the tokens of the first entries of a prefix, whole blocks; at least the last token is computed again."""
        whole = sum(self._sizes[entry] for entry in sequence.prefix[:n_hit])
        return min(whole, (sequence.n_target - 1) // self.block_tokens) * self.block_tokens

    def share(self, sequence: Sequence, n_hit: int) -> None:
        """Let a sequence hold the first entries of its prefix, which are in the cache."""
        for entry in sequence.prefix[:n_hit]:
            size = self._sizes[entry]
            if not self._held[entry]:
                self._n_idle -= self._idle.pop(entry)
                self.n_used += size
            self._held[entry] += 1
            sequence.n_shared_blocks += size
        sequence.n_shared = n_hit
        self.peak_used = max(self.peak_used, self.n_used)

    def keeps(self, sequence: Sequence) -> bool:
        """Return whether blocks of its preemption are left of a sequence."""
        return -1 - sequence.index in self._idle

    def reuse(self, sequence: Sequence) -> int:
        """Return to a sequence without prefix the blocks of its preemption, and return the number of their tokens."""
        n_tokens = self.n_kept_tokens(sequence)
        kept = self._idle.pop(-1 - sequence.index)
        self._n_idle -= kept
        sequence.n_blocks = kept
        self.take(kept)
        return n_tokens

    def n_kept_tokens(self, sequence: Sequence) -> int:
        """Return the tokens of the blocks that are left of the preemption of a sequence; at least the last is computed again."""
        return min(self._idle[-1 - sequence.index], (sequence.n_target - 1) // self.block_tokens) * self.block_tokens

    def publish(self, sequence: Sequence) -> None:
        """Publish the computed prefix entries of a sequence; those already published by another stay its own."""
        per_entry = self.prefix_block_tokens
        prefix = sequence.prefix
        while sequence.n_shared < len(prefix):
            position = sequence.n_shared
            end = min((position + 1) * per_entry, sequence.n_input)
            if sequence.n_cached < end or prefix[position] in self._held:
                return
            size = end // self.block_tokens - position * per_entry // self.block_tokens
            self._held[prefix[position]], self._sizes[prefix[position]] = 1, size
            sequence.n_shared += 1
            sequence.n_shared_blocks += size
            sequence.n_blocks -= size

    def release(self, sequence: Sequence) -> None:
        """Free the blocks of a sequence; with prefix caching they keep their tokens until they are taken.

        Blocks that nobody will ask for again, those of a request that is complete and has no prefix, are not remembered.
        """
        self.n_used -= sequence.n_blocks
        if self.caches and (sequence.n_left or sequence.prefix):
            self._leave(sequence)
        sequence.n_blocks = sequence.n_shared = sequence.n_shared_blocks = 0

    def _leave(self, sequence: Sequence) -> None:
        if (n_left := sequence.n_blocks - self.state_blocks) > 0:
            self._idle[-1 - sequence.index] = n_left
            self._n_idle += n_left
        # The end of a prefix goes first: without its beginning it is of no use.
        for entry in reversed(sequence.prefix[: sequence.n_shared]):
            self._held[entry] -= 1
            if not self._held[entry]:
                self.n_used -= self._sizes[entry]
                self._idle[entry] = self._sizes[entry]
                self._n_idle += self._sizes[entry]

    def _evict(self) -> None:
        room = self.n_blocks - self.n_used
        while (excess := self._n_idle - room) > 0:
            entry, n_blocks = next(iter(self._idle.items()))
            if entry < 0 and n_blocks > excess:
                self._idle[entry] = n_blocks - excess  # from the end: its beginning can be used again
                self._n_idle -= excess
                return
            del self._idle[entry]
            self._n_idle -= n_blocks
            if entry >= 0:
                del self._held[entry], self._sizes[entry]
