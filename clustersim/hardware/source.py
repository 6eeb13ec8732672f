"""Sources of figures, as files and results name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field, with_config

from clustersim.units.fields import NonNegative, PositiveInt, mistake

MEASURED: Final = "measured"
ADDRESS_WORDS: Final = ("memory", "assumed", "derived", "not kept", MEASURED)
"""Words allowed instead of an address; each needs a note."""


def _known_address(url: str) -> str:
    if url not in ADDRESS_WORDS and not url.startswith(("https://", "http://")):
        raise mistake(f"'{url}' is not an address", f"write https://... or one of {', '.join(ADDRESS_WORDS)}")
    return url


@with_config({"extra": "forbid"})
@dataclass(frozen=True, slots=True, kw_only=True)
class FitErrors:
    """Errors of predicted times after a fit of constants to their data."""

    rows: PositiveInt
    mean_error_fraction: NonNegative
    """Mean of the absolute relative errors."""
    median_error_fraction: NonNegative
    mean_error_before_fraction: NonNegative
    """The mean with the constants that were fitted from."""


@with_config({"extra": "forbid"})
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of figures, and the figures that it covers."""

    title: Annotated[str, Field(min_length=1)]
    url: Annotated[str, AfterValidator(_known_address)]
    """An address, or a word: ``memory`` (recalled and not seen), ``assumed`` (nobody publishes it), ``derived``, ``not kept`` (seen),
    ``measured`` (in a file of one's own, which its hash names) or ``scenario`` (given there, which no file says)."""
    accessed: Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = ""
    """The day; not for a measured file, which has a hash."""
    covers: Annotated[tuple[str, ...], Field(min_length=1)]
    note: str = ""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    fit: FitErrors | None = None


def _complete(source: Source) -> Source:
    if source.url in ADDRESS_WORDS and not source.note:
        raise mistake(f"a source with url '{source.url}' needs a note", "say what is known of the figure")
    if source.url == MEASURED and source.sha256 is None:
        raise mistake("nothing says which file was measured", "add its 'sha256: ...', as clustersim calibrate does")
    if source.url != MEASURED and not source.accessed:
        raise mistake("'accessed' is missing", "add the day, such as 'accessed: 2026-11-21'")
    return source


CheckedSource = Annotated[Source, AfterValidator(_complete)]
"""A source in a file."""
