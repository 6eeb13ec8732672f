"""Runs at a rate: the throughput of full batches that they are held against, and a notice where they are too short."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log10
from typing import Final

import numpy as np

from clustersim.apps.serve.deployment import BuiltPool, BuiltServing
from clustersim.engine.bottlenecks import BoolArray
from clustersim.engine.serving_run import ServingRun
from clustersim.network.in_flight import TICK_S
from clustersim.notices import Flag
from clustersim.serving.batch import Chunk, StepBatch
from clustersim.serving.speculation import acceptance_of, mean_tokens
from clustersim.units.quantity import format_quantity


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
        held = context + pool.capacity.state_blocks * pool.rules.block_tokens
        n = max(1, min(pool.rules.max_num_seqs, pool.kv_tokens // held) // pp)
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


_SHORT: Final = 0.1
"""Share of the duration, beyond which ramp and drain are said."""
_LONG: Final = 0.05
"""Share of the duration that the advised number of requests leaves them."""


def asked_tokens_per_s(built: BuiltServing, run: ServingRun) -> float | None:
    """Return the output tokens that answered requests which come at a rate ask for in a second; None where all come at once."""
    rate, measured = _rate(built, run), _measured(run)
    # Those that are refused come too.
    return None if rate is None else rate * float(run.requests.output_tokens[measured].sum()) / (len(measured) - run.requests.n_warmup)


def _measured(run: ServingRun) -> BoolArray:
    return (np.arange(len(run.requests)) >= run.requests.n_warmup) & (run.log.done >= 0)


def _rate(built: BuiltServing, run: ServingRun) -> float | None:
    sent = run.log.sent[run.requests.n_warmup :]
    sending_s = float(sent.max() - sent.min()) * TICK_S if len(sent) else 0.0
    return (built.scenario.spec.requests.rate or (len(sent) - 1) / sending_s) if sending_s else None


def short_run_flag(built: BuiltServing, run: ServingRun, full_load_tokens_per_s: float) -> Flag | None:
    """Return a notice where ramp and drain are more than a tenth of the duration of a run whose requests come at a rate.

    Tokens are counted from the first request sent to the last token, as clients of benchmarks do. The drain is the time after the last
    request is sent. The ramp is the mean time of a request: until then fewer are under way than later. Warm-up shortens it.
    """
    log, n_warmup, measured = run.log, run.requests.n_warmup, _measured(run)
    rate, asked_for = _rate(built, run), asked_tokens_per_s(built, run)
    if rate is None or not asked_for:
        return None
    sent, done = log.sent[measured], log.done[measured]
    drain_s = max(0.0, float(done.max() - sent.max()) * TICK_S)
    ramp_s = max(0.0, (float((done - sent).mean()) - float(sent.min() - log.sent.min())) * TICK_S)
    share = min(1.0, (ramp_s + drain_s) / (float(sent.max() - sent.min()) * TICK_S + drain_s))
    if share <= _SHORT:
        return None
    asked = built.scenario.spec.requests
    long_run = min(asked_for, full_load_tokens_per_s)
    what = "the rate gives" if long_run == asked_for else "full batches give"
    count = _rounded_up(n_warmup + rate * ((ramp_s + drain_s) / _LONG - drain_s))
    if asked.trace is not None:
        remedy = f"a longer trace, of about {count} requests,"
    else:
        remedy = f"requests.count={count}" if asked.duration is None else f"requests.duration={ceil(count / rate)}s"
    message = (
        f"ramp ({format_quantity(ramp_s, 's')}) and drain ({format_quantity(drain_s, 's')}) are {100 * share:.0f} % of the duration,"
        f" which tokens/s are counted over; in the long run {what} {long_run:,.0f} output tokens/s;"
        f" {remedy} brings both below {100 * _LONG:.0f} %"
    )
    return Flag(code="short_run", message=message)


def _rounded_up(count: float) -> int:
    """Return a number of requests with two digits, not less."""
    unit = 10 ** max(0, int(log10(count)) - 1)
    return ceil(count / unit) * unit
