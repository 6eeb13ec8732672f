"""Shell text to the words of its commands: variables are expanded, and nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.arithmetic import arithmetic

_NAME: Final = r"[A-Za-z_]\w*"
_ASSIGNMENT: Final = re.compile(rf"({_NAME})(?:\[\w*\])?(\+?)=(.*)", re.DOTALL)
_DECLARING: Final = ("export", "declare", "local", "readonly", "typeset")
_JOINT: Final = re.compile(r"\\\r?\n")
_COMMENT: Final = re.compile(r"#[^\n]*")
_HEREDOC: Final = re.compile(r"<<(?!<)-?\s*(['\"]?)(\w+)\1")
_PARAMETER: Final = re.compile(rf"\$({_NAME}|[0-9@*#?$!-])|\$\{{([#!]?)({_NAME}|[0-9]+|[@*])(\[[^\]]*\])?(:?[-=+?])?")
_WHOLE_ARRAY: Final = re.compile(rf'"\$(?:@|\{{{_NAME}\[@\]\}})"')
_VARIABLE: Final = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})\}})")
_MOST_NAME: Final = 1000
"""Characters that a variable puts into a document."""
_ENDS: Final = ";&|"
_REDIRECTION: Final = re.compile(r"\d*(?:>>?|<<?<?)(?:&\d)?[ \t]*|&>>?[ \t]*")
_OPTION: Final = re.compile(r"(?<![\w-])--[A-Za-z][\w.-]*")
_MOST_CHARACTERS: Final = 1_000_000
"""Text of one file after expansion; variables that hold each other would grow without end."""
_DEEPEST: Final = 20
_TESTS: Final = ("[", "[[", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command."""

    text: str
    line: int


@dataclass(slots=True)
class _ShellState:
    variables: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    exported: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    branches: list[bool | None] = field(default_factory=list[bool | None])
    """For each open ``if``: whether the branch at hand is taken; None once another one was."""
    lines: dict[str, int] = field(default_factory=dict[str, int])
    """Lines of options in variables."""
    n_characters: int = 0

    @property
    def skips(self) -> bool:
        return any(branch is not True for branch in self.branches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Commands of a shell text, and what it exports to them."""

    commands: tuple[tuple[Word, ...], ...]
    exported: Mapping[str, tuple[str, int]]
    """Value and line."""
    documents: tuple[EmbeddedFile, ...] = ()
    """Files that it writes from its own text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFile:
    """A file whose text stands in another one."""

    name: str
    """Without its folder."""
    text: str
    line: int
    """First line of the text."""


def read_script(text: str, variables: Mapping[str, str] = MappingProxyType({})) -> Script:
    """Return the commands of a text in the order of its lines.

    A loop counts once, with the first value of its variable. A test of variables decides an ``if``; of any other test, the first
    branch is left out.

    Parameters
    ----------
    variables
        Environment that the text starts with.
    """
    state = _ShellState(variables={name: [value] for name, value in variables.items()})
    documents: list[EmbeddedFile] = []
    commands = [words for raw in _raw_commands(text, documents) if (words := _command(raw, state))]
    written = tuple(_with_variables(document, state) for document in documents)
    return Script(commands=tuple(commands), exported=state.exported, documents=written)


def _with_variables(document: EmbeddedFile, state: _ShellState) -> EmbeddedFile:
    """Return a document with what its variables hold at the end, in its name too."""

    def known(match: re.Match[str]) -> str:
        values = state.variables.get(match[1] or match[2])
        return match[0] if values is None else " ".join(values)[:_MOST_NAME]

    name, text = (_VARIABLE.sub(known, each) for each in (document.name, document.text))
    return EmbeddedFile(name=name.rpartition("/")[2], text=text, line=document.line)


def _raw_commands(text: str, documents: list[EmbeddedFile] | None = None) -> Iterator[list[Word]]:
    """Yield the words of each command with their quotes still in them; append the files that it writes."""
    words: list[Word] = []
    at, line, waiting, target = 0, 1, "", ""
    while at < len(text):
        character = text[at]
        if character == "\n" or character in _ENDS:
            if words:
                yield words
                words = []
            line += character == "\n"
            at += 1
            if character == "\n" and waiting:
                end, last = _behind(text, at, line, waiting)
                if documents is not None and target:
                    documents.append(EmbeddedFile(name=target, text=_body(text[at:end]), line=line))
                at, line, waiting, target = end, last, "", ""
        elif (joint := _JOINT.match(text, at)) is not None:
            at, line = joint.end(), line + 1
        elif character.isspace() or character in "()":
            at += 1
        elif (skipped := _COMMENT.match(text, at)) is not None:
            at = skipped.end()
        elif (heredoc := _HEREDOC.match(text, at)) is not None:
            waiting, at = heredoc[2], heredoc.end()
        elif (redirection := _REDIRECTION.match(text, at)) is not None:
            at = _word_end(text, redirection.end())
            target = text[redirection.end() : at].strip("'\"")
        else:
            end = max(_word_end(text, at), at + 1)
            words.append(Word(text=text[at:end], line=line))
            line += text.count("\n", at, end)
            at = end
    if words:
        yield words


def _behind(text: str, at: int, line: int, end: str) -> tuple[int, int]:
    """Return place and line behind a document in the text that ends with a line of its own."""
    while at < len(text):
        stop = _end_of_line(text, at)
        found = text[at:stop].strip() == end
        at, line = stop + 1, line + 1
        if found:
            break
    return at, line


def _body(text: str) -> str:
    """Return the text of a document without the line that ends it."""
    return text.rstrip("\n").rpartition("\n")[0]


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _word_end(text: str, at: int) -> int:
    """Return where a word ends: at a blank or an operator outside of quotes, brackets and braces."""
    start, closers = at, ""
    while at < len(text):
        character = text[at]
        if character == "\\":
            if text.startswith(("\\\n", "\\\r\n"), at) and not closers:
                return at
            at += 2
            continue
        if closers and character == closers[-1]:
            closers = closers[:-1]
        elif closers[-1:] == "'":
            pass
        elif character in "'\"`":
            closers += character
        elif character == "$" and text[at + 1 : at + 2] in ("{", "("):
            closers += "}" if text[at + 1] == "{" else ")"
            at += 1
        elif character == "(" and (closers[-1:] == ")" or (at > start and text[at - 1] == "=" and not closers)):
            closers += ")"
        elif not closers and (character.isspace() or character in ";&|<>()"):
            return at
        at += 1
    return min(at, len(text))


def _command(raw: list[Word], state: _ShellState) -> tuple[Word, ...]:
    first = raw[0].text
    if first in ("if", "elif", "else", "fi"):
        return _branch(raw, state)
    if first == "for" and len(raw) > 3 and raw[2].text == "in":
        state.variables[raw[1].text] = [text for word in raw[3:] for text in _expanded(word.text, state, 0)][:1]
        return ()
    while raw and raw[0].text in ("then", "do", "done", "{", "}", "exec", "time", "nohup", "sudo"):
        raw = raw[1:]
    if not raw or state.skips:
        return ()
    exports = raw[0].text in _DECLARING
    if exports:
        raw = [word for word in raw[1:] if not word.text.startswith("-")]
    words = list(raw)
    while words and (match := _ASSIGNMENT.fullmatch(words[0].text)):
        _assign(match, state, words[0].line, exports=exports or len(words) > 1)
        words = words[1:]
    if exports or not words:
        return ()
    expanded = [(text, word) for word in words for text in _expanded(word.text, state, 0)]
    # The text behind -c is a command itself.
    whole = [
        (part, word)
        for at, (text, word) in enumerate(expanded)
        for part in (text.split() if at and expanded[at - 1][0] == "-c" else [text])
    ]
    return tuple(Word(text=text, line=word.line if word.text.startswith("-") else state.lines.get(text, word.line)) for text, word in whole)


def _branch(raw: list[Word], state: _ShellState) -> tuple[Word, ...]:
    match raw[0].text:
        case "if":
            state.branches.append(_holds([word.text for word in raw[1:]], state))
        case "fi":
            if state.branches:
                state.branches.pop()
        case other if state.branches:
            was = state.branches[-1]
            state.branches[-1] = None if was is not False else other == "else" or _holds([word.text for word in raw[1:]], state)
        case _:
            pass
    return ()


def _holds(words: list[str], state: _ShellState) -> bool:
    """Return whether a test of texts holds; False for one that asks the machine."""
    if words[:1] and words[0] in _TESTS:
        words = [word for word in words[1:] if word not in ("]", "]]")]
    values = ["".join(_expanded(word, state, 0)) for word in words]
    match values:
        case ["-n", value] | [value]:
            return value not in ("", "false") and "$" not in value
        case ["-z", value]:
            return value == ""
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, "-eq" | "-ne" | "-gt" | "-ge" | "-lt" | "-le" as sign, right]:
            return _compares(left, sign, right)
        case _:
            return False


def _compares(left: str, sign: str, right: str) -> bool:
    try:
        difference = int(left) - int(right)
    except ValueError:
        return False
    ordered = {"-gt": difference > 0, "-ge": difference >= 0, "-lt": difference < 0, "-le": difference <= 0}
    return {"-eq": difference == 0, "-ne": difference != 0, **ordered}[sign]


def _assign(match: re.Match[str], state: _ShellState, line: int, *, exports: bool) -> None:
    name, adds, written = match[1], bool(match[2]), match[3]
    if written.startswith("("):
        inside = written[1:-1] if written.endswith(")") else written[1:]
        value: list[str] = []
        for word in (word for raw in _raw_commands(inside) for word in raw):
            expanded = _expanded(word.text, state, 0)
            value += expanded
            state.lines |= {text: line + word.line - 1 for text in expanded if word.text.startswith("-")}
        state.variables[name] = [*state.variables.get(name, ()), *value] if adds else value
        return
    text = " ".join(_expanded(written, state, 0, splits=False))
    state.lines |= {option[0]: line + written.count("\n", 0, option.start()) for option in _OPTION.finditer(written)}
    if adds:
        text = " ".join(state.variables.get(name, [""])) + text
    state.variables[name] = [text]
    if exports:
        state.exported[name] = (text, line)


class _Words:
    """Words of an expansion, which grows at its end."""

    def __init__(self, *, splits: bool) -> None:
        self.words = [""]
        self.splits = splits

    def add(self, part: str, *, whole: bool) -> None:
        """Append text to the last word; text that is not whole begins new words at its blanks."""
        if whole or not self.splits:
            self.words[-1] += part
            return
        pieces = part.split()
        if not pieces:
            return
        if part[0].isspace():
            self.next()
        self.words[-1] += pieces[0]
        self.words.extend(pieces[1:])
        if part[-1].isspace():
            self.next()

    def next(self) -> None:
        """Begin another word."""
        if self.words[-1]:
            self.words.append("")


def _expanded(text: str, state: _ShellState, depth: int, *, splits: bool = True) -> list[str]:
    """Return the words that a word becomes: quotes taken off, variables put in, split at blanks outside of quotes."""
    found = _Words(splits=splits)
    at, quoted = 0, False
    while at < len(text) and state.n_characters < _MOST_CHARACTERS:
        character = text[at]
        if character == "'" and not quoted:
            end = text.find("'", at + 1) % (len(text) + 1)
            found.add(text[at + 1 : end], whole=True)
            at = end + 1
        elif character == '"':
            quoted, at = not quoted, at + 1
        elif character == "\\":
            found.add(text[at + 1 : at + 2].strip("\n"), whole=True)
            at += 2
        elif character == "$" and depth < _DEEPEST:
            values, at = _parameter(text, at, state, depth)
            state.n_characters += sum(len(value) + 1 for value in values)
            for number, value in enumerate(values):
                if number:
                    found.next()
                # A command in a text, which only a shell could run, stays one word.
                found.add(value, whole=quoted or (value.startswith("$") and _word_end(value, 0) == len(value)))
        else:
            found.add(character, whole=True)
            at += 1
    kept = [word for word in found.words if word]
    if not kept and _WHOLE_ARRAY.fullmatch(text):
        return []  # an empty array is no word, also in quotes
    return kept or ([""] if "'" in text or '"' in text else [])


def _parameter(text: str, at: int, state: _ShellState, depth: int) -> tuple[list[str], int]:
    """Return what stands for a ``$`` and where the text goes on; what only a shell could know stays as it is written."""
    if text.startswith("$((", at):
        end = _word_end(text, at)
        inside = re.sub(rf"(?<![\w${{])({_NAME})", r"$\1", text[at + 3 : end].removesuffix("))"))
        found = arithmetic(" ".join(_expanded(inside, state, depth + 1, splits=False)))
        return [text[at:end] if found is None else str(found)], max(end, at + 3)
    if text.startswith("$(", at):
        end = _word_end(text, at)
        return [text[at:end]], max(end, at + 2)
    match = _PARAMETER.match(text, at)
    if match is None:
        return ["$"], at + 1
    if match[1] is not None:
        return state.variables.get(match[1], [match[0]]), match.end()
    end = _closing(text, match.end())
    rest, operator, name = text[match.end() : end], match[5] or "", match[3]
    known = state.variables.get(name)
    if match[2] or (known is None and not operator):
        return [text[at : end + 1]], end + 1
    empty = known is None or (operator.startswith(":") and not "".join(known))
    if operator.endswith(("-", "=", "?")) and empty:
        return _expanded(rest, state, depth + 1, splits=False) or [""], end + 1
    if operator.endswith("+"):
        return ([] if empty else _expanded(rest, state, depth + 1)), end + 1
    return list(known or ()), end + 1


def _closing(text: str, at: int) -> int:
    """Return where the brace that is open closes."""
    depth = 1
    while at < len(text):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
        at += 1
    return len(text)
