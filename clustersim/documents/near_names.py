"""Nearest of the names that might have been meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

_FILLING: Final = ("", "model", "size", "degree")
"""Words of long names that short ones leave out."""
_SLIP: Final = 0.9
"""Least likeness of a word to a choice that is one slip away, where first letters are another choice."""
_SHORT: Final = 7
"""Letters above which a slip in the beginning of a longer choice is told from another word."""
_LEAST_LETTERS: Final = 3
"""Letters from which on a choice that begins so is the nearest."""


def did_you_mean(word: str, choices: Iterable[str], alike: float = 0.6) -> str | None:
    """Return ``did you mean 'tensor'?`` for the nearest choice, or None when none is alike to a share of its letters."""
    known = list(choices)
    begun = sorted((choice for choice in known if len(word) >= _LEAST_LETTERS and choice.startswith(word)), key=len)
    likeness = max(alike, _SLIP) if (short := initials(word, known)) else alike
    letters = len(word) + 1
    slipped = [choice for choice in known if len(word) > _SHORT and difflib.SequenceMatcher(a=word, b=choice[:letters]).ratio() >= _SLIP]
    exact = difflib.get_close_matches(word, known, n=1, cutoff=_SLIP)
    bare = {"_".join(_telling(choice)): choice for choice in reversed(known) if _telling(choice)}
    close = (
        begun[:1]
        or exact
        or [bare[each] for each in difflib.get_close_matches("_".join(_telling(word)), bare, n=1, cutoff=_SLIP)]
        or sorted(slipped, key=len)[:1]
        or difflib.get_close_matches(word, known, n=1, cutoff=likeness)
        or [short] * bool(short)
    )
    if not close:
        folded = {choice.lower().replace("-", "_"): choice for choice in known}
        close = [folded[match] for match in difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=alike)]
    return f"did you mean '{close[0]}'?" if close else None


def initials(word: str, choices: Iterable[str]) -> str:
    """Return the choice of the first letters of words, such as tp for tensor_model_parallel_size; empty where there is none."""
    short = "".join(part[:1] for part in _telling(word))
    return short if len(short) > 1 and short in choices else ""


def _telling(word: str) -> list[str]:
    return [part for part in re.split(r"[-_ ]", word.lower()) if part not in _FILLING]


def choices_hint(word: str, choices: Iterable[str], longest: int = 12) -> str:
    """Return a hint with the nearest choice if there is one, and else the choices themselves."""
    known = list(choices)
    near = did_you_mean(word, known)
    if near is not None:
        return near
    return f"use one of {', '.join(known[:longest])}" + (", ..." if len(known) > longest else "")
