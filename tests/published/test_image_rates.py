"""Images and tokens a second of one accelerator, measured by others, beside predicted ones.

No constant was fitted to these rows: convolutions take the constants of matrix products, and everything else is counted in passes over
memory. Rows of the V100 and the A100 are NVIDIA's DeepLearningExamples (commit 729963dd); their configuration says which precision has
images stored pixel by pixel. Rows of the P100 are Uber's, printed with the results of 16 of them.
"""

from __future__ import annotations

from statistics import mean

import pytest

from clustersim.apps.run.running import run

ROWS = {
    "ResNet-50, A100 40 GB, fp16, TensorFlow with XLA": ("resnet-50", "dgx-a100-40g", "fp16", 256, "fused", 2375.0),
    "ResNet-50, A100 80 GB, fp16, PyTorch": ("resnet-50", "dgx-a100-80g", "fp16", 256, "eager", 2470.0),
    "ResNet-50, A100 40 GB, tf32, TensorFlow with XLA": ("resnet-50", "dgx-a100-40g", "tf32", 256, "fused", 909.0),
    "ResNet-50, A100 80 GB, tf32, PyTorch": ("resnet-50", "dgx-a100-80g", "tf32", 256, "eager", 938.0),
    "ResNet-50, V100, fp16, TensorFlow with XLA": ("resnet-50", "dgx1-v100-16g", "fp16", 256, "fused", 1270.0),
    "ResNet-50, V100, fp16, PyTorch": ("resnet-50", "dgx1-v100-16g", "fp16", 256, "eager", 1200.0),
    "ResNet-50, V100, fp32, TensorFlow with XLA": ("resnet-50", "dgx1-v100-16g", "fp32", 128, "fused", 412.0),
    "ResNet-50, V100, fp32, PyTorch": ("resnet-50", "dgx1-v100-16g", "fp32", 112, "eager", 367.0),
    "Inception-v3, P100, fp32, TensorFlow": ("inception-v3", "uber-p100-25g", "fp32", 64, "eager", 134.4),
    "ResNet-101, P100, fp32, TensorFlow": ("resnet-101", "uber-p100-25g", "fp32", 64, "eager", 119.4),
    "VGG-16, P100, fp32, TensorFlow": ("vgg-16", "uber-p100-25g", "fp32", 64, "eager", 130.9),
}
WORST_FRACTION = 0.20
MEAN_FRACTION = 0.10


def error(name: str) -> float:
    """Return the relative error of the predicted rate."""
    model, node, precision, batch, kernels, measured = ROWS[name]
    result = run(
        {
            "name": "rate",
            "model": model,
            "cluster": {"node": node, "nodes": 1, "accelerators_per_node": 1},
            "training": {
                "global_batch_size": batch,
                "micro_batch_size": batch,
                "precision": precision,
                "optimizer": "momentum",
                "kernels": kernels,
            },
        }
    )
    return batch / result.step_time_s / measured - 1.0


@pytest.mark.parametrize("name", ROWS)
def test_no_rate_is_off_by_more_than_a_fifth(name: str) -> None:
    assert abs(error(name)) < WORST_FRACTION


def test_rates_are_off_by_a_tenth_in_the_mean() -> None:
    assert mean(abs(error(name)) for name in ROWS) < MEAN_FRACTION
