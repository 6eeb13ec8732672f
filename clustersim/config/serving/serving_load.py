"""Text to a checked serving scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustersim.config.load import ScenarioText, name_from, read_source
from clustersim.config.overriding import Override, apply_overrides, blame, parse_override
from clustersim.config.serving.serving_schema import ServingScenarioSpec, ServingSpec
from clustersim.documents.check import located, validate_document
from clustersim.documents.text import Document
from clustersim.errors import DomainError, ScenarioError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingScenario:
    """A serving scenario whose keys and values are right one by one, and the text they came from."""

    name: str
    spec: ServingScenarioSpec
    document: Document
    """With the overrides in it."""
    text: str
    """As it was given, without the overrides."""
    folder: Path
    """Folder that paths in the scenario are relative to."""
    overrides: tuple[Override, ...]

    def located(self, error: DomainError) -> ScenarioError:
        """Return an error with its key and the place of that: a line of the file, or the ``--set`` that brought the value."""
        if not isinstance(error, ScenarioError):
            key = str(error.path[-1]) if error.path else ""
            field = f"serving.{key}" if key in ServingSpec.model_fields else "serving" if key else None
            error = ScenarioError(error.message, field=field, hint=error.hint)
        placed = error if error.place else located(error, self.document)
        return blame(placed, self.overrides, self.document)


def is_serving(source: ScenarioText) -> bool:
    """Return whether a scenario is about serving."""
    return "serving" in source.document.data


def load_serving(source: str | Path | Mapping[str, object], overrides: str | Sequence[str] = ()) -> ServingScenario:
    """Return a checked serving scenario; parameters as for :func:`clustersim.config.load.load_scenario`."""
    texts = (overrides,) if isinstance(overrides, str) else overrides
    return checked_serving(read_source(source), [parse_override(text) for text in texts])


def checked_serving(source: ScenarioText, changes: Sequence[Override]) -> ServingScenario:
    """Return a checked serving scenario: what was written, with changes on top.

    Raises
    ------
    ScenarioError
        With the first mistake, its place and what would be right.
    """
    document = apply_overrides(source.document, changes)
    try:
        for key in ("training", "strategy"):
            if key in document.data:
                raise located(
                    ScenarioError(f"{key} stands beside serving", field=key, hint="a scenario is about one of the two: delete the other"),
                    document,
                )
        spec = validate_document(ServingScenarioSpec, document)
    except ScenarioError as error:
        raise blame(error, tuple(changes), document) from error
    return ServingScenario(
        name=spec.name or name_from(document.name),
        spec=spec,
        document=document,
        text=source.text,
        folder=source.folder,
        overrides=tuple(changes),
    )
