"""Throughput of a deployment whose batches are always full, in closed form: what a rate of requests is held against."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.apps.serve.deployment import BuiltPool, BuiltServing
from clustersim.serving.batch import Chunk, StepBatch
from clustersim.serving.speculation import acceptance_of, mean_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeanRequest:
    """Request of the mean lengths, in tokens."""

    n_cached: int
    """Tokens of its prompt that are in the cache."""
    n_new: int
    n_output: float
    tokens_each: int
    """Tokens that it computes in a decode step."""
    yielded: float
    """Tokens that such a step yields."""

    def prompt_s(self, pool: BuiltPool) -> float:
        """Return the time of a replica for its prompt, computed together with as many others as a step takes."""
        budget = pool.rules.max_batched_tokens
        n_tokens = min(self.n_new, budget)
        together = max(1, min(budget // n_tokens, pool.rules.max_num_seqs))
        step_s = pool.model.step_s(StepBatch((Chunk(n_tokens, self.n_cached + (self.n_new - n_tokens) // 2),) * together, 0, 0, 0))
        return step_s / together * self.n_new / n_tokens

    def decode_s(self, pool: BuiltPool) -> float:
        """Return the time of a replica for its further tokens, its share of a full batch."""
        context = int(self.n_cached + self.n_new + self.n_output / 2.0)
        pp = pool.layout.pp
        n = max(1, min(pool.rules.max_num_seqs, pool.kv_tokens // context) // pp)
        step_s = pool.model.step_s(StepBatch((), n, n * context, context, self.tokens_each))
        return (self.n_output - 1.0) / self.yielded * step_s / n


def full_load_tokens_per_s(built: BuiltServing, prefix_hit_fraction: float) -> float:
    """Return the output tokens a second of full batches of requests of the mean lengths; of two pools, those of the slower one.

    A replica takes the time of a prompt, and a share of the decode steps, for each request. Steps that have both are counted apart,
    so that the true rate is somewhat higher.

    Parameters
    ----------
    prefix_hit_fraction
        Share of the tokens of prompts that the prefix cache has.
    """
    requests, speculative = built.asked.requests, built.scenario.spec.serving.speculative
    n_input, n_output = float(requests.input_tokens.mean()), float(requests.output_tokens.mean())
    n_cached = int(n_input * prefix_hit_fraction)
    draft_tokens, yielded = 0, 1.0
    if speculative is not None:
        draft_tokens = speculative.draft_tokens
        yielded = mean_tokens(draft_tokens, acceptance_of(draft_tokens, speculative.acceptance, speculative.mean_tokens))
    mean = _MeanRequest(
        n_cached=n_cached, n_new=max(1, round(n_input) - n_cached), n_output=n_output, tokens_each=1 + draft_tokens, yielded=yielded
    )
    first, last = built.pools[0], built.pools[-1]
    if first is last:
        return n_output * _replicas(first) / (mean.prompt_s(first) + mean.decode_s(first))
    decode_s = mean.decode_s(last)
    prefilled = _replicas(first) / mean.prompt_s(first)
    return n_output * (min(prefilled, _replicas(last) / decode_s) if decode_s else prefilled)


def _replicas(pool: BuiltPool) -> float:
    """Return the batches under way in a pool, slow replicas as the share of one that they are worth."""
    return pool.layout.pp * sum(1.0 / slowdown for slowdown in pool.slowdowns)
