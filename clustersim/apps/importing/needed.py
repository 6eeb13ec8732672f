"""Settings that no file gives, and the options that do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clustersim.apps.importing.imported_serving import NEEDED as SERVING_NEEDED
from clustersim.apps.importing.imported_settings import Draft
from clustersim.apps.importing.table import JobKind

_DEGREES: Final = ("strategy.tp", "strategy.pp", "strategy.cp", "strategy.ep", "serving.")
"""Settings without a default where a file gives them by a variable."""
_NEEDED: Final = (
    ("training.seq_length", "the length of sequences: -s training.seq_length=..."),
    ("training.micro_batch_size", "the micro-batch: -s training.micro_batch_size=..."),
    ("training.global_batch_size", "the batch of a step: -s training.global_batch_size=..."),
)
_OPTION: Final = re.compile(r"-s [\w.]+=[^\s,]+|--\w+ [\w-]+")
_OTHERWISE: Final = re.compile(r",? \(?or ")
"""Before a second way to give a setting."""
_OF_A_RECIPE: Final = "the degrees that the recipe sets in its code: -s strategy.tp=..., and pp, cp and ep where they are not 1"


def missing_settings(draft: Draft, missing: Sequence[str], job: JobKind) -> list[str]:
    """Return all that no file says, each with the option that gives it, behind what is missing of model and machine."""
    # Batches follow from the number of ranks, and are asked for when that is known.
    later = [] if job == "serving" else [key for key, _ in _NEEDED if missing and key != "training.seq_length"]
    needed = SERVING_NEEDED if job == "serving" and draft.get("requests.trace") is None else _NEEDED if job == "training" else ()
    found = [*missing, *(option for key, option in needed if draft.get(key) is None and key not in later)]
    if draft.get("job.recipe") is True and all(draft.get(f"strategy.{degree}") is None for degree in ("tp", "pp", "cp", "ep")):
        found.append(_OF_A_RECIPE)
    if draft.get("job.open_precision") is True and draft.get("training.precision") is None:
        found.append("the precision, which it leaves to the trainer: -s training.precision=...")
    if found and (file := draft.get("job.option_file")) is not None:
        found = [f"the options in {file}: name it beside the command", *found]
    asked_for = " ".join(found)
    return found + [
        f"{name}, which depends on a variable: -s {key}=..."
        for key, name in draft.open.items()
        if key.startswith(_DEGREES)
        and f"-s {key}=" not in asked_for
        and (key not in draft.settings or draft.settings[key].how in ("default", "derived"))
    ]


def slips(draft: Draft, missing: Sequence[str]) -> list[str]:
    """Return the first keys that are not understood and may hold what no file says."""
    told = " ".join(missing)
    unknown = [each for each in draft.keys if each.how == "unknown" and each.note and each.key not in told]
    return [f"{each.key}{f' in line {each.line}' if each.line else ''}: {each.note}" for each in unknown[:3]]


def options_for(missing: Sequence[str]) -> str:
    """Return the first way to give each of several settings that no file says; nothing without several.

    Examples
    --------
    >>> options_for(["nodes: --nodes N", "words: -s model.vocab_size=... (or --model X)", "a rate: -s requests.rate=..., or a trace"])
    '--nodes N -s model.vocab_size=... -s requests.rate=...'
    """
    options = [option for each in missing for option in _OPTION.findall(_OTHERWISE.split(each)[0])]
    return " ".join(options) if len(options) > 1 else ""
