"""Shipped models by names of the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from clustersim.documents.files import data_names, data_path

_AFFIXES: Final = re.compile(
    r"^(meta-|base-|nvidia-|amd-|redhatai-|deepseek-ai-)|-(hf|instruct|chat|base|it|pt|v[01]\.?\d|pretrain(ing)?|config|finetune|sft|peft|recipe|bf16|fp8(-dynamic|-block)?|(nv)?fp4(-v\d)?"
    r"|awq|gptq(-int\d)?|bnb-(4bit|nf4)|\d{1,3}k|1m|\d{4}|linearized|int\d|w\d?-?a(4|8|16)|w-mxfp4(-a-fp8)?|quantized\.w\da\d{1,2}|thinking|reasoning"
    r"|terminus|uncased|dequantized|deduped|kv|\d{1,2}e)$|bpetokenizer$"
)
_NAMES: Final = re.compile(r"^names: \[(.*)\]$", re.MULTILINE)
_ON_THE_HUB: Final = re.compile(r"[A-Za-z][\w-]*/[\w.-]+")


def shipped_name(text: str) -> str | None:
    """Return the shipped model that a name of the Hugging Face Hub, of a recipe or of a folder means.

    Examples
    --------
    >>> shipped_name("meta-llama/Meta-Llama-3.1-8B-Instruct"), shipped_name("mine/unheard-of")
    ('llama3.1-8b', None)
    """
    base = text.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    while (known := _byletters().get(letters(base))) is None and (shorter := _AFFIXES.sub("", base)) != base:
        base = shorter
    return known


@lru_cache
def _byletters() -> Mapping[str, str]:
    folder = data_path("scenarios") / "models"
    others = {name: _NAMES.search((folder / f"{name}.yaml").read_text("utf-8")) for name in data_names("scenarios", "models")}
    listed = {letters(other): name for name, found in others.items() if found for other in found[1].split(",")}
    return listed | {letters(name): name for name in data_names("scenarios", "models")}


def letters(name: str) -> str:
    """Return a name without what spellings differ in: signs and case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def hub_model(text: str) -> str | None:
    """Return the shipped model that an owner and a name on the Hub mean; None of any other text.

    Examples
    --------
    >>> hub_model("Qwen/Qwen2.5-32B"), hub_model("qwen2.5-32b"), hub_model("../Qwen2.5-32B"), hub_model("mine/unheard-of")
    ('qwen2.5-32b', None, None, None)
    """
    return shipped_name(text) if _ON_THE_HUB.fullmatch(text) else None
