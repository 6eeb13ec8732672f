"""Requests that model or KV cache have no room for: an engine refuses them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersim.apps.serve.deployment import BuiltServing, positions_of


def refused_of(built: BuiltServing) -> NDArray[np.bool_]:
    """Return whether each request is longer than what there is room for."""
    requests = built.asked.requests
    return requests.input_tokens + requests.output_tokens > _room_tokens(built)


def refused_text(built: BuiltServing, count: int) -> str:
    """Return how many requests are refused, the limit that they exceed, and a remedy."""
    room, be = _room_tokens(built), "request is" if count == 1 else "requests are"
    limit, remedy = f"{room:,} tokens of the KV cache", "give a replica more accelerators, weights fewer bits, or clip lengths"
    if room == positions_of(built.loaded):
        limit, remedy = f"{room:,} positions of the model", "take a model with more positions, or clip lengths"
    return f"{count:,} {be} longer than the {limit}; {remedy}"


def _room_tokens(built: BuiltServing) -> int:
    rooms = [
        (pool.kv_tokens // pool.layout.pp // pool.rules.block_tokens - pool.rules.n_null_blocks) * pool.rules.block_tokens
        for pool in built.pools
    ]
    positions = positions_of(built.loaded)
    return min(rooms) if positions is None else min(*rooms, positions)
