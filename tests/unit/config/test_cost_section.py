"""From prices in a scenario to what a step, tokens and a training cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.config.cost_section import CostSpec, Priced, cost_report, priced_nodes
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.measure.cost_report import cost_lines
from tests.golden.reference import reference_metrics, reference_timeline
from tests.unit.config.samples import TEXT, built, refusal, small

NODES = [load_node("dgx-h100")] * 4


def priced(**section: object) -> Priced:
    return priced_nodes(CostSpec.model_validate(section), NODES, Path())


def codes(found: Priced) -> list[str]:
    return [flag.code for flag in found.flags]


def test_what_is_written_goes_before_any_list() -> None:
    found = priced(gpu_hour="2.50 USD", power_price="0.08 USD/kWh", pue=1.2, carbon_intensity="0.3 kg/kWh", prices="rented-2026")

    prices = found.prices
    assert (prices.usd_per_gpu_hour, prices.usd_per_kwh, prices.pue, prices.carbon_kg_co2e_per_kwh) == (2.5, 0.08, 1.2, 0.3)
    assert (found.price_lists, codes(found)) == ((), ["no_network_power"])


def test_a_list_gives_what_is_not_written_and_the_first_counts() -> None:
    found = priced(prices=["rented-2026", "aws-on-demand-2025-05", "electricity-us-2023", "electricity-world-2023"])

    prices = found.prices
    assert (prices.usd_per_gpu_hour, prices.usd_per_kwh, prices.pue, prices.carbon_kg_co2e_per_kwh) == (3.75, 0.0806, 1.56, 0.48)
    assert found.price_lists == ("rented-2026", "electricity-us-2023", "electricity-world-2023")


def test_rents_by_name_count_before_those_of_lists_and_missing_ones_are_refused_together() -> None:
    named = priced(gpu_hour={"h200-sxm": "3 USD", "h100-sxm5-80g": "2.10 USD"}, prices="rented-2026")
    assert (named.prices.usd_per_gpu_hour, named.price_lists) == (2.1, ())
    listed = priced(gpu_hour={"h200-sxm": "3 USD"}, prices="rented-2026")
    assert (listed.prices.usd_per_gpu_hour, listed.price_lists) == (3.75, ("rented-2026",))
    with pytest.raises(ScenarioError, match="there is no rent of h100-sxm5-80g, b300-sxm in the scenario") as caught:
        priced_nodes(CostSpec.model_validate({"gpu_hour": {"h100": "2 USD"}}), [*NODES, load_node("dgx-b300")], Path())
    assert caught.value.hint == "there is one of h100; write cost.gpu_hour yourself"


def test_rent_includes_energy_unless_it_has_a_price() -> None:
    assert priced(gpu_hour="2.50 USD").prices.usd_per_kwh is None
    assert priced(gpu_hour="2.50 USD", power_price="0.08 USD/kWh").prices.usd_per_kwh == 0.08


def test_owners_pay_for_energy_and_write_machines_off_over_five_years() -> None:
    found = priced(owned={"node_price": "290 kUSD", "in_use": 0.5})

    assert found.prices.usd_per_gpu_hour == pytest.approx(290e3 / 8 / (5 * 8760) / 0.5)
    assert found.prices.usd_per_kwh == 0.0806
    assert codes(found)[:2] == ["assumed_depreciation", "assumed_power_price"]


def test_the_price_of_a_machine_may_come_from_a_list() -> None:
    found = priced(prices="bought-2024", owned={"depreciation": "4 years"}, power_price="0.1 USD/kWh")

    assert found.prices.usd_per_gpu_hour == pytest.approx(36250 / (4 * 8760))
    assert (found.owned, found.price_lists) == (True, ("bought-2024",))


def test_what_nobody_says_is_assumed_and_flagged() -> None:
    found = priced()

    assert found.prices.usd_per_gpu_hour is None
    assert codes(found) == ["no_machine_price", "assumed_pue", "assumed_carbon_intensity", "no_network_power"]


def test_power_is_that_of_profiles_unless_it_is_written() -> None:
    # Idle as nvidia-smi shows it; beside the accelerators 0.61 of what 10.2 kW leave.
    assert priced().nodes[0].idle_w == 70.0
    assert priced().nodes[0].rest_w == pytest.approx(0.61 * 4600)
    written = priced(power={"idle": "100 W", "busy": "600 W", "rest": "2 kW"}).nodes[0]
    assert (written.idle_w, written.busy_w, written.rest_w) == (100.0, 600.0, 2000.0)


def test_a_node_without_a_rating_is_assumed_from_its_accelerators() -> None:
    found = priced_nodes(CostSpec(), [load_node("pcie-l40s")], Path())

    assert found.nodes[0].idle_w == pytest.approx(0.13 * 350)
    assert found.nodes[0].rest_w == pytest.approx(0.55 * 8 * 350)
    assert {"assumed_idle_power", "assumed_node_power"} <= set(codes(found))


def test_an_accelerator_of_which_nobody_knows_the_power_is_refused() -> None:
    node = replace(NODES[0], accelerator=replace(NODES[0].accelerator, power_w=None))

    with pytest.raises(ScenarioError, match="nobody says how much power h100-sxm5-80g draws"):
        priced_nodes(CostSpec(), [node], Path())


@pytest.mark.parametrize(
    ("section", "field", "message", "hint"),
    [
        ({"gpu_hour": "2 USD", "owned": {}}, "cost", "machines are rented (gpu_hour) and bought (owned) at once", "keep one of the two"),
        ({"gpu_hour": 2.5}, "cost.gpu_hour", "2.5 has no unit", "write it with a unit, such as '2.5 USD/h'"),
        ({"pue": 0.9}, "cost.pue", "0.9 is out of range", "write a number that is at least 1.0"),
        ({"price": "rented-2026"}, "cost.price", "unknown field 'price'", "did you mean 'prices'?"),
        ({"prices": "rentd-2026"}, "cost.prices", "unknown price list 'rentd-2026'", "did you mean 'rented-2026'?"),
        ({"prices": ["rented-2026", "nope"]}, "cost.prices.1", "unknown price list 'nope'", "one of aws-on-demand-2025-05"),
        ({"prices": "mine.yaml"}, "cost.prices", "mine.yaml: no such file", None),
        ({"prices": "rented-2026"}, "cost.prices", "there is no rent of a100-sxm4-40g in rented-2026", "there is one of a100-sxm4-80g"),
        ({"gpu_hour": {}}, "cost.gpu_hour", "there is no rent of a100-sxm4-40g in the scenario", "write cost.gpu_hour yourself, or add"),
        ({"owned": {}}, "cost.owned", "there is no price of a100-sxm4-40g in the scenario", "write cost.owned.node_price yourself"),
        ({"owned": {"in_use": 1.5}}, "cost.owned.in_use", "1.5 is out of range", "write a number that is at most 1.0"),
    ],
)
def test_a_mistake_has_its_field_and_what_would_be_right(section: dict[str, object], field: str, message: str, hint: str | None) -> None:
    with pytest.raises(ScenarioError) as caught:
        run({**small(), "cost": section})

    assert (caught.value.field, caught.value.message) == (field, message)
    assert hint is None or (caught.value.hint or "").startswith(hint)


def test_a_step_costs_its_time_on_all_accelerators_and_its_power() -> None:
    metrics = reference_metrics(reference_timeline())
    found = priced(gpu_hour="3.60 USD", power_price="0.1 USD/kWh", pue=1.5, carbon_intensity="0.4 kg/kWh")

    report = cost_report(found, metrics, tokens=None, train_s=None, goodput=None, spares=0)

    busy = (metrics.breakdown_s.compute + metrics.breakdown_s.optimizer) / metrics.step_time_s
    assert report.utilisation_fraction == pytest.approx(busy)
    assert report.power.cluster_w == pytest.approx(4 * (8 * (70 + 630 * busy) + 0.61 * 4600))
    assert report.power.facility_w == pytest.approx(1.5 * report.power.cluster_w)
    assert report.step.gpu_hours == pytest.approx(32 * metrics.step_time_s / 3600)
    assert report.step.energy_kwh == pytest.approx(report.power.facility_w * metrics.step_time_s / 3.6e6)
    assert report.step.usd == pytest.approx(3.6 * report.step.gpu_hours + 0.1 * report.step.energy_kwh)
    assert report.training is None


def test_tokens_cost_their_share_of_a_step() -> None:
    metrics = reference_metrics(reference_timeline())
    report = cost_report(priced(gpu_hour="2 USD"), metrics, tokens=None, train_s=None, goodput=None, spares=0)
    tokens = metrics.tokens_per_s * metrics.step_time_s

    assert report.per_million_tokens.usd == pytest.approx((report.step.usd or 0) / tokens * 1e6)
    assert report.per_billion_tokens.energy_kwh == pytest.approx(1000 * report.per_million_tokens.energy_kwh)


def test_a_training_without_failures_costs_its_tokens() -> None:
    metrics = reference_metrics(reference_timeline())
    report = cost_report(priced(gpu_hour="2 USD"), metrics, tokens=3e9, train_s=3e9 / metrics.tokens_per_s, goodput=None, spares=0)

    assert report.training is not None
    assert report.training.usd == pytest.approx(3 * (report.per_billion_tokens.usd or 0))
    assert report.training.emissions_kg_co2e == pytest.approx(3 * report.per_billion_tokens.emissions_kg_co2e)
    assert report.training.time_s == pytest.approx(3e9 / metrics.tokens_per_s)


FAILING = {"node_mtbf": "20 days", "restart": "30 min", "checkpoint": {"bandwidth": "1 GB/s"}, "repair": "1 day", "spares": 1}


def test_failures_and_spares_are_paid_and_idle_time_draws_less() -> None:
    cost = {"gpu_hour": "2 USD", "pue": 1.0}
    training = {"global_batch_size": 32, "precision": "bf16", "tokens": "500G"}
    without = run(small(cost=cost, training=training)).cost
    with_failures = run(small(cost=cost, training=training, reliability=FAILING))

    cost_with, goodput = with_failures.cost, with_failures.goodput
    assert cost_with is not None
    assert cost_with.training is not None
    assert goodput is not None
    assert goodput.time_to_train is not None
    assert without is not None
    assert without.training is not None
    assert cost_with.training.time_s == goodput.time_to_train.mean_s > without.training.time_s
    # Two nodes and a spare.
    assert cost_with.training.gpu_hours == pytest.approx(24 * goodput.time_to_train.mean_s / 3600)
    longer = cost_with.training.gpu_hours / without.training.gpu_hours
    assert 1.0 < cost_with.training.energy_kwh / without.training.energy_kwh < longer


def test_the_report_says_what_is_drawn_paid_and_emitted() -> None:
    metrics = reference_metrics(reference_timeline())
    report = cost_report(
        priced(prices="rented-2026", pue=1.2), metrics, tokens=1e12, train_s=1e12 / metrics.tokens_per_s, goodput=None, spares=0
    )

    lines = cost_lines(report)

    assert lines[0].startswith("an accelerator draws")
    assert "(PUE 1.2)" in lines[0]
    assert lines[1] == "rent 3.75 USD per GPU hour, energy included, 0.48 kg CO2e/kWh (rented-2026)"
    assert lines[-1].startswith("the whole training, 1T tokens in ")
    assert "t CO2e" in lines[-1]
    assert cost_lines(None) == ()
    assert cost_lines(report, unit="samples")[3].startswith("a million samples: ")


def test_machines_without_a_price_have_no_cost_but_energy() -> None:
    metrics = reference_metrics(reference_timeline())

    lines = cost_lines(cost_report(priced(pue=1.2), metrics, tokens=None, train_s=None, goodput=None, spares=0))

    assert lines[1].startswith("machines have no price, energy has no price, ")
    assert "USD" not in lines[2]


def test_assumptions_of_prices_are_flags_of_the_result() -> None:
    flags = [flag.code for flag in built(cost={"gpu_hour": "2 USD"}).flags]

    assert {"assumed_pue", "assumed_carbon_intensity", "no_network_power"} <= set(flags)
    assert refusal("cost.power.busy=0 W").field == "cost.power.busy"


LIST = """\
name: mine
title: Mine
as_of: 2026-11
gpu_hour: {a100-sxm4-40g: 1.10 USD/h}
sources: [{title: An offer, url: 'https://example.org', accessed: 2026-11-20, covers: [gpu_hour]}]
"""


def test_a_price_file_is_kept_beside_the_resolved_scenario_and_is_in_its_hash(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "mine.yaml").write_text(LIST, encoding="utf-8")
    (tmp_path / "small.yaml").write_text(f"{TEXT}cost: {{prices: lists/mine.yaml}}\n", encoding="utf-8")

    first = run(tmp_path / "small.yaml")
    folder = write_run_directory(first, tmp_path / "runs", plots=False)
    again = run(folder / "resolved.yaml")
    (tmp_path / "lists" / "mine.yaml").write_text(LIST.replace("1.10", "1.20"), encoding="utf-8")
    dearer = run(tmp_path / "small.yaml")

    assert (folder / "mine.yaml").read_text(encoding="utf-8") == LIST
    assert again.cost == first.cost
    assert again.scenario_hash == first.scenario_hash != dearer.scenario_hash


def test_a_list_that_would_help_is_named() -> None:
    with pytest.raises(ScenarioError) as caught:
        priced(owned={})

    assert caught.value.hint == "write cost.owned.node_price yourself, or add to cost.prices one of bought-2024"
