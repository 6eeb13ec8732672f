from __future__ import annotations

import numpy as np

from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import RankClass, Span, Timeline

CLASSES = (RankClass(name="stage 0", stage=0, representative_rank=0, ranks=np.arange(8)),)
LOG = StepLog(n_steps=2, step_times_s=(1.0, 2.0), duration_s=3.0, classes=(), applied=2, staleness=((0, 2),), max_lead=0)


def test_one_step_lasts_its_step_time() -> None:
    assert Timeline(rank_classes=CLASSES, spans=(), step_time_s=1.5).duration_s == 1.5


def test_several_steps_last_as_long_as_all_of_them() -> None:
    assert Timeline(rank_classes=CLASSES, spans=(), step_time_s=1.5, steps=LOG).duration_s == 3.0


def test_a_frame_ends_with_the_step() -> None:
    spans = tuple(
        Span(rank_class=0, stream="compute", kind="forward", name="F", start_s=step, end_s=step + 1, step=step) for step in (0, 1)
    )

    frame = Timeline(rank_classes=CLASSES, spans=spans, step_time_s=1.5, steps=LOG).to_frame()

    assert frame.columns[-1] == "step"
    assert frame["step"].tolist() == [0, 1]
