"""Reduction of gradients by a scenario: defaults, places of servers, and one clear refusal for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.cli.app import main
from clustersim.collectives import ALGORITHMS
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import EXIT_BAD_INPUT, ScenarioError
from clustersim.parallel.step_settings import DataParallel
from tests.unit.config.samples import TEXT, built, refusal

KEY = "strategy.data_parallel"


def served(*overrides: str, nodes: int = 4, **keys: Data) -> Built:
    """Return so many nodes of eight accelerators with parameter servers."""
    return built(*overrides, cluster={"node": "dgx-a100-40g", "nodes": nodes}, strategy=strategy(**keys))


def strategy(**keys: Data) -> Data:
    return {"tp": 2, "data_parallel": {"algorithm": "parameter_server", **keys}}


def service_of(made: Built) -> DataParallel:
    service = made.plan.strategy.data_parallel.service
    assert service is not None
    return service


def refused(*overrides: str, **keys: Data) -> tuple[str | None, str, str | None]:
    error = refusal(*overrides, strategy=strategy(**keys))
    return error.field, error.message, error.hint


def test_servers_stand_on_every_node_unless_asked_otherwise() -> None:
    service = service_of(served())

    assert service.hosts == (0, 1, 2, 3)
    assert (service.assignment, service.priority, service.reduce_in_node) == ("key_ranges", "layers", True)


@pytest.mark.parametrize(("servers", "hosts"), [(1, (0,)), (2, (0, 2)), (3, (0, 1, 2)), (4, (0, 1, 2, 3))])
def test_fewer_servers_than_nodes_are_spread_evenly(servers: int, hosts: tuple[int, ...]) -> None:
    made = served(servers=servers)

    assert service_of(made).hosts == hosts
    assert made.cluster.n_hosts == 4


@pytest.mark.parametrize(("servers", "n_hosts"), [(None, 8), (1, 5), (9, 13)])
def test_dedicated_servers_are_further_hosts_like_those_of_the_nodes(servers: int | None, n_hosts: int) -> None:
    made = served(servers=servers, placement="dedicated")

    assert made.cluster.n_hosts == n_hosts
    assert service_of(made).hosts == tuple(range(4, n_hosts))
    servers_laid = made.cluster.servers
    assert servers_laid is not None
    assert (servers_laid.host, servers_laid.nic, servers_laid.n_nics) == (made.cluster.node.host, made.cluster.node.nic, 8)


def test_more_colocated_servers_than_nodes_are_refused() -> None:
    assert refused(servers=3) == (
        f"{KEY}.servers", "3 servers do not fit on 2 nodes, one on each", "use at most 2, or placement: dedicated"
    )  # fmt: skip


@pytest.mark.parametrize("servers", [0, -1, 1.5, True, "two"])
def test_a_number_of_servers_that_is_none_is_refused(servers: Data) -> None:
    field, _, hint = refused(servers=servers, placement="dedicated")

    assert field == f"{KEY}.servers"
    assert hint is None or "number" in hint


def test_more_servers_than_anybody_waits_for_are_refused() -> None:
    assert refused(servers=10**9, placement="dedicated") == (
        f"{KEY}.servers", "1000000000 servers for 16 accelerators are more than are simulated", "use at most 1250000"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [("servers", 2), ("placement", "colocated"), ("assignment", "greedy"), ("priority", "none"), ("reduce_in_node", False)],
)
@pytest.mark.parametrize("algorithm", ["auto", "ring"])
def test_keys_of_parameter_servers_belong_to_no_other_algorithm(key: str, value: Data, algorithm: str) -> None:
    field, message, hint = refused(**{key: value, "algorithm": algorithm})

    assert field == f"{KEY}.{key}"
    assert message == f"{key} is for parameter servers, and the algorithm is {algorithm}"
    assert hint == "use algorithm: parameter_server, or leave the key out"


def test_parameter_servers_without_pipeline_stages_is_all_that_is_available() -> None:
    assert refused("strategy.pp=2") == (
        f"{KEY}.algorithm",
        "parameter_server with 2 pipeline stages is not available in this version",
        "use pp: 1, or another algorithm",
    )


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_parameter_servers_leave_nothing_to_shard(zero_stage: int) -> None:
    assert refused(f"strategy.zero_stage={zero_stage}") == (
        f"{KEY}.algorithm",
        f"parameter_server with zero_stage {zero_stage} is not available in this version",
        "use zero_stage: 0 (servers keep all optimizer state), or another algorithm",
    )


def test_workers_go_at_their_own_pace_where_asked() -> None:
    gradients = served(mode="ssp", staleness=3).plan.strategy.data_parallel

    assert (gradients.mode, gradients.staleness, gradients.backup_workers) == ("ssp", 3, None)
    assert served(mode="async").plan.strategy.data_parallel.mode == "async"
    assert served(backup_workers=1).plan.strategy.data_parallel.backup_workers == 1


@pytest.mark.parametrize(
    ("keys", "together"),
    [({}, True), ({"mode": "async"}, False), ({"mode": "ssp", "staleness": 1}, False), ({"backup_workers": 1}, False)],
)
def test_replicas_are_workers_of_their_own_unless_all_wait_for_all(keys: dict[str, Data], together: bool) -> None:
    def reduced(**more: Data) -> bool:
        return service_of(built(cluster={"node": "dgx-a100-40g", "nodes": 4}, strategy=strategy(**keys, **more))).reduce_in_node

    assert reduced() is together
    assert reduced(reduce_in_node=not together) is not together


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"mode": "ssp"}, ("mode", "mode ssp needs a bound", "add how many steps, such as staleness: 3")),
        (
            {"mode": "async", "staleness": 2},
            ("staleness", "staleness is for mode ssp, and the mode is async", "use mode: ssp, or leave the key out"),
        ),
        (
            {"mode": "async", "backup_workers": 1},
            ("backup_workers", "backup_workers are for mode sync, and the mode is async", "use mode: sync, or leave the key out"),
        ),
        (
            {"mode": "async", "algorithm": "ring"},
            (
                "mode",
                "mode async needs parameter servers, and the algorithm is ring",
                "use algorithm: parameter_server, or mode: sync without backup_workers",
            ),
        ),
        ({"backup_workers": 8}, ("backup_workers", "8 backup workers of 8 leave none to wait for", "use at most 7")),
        (
            {"backup_workers": 2, "reduce_in_node": True},
            ("backup_workers", "2 backup workers of 2 leave none to wait for", "use at most 1"),
        ),
    ],
)
def test_a_pace_that_cannot_be_is_refused(keys: dict[str, Data], expected: tuple[str, str, str]) -> None:
    key, message, hint = expected

    assert refused(**keys) == (f"{KEY}.{key}", message, hint)


@pytest.mark.parametrize(
    ("overrides", "field", "message"),
    [
        (["cluster.nodes=2"], f"{KEY}.single_process", "one process drives the accelerators of one node, and there are 2"),
        ([f"{KEY}.algorithm=tree"], f"{KEY}.algorithm", "one process sends through its first accelerator, and the algorithm is tree"),
        (["strategy.tp=2"], "strategy.tp", "single_process keeps the whole model on every accelerator, and tp is 2"),
        (
            ["strategy.zero_stage=1"],
            "strategy.zero_stage",
            "single_process keeps the whole model on every accelerator, and zero_stage is 1",
        ),
    ],
)
def test_one_process_drives_whole_copies_on_one_node(overrides: list[str], field: str, message: str) -> None:
    error = refusal("cluster.nodes=1", "strategy.tp=1", "strategy.pp=1", f"{KEY}.single_process=true", *overrides)

    assert (error.field, error.message) == (field, message)


def test_one_process_has_all_experts_on_every_accelerator() -> None:
    whole = ("cluster.nodes=1", "strategy.tp=1", "strategy.pp=1", "strategy.schedule=1f1b", "strategy.virtual_stages=1")
    changes = (*whole, f"{KEY}.single_process=true", f"{KEY}.no_sync=false")

    with pytest.raises(ScenarioError, match="single_process keeps the whole model on every accelerator, and ep is 8"):
        build(load_scenario("mixtral-8x7b-ep", changes))


@pytest.mark.parametrize(
    ("zero_stage", "degree", "message", "hint"),
    [
        (0, 4, "4 shards nothing with zero_stage 0", "use auto, or zero_stage 1, 2 or 3"),
        (1, 3, "3 does not divide dp = 8", "use auto, 1, 2, 4 or 8"),
    ],
)
def test_a_shard_degree_divides_the_replicas(zero_stage: int, degree: int, message: str, hint: str) -> None:
    error = refusal(strategy={"tp": 1, "zero_stage": zero_stage, "shard_degree": degree}, cluster={"node": "dgx-a100-40g", "nodes": 1})

    assert (error.field, error.message, error.hint) == ("strategy.shard_degree", message, hint)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_sharded_gradients_take_the_algorithms_that_scatter_and_gather(zero_stage: int) -> None:
    error = refusal(f"strategy.zero_stage={zero_stage}", f"{KEY}.algorithm=tree", strategy={"tp": 2})

    assert error.message == f"'tree' is not an algorithm of reduce_scatter and all_gather, which zero_stage {zero_stage} needs"
    assert (error.field, error.hint) == (f"{KEY}.algorithm", "use auto, ring or nvls")


@pytest.mark.parametrize("algorithm", ["nvls", "nvls_tree", "sharp"])
def test_an_algorithm_that_the_cluster_cannot_run_is_refused_with_those_it_can(algorithm: str) -> None:
    error = refusal(f"{KEY}.algorithm={algorithm}")

    assert error.field == f"{KEY}.algorithm"
    assert error.message.startswith(algorithm)
    assert error.hint == "use auto, ring, tree, halving_doubling or hierarchical"


def test_the_advice_names_what_runs_and_nothing_else() -> None:
    cluster: Data = {"node": "dgx-h100", "nodes": 2}
    error = refusal(f"{KEY}.algorithm=nvls", cluster=cluster, strategy={"tp": 2})
    assert error.hint is not None
    runs = [word for word in ALGORITHMS["all_reduce"] if word in error.hint.replace(",", "").split()]

    assert runs == ["ring", "tree", "halving_doubling", "hierarchical", "nvls_tree"]
    for algorithm in runs:
        assert built(f"{KEY}.algorithm={algorithm}", cluster=cluster, strategy={"tp": 2}).plan.strategy.data_parallel.algorithm == algorithm


def test_gradients_that_meet_nobody_take_any_algorithm() -> None:
    cluster: Data = {"node": "dgx-a100-40g", "nodes": 1, "accelerators_per_node": 2}

    assert built(f"{KEY}.algorithm=sharp", cluster=cluster, strategy={"tp": 2}).plan.strategy.dp == 1


def test_a_refusal_has_its_place_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT + "  data_parallel:\n    algorithm: nvls\n", encoding="utf-8")

    assert main(["run", str(path), "--dry-run"]) == EXIT_BAD_INPUT

    shown = capsys.readouterr().err
    assert f"{path}:23:16: strategy.data_parallel.algorithm: nvls needs a switch that adds" in shown


def test_servers_without_memory_for_their_part_are_flagged() -> None:
    def codes(model: str, servers: int) -> list[str]:
        made = built(model=model, strategy={"tp": 8, "data_parallel": {"algorithm": "parameter_server", "servers": servers}})
        return [flag.code for flag in made.flags]

    # A DGX A100 with accelerators of 40 GB has 1 TB; 175e9 parameters at 18 bytes are 3.1 TB.
    assert "server_memory" in codes("gpt-175b", 2)
    assert "server_memory" not in codes("llama3-8b", 1)


def test_a_run_charges_pulls_and_pushes_to_servers_and_nothing_to_an_optimizer() -> None:
    result = run("gpt2-servers-25g", set=["cluster.nodes=2", "strategy.dp=auto", "training.global_batch_size=64"])

    breakdown = result.metrics.breakdown_s
    assert breakdown.exposed_communication.ps > 0.0
    assert breakdown.exposed_communication.dp == breakdown.optimizer == 0.0
    assert {(each.op, each.algorithm) for each in result.metrics.collectives} == {
        ("pull", "parameter_server"),
        ("push", "parameter_server"),
        ("update", "parameter_server"),
    }
    assert result.metrics.memory.by_stage[0].optimizer_bytes == 0.0


def test_servers_are_swamped_at_their_own_adapters() -> None:
    result = run("gpt2-servers-25g", set=["strategy.data_parallel.servers=2"])

    peaks = {link.name: link.peak_utilisation for link in result.spans.links}
    # Eight nodes push to two servers: each of these is full, and each node's adapter a quarter of that.
    assert peaks["server0/nic0/rx"] == pytest.approx(0.96, rel=1e-9)
    assert peaks["node0/nic0/tx"] == pytest.approx(0.24, rel=1e-9)
    # A push takes little of it, and the update at the end all that is usable.
    assert peaks["server0/memory"] == pytest.approx(0.8, rel=1e-9)
