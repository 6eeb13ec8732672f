"""``clustersim advise``."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.apps.plan.advice import advise
from clustersim.apps.plan.asking import asked_of
from clustersim.cli.terminal import notice, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import plain
from clustersim.errors import EXIT_NO, EXIT_OK


def advise_command(
    model: str, cluster: str | None, *, nodes: int | None, overrides: Sequence[str], only: Sequence[str], as_json: bool
) -> int:
    """Say which family of strategies suits, and return the exit code."""
    with watched(profiles=False, shows=not as_json):
        advice = advise(asked_of(model, cluster, nodes=nodes, overrides=overrides, limits=only))
    if as_json:
        write_json(plain(advice))
    else:
        write_out(f"{advice.sentence}\n\n")
        write_out("".join(f"- {each.sentence}\n" for each in advice.families))
        for line in advice.assumed:
            notice(f"assumed: {line}")
    return EXIT_OK if any(each.layout for each in advice.families) else EXIT_NO
