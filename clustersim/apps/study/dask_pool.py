"""Points on a Dask cluster; the only file that knows Dask, which is an extra."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportAssignmentType=false
# distributed declares hardly any types, and as if every client were asynchronous; what is used of it is an executor.

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from clustersim import __version__
from clustersim.apps.study.pools import KEPT, WorkerPool
from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from distributed import Client

PATIENCE_S: Final = 10.0
"""Timeouts for a scheduler and for a worker, in seconds."""
_LOGGERS: Final = ("distributed", "tornado")
_SAME: Final = "install the same version where the workers are"


class DaskPool(WorkerPool):
    """The workers of a Dask cluster: its scheduler deals with those that die."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen_s = monotonic()
        super().__init__(client.get_executor(pure=False), max(1, sum(client.nthreads().values())))

    def check(self) -> None:
        """Look whether there is a scheduler that has workers, while nothing finishes.

        Raises
        ------
        ScenarioError
            When there has been none for a while.
        """
        there = self._client.status == "running" and self._client.scheduler_info()["workers"]
        now_s = monotonic()
        if there:
            self._seen_s = now_s
        elif now_s - self._seen_s > PATIENCE_S:
            what = "has no worker any more" if self._client.status == "running" else "does not answer any more"
            raise ScenarioError(f"the Dask scheduler {what}", field="--executor", hint=KEPT)


@contextmanager
def cluster_pool(n_workers: int) -> Generator[WorkerPool]:
    """Yield a local cluster on this machine, closed at the end."""
    from distributed import Client, LocalCluster

    with (
        _quiet(),
        # Without an address Dask insists on its usual port, which another cluster on this machine may have.
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL) as cluster,
        Client(cluster) as client,
    ):
        yield DaskPool(client)


@contextmanager
def scheduler_pool(address: str) -> Generator[WorkerPool]:
    """Give the workers of a scheduler.

    Raises
    ------
    ScenarioError
        When it does not answer, has no worker, or its workers have another version of this package, or none.
    """
    from distributed import Client

    where = f"the Dask scheduler at {address}"
    with _quiet():
        try:
            client = Client(address, timeout=PATIENCE_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ScenarioError(
                f"{where} does not answer within {PATIENCE_S:g} s", field="--executor", hint="check its address, and that it runs"
            ) from error
        try:
            _check_workers(client, where)
            yield DaskPool(client)
        finally:
            with suppress(Exception):  # a scheduler that has gone cannot be told goodbye
                client.close(timeout=PATIENCE_S)


def _check_workers(client: Client, where: str) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
    except TimeoutError as error:
        raise ScenarioError(f"{where} has no worker", field="--executor", hint="start one with dask worker") from error
    try:
        versions: Mapping[str, str] = client.run(_version)
    except Exception as error:
        raise ScenarioError(f"a worker of {where} cannot run clustersim: {error}", field="--executor", hint=_SAME) from error
    for worker, version in versions.items():
        if version != __version__:
            message = f"worker {worker} has clustersim {version}, and this is {__version__}"
            raise ScenarioError(message, field="--executor", hint=_SAME)


def _version() -> str:
    return __version__


@contextmanager
def _quiet() -> Generator[None]:
    """Keep the log of the library away inside: what matters comes back as an error."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
