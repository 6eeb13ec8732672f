"""The state of prompts that wait for others."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from clustersim.serving.rules import BatchWait, RankWait
from clustersim.serving.sequence import Sequence


@dataclass(slots=True)
class PromptWaits:
    """Steps for which the prompts of one replica wait for others, so that fewer steps have prompts beside decoding sequences.

    References
    ----------
    .. [1] NVIDIA/TensorRT-LLM, ``tensorrt_llm/_torch/pyexecutor/py_executor.py`` (``_waiting_requests``, ``_balance_adp_requests``) and
       ``docs/source/blogs/tech_blog/blog10_ADP_Balance_Strategy.md``.
    .. [2] sgl-project/sglang, ``SchedulerRecvSkipper``, for which a step with prompts counts as 1,000.
    """

    batch: BatchWait | None
    ranks: RankWait | None
    interval: int = 1
    """Decode steps between two looks for new requests; there is one behind each step with prompts."""
    _looked: int = 0
    """Step of the last look that is not one of these."""
    _first: int = -1
    """Step in which the first of the prompts waited; negative while none does."""
    _since: int = 0
    """Step from which those are counted in which some rank had no prompt."""
    _met: int = -1
    """Step from which on each rank had one; negative before."""
    _n_of_rank: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._n_of_rank = [0] * (self.ranks.n_ranks if self.ranks else 1)

    def place(self, sequence: Sequence) -> None:
        """Give a request to the rank with the fewest."""
        sequence.rank = min(range(len(self._n_of_rank)), key=self._n_of_rank.__getitem__)
        self._n_of_rank[sequence.rank] += 1

    def leave(self, sequence: Sequence) -> None:
        """Take a request that is done from its rank."""
        self._n_of_rank[sequence.rank] -= 1

    def look(self, step: int) -> None:
        """Look for new requests in a step, though the interval is not over."""
        self._looked = step

    def last_look(self, step: int) -> int:
        """Return the last step, up to a step, in which there was a look for new requests."""
        return step - (step - self._looked) % self.interval

    def begin(self, step: int) -> None:
        """Count anew: prompts begin in a step."""
        self._first = self._met = -1
        self._since = step

    def steps_left(self, step: int, prompts: Items[Sequence], n_decode: int, budget: int) -> int:
        """Return the steps for which prompts, of which there is one at least, still wait; 0 where they may begin."""
        left = 0
        if self.batch is not None and n_decode:
            self._first = step if self._first < 0 else self._first
            if sum(each.n_target for each in prompts) + n_decode < self.batch.budget_share * budget:
                left = self._first + self.batch.steps - step
        wait = self.ranks
        if wait is not None and n_decode >= wait.n_ranks:
            if len({each.rank for each in prompts}) == wait.n_ranks:
                self._met = step if self._met < 0 else self._met
                left = max(left, self._met + wait.further_steps - step)
            else:
                left = max(left, (self._since - step) % wait.steps if step > self._since else wait.steps)
        return max(left, 0)
