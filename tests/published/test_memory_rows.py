"""Memory that InternEvo prints for 7 B and 20 B models on 3 to 16 accelerators of 80 GB, by the parts that are counted.

InternLM, InternEvo, doc/en/train_performance.md, "GPU Memory Usage Test" (tag v0.2.1dev20231121): micro-batches of one sequence of 2048
tokens (configs/7B_sft.py), four of them, activation checkpointing, bf16; optimizer state over all replicas. The optimizer is
torch.optim.AdamW on fp32 copies (internlm/solver/optimizer/fsdp_optimizer.py). By which tool memory was read is not said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from clustersim.parallel.training_plan import Plan
from clustersim.workloads.transformer import Transformer
from tests.unit.parallel.factories import LLAMA, held, make_plan, peak

GIGA = 1e9

TOLERANCE = 0.15
"""Claimed error of memory; of the rows with FSDP none is off by more than 14 %, and the mean is 6 %."""


def internlm(n_layers: int, hidden_size: int, n_heads: int, intermediate_size: int) -> Transformer:
    return replace(
        LLAMA,
        n_layers=n_layers,
        hidden_size=hidden_size,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=hidden_size // n_heads,
        intermediate_size=intermediate_size,
        vocab_size=103168,
        max_positions=2048,
        tied_embeddings=False,
    )


# configs/7B_sft.py and configs/_base_/models/internlm_20B.py of the same repository.
MODELS = {"7b": internlm(32, 4096, 32, 11008), "20b": internlm(60, 5120, 40, 13824)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    model: str
    dp: int
    tp: int
    pp: int
    fsdp: bool
    measured_gb: float

    @property
    def plan(self) -> Plan:
        return make_plan(
            MODELS[self.model],
            dp=self.dp,
            tp=self.tp,
            pp=self.pp,
            zero_stage=3 if self.fsdp else 1,
            keep_ends=True,
            no_sync=not self.fsdp,
            global_batch_size=4 * self.dp,
            seq_length=2048,
            gradient_precision="same",
            attention="flash",
            kernels="eager",
            fused_gradient_accumulation=False,
            recompute="full",
        )

    @property
    def predicted_gb(self) -> float:
        return max(peak(self.plan, stage) for stage in range(self.pp)) / GIGA


# Rows whose layers fall into equal stages.
ROWS = [
    Row(model=model, dp=dp, tp=tp, pp=pp, fsdp=fsdp, measured_gb=measured)
    for model, dp, tp, pp, fsdp, measured in [
        ("7b", 3, 1, 1, True, 72),
        ("7b", 1, 4, 1, True, 52),
        ("7b", 1, 4, 1, False, 61),
        ("7b", 1, 1, 4, False, 69),
        ("7b", 4, 1, 1, True, 56),
        ("7b", 5, 1, 1, True, 49),
        ("7b", 6, 1, 1, True, 39),
        ("7b", 3, 2, 1, True, 38),
        ("20b", 8, 1, 1, True, 78),
        ("20b", 1, 8, 1, True, 71),
        ("20b", 16, 1, 1, True, 40),
        ("20b", 2, 8, 1, True, 39),
    ]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}-{row.dp}x{row.tp}x{row.pp}{'-fsdp' if row.fsdp else ''}")
def test_memory_is_met_within_its_tolerance(row: Row) -> None:
    assert row.predicted_gb == pytest.approx(row.measured_gb, rel=TOLERANCE)


def test_the_mean_error_with_fsdp_is_a_few_percent() -> None:
    errors = [abs(row.predicted_gb / row.measured_gb - 1) for row in ROWS if row.fsdp]

    assert sum(errors) / len(errors) < 0.07


def test_the_update_is_the_peak_and_takes_28_bytes_a_parameter() -> None:
    for row in ROWS:
        state_bytes = sum(peak(row.plan, category=category) for category in ("parameters", "gradients", "optimizer"))
        assert peak(row.plan, category="activations") == 0.0
        assert state_bytes == pytest.approx(14 * held(row.plan, category="parameters"), rel=1e-12)  # of which weights are 2
