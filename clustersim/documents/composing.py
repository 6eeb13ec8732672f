"""YAML nodes to plain Python with places; the only file that uses the YAML library."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false
# The YAML library declares no types for its nodes and marks; what is read from them is converted on the spot.

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clustersim.documents.text import HALF, WHOLE, Data, Scalar, Spot, source_place, whole_text
from clustersim.errors import Place, ScenarioError

_MAX_NODES: Final = 100_000
"""Keys and values in one document. About 40 000 are read in a second, and garbage must not take a minute to be refused."""
_MAX_DEPTH: Final = 50
_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = ("int", "float", "bool", "null")
_TEXT_TAGS: Final = ("str", "timestamp", "value", "merge")
"""YAML 1.2 has no dates: ``accessed: 2026-11-20`` is text."""


class _CountingComposer(Composer):
    """Composes nodes, and stops early on documents that no person wrote."""

    n_composed = 0

    def compose_node(self, parent: Node | None, index: Node | int | None) -> Node | None:
        self.n_composed += 1
        if self.n_composed > _MAX_NODES:
            raise ScenarioError("holds too many keys and values")
        return super().compose_node(parent, index)


def read_yaml(text: str, name: str, lines: Sequence[str], *, lenient: bool = False) -> tuple[Data, Spot] | None:
    """Return the data of a YAML text and its places, or None when the text holds no data.

    Parameters
    ----------
    lenient
        Read as most libraries do, for files of other programs: the last of equal keys counts, ``<<`` merges, tags are left out,
        and every scalar may be a key.
    """
    node = _compose(text, name, lines)
    return None if node is None else _NodeReader(name, lines, lenient=lenient).read(node, 0)


def _compose(text: str, name: str, lines: Sequence[str]) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _CountingComposer
    try:
        with warnings.catch_warnings():
            # Of anchors that are given twice; the last one counts.
            warnings.simplefilter("ignore")
            return yaml.compose(text)
    except ScenarioError as error:
        raise error.at(Place(file=name)) from error
    except MarkedYAMLError as error:
        opened, problem = _opened(error), _problem(error)
        mark = error.problem_mark or error.context_mark
        if opened is not None:
            if mark.line < len(lines):
                problem += f", inside {opened} of line {error.context_mark.line + 1}"
            else:
                mark, problem = error.context_mark, f"{opened} is not closed before the end"
        place = source_place(name, lines, mark.line + 1, mark.column + 1) if isinstance(mark, StringMark) else Place(file=name)
        hint = "indent with blanks, not with tabs" if "'\\t'" in str(error.problem) else None
        if opened in ("'{'", "'['"):
            hint = "close it, or write the comma that is missing"
        raise ScenarioError(f"is not YAML: {problem}", place=place, hint=hint) from error
    except YAMLError as error:
        raise ScenarioError("is not YAML: it holds characters that are not allowed", place=Place(file=name)) from error
    except RecursionError as error:
        raise ScenarioError("is nested too deeply", place=Place(file=name)) from error
    except Exception as error:  # the parser has failed on garbage with IndexError, ValueError and others
        raise ScenarioError("is not YAML", place=Place(file=name)) from error


def _opened(error: MarkedYAMLError) -> str | None:
    """Return the bracket or quote of an earlier line that is still open."""
    begun, found = error.context_mark, error.problem_mark
    opens = {"a flow mapping": "'{'", "a flow sequence": "'['", "a quoted scalar": "the quote"}
    what = next((each for context, each in opens.items() if context in str(error.context)), None)
    return what if begun is not None and found is not None and begun.line < found.line else None


def _problem(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "it cannot be read").strip()
    return f"{error.context}, {problem}" if problem.startswith("but ") else problem


class _NodeReader:
    """Turns composed nodes into plain Python."""

    def __init__(self, name: str, lines: Sequence[str], *, lenient: bool) -> None:
        self.name = name
        self.lines = lines
        self.lenient = lenient
        self.n_nodes = 0

    def read(self, node: Node, depth: int) -> tuple[Data, Spot]:
        # Aliases share nodes; counting them each time they are met keeps a short file from growing without end.
        self.n_nodes += 1
        if self.n_nodes > _MAX_NODES:
            raise ScenarioError("holds too many keys and values, or its aliases expand to too many", place=Place(file=self.name))
        if depth > _MAX_DEPTH:
            raise self.error(node, f"is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(node, MappingNode):
            return self.mapping(node, depth)
        if isinstance(node, SequenceNode):
            return self.sequence(node, depth)
        if isinstance(node, ScalarNode):
            return self.scalar(node), self.spot(node)
        raise self.error(node, "is not understood")

    def mapping(self, node: Node, depth: int) -> tuple[Data, Spot]:
        self.check_tag(node, "map")
        data: dict[str, Data] = {}
        keys: dict[str, tuple[int, int]] = {}
        children: dict[str | int, Spot] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            at = self.spot(key_node)
            if self.lenient and key == "<<":
                self.merge(self.read(value_node, depth + 1), data, children, keys)
                continue
            if key in data and not self.lenient:
                raise self.error(key_node, f"key '{key}' is given twice", hint=f"it stands already in line {keys[key][0]}; delete one")
            data[key], child = self.read(value_node, depth + 1)
            # A value left out has its mark wherever the next token stands; the key is what the reader must see.
            children[key] = at if data[key] is None and value_node.value == "" else child
            keys[key] = (at.line, at.column)
        return data, replace(self.spot(node), keys=keys, children=children)

    def merge(
        self, read: tuple[Data, Spot], data: dict[str, Data], children: dict[str | int, Spot], keys: dict[str, tuple[int, int]]
    ) -> None:
        """Add the merge keys of a mapping, below its own keys."""
        below, spot = read
        parts = [(below, spot)] if isinstance(below, dict) else [(each, spot.children[at]) for at, each in enumerate(_listed(below))]
        for part, place in parts:
            for key, value in part.items() if isinstance(part, dict) else ():
                if key not in data:
                    data[key], children[key], keys[key] = value, place.children[key], place.keys[key]

    def sequence(self, node: Node, depth: int) -> tuple[Data, Spot]:
        self.check_tag(node, "seq")
        read = [self.read(item, depth + 1) for item in node.value]
        children: dict[str | int, Spot] = {index: spot for index, (_, spot) in enumerate(read)}
        return [data for data, _ in read], replace(self.spot(node), children=children)

    def key(self, node: Node) -> str:
        tag = str(node.tag).removeprefix(_TAG)
        if self.lenient and isinstance(node, ScalarNode):
            return "<<" if tag == "merge" else self.text(node)
        if tag == "merge":
            raise self.error(node, "'<<' is not part of YAML 1.2", hint="write the keys out")
        if tag != "str":
            written = f"key {node.value}" if isinstance(node.value, str) else "a list or mapping as key"
            raise self.error(node, f"{written} is not text", hint="put the key in quotes")
        return self.text(node)

    def text(self, node: Node) -> str:
        whole = whole_text(str(node.value))
        if whole is None:
            raise self.error(node, HALF, hint=WHOLE)
        return whole

    def scalar(self, node: Node) -> Scalar:
        tag, text = str(node.tag).removeprefix(_TAG), str(node.value)
        if tag in _TEXT_TAGS or (self.lenient and tag not in _SCALAR_TAGS):
            return self.text(node)
        if tag not in _SCALAR_TAGS:
            raise self.error(node, f"tag {node.tag} is not understood", hint="leave the tag out")
        try:
            value = _scalar(tag, text)
        except ValueError as error:
            if self.lenient:
                return text
            raise self.error(node, f"{text[:40]} is not a number") from error
        if tag == "float" and not (isinstance(value, float) and math.isfinite(value)):
            if self.lenient:
                return text
            raise self.error(node, f"{text} is not a finite number")
        return value

    def check_tag(self, node: Node, wanted: str) -> None:
        if str(node.tag).removeprefix(_TAG) != wanted and not self.lenient:
            raise self.error(node, f"tag {node.tag} is not understood", hint="leave the tag out")

    def spot(self, node: Node) -> Spot:
        return Spot(line=node.start_mark.line + 1, column=node.start_mark.column + 1)

    def error(self, node: Node, message: str, hint: str | None = None) -> ScenarioError:
        spot = self.spot(node)
        return ScenarioError(message, place=source_place(self.name, self.lines, spot.line, spot.column), hint=hint)


def _listed(data: Data) -> list[Data]:
    return data if isinstance(data, list) else []


def _scalar(tag: str, text: str) -> Scalar:
    match tag:
        case "int":
            sign = -1 if text.startswith("-") else 1
            digits = text.lstrip("+-").replace("_", "")
            # A leading zero is decimal in YAML 1.2, and an error to int(..., 0).
            return sign * (int(digits, 0) if digits[:2] in {"0x", "0o", "0b"} else int(digits))
        case "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
        case "bool":
            return text.lower() == "true"
        case _:
            return None
