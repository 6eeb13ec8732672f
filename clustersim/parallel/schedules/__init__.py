"""Pipeline schedules: one file and one row each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.parallel.schedules.automatic import zb_2p
from clustersim.parallel.schedules.breadth_first import breadth_first
from clustersim.parallel.schedules.dualpipe import dualpipe
from clustersim.parallel.schedules.dualpipe_v import dualpipe_v
from clustersim.parallel.schedules.gpipe import gpipe
from clustersim.parallel.schedules.interleaved import interleaved_1f1b
from clustersim.parallel.schedules.naive import naive
from clustersim.parallel.schedules.one_f_one_b import one_f_one_b
from clustersim.parallel.schedules.order import Schedule
from clustersim.parallel.schedules.places import bidirectional, v_shaped
from clustersim.parallel.schedules.zb_v import zb_v
from clustersim.parallel.schedules.zero_bubble import zb_h1, zb_h2

SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {
        "naive": Schedule(make=naive, sends_beside=False),
        "gpipe": Schedule(make=gpipe, sends_beside=False),
        "1f1b": Schedule(make=one_f_one_b, sends_beside=False),
        "interleaved_1f1b": Schedule(make=interleaved_1f1b, n_chunks=None, whole_rounds=True),
        "breadth_first": Schedule(make=breadth_first, n_chunks=None),
        "zb_h1": Schedule(make=zb_h1, splits=True, validates_later=True),
        "zb_h2": Schedule(make=zb_h2, splits=True, validates_later=True),
        "zb_2p": Schedule(by_times=zb_2p, splits=True, validates_later=True),
        "zb_v": Schedule(make=zb_v, layout=v_shaped, n_chunks=2, splits=True, validates_later=True),
        "dualpipe": Schedule(make=dualpipe, layout=bidirectional, splits=True, in_pairs=True, least_rounds=2),
        "dualpipe_v": Schedule(make=dualpipe_v, layout=v_shaped, n_chunks=2, splits=True, least_rounds=2),
    }
)
"""Every schedule that a scenario can name."""
