"""Division of a chain of spans."""

from __future__ import annotations

import pytest

from clustersim.engine.critical_path import parts_of, slack_of
from clustersim.trace.timeline import Span


def span(kind: str = "forward", **changes: object) -> Span:
    values: dict[str, object] = {"rank_class": 0, "stream": "compute", "kind": kind, "name": "F", "start_s": 1.0, "end_s": 3.0, **changes}
    return Span(**values)  # pyright: ignore[reportArgumentType] - keywords of a test


def test_communication_is_charged_to_its_dimension() -> None:
    assert parts_of(span("communication", dimension="dp")) == {"dp communication": 2.0}


def test_a_pass_falls_into_what_stops_it_and_the_rest() -> None:
    parts = parts_of(span(exposed_s=(("tp", 0.5),), host_s=0.25, recompute_s=0.25))

    assert parts == {"tp communication": 0.5, "host": 0.25, "recompute": 0.25, "forward": 1.0}


def test_waiting_for_ranks_with_more_tokens_is_told_apart() -> None:
    parts = parts_of(span(exposed_s=(("ep", 0.75),), waiting_s=0.5))

    assert parts == {"ep communication": 0.25, "waiting": 0.5, "forward": 1.25}
    assert sum(parts.values()) == pytest.approx(2.0)


def test_what_hides_behind_a_pass_is_no_part_of_it() -> None:
    assert parts_of(span(hidden_s=(("dp", 1.0),))) == {"forward": 2.0}


def test_slack_is_gathered_by_rank_class_and_kind() -> None:
    spans = [span(), span(), span("communication", dimension="pp"), span(rank_class=1)]

    found = slack_of(spans, [0.0, 1.0, 3.0, 2.0])

    assert [(each.rank_class, each.what, each.n_tasks, each.least_s, each.mean_s) for each in found] == [
        (0, "forward", 2, 0.0, 0.5),
        (0, "pp communication", 1, 3.0, 3.0),
        (1, "forward", 1, 2.0, 2.0),
    ]
