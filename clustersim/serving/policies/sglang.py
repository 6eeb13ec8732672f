"""Rules of SGLang.

Sources: sgl-project/sglang, ``python/sglang/srt/managers/scheduler.py`` (a batch of prompts goes before decoding, the two do not mix),
``schedule_policy.py`` (``PrefillAdder``: room for what running requests are expected to produce, at most 4096 tokens each),
``environ.py`` (0.7 of the output, falling to 0.14 of that over 600 decode steps; 20 steps must fit after a retraction),
``schedule_batch.py`` (``retract_decode``: the one with the shortest output goes first), ``server_args.py`` of v0.5 and pull requests 6718
and 10975 (``chunked_prefill_size`` by memory, which ranks of attention data parallelism share; ``cuda_graph_max_bs``;
``mem_fraction_static``; pages of one token).
"""

from __future__ import annotations

from typing import Final

from clustersim.serving.rules import Defaults, EngineDevice, EngineRules

_GIB: Final = 2.0**30


def static_fraction(device: EngineDevice, chunk_tokens: int, largest_graph: int) -> float:
    """Return the share of the memory for weights, states and cache: what the engine reserves for the rest comes off, in MiB.

    Two reserves are left out: 4.5 MiB for each sequence of a graph and rank, and a given chunk counted for all ranks. Recipes with
    attention data parallelism set the share themselves.

    Examples
    --------
    >>> static_fraction(EngineDevice(name="h100-sxm5-80g", memory_bytes=81559 * 2.0**20, tp=8), 8192, 512)
    0.818
    >>> b200 = EngineDevice(name="b200-sxm", memory_bytes=183359 * 2.0**20, tp=2, dp=4)
    >>> rules = VERSIONS[0].on(b200)
    >>> rules.max_batched_tokens, rules.largest_graph, static_fraction(b200, 16384, 512)
    (4096, 512, 0.852)
    """
    memory_mib = device.memory_bytes / 2.0**20
    reserved_mib = 512.0 + 1.5 * max(chunk_tokens, 2048) + 2.0 * largest_graph + 128.0 * device.tp * device.dp * device.pp
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
        divides_budget=True,
        defaults=tuple(
            Defaults(min_memory_bytes=gib * _GIB, max_num_seqs=4096, max_batched_tokens=chunk_tokens, largest_graphs=graphs)
            for gib, chunk_tokens, graphs in (
                (160, 16384, (512, 512)),
                (60, 8192, (256, 512)),
                (35, 4096, (32, 160)),
                (20, 2048, (24, 80)),
                (0, 2048, (8, 8)),
            )
        ),
    ),
)
