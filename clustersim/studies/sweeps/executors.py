"""The names of executors: ``local``, ``dask`` and ``dask:`` with the address of a scheduler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Final

from clustersim.documents.check import choices_hint
from clustersim.errors import ScenarioError
from clustersim.studies.sweeps.pools import Pool, local_pool, usable_cores

LOCAL: Final = "local"
DASK: Final = "dask"
ADDRESS: Final = "dask:"


def check_executor(name: str) -> None:
    """Refuse an executor that does not exist, or whose library is not installed, before anything else is done.

    Raises
    ------
    ScenarioError
        Says which there are.
    """
    if name not in {LOCAL, DASK} and (not name.startswith(ADDRESS) or name == ADDRESS):
        hint = choices_hint(name, (LOCAL, DASK, "dask:tcp://host:8786"))
        raise ScenarioError(f"'{name}' is no executor", field="--executor", hint=hint)
    if name != LOCAL and find_spec("distributed") is None:
        raise ScenarioError("Dask is not installed", field="--executor", hint="pip install 'clustersim[dask]'")


def make_pool(name: str, jobs: int | None, n_points: int) -> AbstractContextManager[Pool]:
    """Return the workers of an executor, no more than there are points; as many as processors if nobody says how many."""
    most = min(jobs or usable_cores(), n_points)
    if name == LOCAL:
        return local_pool(most)
    from clustersim.studies.sweeps.dask_pool import cluster_pool, scheduler_pool

    return cluster_pool(most) if name == DASK else scheduler_pool(name.removeprefix(ADDRESS))
