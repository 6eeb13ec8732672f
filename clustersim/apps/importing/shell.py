"""Shell text to the words of its commands: variables are expanded, and nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import add
from shlex import quote
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.shell_syntax import Block, CaseClause, Function, Heredoc, If, Loop, Node, Simple, Word, parse_shell
from clustersim.apps.importing.shell_words import ASSIGNMENT, NAME, QUOTED, Variables, text_test

__all__ = ["EmbeddedFile", "Script", "Word", "read_script"]

_DECLARING: Final = ("export", "declare", "local", "readonly", "typeset")
_TESTS: Final = ("[", "[[", "test")
_BEFORE: Final = ("exec", "time", "nohup", "sudo", "command", "builtin", "then", "do")
_WRAPS: Final = ("--wrap", "--command")
"""Options of sbatch, XPK and gcloud, whose value is the text of a script."""
_SHELLS: Final = ("sh", "bash", "zsh", "dash")
_EXPORTS: Final = re.compile(r"[-+][b-z]*a[a-z]*")
_TEXT_FOLLOWS: Final = re.compile(r"-[a-z]*c")
_REMOTE: Final = ("ssh", "sbatch", "salloc")
"""Programs that run a text or a script elsewhere."""
_QUOTED: Final = ("ssh", "pdsh", "clush", "pssh", "parallel-ssh")
"""Programs whose last word is the text of commands."""
WRAPPERS: Final = ("mason.py", "gantry")
"""Programs that run the words after ``--`` on nodes of Beaker."""
_STARTS: Final = ("srun", "mpirun", "mpiexec", "env", "nice", "numactl", *_SHELLS)
"""Programs that run a script here."""
_HANDLES: Final = ("chmod", "cat", "rm", "cp", "scp")
"""Programs that do not run a script that they name."""
_ASKS: Final = ("getopts", "read", "IFS=")
"""Tests of loops over arguments and input, of which there are none."""
_RANKS: Final = re.compile(r"^[\d,*-]+[ \t]+", re.MULTILINE)
_UNSET: Final = re.compile(r"\$(?:\w+|[@*]|\{\w+(?:[+-][^{}]*)?\})")
_MOST_STEPS: Final = 50_000
NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
_DEEPEST: Final = 12
"""Functions and texts that call each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFile:
    """A file whose text stands in another one."""

    name: str
    """Without its folder."""
    text: str
    line: int
    """First line of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Commands of a shell text, and what it exports to them."""

    commands: tuple[tuple[Word, ...], ...]
    exported: Mapping[str, tuple[str, int]]
    """Value and line."""
    documents: tuple[EmbeddedFile, ...] = ()
    """Files that it writes from its own text."""
    options: tuple[Word, ...] = ()
    """Options that its variables hold, for a command of another text."""
    ran: Mapping[str, str] = field(default_factory=dict[str, str])
    """Words of sbatch before it, if any, by the name of each other text that it sources or starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmbeddedText:
    """A text that a command runs."""

    text: str
    line: int
    before: tuple[Word, ...] = ()
    """Words that belong to each of its commands."""
    here: bool = False
    """Whether it changes the arguments of the text that runs it."""
    name: str = ""
    """File that it is."""
    arguments: Sequence[str] | None = None
    """Words after a script that has a shell of its own."""
    own: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that are set for this script only."""


def read_script(text: str, variables: Mapping[str, str] = NO_TEXTS, sourced: Mapping[str, str] = NO_TEXTS) -> Script:
    """Return the commands of a text in the order in which a shell would come to them.

    A loop counts once, with the first value of its variable. A test of variables decides an ``if``, and a variable that the text
    does not set is empty there; of any other test, the first branch is left out.

    Parameters
    ----------
    variables
        Environment that the text starts with.
    sourced
        Texts of other files by their names without folders, for the ones that the text sources or starts.
    """
    reader = _Reader(sourced=sourced, environment=frozenset(variables))
    reader.known.values |= {name: [value] for name, value in variables.items()}
    reader.block(parse_shell(text))
    return Script(
        commands=tuple(reader.commands),
        exported=reader.known.exported,
        documents=tuple(reader.documents),
        options=reader.known.options(),
        ran=reader.ran,
    )


@dataclass(slots=True)
class _Reader:
    """Interpret a text as a shell would, without starting anything."""

    sourced: Mapping[str, str]
    known: Variables = field(default_factory=Variables)
    functions: dict[str, Block] = field(default_factory=dict[str, Block])
    commands: list[tuple[Word, ...]] = field(default_factory=list[tuple[Word, ...]])
    documents: list[EmbeddedFile] = field(default_factory=list[EmbeddedFile])
    ran: dict[str, str] = field(default_factory=dict[str, str])
    environment: frozenset[str] = frozenset()
    """Names of the variables that it starts with."""
    exports_all: bool = False
    n_steps: int = 0
    depth: int = 0

    def block(self, block: Block) -> bool | None:
        """Return the status of the last command; None where only a shell could tell."""
        status: bool | None = True
        for operator, node in block:
            if self.n_steps > _MOST_STEPS:
                break
            self.n_steps += 1
            if (operator == "&&" and status is not True) or (operator == "||" and status is True):
                continue
            status = self.node(node)
        return status

    def node(self, node: Node) -> bool | None:
        """Interpret one node, and return its status."""
        match node:
            case Simple():
                return self.simple(node)
            case If(parts=parts):
                for test, body in parts:
                    if self.block(test) is True:
                        return self.block(body)
            case Loop():
                return self.loop(node)
            case CaseClause(word=word, parts=parts):
                value = self.known.text(word.text)
                for patterns, body in parts:
                    if any(fnmatchcase(value, self.known.text(pattern)) for pattern in patterns):
                        return self.block(body)
            case Function(name="", body=body):
                return self.block(body)
            case Function(name=name, body=body):
                self.functions[name] = body
        return True

    def loop(self, node: Loop) -> bool | None:
        """Interpret the body of a loop once, unless its test fails or reads arguments or input."""
        if node.name.startswith("(("):
            self._let(node.name[2:].partition(";")[0])
        elif node.name:
            values = [text for word in node.words for text in self.known.words(word.text)]
            self.known.values[node.name] = values[:1]
        elif any(isinstance(each, Simple) and each.words[0].text in _ASKS for _, each in node.test) or self.block(node.test) is False:
            return True
        return self.block(node.body)

    def simple(self, node: Simple) -> bool | None:
        """Interpret assignments, called functions and texts, or a command."""
        words = list(node.words)
        negated = words[0].text == "!"
        words = words[negated:]
        while words and words[0].text in _BEFORE:
            words = words[1:]
        if not words:
            return True
        if words[0].text in _TESTS or words[0].text.startswith("(("):
            found = self.holds([word.text for word in words])
            return found if found is None else found is not negated
        exports = words[0].text in _DECLARING
        if exports:
            words = [Word(text=QUOTED.sub(r"\2\1", word.text), line=word.line) for word in words[1:] if not word.text.startswith("-")]
        was: dict[str, list[str] | None] = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0].text)):
            was.setdefault(match[1], self.known.values.get(match[1]))
            self.known.assign(match, words[0].line, exports=exports or self.exports_all or len(words) > 1)
            words = words[1:]
            while exports and words and not ASSIGNMENT.fullmatch(words[0].text):
                self._export(words.pop(0))
        if exports and words:
            self._export(words[0])
        elif words:
            self._command([(text, word) for word in words for text in self.known.words(word.text)], node)
            self.known.values = {name: value for name, value in {**self.known.values, **was}.items() if value is not None}
        return not negated

    def _export(self, word: Word) -> None:
        values = self.known.values.get(word.text)
        if values is not None:
            self.known.exported[word.text] = " ".join(values), word.line

    def _command(self, found: Sequence[tuple[str, Word]], node: Simple) -> None:
        words = tuple(
            Word(text=text, line=word.line if word.text.startswith("-") else self.known.lines.get(text, word.line)) for text, word in found
        )
        if not words or self._changes(words, node.heredoc):
            return
        name = node.target and self.known.known(node.target)
        if node.heredoc is not None and name:
            text = self.known.document(node.heredoc)
            self.documents.append(EmbeddedFile(name=name.rpartition("/")[2], text=text, line=node.heredoc.line))
        inside = self._inside(words, node.heredoc if not name else None)
        if inside is None:
            self.commands.append(words)
            return
        begin = len(self.commands)
        if self.depth < _DEEPEST:
            self._run(inside)
        self.commands[begin:] = [(*inside.before, *command) for command in self.commands[begin:]]

    def _run(self, inside: _EmbeddedText) -> None:
        """Interpret a text; a script has the exported variables, and keeps its own to itself."""
        text = _RANKS.sub("", inside.text) if any(word.text == "--multi-prog" for word in inside.before) else inside.text
        block, others = parse_shell(text, inside.line), self.sourced
        # A text that is being read does not begin anew.
        below = {name: text for name, text in others.items() if name != inside.name}
        if inside.arguments is None:
            self.sourced = below
            self.call(block, None if inside.here else self.known.values.get("@", []))
            self.sourced = others
            return
        passed = {name: self.known.values.get(name, []) for name in {*self.environment, *self.known.exported} & self.known.values.keys()}
        passed |= {name: [value] for name, value in inside.own.items()}
        child = replace(self, sourced=below, known=replace(self.known, values=passed), functions={}, environment=frozenset(passed))
        child.exports_all = False
        child.call(block, inside.arguments)
        self.n_steps, self.known.n_characters = child.n_steps, child.known.n_characters

    def _changes(self, words: tuple[Word, ...], heredoc: Heredoc | None) -> bool:
        """Return whether a command only changes variables, or is a function."""
        texts = [word.text for word in words]
        match texts:
            case ["unset", *names]:
                for name in names:
                    self.known.values.pop(name, None)
            case ["set", sign, *rest] if _EXPORTS.fullmatch(sign) or rest == ["allexport"]:
                self.exports_all = sign.startswith("-")
            case ["set", *rest] if "--" in rest:
                self._positions(rest[rest.index("--") + 1 :])
            case ["let", *formulas]:
                for formula in formulas:
                    self._let(formula)
            case ["read", *rest] if heredoc is not None and rest:
                self.known.read(rest, self.known.document(heredoc))
            case ["shift", *rest]:
                left = self.known.values.get("@", [])
                for number in range(1, len(left) + 1):
                    self.known.values.pop(str(number), None)
                self._positions(left[int(rest[0]) if rest and rest[0].isdecimal() else 1 :])
            case [":", *_]:
                pass
            case [name, *rest] if name in self.functions and self.depth < _DEEPEST:
                self.call(self.functions[name], rest)
            case _:
                return False
        return True

    def _positions(self, values: Sequence[str]) -> None:
        self.known.values |= {str(number): [value] for number, value in enumerate(values, start=1)}
        self.known.values |= {"#": [str(len(values))], "@": [*values], "*": [*values]}

    def call(self, block: Block, arguments: Sequence[str] | None) -> None:
        """Interpret a function or a text, with arguments of its own where it has some."""
        was = {key: value for key, value in self.known.values.items() if key.isdecimal() or key in ("#", "@", "*")}
        if arguments is not None:
            self._positions(arguments)
        self.depth += 1
        self.block(block)
        self.depth -= 1
        if arguments is not None:
            for number in range(1, len(self.known.values.get("@", ())) + 1):
                self.known.values.pop(str(number), None)
            self.known.values |= {"#": [], "@": [], "*": [], **was}

    def _inside(self, words: tuple[Word, ...], heredoc: Heredoc | None) -> _EmbeddedText | None:
        """Return the text that a command runs; None where it runs none."""
        texts = [word.text for word in words]
        if texts[0] == "eval":
            return _EmbeddedText(text=" ".join(texts[1:]), line=words[0].line, here=True)
        if texts[0] in ("source", ".") and (name := "".join(texts[1:2]).rpartition("/")[2]) in self.sourced:
            self.ran.setdefault(name, "")
            return _EmbeddedText(text=self.sourced[name], line=words[0].line, here=not texts[2:], name=name)
        shell = next((at for at, text in enumerate(texts) if text.rpartition("/")[2] in _SHELLS), None)
        first = 0 if shell is None else _after_options(texts, shell + 1)
        if shell is not None and any(_TEXT_FOLLOWS.fullmatch(text) for text in texts[shell + 1 : first]):
            own = texts[first + 2 :]
            return _EmbeddedText(text=texts[first], line=words[first].line, before=words[:shell], arguments=own) if texts[first:] else None
        for at, text in enumerate(texts):
            option, _, assigned = text.partition("=")
            inner = assigned or "".join(texts[at + 1 : at + 2])
            if option in _WRAPS and " " in inner:
                return _EmbeddedText(text=inner, line=words[at].line, before=words[:at])
        if "--" in texts and any(text in WRAPPERS for text in texts[:2]):
            at = texts.index("--")
            joints = ["\\\n" * (word.line - before.line) for before, word in zip(words[at:], words[at + 1 :], strict=False)]
            said = [text if text == "&&" else quote(text) for text in texts[at + 1 :]]
            return _EmbeddedText(text=" ".join(map(add, joints, said)), line=words[at].line, before=words[: at + 1])
        if texts[0] in _QUOTED and " " in texts[-1].strip():
            return _EmbeddedText(text=texts[-1], line=words[-1].line)
        if heredoc is not None and (shell is not None or texts[0] in _REMOTE):
            return _EmbeddedText(text=self.known.document(heredoc), line=heredoc.line, before=() if shell is None else words[:shell])
        return self._script(words, shell, first)

    def _script(self, words: tuple[Word, ...], shell: int | None, first: int) -> _EmbeddedText | None:
        """Return the script that a command starts, of those that are written or named; the first word after its shell."""
        texts = [word.text for word in words]
        written = {doc.name: doc for doc in self.documents if "--multi-prog" in texts or doc.name[-3:] == ".sh" or doc.text[:2] == "#!"}
        for at, text in enumerate(texts):
            name, before = text.rpartition("/")[2], words[: at if shell is None else min(shell, at)]
            if any(each in _HANDLES for each in texts[:at]):
                break
            if name in written:
                begin = () if texts[0] in _REMOTE else before
                return _EmbeddedText(text=written[name].text, line=written[name].line, before=begin, arguments=texts[at + 1 :])
            if name in self.sourced and (texts[0] in _REMOTE or at in (0, first) or _starts(texts[:at])):
                self.ran[name] = self.ran.get(name) or (" ".join(texts[:at]) if "sbatch" in texts[:at] else "")
                set_ = (ASSIGNMENT.fullmatch(part) for each in texts[:at] for part in each.removeprefix("--export=").split(","))
                return _EmbeddedText(
                    text=self.sourced[name],
                    line=words[at].line,
                    before=() if texts[0] == "ssh" else before,
                    name=name,
                    arguments=texts[at + 1 :],
                    own={match[1]: match[4] for match in set_ if match is not None},
                )
        return None

    def _let(self, formula: str) -> bool | None:
        """Set the variable of a formula, and return whether the value is not zero."""
        set_ = re.fullmatch(rf"\s*({NAME})\s*([-+*/]?)=(?!=)(.*)", formula, re.DOTALL)
        number = self.known.number(formula if set_ is None else f"{set_[1]}{set_[2]}({set_[3]})" if set_[2] else set_[3])
        if set_ is not None and number is not None:
            self.known.values[set_[1]] = [str(number)]
        return None if number is None else number != 0

    def holds(self, words: list[str]) -> bool | None:
        """Return whether a test of texts holds; None for a test of the machine."""
        if words[0].startswith("(("):
            return self._let(words[0][2:].removesuffix("))"))
        words = [word for word in words[1:] if word not in ("]", "]]")]
        for operator, decides in (("||", True), ("-o", True), ("&&", False), ("-a", False)):
            if operator in words:
                at = words.index(operator)
                parts = [self.holds(["[", *each]) for each in (words[:at], words[at + 1 :])]
                return decides if decides in parts else None if None in parts else not decides
        if words[:1] == ["!"]:
            found = self.holds(["[", *words[1:]])
            return None if found is None else not found
        values = [_UNSET.sub("", "".join(self.known.words(word))) for word in words]
        return None if any("$(" in value or "`" in value for value in values) else text_test(values)


def _after_options(texts: Sequence[str], at: int) -> int:
    """Return where the words after the options of a shell begin."""
    while at < len(texts) and (texts[at].startswith(("-", "+")) or texts[at - 1] in ("-o", "+o", "-O")):
        at += 1
    return at


def _starts(before: Sequence[str]) -> bool:
    """Return whether a script follows words: launchers, options with a value at most, and assignments."""
    return all(
        text.startswith("-") or text.rpartition("/")[2] in _STARTS or ASSIGNMENT.fullmatch(text) or before[at - 1].startswith("-")
        for at, text in enumerate(before)
    )
