"""Rules of SGLang.

Sources: sgl-project/sglang, ``python/sglang/srt/managers/scheduler.py`` (a batch of prompts goes before decoding, the two do not mix),
``schedule_policy.py`` (``PrefillAdder``: room for what running requests are expected to produce, at most 4096 tokens each),
``environ.py`` (0.7 of the output, falling to 0.14 of that over 600 decode steps; 20 steps must fit after a retraction),
``schedule_batch.py`` (``retract_decode``: the one with the shortest output goes first), ``server_args.py`` (chunks of 8192 tokens above
60 GB of memory and 4096 or 2048 below; 16384 tokens of prompts in a step; pages of one token; ``mem_fraction_static`` and
``cuda_graph_max_bs`` of v0.5).
"""

from __future__ import annotations

from typing import Final

from clustersim.serving.rules import Defaults, EngineDevice, EngineRules

_GIB: Final = 2.0**30
_LARGEST_GRAPHS: Final = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))
"""GiB of memory below which the largest graph has so many sequences, with fewer than four ranks and with more; 512 above."""


def static_fraction(device: EngineDevice, chunk_tokens: int) -> float:
    """Return the share of the memory for weights, states and cache: what the engine reserves for the rest comes off, in MiB.

    What it reserves beside for graphs of attention data parallelism is left out: 4.5 MiB for each sequence and rank, more than there is
    beyond 16 ranks, so that recipes give a share.

    Examples
    --------
    >>> static_fraction(EngineDevice(name="h100-sxm5-80g", memory_bytes=81559 * 2.0**20, tp=8), 8192)
    0.818
    """
    memory_mib = device.memory_bytes / 2.0**20
    graphs = next((sizes for limit, *sizes in _LARGEST_GRAPHS if device.memory_bytes < limit * _GIB), (512, 512))[
        device.tp * device.dp >= 4
    ]
    reserved_mib = 512.0 + 1.5 * max(chunk_tokens, 2048) + 2.0 * graphs + 128.0 * device.tp * device.dp * device.pp
    if device.memory_bytes > 60 * _GIB:
        reserved_mib = max(reserved_mib, 10240.0)
    return round((memory_mib - reserved_mib) / memory_mib, 3)


VERSIONS: Final = (
    EngineRules(
        engine="sglang",
        version="0.4",
        block_tokens=1,
        admission="estimated",
        mixes=False,
        asynchronous=True,
        prefix_cache=True,
        default_fraction=static_fraction,
        defaults=(
            Defaults(min_memory_bytes=60e9, max_num_seqs=4096, max_batched_tokens=8192),
            Defaults(min_memory_bytes=35e9, max_num_seqs=4096, max_batched_tokens=4096),
            Defaults(max_num_seqs=4096, max_batched_tokens=2048),
        ),
    ),
)
