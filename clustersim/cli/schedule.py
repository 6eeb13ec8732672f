"""``clustersim schedule``."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from clustersim.apps.importing.opening import open_scenario
from clustersim.cli.options import JsonOption, OutOption, ScenarioArgument, SetOption
from clustersim.cli.terminal import notice, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.build import build
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.parallel.schedules.written import written
from clustersim.parallel.stages import orders_of, places_of


def schedule_command(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> int:
    """Print the pipeline schedule of a scenario.

    Each rank has a row, in the format of PyTorch.
    """
    with watched():
        plan = build(open_scenario(scenario, tuple(set_ or ()))).plan
    if out is not None and not out.endswith(".csv"):
        raise ScenarioError(f"'{out}' does not end in .csv, as schedules in files do", hint=f"use --out {out}.csv")
    if plan.strategy.pp == 1:
        raise ScenarioError("there is no pipeline", field="strategy.pp", hint="use pp of 2 or more")
    places = places_of(plan.strategy)
    text = written(orders_of(plan.strategy, plan.n_micro_batches), places)
    if out is not None:
        write_text(Path(out), text)
        later = "true" if plan.strategy.optimizer_post_validation else "false"
        beside = "true" if plan.strategy.overlap_p2p else "false"
        keys = f"schedule: {Path(out).resolve()}, overlap_p2p: {beside}, optimizer_post_validation: {later}"
        notice(f"wrote {out}; use it with strategy: {{{keys}}}, its path as it is or from the folder of the scenario")
    if json:
        write_json(
            {
                "schedule": plan.strategy.schedule,
                "ranks": plan.strategy.pp,
                "stages": places.n_parts,
                "micro_batches": plan.n_micro_batches,
                "passes": [list(row) for row in csv.reader(io.StringIO(text))],
            }
        )
    elif out is None:
        write_out(text)
    return EXIT_OK
