"""Distribution of tokens over experts in a scenario: a law, or a file with the tokens of each expert."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from clustersim.documents.files import MB, named_file, read_text
from clustersim.errors import ScenarioError
from clustersim.notices import Flag
from clustersim.parallel.training_plan import StrategySettings
from clustersim.workloads.model import Model
from clustersim.workloads.token_routing import ExpertLoad

_FIELD: Final = "strategy.expert_load"
_HEADER: Final = "write a header of layer, expert and tokens, and a row for each expert of each layer"
_MOST_BYTES: Final = 20 * MB
"""A row for each expert of the largest models takes a hundredth of it."""
_MOST: Final = 1e15
"""Tokens; sums of them stay exact enough."""


def expert_load_of(asked: StrategySettings, model: Model, *, scenario: str) -> tuple[ExpertLoad, tuple[Flag, ...]]:
    """Return how tokens spread over the experts of a model, and what was assumed of it.

    Parameters
    ----------
    scenario
        Path of the scenario, beside which a file is looked for.
    """
    load = replace(asked.expert_load, capacity_factor=asked.expert_capacity)
    skewed = asked.gives("expert_skew")
    if load.kind == "balanced" or model.experts is None:
        return load, ()
    if load.kind == "file":
        path = named_file(load.file, Path(scenario).parent, field=_FIELD, otherwise=f"put it beside the scenario; {_HEADER}")
        text = read_text(path, _MOST_BYTES, _HEADER)
        return replace(load, shares=_read(text, path.name, model), file=path.name, text=text), ()
    if skewed:
        return replace(load, skew=asked.expert_skew), ()
    what = "exponent" if load.kind == "zipf" else "concentration"
    message = f"no expert_skew is given: tokens spread over experts by a {load.kind} law of {what} {load.skew:g}"
    return load, (Flag(code="assumed_expert_skew", message=message),)


def _rows(text: str) -> list[tuple[int, dict[str, str | None]]]:
    """Return the rows after the header with their line numbers; empty lines are skipped."""
    reader = csv.reader(text.splitlines())
    lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)]
    if not lines:
        return []
    (_, header), *rest = lines
    return [(number, dict(zip_longest(header, cells[: len(header)]))) for number, cells in rest]


def _read(text: str, name: str, model: Model) -> tuple[tuple[float, ...], ...]:
    """Return the shares of all layers; those without experts have none."""
    assert model.experts is not None
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise ScenarioError(f"'{name}' cannot be read: {error}", field=_FIELD, hint=_HEADER) from error
    if not rows or not {"expert", "tokens"} <= set(rows[0][1]):
        raise ScenarioError(f"'{name}' has no columns expert and tokens", field=_FIELD, hint=_HEADER)
    by_layer = "layer" in rows[0][1]
    tokens: dict[int, dict[int, float]] = {}
    for number, row in rows:
        where = f"'{name}' line {number}"
        layer = _whole(row["layer"], "layer", model.n_layers, where) if by_layer else 0
        expert = _whole(row["expert"], "expert", model.experts.n_experts, where)
        if expert in tokens.setdefault(layer, {}):
            raise ScenarioError(f"{where}: expert {expert}{_of(layer, by_layer)} stands there twice", field=_FIELD, hint="give it one row")
        tokens[layer][expert] = _amount(row["tokens"], where)
    return tuple(_shares(tokens, layer if by_layer else 0, model, name, by_layer=by_layer) for layer in range(model.n_layers))


def _shares(tokens: dict[int, dict[int, float]], layer: int, model: Model, name: str, *, by_layer: bool) -> tuple[float, ...]:
    assert model.experts is not None
    if by_layer and not model.has_experts(layer):
        return ()
    found = tokens.get(layer, {})
    missing = [expert for expert in range(model.experts.n_experts) if expert not in found]
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        what = f"'{name}' has no row for expert{'s' if len(missing) > 1 else ''} {shown}{_of(layer, by_layer)}"
        raise ScenarioError(what, field=_FIELD, hint=f"{model.name} has experts 0 to {model.experts.n_experts - 1}")
    total = math.fsum(found.values())
    if total <= 0.0:
        raise ScenarioError(f"'{name}' sends no tokens to any expert{_of(layer, by_layer)}", field=_FIELD, hint="give tokens above 0")
    return tuple(found[expert] / total for expert in range(model.experts.n_experts))


def _of(layer: int, by_layer: bool) -> str:  # noqa: FBT001 - a word of the message
    return f" of layer {layer}" if by_layer else ""


def _whole(text: str | None, name: str, end: int, where: str) -> int:
    value = int(text) if text is not None and text.strip().isascii() and text.strip().isdigit() else end
    if value >= end:
        raise ScenarioError(f"{where}: {name} '{text}' is not a number from 0 to {end - 1}", field=_FIELD, hint=_HEADER)
    return value


def _amount(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not 0.0 <= value <= _MOST:
        what = "nothing" if text is None else f"'{text}'"
        raise ScenarioError(f"{where}: {what} is not a number of tokens", field=_FIELD, hint=f"write a number from 0 to {_MOST:.0e}")
    return value
