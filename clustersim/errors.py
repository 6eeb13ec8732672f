"""Errors for users: what is wrong, where, why, and what would be right."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

EXIT_OK: Final = 0
EXIT_NO: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_PARTIAL: Final = 3
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130


class ClustersimError(Exception):
    """Base of every error that clustersim raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of an error in a text; lines and columns count from one."""

    file: str
    line: int | None = None
    column: int | None = None
    text: str | None = None
    """The whole source line, for the caret."""

    def __str__(self) -> str:
        """Return ``file:line:column``, as far as known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class DomainError(ClustersimError):
    """A value that cannot be used, named by its path of attributes; config adds the key and its place in the file.

    Parameters
    ----------
    message
        What is wrong, in words of the field.
    path
        Attributes and indices from the objects of a run, such as ``("cluster", "fabric", "dimensions")``; empty where no value is meant.
    hint
        What would be right.
    in_the_way
        Path of another value, which does not go with the first.
    """

    def __init__(
        self, message: str, *, path: tuple[str | int, ...] = (), hint: str | None = None, in_the_way: tuple[str | int, ...] = ()
    ) -> None:
        self.message = message
        self.path = path
        self.hint = hint
        self.in_the_way = in_the_way
        super().__init__(message)

    def __str__(self) -> str:
        """Return ``message; hint``."""
        return self.message if self.hint is None else f"{self.message}; {self.hint}"


@contextmanager
def inside(*path: str | int) -> Generator[None]:
    """Prefix the path of an error of a part with the attributes that lead to the part."""
    try:
        yield
    except DomainError as error:
        error.path = (*path, *error.path)
        raise


class ScenarioError(DomainError):
    """Input that cannot be used: a mistake, its place, what would be right, and further mistakes beside it.

    Parameters
    ----------
    message
        What is wrong, without place and without advice.
    field
        Dotted path of the field, such as ``strategy.tp``.
    hint
        What would be right.
    place
        Where in the file, when it came from a file.
    """

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None, place: Place | None = None) -> None:
        self.field = field
        self.place = place
        self.further: tuple[ScenarioError, ...] = ()
        self.options = ""
        """Options that complete the command, where it lacks some."""
        super().__init__(message, hint=hint)

    def at(self, place: Place) -> ScenarioError:
        """Return the same error with its place filled in."""
        return ScenarioError(self.message, field=self.field, hint=self.hint, place=place).beside(self.further)

    def beside(self, others: Iterable[ScenarioError]) -> ScenarioError:
        """Return the error with the further mistakes of the same input."""
        self.further = tuple(others)
        return self

    def __str__(self) -> str:
        """Return ``file:line:column: field: message; hint`` and, if known, the line with a caret, for each mistake."""
        return "\n".join((self._first(), *map(str, self.further)))

    def _first(self) -> str:
        head = ": ".join(str(part) for part in (self.place, self.field) if part)
        first = f"{head}: {super().__str__()}" if head else super().__str__()
        if self.place is None or self.place.text is None:
            return first
        caret = " " * ((self.place.column or 1) - 1) + "^"
        return f"{first}\n  {self.place.text}\n  {caret}"


class InfeasibleError(ClustersimError):
    """A well-formed plan that cannot run on the cluster it names."""


class DeadlockError(ClustersimError):
    """A replay in which every task that is left waits for another; names who waits for what."""


def forget_interruption() -> None:
    """Let the process end with the exit code that it is given.

    CPython remembers a KeyboardInterrupt that left code run by ``exec``, as it makes dataclasses and named tuples, and kills the process by
    SIGINT at the end, also where the exception was caught outside; the next ``exec`` makes it forget that.
    """
    exec("")  # noqa: S102 - nothing is run
