"""Rules of TensorRT-LLM.

Sources: NVIDIA/TensorRT-LLM, ``tensorrt_llm/llmapi/llm_args.py`` (``GUARANTEED_NO_EVICT`` by default, ``max_batch_size`` 2048,
``max_num_tokens`` 8192, blocks of 32 tokens, 0.9 of the free memory, block reuse on, chunked prefill off), ``docs/source/performance``.
In-flight batching has these rules since release 0.5. ``free_gpu_memory_fraction`` is a share of what weights and activations leave. Steps
are scheduled ahead since release 1.0, whose PyTorch backend does so by default; ``enable_overlap_scheduler`` was off before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clustersim.serving.rules import Defaults, EngineRules

_FIRST: Final = EngineRules(
    engine="tensorrt_llm",
    version="0.5",
    block_tokens=32,
    admission="guaranteed",
    chunked_prefill=False,
    asynchronous=False,
    prefix_cache=True,
    memory_fraction=0.9,
    defaults=(Defaults(max_num_seqs=2048, max_batched_tokens=8192, largest_graphs=(2048, 2048)),),
)
VERSIONS: Final = (_FIRST, replace(_FIRST, version="1.0", asynchronous=True))
