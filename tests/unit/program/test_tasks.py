from __future__ import annotations

import typing

from clustersim.program.tasks import Phase
from clustersim.trace.timeline import KINDS


def test_every_phase_is_a_kind_of_span() -> None:
    assert set(typing.get_args(Phase)) == set(KINDS) - {"communication"}
