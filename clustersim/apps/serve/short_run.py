"""Runs at a rate that are so short that their first and last requests weigh on tokens a second and on cost."""

from __future__ import annotations

from math import ceil, log10
from typing import Final

import numpy as np

from clustersim.apps.serve.deployment import BuiltServing
from clustersim.engine.serving_run import ServingRun
from clustersim.measure.serving_metrics import ServingCost
from clustersim.network.in_flight import TICK_S
from clustersim.notices import Flag
from clustersim.units.quantity import format_quantity

_SHORT: Final = 0.1
"""Share of the duration, beyond which ramp and drain are said."""
_LONG: Final = 0.05
"""Share of the duration that the advised number of requests leaves them."""


def short_run_flag(built: BuiltServing, run: ServingRun, full_load_tokens_per_s: float, cost: ServingCost | None) -> Flag | None:
    """Return a notice where ramp and drain are more than a tenth of the duration of a run whose requests come at a rate.

    Tokens are counted from the first request sent to the last token, as clients of benchmarks do. The drain is the time after the last
    request is sent. The ramp is the mean time of a request: until then fewer are under way than later. Warm-up shortens it.
    """
    log, requests, n_warmup = run.log, run.requests, run.requests.n_warmup
    measured = (np.arange(len(requests)) >= n_warmup) & (log.done >= 0)
    if not measured.any():
        return None
    sent, done = log.sent[measured], log.done[measured]
    sending_s = float(sent.max() - sent.min()) * TICK_S
    if not sending_s:
        return None
    drain_s = max(0.0, float(done.max() - sent.max()) * TICK_S)
    ramp_s = max(0.0, (float((done - sent).mean()) - float(sent.min() - log.sent.min())) * TICK_S)
    duration_s = sending_s + drain_s
    share = min(1.0, (ramp_s + drain_s) / duration_s)
    if share <= _SHORT:
        return None
    asked = built.scenario.spec.requests
    rate = asked.rate or (len(sent) - 1) / sending_s
    n_output = float(requests.output_tokens[measured].sum())
    asked_for = rate * n_output / len(sent)
    long_run = min(asked_for, full_load_tokens_per_s)
    what = "the rate gives" if long_run == asked_for else "full batches give"
    usd = cost.per_million_output_tokens.usd if cost is not None else None
    money = "" if usd is None else f", at {usd * n_output / duration_s / long_run:.4g} USD for a million"
    count = _rounded_up(n_warmup + rate * ((ramp_s + drain_s) / _LONG - drain_s))
    if asked.trace is not None:
        remedy = f"a longer trace, of about {count} requests,"
    else:
        remedy = f"requests.count={count}" if asked.duration is None else f"requests.duration={ceil(count / rate)}s"
    message = (
        f"ramp ({format_quantity(ramp_s, 's')}) and drain ({format_quantity(drain_s, 's')}) are {100 * share:.0f} % of the duration,"
        f" which tokens/s and cost are counted over; in the long run {what} {long_run:,.0f} output tokens/s{money};"
        f" {remedy} brings both below {100 * _LONG:.0f} %"
    )
    return Flag(code="short_run", message=message)


def _rounded_up(count: float) -> int:
    """Return a number of requests with two digits, not less."""
    unit = 10 ** max(0, int(log10(count)) - 1)
    return ceil(count / unit) * unit
