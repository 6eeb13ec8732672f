"""Shell text to its commands, loops, branches and functions, as they are written; a broken text gives what can be read of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

_JOINT: Final = re.compile(r"\\\r?\n")
_COMMENT: Final = re.compile(r"#[^\n]*")
_HEREDOC: Final = re.compile(r"<<(?!<)-?\s*(['\"]?)(\w+)\1")
_REDIRECTION: Final = re.compile(r"\d*(?:>>?|<<?<?)(?:&\d)?[ \t]*|&>>?[ \t]*")
_OPERATOR: Final = re.compile(r"&&|\|\||;;&?|;&|\|&|[\n;&|()]")
_BRACKET: Final = re.compile(r"<?\((?!\s*\))")
"""Not that of a function; with ``<`` the output of a command, as a file."""
_SEPARATORS: Final = ("\n", ";", "&", ";;", ";&", ";;&")
_DEEPEST: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command."""

    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heredoc:
    """A text after a command."""

    text: str
    line: int
    """First line of the text."""
    expands: bool
    is_word: bool = False
    """Whether it is the word after ``<<<``, with its quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A command with its quotes still in its words."""

    words: tuple[Word, ...]
    heredoc: Heredoc | None = None
    target: str = ""
    """File to which its output goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """Tests and the parts that follow them, in their order; ``else`` has no test."""

    parts: tuple[tuple[Block, Block], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop over words, or one as long as a test holds."""

    name: str = ""
    words: tuple[Word, ...] = ()
    test: Block = ()
    body: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseClause:
    """Parts that patterns of a word choose from."""

    word: Word
    parts: tuple[tuple[tuple[str, ...], Block], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function; without a name, a group of commands."""

    name: str
    body: Block


Node: TypeAlias = "Simple | If | Loop | CaseClause | Function"
Block: TypeAlias = "tuple[tuple[str, Node], ...]"
"""Nodes, each with the operator before it: ``&&``, ``||``, ``|``, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    line: int
    kind: str = "word"
    """``word``, ``operator``, ``target`` or ``heredoc``."""
    heredoc: Heredoc | None = None


def parse_shell(text: str, line: int = 1) -> Block:
    """Return the commands of a text, the first line of which has a number."""
    return _Parser(list(_tokens(text, line))).block(())


def array_words(text: str) -> list[Word]:
    """Return the words between the brackets of an array."""
    return [Word(text=token.text, line=token.line) for token in _tokens(text, 1) if token.kind == "word"]


def _tokens(text: str, line: int) -> Iterator[_Token]:
    at, waiting, within = 0, list[re.Match[str]](), False
    while at < len(text):
        if (joint := _JOINT.match(text, at)) is not None:
            at, line = joint.end(), line + 1
        elif text.startswith("((", at) or (within and _BRACKET.match(text, at)):
            end = word_end(text, at + (text[at] == "<"))
            yield _Token(text=text[at:end], line=line)
            line += text.count("\n", at, end)
            at = end
        elif (heredoc := _HEREDOC.match(text, at)) is not None:
            waiting.append(heredoc)
            at = heredoc.end()
        elif (redirection := _REDIRECTION.match(text, at)) is not None:
            # A file, or what a command gives: ``< <(...)``.
            at = word_end(text, redirection.end() + text.startswith(("<(", ">("), redirection.end()))
            yield from _redirected(redirection[0], text[redirection.end() : at], line)
        elif (operator := _OPERATOR.match(text, at)) is not None:
            at, within = operator.end(), False
            if operator[0] != "\n":
                yield _Token(text=operator[0], line=line, kind="operator")
                continue
            line += 1
            for match in waiting:
                end, last = _behind(text, at, line, match[2])
                body = text[at:end].rstrip("\n").rpartition("\n")[0]
                yield _Token(text="", line=line, kind="heredoc", heredoc=Heredoc(text=body, line=line, expands=not match[1]))
                at, line = end, last
            waiting.clear()
            yield _Token(text="\n", line=line - 1, kind="operator")
        elif text[at].isspace():
            at += 1
        elif (skipped := _COMMENT.match(text, at)) is not None:
            at = skipped.end()
        else:
            end = max(word_end(text, at), at + 1)
            yield _Token(text=text[at:end], line=line)
            line += text.count("\n", at, end)
            at, within = end, True


def _redirected(sign: str, word: str, line: int) -> Iterator[_Token]:
    if ">" in sign:
        yield _Token(text=word.strip("'\""), line=line, kind="target")
    elif "<<<" in sign:
        yield _Token(text="", line=line, kind="heredoc", heredoc=Heredoc(text=word, line=line, expands=True, is_word=True))


def _behind(text: str, at: int, line: int, end: str) -> tuple[int, int]:
    """Return place and line after a document that ends with a line of its own."""
    while at < len(text):
        stop = text.find("\n", at) % (len(text) + 1)
        found = text[at:stop].strip() == end
        at, line = stop + 1, line + 1
        if found:
            break
    return min(at, len(text)), line


def word_end(text: str, at: int) -> int:
    """Return where a word ends: at a blank or an operator outside of quotes, brackets and braces."""
    start, closers = at, ""
    while at < len(text):
        character = text[at]
        if character == "\\" and closers[-1:] != "'":
            if text.startswith(("\\\n", "\\\r\n"), at) and not closers:
                return at
            at += 2
            continue
        if closers and character == closers[-1]:
            closers = closers[:-1]
        elif closers[-1:] == "'":
            pass
        elif character in '"`' or (character == "'" and closers[-1:] != '"'):
            closers += character
        elif character == "$" and text[at + 1 : at + 2] in ("{", "("):
            closers += "}" if text[at + 1] == "{" else ")"
            at += 1
        elif character == "(" and (closers[-1:] == ")" or (not closers and (at == start or text[at - 1] == "="))):
            closers += ")"
        elif not closers and (character.isspace() or character in ";&|<>()"):
            return at
        at += 1
    return min(at, len(text))


@dataclass(slots=True)
class _Parser:
    tokens: list[_Token]
    at: int = 0
    depth: int = field(default=0)

    def word(self, number: int = 0) -> str:
        """Return a coming word; nothing where there is none."""
        token = self.tokens[self.at + number] if self.at + number < len(self.tokens) else None
        return token.text if token is not None and token.kind == "word" else ""

    def operator(self) -> str:
        """Return the coming operator; nothing where there is none."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        return token.text if token is not None and token.kind == "operator" else ""

    def block(self, ends: tuple[str, ...]) -> Block:
        """Return the nodes up to one of some words or operators, which is left."""
        found: list[tuple[str, Node]] = []
        before = ""
        while self.at < len(self.tokens):
            operator = self.operator()
            if (operator or self.word()) in ends:
                break
            if operator in ("&&", "||", "|", "|&"):
                before = operator[:2] if operator != "|&" else "|"
                self.at += 1
            elif operator in _SEPARATORS:
                # An operator at the end of a line goes on in the next one.
                before = before if operator == "\n" else ""
                self.at += 1
            else:
                node = self.node()
                if node is not None:
                    found.append((before, node))
                before = ""
        return tuple(found)

    def node(self) -> Node | None:
        """Return what begins here."""
        self.depth += 1
        try:
            return self.compound() if self.depth < _DEEPEST else self.simple()
        finally:
            self.depth -= 1

    def compound(self) -> Node | None:
        """Return a branch, a loop, a function or a group, or a simple command."""
        match self.operator() or self.word():
            case "(":
                self.at += 1
                return self.group(")")
            case ")":
                self.at += 1
                return None
            case "{":
                self.at += 1
                return self.group("}")
            case "if":
                return self.branches()
            case "for" | "select" | "while" | "until":
                return self.loop()
            case "case":
                return self.case()
            case "function":
                self.at += 1
                return self.function()
            case _:
                named = self.at + 2 < len(self.tokens) and [token.text for token in self.tokens[self.at + 1 : self.at + 3]] == ["(", ")"]
                return self.function() if named and self.word() else self.simple()

    def group(self, end: str) -> Function:
        """Return the commands up to a bracket."""
        body = self.block((end,))
        self.at += 1
        return Function(name="", body=body)

    def branches(self) -> If:
        """Return an ``if`` with all its parts."""
        parts: list[tuple[Block, Block]] = []
        while self.word() in ("if", "elif", "else"):
            last = self.word() == "else"
            self.at += 1
            test = () if last else self.block(("then", "fi"))
            self.at += self.word() == "then"
            parts.append((test, self.block(("elif", "else", "fi"))))
            if last:
                break
        self.at += self.word() == "fi"
        return If(parts=tuple(parts))

    def loop(self) -> Loop:
        """Return a loop with its body."""
        kind = self.word()
        self.at += 1
        if kind in ("for", "select"):
            name, words = self.word(), list[Word]()
            self.at += 1
            if self.word() == "in":
                self.at += 1
                while self.at < len(self.tokens) and self.operator() not in _SEPARATORS:
                    words.append(Word(text=self.tokens[self.at].text, line=self.tokens[self.at].line))
                    self.at += 1
            self.block(("do", "done"))
            test: Block = ()
        else:
            name, words = "", []
            condition = self.block(("do", "done"))
            # The body of ``until`` runs while the test fails.
            test = condition if kind == "while" else ()
        self.at += self.word() == "do"
        body = self.block(("done",))
        self.at += self.word() == "done"
        return Loop(name=name, words=tuple(words), test=test, body=body)

    def case(self) -> CaseClause:
        """Return a ``case`` with all its parts."""
        self.at += 1
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        self.at += 1
        while self.at < len(self.tokens) and (self.word() == "in" or self.operator() == "\n"):
            self.at += 1
        parts: list[tuple[tuple[str, ...], Block]] = []
        while self.at < len(self.tokens) and self.word() != "esac":
            patterns: list[str] = []
            while self.at < len(self.tokens) and self.operator() != ")" and self.word() != "esac":
                patterns += [self.word()] if self.word() else []
                self.at += 1
            self.at += self.operator() == ")"
            parts.append((tuple(patterns), self.block((";;", ";&", ";;&", "esac"))))
            while self.operator() in _SEPARATORS:
                self.at += 1
        self.at += self.word() == "esac"
        return CaseClause(word=Word(text=token.text, line=token.line), parts=tuple(parts))

    def function(self) -> Node | None:
        """Return a function with its name."""
        name = self.word()
        self.at += 1
        while self.operator() in ("(", ")", "\n"):
            self.at += 1
        body = self.node()
        if isinstance(body, Function) and not body.name:
            return replace(body, name=name)
        return body

    def simple(self) -> Simple | None:
        """Return a command up to its operator."""
        words: list[Word] = []
        heredoc, target, begin = None, "", self.at
        tests = self.word() == "[["
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "operator" and not (tests and token.text != "\n"):
                if token.text not in ("(", ")") or self.at > begin:
                    break
            elif token.kind == "target":
                target = token.text
            elif token.heredoc is not None:
                heredoc = token.heredoc
            else:
                words.append(Word(text=token.text, line=token.line))
                tests = tests and token.text != "]]"
            self.at += 1
        # The text of a heredoc comes at the end of the line, behind all of its commands.
        ahead = range(self.at, len(self.tokens))
        at = next((each for each in ahead if self.tokens[each].heredoc is not None or self.tokens[each].text == "\n"), len(self.tokens))
        if heredoc is None and at < len(self.tokens) and (later := self.tokens[at].heredoc) is not None and not later.is_word:
            heredoc = self.tokens.pop(at).heredoc
        return Simple(words=tuple(words), heredoc=heredoc, target=target) if words else None
