"""Rules of a server without continuous batching: a batch is filled, answered as a whole, and then the next is filled."""

from __future__ import annotations

from typing import Final

from clustersim.serving.rules import Defaults, EngineRules

VERSIONS: Final = (
    EngineRules(
        engine="static",
        version="1",
        block_tokens=16,
        admission="batch",
        chunked_prefill=False,
        memory_fraction=0.9,
        defaults=(Defaults(max_num_seqs=256, max_batched_tokens=1 << 22, largest_graphs=(512, 512)),),
    ),
)
"""All prompts of a batch are computed in one step."""
