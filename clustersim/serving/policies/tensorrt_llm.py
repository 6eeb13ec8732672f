"""Rules of TensorRT-LLM.

Sources: NVIDIA/TensorRT-LLM, ``tensorrt_llm/llmapi/llm_args.py`` (``GUARANTEED_NO_EVICT`` by default, ``max_batch_size`` 2048,
``max_num_tokens`` 8192, blocks of 32 tokens, 0.9 of the free memory, block reuse on, chunked prefill off), ``docs/source/performance``.
In-flight batching has these rules since release 0.5. ``free_gpu_memory_fraction`` is a share of what weights and activations leave.
"""

from __future__ import annotations

from typing import Final

from clustersim.serving.rules import Defaults, EngineRules

VERSIONS: Final = (
    EngineRules(
        engine="tensorrt_llm",
        version="0.5",
        block_tokens=32,
        admission="guaranteed",
        chunked_prefill=False,
        asynchronous=True,
        prefix_cache=True,
        memory_fraction=0.9,
        defaults=(Defaults(max_num_seqs=2048, max_batched_tokens=8192),),
    ),
)
