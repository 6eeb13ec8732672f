"""``clustersim show``: shipped files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated, Final

import typer

from clustersim.cli.options import JsonOption
from clustersim.cli.terminal import print_table, write_json, write_lines, write_out
from clustersim.config.load import example_names, example_path
from clustersim.config.presets import Preset, PresetSetting, load_preset, preset_names
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data, read_document
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.hardware.catalog import load_accelerator, load_cluster, load_node, profile_names
from clustersim.hardware.models import Fabric
from clustersim.hardware.prices import PriceList, load_price_list, price_list_names
from clustersim.report.facts import memory_text
from clustersim.units.divisors import count_text
from clustersim.units.quantity import ENDINGS, ending_of, format_quantity, line_rate
from clustersim.workloads.reading.model_spec import LoadedModel, load_model, model_names

Row = tuple[str, ...]

_SIZES: Final = {
    "hidden_size": ">hidden",
    "n_heads": ">heads",
    "n_kv_heads": ">KV",
    "intermediate_size": ">MLP",
    "vocab_size": ">vocab",
    "max_positions": ">context",
}
"""Columns of a model that a list of layers does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """One kind of shipped things."""

    singular: str
    names: Callable[[], tuple[str, ...]]
    columns: tuple[str, ...]
    """Besides the name; one that begins with ``>`` holds numbers, set to the right."""
    row: Callable[[str], Row]
    full: Callable[[str], Data]
    """Everything about one, in SI units."""


def show_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="accelerators, nodes, clusters, models, examples, prices or presets.")],
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show these in full, with their sources.")] = None,
    json: JsonOption = False,
) -> int:
    """List shipped files, or show some in full."""
    if kind not in SHELVES:
        holding = next((shelf for shelf, each in SHELVES.items() if kind in each.names()), None)
        hint = choices_hint(kind, SHELVES) if holding is None else f"try: clustersim show {holding} {kind}"
        raise ScenarioError(f"cannot show '{kind}'", hint=hint)
    shelf = SHELVES[kind]
    names, asked = shelf.names(), name or ()
    for unknown in (one for one in asked if one not in names):
        raise ScenarioError(f"unknown {shelf.singular} '{unknown}'", hint=choices_hint(unknown, names))
    if json:
        documents = [shelf.full(one) for one in asked or names]
        write_json(documents[0] if len(asked) == 1 else documents)
    elif asked:
        pages = (example_path(one).read_text(encoding="utf-8") if kind == "examples" else _page(shelf.full(one)) for one in asked)
        write_out("---\n".join(pages))
    else:
        print_table(("name", *shelf.columns), [(one, *shelf.row(one)) for one in names])
        if kind == "prices":
            _print_rents(names)
    return EXIT_OK


def _page(full: Data) -> str:
    text = readable(full)
    return yaml_text(text) if isinstance(text, dict) else ""


def _accelerator_row(name: str) -> Row:
    accelerator = load_accelerator(name)
    peaks = [accelerator.peak_flops_per_s.get(precision) for precision in ("fp32", "tf32", "fp16", "bf16", "fp8")]
    scale_up = accelerator.scale_up_bandwidth_bytes_per_s
    return (
        accelerator.generation,
        memory_text(accelerator.memory_bytes),
        format_quantity(accelerator.memory_bandwidth_bytes_per_s, "B/s"),
        *("-" if peak is None else f"{peak / 1e12:,.4g}" for peak in peaks),
        format_quantity(scale_up, "B/s") if scale_up else "-",
        "-" if accelerator.power_w is None else format_quantity(accelerator.power_w, "W"),
    )


def _node_row(name: str) -> Row:
    node = load_node(name)
    return (
        f"{node.n_accelerators} x {node.accelerator.name}",
        f"{node.scale_up.kind} of {node.domain_size}",
        f"{node.n_nics} x {line_rate(node.nic.bandwidth_bytes_per_s)}",
        _fabric_text(node.fabric),
    )


def _cluster_row(name: str) -> Row:
    cluster = load_cluster(name)
    return str(cluster.n_nodes), cluster.node.name, f"{cluster.n_nodes * cluster.node.n_accelerators:,}", _fabric_text(cluster.fabric)


def _model_row(name: str) -> Row:
    model = load_model(name).model
    outline = model.outline()
    flops = outline.get("forward_flops")
    return (
        format_quantity(model.n_published, "count"),
        format_quantity(model.n_active, "count") if model.experts else "-",
        f"{flops / 1e9:,.4g} G" if isinstance(flops, float) else "-",
        str(model.n_layers),
        *(str(outline.get(size) or "-") for size in _SIZES),
    )


def _headline(text: str) -> str:
    """Return the first sentence of the comment that a file begins with."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return re.split(r"(?<=\.)\s", " ".join(lines), maxsplit=1)[0]


def _fabric_text(fabric: Fabric) -> str:
    ratio = "" if fabric.oversubscription == 1 else f", {fabric.oversubscription:g}:1 at the leaf"
    core = "" if fabric.core_oversubscription == 1 else f", {fabric.core_oversubscription:g}:1 at the core"
    return f"{fabric.topology}{ratio}{core}"


def _full_model(name: str) -> Data:
    loaded: LoadedModel = load_model(name)
    model = loaded.model
    sources: list[Data] = [source.model_dump(mode="json", exclude_none=True) for source in loaded.spec.sources]
    flags: list[Data] = [{"code": code, "message": message} for code, message in loaded.flags]
    counts: dict[str, Data] = {"parameters": model.n_parameters, "active_parameters": model.n_active}
    outline = {key: plain(value) for key, value in model.outline().items()}
    return {**outline, **counts, "description": loaded.spec.description, "flags": flags, "sources": sources}


def _full_example(name: str) -> Data:
    path = example_path(name)
    return {"name": name, "description": _headline(path.read_text(encoding="utf-8")), "scenario": read_document(path).data}


def _price_row(name: str) -> Row:
    prices = load_price_list(name)
    bought = [f"{accelerator} {format_quantity(value, 'USD', 4)}" for accelerator, value in prices.accelerator_price.items()]
    energy = [] if prices.power_price is None else [f"energy {prices.power_price:g} USD/kWh"]
    carbon = [] if prices.carbon_intensity is None else [f"carbon {prices.carbon_intensity:g} kg/kWh"]
    pue = [] if prices.pue is None else [f"PUE {prices.pue:g}"]
    months = prices.age_months(datetime.now(UTC).date())
    age = count_text(months, "month") if months < 24 else f"over {months // 12} years"
    figures = ", ".join([*bought, *energy, *carbon, *pue])
    return prices.as_of, age, f"{prices.title}: {figures}" if figures else prices.title


def _print_rents(names: Sequence[str]) -> None:
    """Print a row for each accelerator, with its rent in each list that has some."""
    lists = {name: prices for name in names if (prices := load_price_list(name)).gpu_hour}
    known = dict.fromkeys(accelerator for prices in lists.values() for accelerator in prices.gpu_hour)
    write_lines("", "USD per accelerator and hour; * from one source")
    print_table(
        ("accelerator", *(f">{name}" for name in lists)), [(card, *(_rent(each, card) for each in lists.values())) for card in known]
    )


def _rent(prices: PriceList, accelerator: str) -> str:
    value = prices.gpu_hour.get(accelerator)
    return "-" if value is None else f"{value:.2f}{'*' if prices.one_source(accelerator) else ' '}"


def _full_preset(name: str) -> Data:
    preset = load_preset(name)
    settings: list[Data] = [_full_setting(preset, setting) for setting in preset.settings]
    return {
        "name": name,
        "title": preset.title,
        "stands_for": preset.stands_for,
        "settings": settings,
        "refused": [each.model_dump(exclude_defaults=True) for each in preset.refuses],
        "not_simulated": list(preset.left_out),
    }


def _full_setting(preset: Preset, setting: PresetSetting) -> Data:
    where: dict[str, Data] = {} if setting.where is None else {"where": {key: list(values) for key, values in setting.where.items()}}
    return {
        "key": setting.key,
        "value": setting.data,
        "kind": "fixed" if setting.fixed else "default",
        **where,
        "reason": setting.reason,
        "source": preset.sources[setting.source].model_dump(),
    }


SHELVES: Final[Mapping[str, Shelf]] = MappingProxyType(
    {
        "accelerators": Shelf(
            singular="accelerator",
            names=partial(profile_names, "accelerators"),
            columns=("generation", ">memory", ">bandwidth", ">fp32", ">tf32", ">fp16", ">bf16", ">fp8", ">scale-up", ">power"),
            row=_accelerator_row,
            full=lambda name: plain(load_accelerator(name)),
        ),
        "nodes": Shelf(
            singular="node",
            names=partial(profile_names, "nodes"),
            columns=("accelerators", "scale-up", "adapters", "fabric"),
            row=_node_row,
            full=lambda name: plain(load_node(name)),
        ),
        "clusters": Shelf(
            singular="cluster",
            names=partial(profile_names, "clusters"),
            columns=(">nodes", "node", ">GPUs", "fabric"),
            row=_cluster_row,
            full=lambda name: plain(load_cluster(name)),
        ),
        "models": Shelf(
            singular="model",
            names=model_names,
            columns=(">params", ">active", ">FLOPs", ">layers", *_SIZES.values()),
            row=_model_row,
            full=_full_model,
        ),
        "examples": Shelf(
            singular="example",
            names=lambda: tuple(sorted((*example_names(), *example_names(serving=True)))),
            columns=("shows",),
            row=lambda name: (_headline(example_path(name).read_text(encoding="utf-8")),),
            full=_full_example,
        ),
        "prices": Shelf(
            singular="price list",
            names=price_list_names,
            columns=("as of", ">age", "about"),
            row=_price_row,
            full=lambda name: plain(dict(load_price_list(name))),
        ),
        "presets": Shelf(
            singular="preset", names=preset_names, columns=("framework",), row=lambda name: (load_preset(name).title,), full=_full_preset
        ),
    }
)
"""Kinds of shipped entries. Peaks of accelerators are dense TFLOP/s; bandwidths count one direction."""


def readable(value: Data, unit: str = "") -> Data:
    """Return data with its quantities as text, without empty values; a unit applies to all numbers of a mapping.

    Examples
    --------
    >>> readable({"memory_bytes": 8e10, "peak_flops_per_s": {"bf16": 989e12}, "n_layers": 32})
    {'memory': '80 GB', 'peak': {'bf16': '989 TFLOP/s'}, 'n_layers': 32}
    """
    if isinstance(value, dict):
        pairs = [(key, ending_of(key), item) for key, item in value.items() if item is not None and item != ""]
        return {key.removesuffix(end): readable(item, ENDINGS[end] or unit) for key, end, item in pairs}
    if isinstance(value, list):
        return [readable(item, unit) for item in value]
    if unit and isinstance(value, int | float):
        return format_quantity(value, unit, 4)
    return value
