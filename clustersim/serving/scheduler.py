"""The scheduler of one replica: who is computed in the next step, and whom the KV cache has room for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from clustersim.serving.batch import Chunk, StepBatch
from clustersim.serving.decoding import DecodingSet
from clustersim.serving.kv_cache import BlockPool
from clustersim.serving.prompt_waits import PromptWaits
from clustersim.serving.rules import EngineRules
from clustersim.serving.sequence import Sequence

_KEPT: Final = 0.7
"""Share of the remaining outputs that ``estimated`` admission keeps free at first."""
_LEAST_KEPT: Final = 0.098
_FALL_STEPS: Final = 600
"""Decode steps over which it falls from the one to the other."""
_MOST_OUTPUT: Final = 4096
"""Output of one request that it regards at most."""
_RETRACT_STEPS: Final = 20
"""Decode steps for which there must be room after a preemption."""


@dataclass(slots=True)
class EngineStep:
    """An engine step that has been scheduled."""

    chunks: list[tuple[Sequence, int]]
    decodes: bool


@dataclass(slots=True)
class Scheduler:
    """Queue, batch and KV cache of one replica, under the rules of an engine."""

    rules: EngineRules
    pool: BlockPool
    decoding: DecodingSet
    waiting: deque[Sequence] = field(default_factory=deque[Sequence])
    running: dict[Sequence, None] = field(default_factory=dict[Sequence, None])
    """Admitted, in order of admission."""
    prefilling: dict[Sequence, None] = field(default_factory=dict[Sequence, None])
    """Running sequences whose prompt is not computed yet."""
    n_steps: int = 0
    """Engine steps so far."""
    n_preemptions: int = 0
    n_reserved: int = 0
    """Blocks that running sequences hold or may still need, where that is guaranteed."""
    preempted: list[Sequence] = field(default_factory=list[Sequence])
    """Preempted in the last schedule."""
    joined: list[Sequence] = field(default_factory=list[Sequence])
    """Those that decode from the next decode step on."""
    produced: list[Sequence] = field(default_factory=list[Sequence])
    """Those whose prompt the last step completed, so that it gave them a token."""
    done: list[Sequence] = field(default_factory=list[Sequence])
    """Those that the last step gave their last token."""
    kept_fraction: float = _KEPT
    """Share of the remaining outputs that is kept free (``estimated`` admission)."""
    waits: PromptWaits | None = field(init=False, default=None)
    n_held_steps: int = 0
    """Steps for which the prompts of the queue still wait for others, if none comes."""
    _taken: bool = False
    """Whether decoding sequences hold the blocks that they need in the step being scheduled."""

    def __post_init__(self) -> None:
        rules = self.rules
        if rules.batch_wait or rules.rank_wait or rules.receive_interval > 1:
            self.waits = PromptWaits(rules.batch_wait, rules.rank_wait, rules.receive_interval)

    def enqueue(self, sequence: Sequence, n_running: int | None = None) -> None:
        """Put a request at the end of the queue.

        Parameters
        ----------
        n_running
            Number of the step that runs, counted from those that are accounted for; None while none does.
        """
        if n_running is not None and (self.rules.asynchronous or self.waits is not None):
            # Where engines schedule ahead, the next step is scheduled already.
            sequence.ready_step = self.n_steps + n_running + (2 if self.rules.asynchronous else 1)
        if self.waits is not None:
            self.waits.place(sequence)
        self.waiting.append(sequence)

    def schedule(self) -> EngineStep | None:
        """Return the next step, for which blocks are then held; None where there is nothing to do."""
        self.preempted.clear()
        self._taken = False
        self.n_held_steps = 0
        if not self.running:
            self.kept_fraction = _KEPT
        if self.rules.mixes:
            return self._mixed()
        chunks: list[tuple[Sequence, int]] = []
        budget = self._continue(chunks, self.rules.max_batched_tokens)
        if not self.preempted:
            self._admit(chunks, budget)
        if not chunks:
            self._make_room()
        return EngineStep(chunks, decodes=not chunks) if chunks or self.decoding.members else None

    def batch(self, step: EngineStep) -> StepBatch:
        """Return the tokens of a step."""
        decoding = self.decoding
        chunks = tuple([Chunk(n_tokens, sequence.n_cached) for sequence, n_tokens in step.chunks]) if step.chunks else ()
        if not step.decodes:
            return StepBatch(chunks, 0, 0, 0)
        return StepBatch(chunks, len(decoding.members), decoding.context_tokens, decoding.longest_context, decoding.tokens_per_step)

    def stretch(self) -> int:
        """Return the number of steps, from the scheduled one, that only decode: no sequence ends before the last, and blocks suffice."""
        most = self.decoding.n_to_next_end()
        if self.waiting:
            if self.rules.admission == "estimated":
                return 1  # what is kept free for the others shrinks with every step
            ready = self.waiting[0].ready_step - self.n_steps
            if ready > 0:
                most = min(most, ready)
            if self.n_held_steps:
                most = min(most, self.n_held_steps)
        return 1 + self.decoding.n_affordable_steps(most - 1, self.pool.n_free)

    def complete(self, step: EngineStep, n_steps: int) -> None:
        """Account for steps that are done, and fill ``produced`` and ``done``; ``n_steps`` is one, or more for a stretch."""
        self.n_steps += n_steps
        self.produced.clear()
        if step.decodes:
            self.joined.clear()
            if n_steps > 1:
                self.pool.take(self.decoding.n_blocks_behind(n_steps))
            if self.rules.admission == "estimated":
                self.kept_fraction = max(_LEAST_KEPT, self.kept_fraction - n_steps * (_KEPT - _LEAST_KEPT) / _FALL_STEPS)
            self.done = self.decoding.advance(n_steps)
        else:
            self.done = []
        if self.waits is not None and step.chunks:
            self.waits.look(self.n_steps)
        for sequence, n_tokens in step.chunks:
            sequence.n_cached += n_tokens
            if self.pool.caches and sequence.prefix:
                self.pool.publish(sequence)
            if sequence.n_cached == sequence.n_target:
                self._produce(sequence)
        for sequence in self.done:
            sequence.n_blocks = self.decoding.n_held(sequence) + self.pool.state_blocks - sequence.n_shared_blocks
            del self.running[sequence]
            self.n_reserved -= sequence.n_reserved
            self.pool.release(sequence)
            if self.waits is not None:
                self.waits.leave(sequence)

    def _produce(self, sequence: Sequence) -> None:
        """Let a sequence whose prompt is computed have its next token."""
        del self.prefilling[sequence]
        self.produced.append(sequence)
        sequence.n_left -= 1
        if sequence.n_left:
            self.decoding.add(sequence)
            self.joined.append(sequence)
        else:
            self.done.append(sequence)

    def _mixed(self) -> EngineStep | None:
        chunks: list[tuple[Sequence, int]] = []
        decoding = self.decoding
        if decoding.members:
            self._make_room()
        budget = self.rules.max_batched_tokens - len(decoding.members) * decoding.tokens_per_step
        if self.prefilling:
            budget = self._continue(chunks, budget)
        if self.waiting and not self.preempted:
            self._admit(chunks, budget)
        decodes = bool(self.decoding.members)
        return EngineStep(chunks, decodes) if chunks or decodes else None

    def _make_room(self) -> None:
        """Take the block that each decoding sequence needs in this step, and preempt until there are enough."""
        if wanted := self.decoding.n_blocks_next():
            if wanted > self.pool.n_free:
                while self.decoding.n_blocks_next() > self.pool.n_free:
                    self.preempt(self._victim())
                if self.rules.admission == "estimated":
                    self._retract()
                wanted = self.decoding.n_blocks_next()
            self.pool.take(wanted)
        self._taken = True

    def _victim(self) -> Sequence:
        if self.rules.admission == "estimated":
            return min(self.decoding.members, key=lambda each: (each.n_output - self.decoding.n_to_produce(each), -each.n_input))
        return next(reversed(self.running))

    def _retract(self) -> None:
        """Continue until a number of further steps have room, and keep more free from now on."""
        n_steps, members = _RETRACT_STEPS, self.decoding.members
        while len(members) > 1 and len(members) * n_steps > self.pool.n_free * self.pool.block_tokens:
            self.preempt(self._victim())
        asked = sum(each.n_output for each in members)
        produced = asked - sum(self.decoding.n_to_produce(each) for each in members) + n_steps * len(members)
        self.kept_fraction = min(1.0, produced / asked) if asked else 1.0

    def preempt(self, sequence: Sequence) -> None:
        """Throw the KV cache of a sequence away; it goes back to the queue, and is computed again."""
        if sequence in self.decoding.members:
            if self._taken:
                self.pool.n_used -= self.decoding.n_wanted(sequence)
            self.decoding.remove(sequence)
            sequence.n_blocks = self.decoding.n_held(sequence) + self.pool.state_blocks - sequence.n_shared_blocks
        else:
            self.prefilling.pop(sequence, None)
        del self.running[sequence]
        self.pool.release(sequence)
        sequence.n_cached = 0
        sequence.n_target = sequence.n_input + sequence.n_output - sequence.n_left
        sequence.ready_step = 0
        if self.rules.admission == "estimated":
            self.waiting.append(sequence)
        else:
            self.waiting.appendleft(sequence)
        self.preempted.append(sequence)
        self.n_preemptions += 1

    def _continue(self, chunks: list[tuple[Sequence, int]], budget: int) -> int:
        """Schedule the next chunks of started prompts; return the rest of the token budget."""
        for sequence in list(self.prefilling) if self.prefilling else ():
            if sequence not in self.prefilling:
                continue
            n_tokens = min(sequence.n_target - sequence.n_cached, budget)
            if n_tokens <= 0:
                break
            while not self.pool.grow(sequence, sequence.n_cached + n_tokens):
                victim = next(reversed(self.running))
                self.preempt(victim)
                if victim is sequence:
                    return 0
            chunks.append((sequence, n_tokens))
            budget -= n_tokens
        return budget

    def _admit(self, chunks: list[tuple[Sequence, int]], budget: int) -> None:
        """Take requests from the queue, in order, as long as budget, slots and blocks suffice."""
        rules, waiting = self.rules, self.waiting
        n_before, ahead = len(chunks), bool(self.running)
        if rules.admission == "batch" and self.running:
            return
        horizon = self.n_steps
        if self.waits is not None and waiting and len(self.running) < rules.max_num_seqs:
            horizon = self._look(self.waits, budget)
            if self.n_held_steps:
                return
        while waiting and budget > 0 and len(self.running) < rules.max_num_seqs:
            sequence = waiting[0]
            if ahead and sequence.ready_step > horizon:  # an engine with nothing to do looks at once
                return
            n_tokens = self._place(sequence, budget, alone=len(chunks) == n_before)
            if n_tokens is None:
                return
            waiting.popleft()
            if self.waits is not None:
                self.waits.begin(self.n_steps)
            self.running[sequence] = None
            if n_tokens:
                self.prefilling[sequence] = None
                chunks.append((sequence, n_tokens))
                budget -= n_tokens
            else:  # its KV cache has come from elsewhere
                self.decoding.add(sequence)
                self.joined.append(sequence)
                if rules.mixes:  # otherwise room is made for all that decode, behind this
                    self.pool.take(self.decoding.n_wanted(sequence))

    def _look(self, waits: PromptWaits, budget: int) -> int:
        """Look for new requests; return the step in which they must have been there, and note the steps for which they still wait."""
        step, n_decode, rules = self.n_steps, len(self.decoding.members), self.rules
        if not n_decode:
            waits.look(step)
        horizon = waits.last_look(step)
        prompts: list[Sequence] = []
        n_slots, n_free, coming = rules.max_num_seqs - len(self.running), self.pool.n_blocks - self.n_reserved, 0
        for sequence in self.waiting:
            if self.running and sequence.ready_step > horizon:
                coming = max(sequence.ready_step, horizon + waits.interval) - step
                break
            if rules.rank_wait is None:  # ranks have budgets of their own, and one prompt of each is enough
                n_tokens = self._chunk_tokens(sequence.n_target - sequence.n_cached, budget, alone=not prompts)
                n_free -= self.pool.blocks(sequence.n_input + sequence.n_output)  # as ``guaranteed`` admission has them
                if n_tokens is None or n_free < 0 or budget <= 0 or len(prompts) == n_slots:
                    break
                budget -= n_tokens
            prompts.append(sequence)
        left = waits.steps_left(step, prompts, n_decode, rules.max_batched_tokens) if prompts else coming
        self.n_held_steps = min(left, coming) if coming else left
        return horizon

    def _chunk_tokens(self, n_new: int, budget: int, *, alone: bool) -> int | None:
        """Return the tokens of the first chunk of a prompt; None where the rest of the budget is too small."""
        rules = self.rules
        n_tokens = min(n_new, budget)
        if n_tokens < n_new and not rules.chunked_prefill:
            return n_new if alone and budget >= rules.max_batched_tokens else None
        return n_tokens

    def _place(self, sequence: Sequence, budget: int, *, alone: bool) -> int | None:
        """Hold blocks for the first chunk of a request and return its tokens; None where there is no room."""
        pool = self.pool
        if sequence.n_cached:
            # One block more: it may begin a new one in this step.
            return 0 if self._has_room(sequence, pool.n_free - 1, 0) and pool.grow(sequence, sequence.n_cached) else None
        n_hit = pool.lookup(sequence) if pool.caches and sequence.prefix else 0
        n_cached = pool.n_hit_tokens(sequence, n_hit) if n_hit else 0
        n_new = sequence.n_target - n_cached
        n_tokens = self._chunk_tokens(n_new, budget, alone=alone)
        if n_tokens is None:
            return None
        free = pool.n_free_beside(sequence, n_hit) if n_hit else pool.n_free
        kept = pool.n_kept_tokens(sequence) if not n_hit and pool.keeps(sequence) else 0
        if not self._has_room(sequence, free, n_cached, kept + min(n_tokens, n_new - kept)):
            return None
        if sequence.prefix and pool.caches and sequence.last_tick < 0:
            pool.n_prefix_asked += len(sequence.prefix)
            pool.n_prefix_hit += n_hit
        if n_hit:
            pool.share(sequence, n_hit)
        elif pool.keeps(sequence):
            n_cached = pool.reuse(sequence)
            n_tokens = min(n_tokens, sequence.n_target - n_cached)
        sequence.n_cached = n_cached
        grown = pool.grow(sequence, n_cached + n_tokens)
        assert grown
        return n_tokens

    def _has_room(self, sequence: Sequence, n_free: int, n_cached: int, n_tokens: int = 0) -> bool:
        """Return whether a request may be admitted to a number of free blocks, and reserve its guaranteed blocks."""
        blocks = self.pool.blocks
        held = n_cached // self.pool.block_tokens
        match self.rules.admission:
            case "first_chunk":
                return blocks(n_cached + n_tokens) - held <= n_free
            case "prompt":
                return blocks(sequence.n_target) - held <= n_free
            case "estimated":
                if not self.running:  # nobody is there to wait for
                    return blocks(sequence.n_target + sequence.n_left) - held <= n_free
                return self._estimated_tokens(sequence) - n_cached < n_free * self.pool.block_tokens
            case "guaranteed" | "batch":
                whole = blocks(sequence.n_input + sequence.n_output)
                if self.n_reserved + whole > self.pool.n_blocks:
                    return False
                sequence.n_reserved = whole
                self.n_reserved += whole
                return True

    def _estimated_tokens(self, sequence: Sequence) -> float:
        """Return the tokens that must be free for a request: its own, and the expected output of the running ones."""
        to_come = sum(min(self.decoding.n_to_produce(each), _MOST_OUTPUT) for each in self.decoding.members) * self.kept_fraction
        chunked = sum(each.n_target - each.n_cached + min(each.n_left, _MOST_OUTPUT) for each in self.prefilling)
        return sequence.n_target + min(sequence.n_left, _MOST_OUTPUT) + to_come + chunked
