"""Kernels that graphs capture: which of them the host still issues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.hardware.calibrations import calibration_at
from clustersim.hardware.catalog import load_node
from clustersim.kernels.kernel_model import launches
from clustersim.parallel.local_model import LocalModel
from clustersim.workloads.operators import KernelPhase, Operator
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, local_of, make_plan

MOE = replace(LLAMA, experts=Experts(n_experts=16, top_k=2, intermediate_size=256))


PASSES: tuple[KernelPhase, ...] = ("forward", "input_gradient")


def issued(operators: tuple[Operator, ...], phase: KernelPhase) -> int:
    return sum(launches(kernel) for each in operators for kernel in each.kernels(phase))


def local(*graphs: str, model: Transformer = LLAMA) -> LocalModel:
    return local_of(make_plan(model, cuda_graphs=graphs or False))


@pytest.mark.parametrize("phase", PASSES)
def test_the_host_issues_one_kernel_of_each_captured_part(phase: KernelPhase) -> None:
    attention, mlp = (part.operators for part in local().sublayers(0))

    assert issued(local("attention").layer(0), phase) == 1 + issued(mlp, phase)
    assert issued(local("mlp").layer(0), phase) == 1 + issued(attention, phase)
    assert issued(local("attention", "mlp").layer(0), phase) == 2


def test_the_accelerator_does_the_same_work_in_graphs() -> None:
    plain, captured = (
        [replace(kernel, issued=True) for each in made.layer(0) for phase in PASSES for kernel in each.kernels(phase)]
        for made in (local(), local("attention", "mlp"))
    )

    assert captured == plain


def test_the_router_is_captured_until_tokens_are_sent() -> None:
    half = local(model=MOE).sublayers(0)[1].experts
    assert half is not None
    before = half.norm + half.router + half.permute
    rest = issued(half.operators, "forward") - issued(before, "forward")

    assert issued(local("router", model=MOE).sublayers(0)[1].operators, "forward") == 1 + rest


@pytest.mark.parametrize(("node", "host"), [("dgx-a100-80g", "dgx-a100"), ("gb200-nvl72", "grace-tray"), ("dgx-h100", "dgx-h100")])
def test_a_slower_host_takes_longer_in_proportion(node: str, host: str) -> None:
    made = load_node(node)
    twice = replace(made, host=replace(made.host, pace=2.0 * made.host.pace))

    assert made.host.name == host
    assert calibration_at(twice).launch.dispatch_s == pytest.approx(2.0 * calibration_at(made).launch.dispatch_s)
    assert calibration_at(twice).launch.waited_send_s == pytest.approx(2.0 * calibration_at(made).launch.waited_send_s)
    assert calibration_at(twice).launch.step_s == pytest.approx(2.0 * calibration_at(made).launch.step_s)
