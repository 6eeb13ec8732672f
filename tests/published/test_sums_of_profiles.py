"""The table of ``vtrain-single``: no step in it was measured, each is a sum of profiled times (docs/theory/what-remains.md)."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

TABLE = Path(__file__).parents[2] / "scenarios" / "published" / "vtrain-single.csv"
ROUND_OFF_MS = 1e-9
"""Times are printed to 1e-6 ms."""

Key = tuple[int, ...]


@cache
def steps_ms() -> dict[Key, dict[int, float]]:
    """Return by (hidden size, layers, tp, pp, dp, micro-batch) the time of a step for each number of micro-batches."""
    found: dict[Key, dict[int, float]] = defaultdict(dict)
    with TABLE.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            size, dp = int(row["training.micro_batch_size"]), int(row["strategy.dp"])
            model = (int(row["model.hidden_size"]), int(row["model.num_hidden_layers"]))
            key = (*model, int(row["strategy.tp"]), int(row["strategy.pp"]), dp, size)
            found[key][int(row["training.global_batch_size"]) // (dp * size)] = float(row["measured.step_time"].removesuffix(" ms"))
    return found


def slopes(times: dict[int, float]) -> list[float]:
    """Return what one more micro-batch costs, from each number of them to the next."""
    return [(after - before) / (more - fewer) for (fewer, before), (more, after) in pairwise(sorted(times.items()))]


def spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def per_micro_batch() -> dict[Key, list[float]]:
    """Return by (hidden size, layers, tp, pp, micro-batch) what one more micro-batch costs, with each number of replicas."""
    found: dict[Key, list[float]] = defaultdict(list)
    for (width, layers, tp, pp, _, size), times in steps_ms().items():
        found[width, layers, tp, pp, size] += slopes(times)[:1]
    return {key: values for key, values in found.items() if values}


def test_steps_with_more_micro_batches_lie_on_a_line() -> None:
    groups = [slopes(times) for times in steps_ms().values() if len(times) > 2]

    assert len(groups) == 144
    assert sum(len(times) for times in steps_ms().values() if len(times) > 2) == 504
    assert max(spread(group) for group in groups) < ROUND_OFF_MS


def test_a_micro_batch_more_costs_the_same_with_any_number_of_replicas() -> None:
    several = [values for values in per_micro_batch().values() if len(values) > 1]

    assert len(several) == 72
    assert max(spread(values) for values in several) < ROUND_OFF_MS


def test_a_layer_more_costs_the_same_on_any_number_of_stages() -> None:
    layers: dict[Key, list[float]] = defaultdict(list)
    cost = per_micro_batch()
    for width, n_layers, tp, pp, size in cost:
        if n_layers == 16:
            more = cost[width, 24, tp, pp, size][0] - cost[width, 16, tp, pp, size][0]
            layers[width, tp, size].append(more / (24 - 16) * pp)
    several = [values for values in layers.values() if len(values) > 1]

    assert len(several) == 18
    assert max(spread(values) for values in several) < ROUND_OFF_MS


def test_replicas_cost_the_same_with_any_micro_batch() -> None:
    begun: dict[Key, dict[int, float]] = defaultdict(dict)
    for (width, layers, tp, pp, dp, size), times in steps_ms().items():
        if pp == 1 and len(times) > 1:
            first = min(times)
            begun[width, layers, tp, size][dp] = times[first] - first * slopes(times)[0]
    more: dict[Key, list[float]] = defaultdict(list)
    for (width, layers, tp, _), by_replicas in begun.items():
        for fewer, dp in pairwise(sorted(by_replicas)):
            more[width, layers, tp, fewer, dp].append(by_replicas[dp] - by_replicas[fewer])

    assert sum(len(values) > 1 for values in more.values()) == 20
    assert max(spread(values) for values in more.values()) < ROUND_OFF_MS


def test_behind_them_are_32_profiles() -> None:
    assert len({(width, tp, size) for width, _, tp, _, _, size in steps_ms()}) == 32
