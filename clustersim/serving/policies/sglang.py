"""Rules of SGLang.

Sources: sgl-project/sglang, ``python/sglang/srt/managers/scheduler.py`` (a batch of prompts goes before decoding, the two do not mix),
``schedule_policy.py`` (``PrefillAdder``: room for what running requests are expected to produce, at most 4096 tokens each),
``environ.py`` (0.7 of the output, falling to 0.14 of that over 600 decode steps; 20 steps must fit after a retraction),
``schedule_batch.py`` (``retract_decode``: the one with the shortest output goes first), ``server_args.py`` (chunks of 8192 tokens above
60 GB of memory and 4096 or 2048 below; 16384 tokens of prompts in a step; pages of one token).
"""

from __future__ import annotations

from typing import Final

from clustersim.serving.rules import Defaults, EngineRules

VERSIONS: Final = (
    EngineRules(
        engine="sglang",
        version="0.4",
        block_tokens=1,
        admission="estimated",
        mixes=False,
        asynchronous=True,
        prefix_cache=True,
        memory_fraction=0.88,
        defaults=(
            Defaults(min_memory_bytes=60e9, max_num_seqs=4096, max_batched_tokens=8192),
            Defaults(min_memory_bytes=35e9, max_num_seqs=4096, max_batched_tokens=4096),
            Defaults(max_num_seqs=4096, max_batched_tokens=2048),
        ),
    ),
)
