"""A new GPU, schedule, collective algorithm, technique or job is one file and at most one row; a setting its declaration and its reader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario

ROOT = Path(__file__).parents[2]
SCENARIO = """\
version: 1
name: one-file
model: gpt2
cluster: {node: dgx-h100, nodes: 1, accelerators_per_node: 4}
training: {global_batch_size: 32, seq_length: 1024}
strategy: {tp: 1, pp: 4, schedule: gpipe}
"""


pytestmark = pytest.mark.slow


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("clustersim", "hardware_profiles", "scenarios"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def python(copy: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def command(copy: Path, *arguments: str) -> str:
    return python(copy, "-m", "clustersim", *arguments)


def known_step_s(path: Path) -> float:
    """Return the step time without what the copy has more."""
    return run_built(build(load_scenario(path))).metrics.step_time_s


def step_of(copy: Path, scenario: Path, *settings: str) -> float:
    return json.loads(command(copy, "run", str(scenario), "--json", *settings))["step_time_s"]


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def add_row(path: Path, after: str, row: str, imported: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert after in text
    text = text.replace(after, after + row, 1)
    path.write_text(text.replace("from typing import Final\n", f"from typing import Final\n\n{imported}\n", 1), encoding="utf-8")


def test_a_gpu_is_one_file(copy: Path, scenario: Path) -> None:
    profiles = copy / "hardware_profiles" / "accelerators"
    text = (profiles / "h100-sxm5-80g.yaml").read_text(encoding="utf-8")
    (profiles / "h101.yaml").write_text(text.replace("name: h100-sxm5-80g", "name: h101"), encoding="utf-8")
    assert step_of(copy, scenario, "-s", "cluster.accelerator=h101") == known_step_s(scenario)


def test_a_schedule_is_one_file_and_one_row(copy: Path, scenario: Path) -> None:
    folder = copy / "clustersim" / "parallel" / "schedules"
    (folder / "flush.py").write_text(
        '"""All forward passes, then all backward passes in the same order."""\n\n'
        "from clustersim.parallel.schedules.order import backward, forward\n\n\n"
        "def flush(n_stages, n_micro_batches, n_chunks):\n"
        "    passes = range(n_micro_batches)\n"
        "    return (tuple(map(forward, passes)) + tuple(map(backward, passes)),) * n_stages\n",
        encoding="utf-8",
    )
    add_row(
        folder / "__init__.py",
        '        "naive": Schedule(make=naive, sends_beside=False),\n',
        '        "flush": Schedule(make=flush),\n',
        "from clustersim.parallel.schedules.flush import flush",
    )
    assert step_of(copy, scenario, "-s", "strategy.schedule=flush") == pytest.approx(known_step_s(scenario), rel=0.1)


def test_a_collective_algorithm_is_one_file_and_one_row(copy: Path) -> None:
    folder = copy / "clustersim" / "collectives"
    (folder / "second_ring.py").write_text(
        '"""A ring under another name."""\n\n'
        "from dataclasses import replace\n\n"
        "from clustersim.collectives.ring import RINGS\n\n"
        'SECOND_RING = replace(RINGS["all_reduce"], name="second_ring")\n',
        encoding="utf-8",
    )
    add_row(
        folder / "__init__.py",
        '"all_reduce": _by_name(',
        "SECOND_RING, ",
        "from clustersim.collectives.second_ring import SECOND_RING",
    )
    asked = ("collective", "--cluster", "dgx-h100", "--op", "all_reduce", "--sizes", "64MB", "--json", "--algorithm")
    own, ring = (json.loads(command(copy, *asked, name))[0]["time_s"] for name in ("second_ring", "ring"))
    assert own == pytest.approx(ring, rel=0.2)


def test_a_parallel_technique_is_one_file_and_one_row(copy: Path, scenario: Path) -> None:
    folder = copy / "clustersim" / "parallel" / "contributors"
    (folder / "pause.py").write_text(
        '"""A pause of a second before each step."""\n\n'
        "from clustersim.parallel.contributors.contributor import Contributor\n"
        "from clustersim.program.tasks import Block, Compute, Work\n"
        "from clustersim.workloads.operators import Recorded\n\n\n"
        "class Pause(Contributor):\n"
        "    def begin(self):\n"
        '        work = Work(name="pause", phase="load", kernels=(Recorded(1.0),))\n'
        '        action = Compute(name="pause", phase="load", blocks=(Block(name="pause", body=(work,)),))\n'
        '        for lane in self.step.division.lanes(0, "loader"):\n'
        '            self.step.builder.add(("pause", lane.rank_class), action, [lane])\n',
        encoding="utf-8",
    )
    add_row(folder / "__init__.py", "    ModelState,\n", "    Pause,\n", "from clustersim.parallel.contributors.pause import Pause")
    assert step_of(copy, scenario) == pytest.approx(max(known_step_s(scenario), 1.0), rel=0.05)


def test_a_job_is_one_file(copy: Path, scenario: Path) -> None:
    (copy / "clustersim" / "engine" / "paused.py").write_text(
        '"""A job that pauses for as long after each step as the step took."""\n\n'
        "from clustersim.engine.jobs import Repeated\n\n\n"
        "class Paused(Repeated):\n"
        "    def run(self, allocation):\n"
        "        while True:\n"
        "            began_s = allocation.world.now\n"
        "            yield from allocation.replay(self.program)\n"
        "            yield allocation.world.after(allocation.world.now - began_s)\n",
        encoding="utf-8",
    )
    (copy / "beside.py").write_text(
        "from clustersim.apps.run.replaying import machine_of, on_nodes\n"
        "from clustersim.config.build import build\n"
        "from clustersim.config.load import load_scenario\n"
        "from clustersim.engine.jobs import Repeated\n"
        "from clustersim.engine.paused import Paused\n"
        "from clustersim.engine.simulate import replay\n"
        "from clustersim.hardware.calibrations import calibration_of\n"
        "from clustersim.parallel.lower import lower\n\n"
        'wide = build(load_scenario("scenario.yaml", ("cluster.nodes=3", "training.global_batch_size=96")))\n'
        'long = build(load_scenario("scenario.yaml", ("training.global_batch_size=512",)))\n'
        "cluster, plan = wide.cluster, long.plan\n"
        "machine = machine_of(plan.training, plan.strategy, cluster, calibration_of([cluster.node]))\n"
        'step = lower(build(load_scenario("scenario.yaml")).plan)\n'
        "programs = (on_nodes(step, [node], cluster) for node in (1, 2))\n"
        "kinds = zip((Paused, Repeated), programs)\n"
        'jobs = [kind(name="", program=program, kernels=machine.kernels) for kind, program in kinds]\n'
        "timeline, _ = replay(on_nodes(lower(plan), [0], cluster), machine, others=jobs)\n"
        "print(*(job.steps for job in timeline.jobs))\n",
        encoding="utf-8",
    )
    paused, repeated = map(int, python(copy, "beside.py").split())
    assert repeated > 8
    assert paused == (repeated + 1) // 2


def test_a_setting_is_its_declaration_and_the_technique_that_reads_it(copy: Path, scenario: Path) -> None:
    parallel = copy / "clustersim" / "parallel"
    anchor = "    data_loader: DataLoader | None"
    replace_in(parallel / "step_settings.py", anchor, f'    late: StrictBool = setting(False, "Batches are read slowly.")\n{anchor}')
    replace_in(
        parallel / "contributors" / "data_loading.py",
        "        loader = training.data_loader\n",
        '        loader = DataLoader(rate="1 samples/s") if training.late else training.data_loader\n',
    )
    replace_in(
        parallel / "contributors" / "data_loading.py",
        "from clustersim.program.tasks import",
        "from clustersim.parallel.step_settings import DataLoader\nfrom clustersim.program.tasks import",
    )
    shown = [step_of(copy, scenario, "-s", f"training.late={late}") for late in ("false", "true")]
    assert shown == [known_step_s(scenario), pytest.approx(32.0, rel=0.01)]
    assert "late" in command(copy, "schema")
    # Tests and pages that list settings find the new one by themselves.
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    listing = ["tests/unit/test_documentation.py", "tests/unit/config/test_build.py", "tests/property/test_settings.py"]
    chosen = ["-k", "key or the_defaults or has_values or training.late"]
    for arguments in (["tests/golden/test_settings_page.py", "--update-golden"], [*listing, *chosen]):
        python(copy, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments)
    assert "| `training.late` | Batches are read slowly | false |" in (copy / "docs" / "reference" / "scenario.md").read_text()
