"""Transforms of values, by name: from a framework's notation to that of scenarios."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from clustersim.documents.text import Data
from clustersim.workloads.adapters import AdaptedLayer
from clustersim.workloads.operators import GraphPart

_NUMBER: Final = re.compile(r"[+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_FREQUENCY: Final = re.compile(r"\(?\s*((?:\[\s*[01](?:\s*,\s*[01])*\s*\](?:\s*\*\s*\d{1,9})?\s*\+?\s*)+)\)?(?:\s*\*\s*(\d{1,9}))?")
_GROUP: Final = re.compile(r"\[([01,\s]+)\](?:\s*\*\s*(\d{1,9}))?")
_REPEATED: Final = (re.compile(r"\(([^()]*)\)\*(\d{1,9})"), re.compile(r"([EtmL])\*(\d{1,9})"))
"""Parts, then letters, of a layout with their number."""
_IMAGE_VERSION: Final = re.compile(r"(?:vllm/vllm-openai|lmsysorg/sglang|tensorrt-llm/release):v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)")
_RECIPE: Final = re.compile(r"_(full|q?lora|dora|qat)(_.*)?$")
"""Method of training at the end of a recipe's name."""
_GENERATED: Final = 20
"""Length of generated texts, which configurations of models hold by default, and no length of training."""
_LARGEST: Final = 1e30
_MOST_LAYERS: Final = 10_000
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class UnreadableError(Exception):
    """A value that a transform cannot read; the text gives the expected form."""


def truth(value: Data) -> bool | None:
    """Return the truth value of a text; None where it is neither."""
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def number(value: Data) -> int | float:
    """Return a number, whole where it is.

    Examples
    --------
    >>> number("1e9"), number("739_328"), number(0.5)
    (1000000000, 739328, 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnreadableError("a number")
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip()):
            raise UnreadableError("a number")
        value = float(value.strip().replace("_", "").replace(",", ""))
    # False for nan too.
    if not abs(value) <= _LARGEST:
        raise UnreadableError("a number")
    return int(value) if value == int(value) else value


def _sized(unit: str, factor: float = 1) -> Callable[[Data], Data]:
    """Return a transform of a number to a size in a unit, of which each is so many."""
    return lambda value: f"{factor * number(value):.12g} {unit}"


def _tokens(value: Data) -> Data:
    """Return a budget of tokens, such as ``300B`` or ``1000000 tok``."""
    text = str(value).strip().removesuffix("tok").strip()
    return text if re.fullmatch(r"\d+(\.\d+)? ?[kKMBT]", text) else str(number(text))


def _window(value: Data) -> Data:
    """Return the tokens that a token sees, itself included, from those to its left, as in ``(4096, 0)``."""
    found = re.match(r"[\[(]?\s*(-?\d{1,12})", str(value))
    if found is None:
        raise UnreadableError("a number of tokens")
    return int(found[1]) + 1 if int(found[1]) >= 0 else None


def _component(value: Data) -> Data:
    """Return the model in the name of a function or of a recipe.

    Examples
    --------
    >>> _component("torchtune.models.llama3_1.lora_llama3_1_8b"), _component("llama3_1/8B_full")
    ('llama3_1_8b', 'llama3_1_8B')
    """
    name = str(value).rpartition(".")[2] if "/" not in str(value) else str(value).replace("/", "_")
    return _RECIPE.sub("", name.removeprefix("lora_").removeprefix("qlora_"))


_GRAPHS: Final[Mapping[str, tuple[GraphPart, ...]]] = MappingProxyType(
    {
        "full": ("attention", "mlp", "experts"),
        "attn": ("attention",),
        "mlp": ("mlp",),
        "moe": ("experts",),
        "moe_router": ("router",),
        "moe_preprocess": ("router",),
    }
)
"""Parts of a layer by the scopes of Megatron's CUDA graphs."""


def _graphs(value: Data) -> Data:
    """Return whether whole passes are captured, or the parts of a layer.

    Examples
    --------
    >>> _graphs(["attn", "moe_router"]), _graphs("full_iteration")
    (['attention', 'router'], True)
    """
    scopes = [str(each) for each in value] if isinstance(value, list) else re.findall(r"\w+", str(value))
    if "full_iteration" in scopes:
        return True
    unknown = next((each for each in scopes if each not in _GRAPHS), None)
    if unknown is not None:
        raise UnreadableError(f"scopes from full_iteration, {', '.join(_GRAPHS)}")
    return list(dict.fromkeys(part for each in scopes or ["full"] for part in _GRAPHS[each]))


_ADAPTED: Final[Mapping[str, tuple[AdaptedLayer, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("all", "all-linear"), ("q", "k", "v", "output", "gate", "up", "down")),
        **dict.fromkeys(("q_proj", "q_a_proj", "q_b_proj", "linear_q"), ("q",)),
        **dict.fromkeys(("k_proj", "linear_k"), ("k",)),
        **dict.fromkeys(("v_proj", "kv_a_proj_with_mqa", "kv_b_proj", "linear_v"), ("v",)),
        **dict.fromkeys(("qkv_proj", "query_key_value", "Wqkv", "c_attn", "linear_qkv", "attention_qkv"), ("qkv",)),
        **dict.fromkeys(("o_proj", "out_proj", "output_proj", "linear_proj", "attention_dense"), ("output",)),
        **dict.fromkeys(("gate_proj", "w1"), ("gate",)),
        **dict.fromkeys(("up_proj", "w3"), ("up",)),
        **dict.fromkeys(("gate_up_proj", "linear_fc1", "mlp_fc1"), ("gate_up",)),
        **dict.fromkeys(("down_proj", "w2", "linear_fc2", "mlp_fc2"), ("down",)),
        "attention": ("qkv", "output"),
        "mlp": ("gate_up", "down"),
    }
)
"""Linear layers with an adapter by the names of modules: of the Hugging Face Hub, torchtune and Megatron."""


def _adapted(value: Data) -> Data:
    """Return the layers with an adapter; names of other modules, such as a head, are passed over.

    Examples
    --------
    >>> _adapted("q_proj,v_proj,lm_head"), _adapted(["*.layers.0.*.linear_qkv", "linear_proj"])
    (['q', 'v'], ['qkv', 'output'])
    """
    names = [str(each) for each in value] if isinstance(value, list) else re.split(r"[\s,|]+", str(value).strip(" .*^$()"))
    layers: list[Data] = [*dict.fromkeys(layer for name in names for layer in _ADAPTED.get(name.rpartition(".")[2], ()))]
    if not layers:
        raise UnreadableError(f"names of linear layers, such as {', '.join(list(_ADAPTED)[:5])}")
    return layers


def _stem(value: Data) -> Data:
    """Return the last part of a path without its ending."""
    name = str(value).rstrip("/").rpartition("/")[2]
    return re.sub(r"\.(ya?ml|json|toml)$", "", name)


def _last_batch(value: Data) -> Data:
    """Return the last batch of a schedule such as ``0:384 200B:768``."""
    return number(str(value).split()[-1].rpartition(":")[2] if str(value).split() else "")


def _last_number(value: Data) -> Data:
    """Return the count at the end of a list of resources, such as ``gpu:a100:4``; None where it counts none.

    Examples
    --------
    >>> _last_number("gpu:a100:4"), _last_number(8), _last_number("nvme:1,gpu:2(S:0-1)"), _last_number("gpu")
    (4, 8, 2, 1)
    """
    text = str(value)
    part = next((each for each in text.split(",") if each.startswith("gpu")), text)
    found = re.fullmatch(r"(?:[\w.-]+:)*(\d{1,4})(?:\(.*\))?", part)
    return int(found[1]) if found else 1 if part.startswith("gpu") else None


def _listed(value: Data) -> Data:
    """Return how many devices a list such as ``0,1,2,3`` has; None for anything else."""
    parts = [str(each) for each in value] if isinstance(value, list) else str(value).split(",")
    return len(parts) if len(parts) > 1 and all(part.strip().isdecimal() for part in parts) else None


def _image_version(value: Data) -> Data:
    """Return the version of an engine from the tag of its own container image; None for any other image."""
    found = _IMAGE_VERSION.search(str(value))
    return found[1] if found else None


def _hub_name(value: Data) -> Data:
    """Return the name of a model on the Hugging Face Hub, also from its folder in a cache or with a revision; None for a switch.

    Examples
    --------
    >>> _hub_name("/opt/hub/models--RedHatAI--Llama-3.3-70B/snapshots/ddb4128"), _hub_name("hf://openai/gpt-oss-120b")
    ('RedHatAI/Llama-3.3-70B', 'openai/gpt-oss-120b')
    """
    if isinstance(value, bool):
        return None
    text = str(value).removeprefix("hf://").partition("@")[0]
    cached = re.search(r"models--([\w.-]+?)--([\w.-]+)", text)
    return f"{cached[1]}/{cached[2]}" if cached else text


def _rate(value: Data) -> Data:
    """Return requests per second; None for all at once."""
    return None if str(value).strip().lower() in ("inf", ".inf", "infinity") else number(value)


def _moe_layers(value: Data) -> Data:
    """Return the numbers of the layers without experts, from a pattern such as ``([0]*3+[1]*58)`` or a list; or the frequency itself."""
    flags: list[int] = []
    if isinstance(value, list):
        flags = [int(number(each)) for each in value]
    elif isinstance(value, str) and (match := _FREQUENCY.fullmatch(value.strip())):
        for group in _GROUP.finditer(match[1]):
            flags += [int(each) for each in group[1].split(",") if each.strip()] * min(int(group[2] or 1), _MOST_LAYERS)
        flags = (flags * min(int(match[2] or 1), _MOST_LAYERS))[:_MOST_LAYERS]
    else:
        frequency = number(value)
        if not isinstance(frequency, int) or frequency < 1:
            raise UnreadableError("a whole number, a list, or a pattern such as ([0]*3+[1]*58)")
        return frequency
    dense: list[Data] = [layer for layer, has_experts in enumerate(flags) if not has_experts]
    return dense


def _layout(value: Data) -> Data:
    """Return layers of each part of a pipeline from letters such as ``Et*2|(tt|)*5t|tmL``.

    Examples
    --------
    >>> _layout("Et*2|(tt|)*2t|tmL")
    [2, 2, 2, 1, 1]
    """
    text = str(value).replace(",", "").replace(" ", "")
    for repeated in _REPEATED:
        text = repeated.sub(lambda match: match[1] * min(int(match[2]), _MOST_LAYERS), text)
    if not re.fullmatch(r"[EtmL|]{1,20000}", text):
        raise UnreadableError("letters E, t, m, L and | as Megatron-LM writes a layout")
    counts: list[Data] = [part.count("t") for part in text.split("|")]
    return counts


def _numbers(value: Data) -> list[int | float]:
    """Return a list of numbers, also from a text such as ``32 32 1000`` or ``64x128``."""
    parts = value if isinstance(value, list) else re.split(r"[\s,x]+", str(value).strip(" []()"))
    return [number(part) for part in parts]


def _boolean(value: Data) -> Data:
    said = truth(value)
    if said is None:
        raise UnreadableError("true or false")
    return said


def _same(value: Data) -> Data:
    return number(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else value


TRANSFORMS: Final[Mapping[str, Callable[[Data], Data]]] = MappingProxyType(
    {
        "same": _same,
        "length": lambda value: None if number(value) == _GENERATED else number(value),
        "boolean": _boolean,
        "negated": lambda value: not _boolean(value),
        "positive": lambda value: number(value) > 0,
        "megabytes": _sized("MB"),
        "mebibytes": _sized("MiB"),
        "elements16": _sized("MB", 2e-6),
        "elements32": _sized("MB", 4e-6),
        "tokens": _tokens,
        "window": _window,
        "stem": _stem,
        "component": _component,
        "moe_layers": _moe_layers,
        "layout": _layout,
        "first": lambda value: next(iter(value), None) if isinstance(value, list) else value,
        "last_batch": _last_batch,
        "last_number": _last_number,
        # Of operators none is counted.
        "every": lambda value: 0 if value == "op" else number(value),
        "listed": _listed,
        "image_version": _image_version,
        "hub_name": _hub_name,
        "rate": _rate,
        "graphs": _graphs,
        "adapted": _adapted,
        "words": lambda value: value if isinstance(value, list) else re.findall(r"[\w.]+", str(value)),
        "numbers": lambda value: [*_numbers(value)],
        "largest": lambda value: max(_numbers(value), default=None),
    }
)
