"""Speculative decoding: accepted draft tokens, and sequences that advance by several tokens."""

from __future__ import annotations

import numpy as np

from clustersim.serving.decoding import DecodingSet
from clustersim.serving.sequence import Sequence


def mean_tokens(draft_tokens: int, acceptance: float) -> float:
    """Return the mean number of tokens that a step yields: the accepted draft tokens, and one of the model itself.

    ``(1 - a^(k + 1)) / (1 - a)`` for k draft tokens, each accepted with probability a after those before it were [1]_.

    References
    ----------
    .. [1] Y. Leviathan, M. Kalman and Y. Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023, equation 1.

    Examples
    --------
    >>> round(mean_tokens(3, 0.7), 3)
    2.533
    """
    return sum(acceptance**accepted for accepted in range(draft_tokens + 1))


def acceptance_of(draft_tokens: int, acceptance: float | None, mean: float | None) -> float:
    """Return the probability that a draft token is accepted, as given or from the mean number of tokens of a step."""
    if acceptance is not None:
        return acceptance
    assert mean is not None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if mean_tokens(draft_tokens, middle) < mean else (low, middle)
    return (low + high) / 2.0


class SpeculativeSet(DecodingSet):
    """Sequences that produce one to ``draft_tokens + 1`` tokens in a decode step, each by chance; every step is one event.

    Parameters
    ----------
    block_tokens
        Tokens of one block of the KV cache.
    draft_tokens
        Tokens that are verified in a step beside the last one.
    acceptance
        Probability that one is accepted after those before it were.
    generator
        Source of chance.
    """

    __slots__ = ("_generator", "_shares")

    def __init__(self, block_tokens: int, draft_tokens: int, acceptance: float, generator: np.random.Generator) -> None:
        super().__init__(block_tokens)
        self.tokens_per_step = draft_tokens + 1
        self._generator = generator
        accepted = np.array([acceptance**count for count in range(draft_tokens + 2)])
        accepted[-1] = 0.0
        self._shares = np.cumsum(accepted[:-1] - accepted[1:])
        """Probability that a step yields at most 1, 2, ... tokens."""

    @property
    def longest_context(self) -> int:
        """Tokens in the KV cache of the longest."""
        return max((each.n_cached for each in self.members), default=0)

    def add(self, sequence: Sequence) -> None:
        """Decode a sequence until it has all its tokens."""
        sequence.offset = -(-sequence.n_cached // self._block_tokens)  # blocks that it holds
        self.members[sequence] = None
        self.context_tokens += sequence.n_cached

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out before it is complete."""
        self._take_out(sequence)

    def n_to_next_end(self) -> int:
        """Return 1: the tokens of a step are not known in advance."""
        return 1

    def n_blocks_next(self) -> int:
        """Return how many further blocks the next step needs, all draft tokens included."""
        return sum(self.n_wanted(each) for each in self.members)

    def n_wanted(self, sequence: Sequence) -> int:
        """Return how many further blocks a sequence needs in the next step."""
        return max(0, -(-(sequence.n_cached + self.tokens_per_step) // self._block_tokens) - sequence.offset)

    def advance(self, n_steps: int) -> list[Sequence]:
        """Let all decode for a step, and return those that are then complete."""
        assert n_steps == 1
        self.n_steps += 1
        members = list(self.members)
        found = np.searchsorted(self._shares, self._generator.random(len(members)), side="right") + 1
        done: list[Sequence] = []
        for sequence, drawn in zip(members, found.tolist(), strict=True):
            sequence.offset += self.n_wanted(sequence)
            produced = min(drawn, sequence.n_left)
            sequence.n_cached += produced
            sequence.n_left -= produced
            self.context_tokens += produced
            if not sequence.n_left:
                done.append(sequence)
        for sequence in done:
            self._take_out(sequence)
        return done

    def n_held(self, sequence: Sequence) -> int:
        """Return the blocks that a sequence held when it was taken out."""
        return max(sequence.offset, -(-sequence.n_cached // self._block_tokens))

    def n_to_produce(self, sequence: Sequence) -> int:
        """Return the tokens that a decoding sequence has still to produce."""
        return sequence.n_left

    def _take_out(self, sequence: Sequence) -> None:
        del self.members[sequence]
        self.context_tokens -= sequence.n_cached
