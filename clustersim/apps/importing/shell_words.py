"""Words of a shell: quotes are taken off and variables put in; nothing is executed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.arithmetic import arithmetic
from clustersim.apps.importing.shell_syntax import Heredoc, Simple, Word, array_words, parse_shell, word_end

NAME: Final = r"[A-Za-z_]\w*"
ASSIGNMENT: Final = re.compile(rf"({NAME})(\[[^\]=]*\])?(\+?)=(.*)", re.DOTALL)
QUOTED: Final = re.compile(rf"^([\"'])({NAME}=)")
"""Begin of an assignment with the name inside the quotes."""
_PARAMETER: Final = re.compile(rf"\$({NAME}|[0-9@*#?$!-])|\$\{{([#!]?)({NAME}|[0-9]+|[@*#?])(?:\[([^\]]*)\])?")
_OPERATOR: Final = re.compile(r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:")
_WHOLE_ARRAY: Final = re.compile(rf'"\$(?:@|\{{{NAME}\[@\]\}})"')
_JOINED_ARRAY: Final = re.compile(rf"\$(?:\*|\{{{NAME}\[\*\]\}})")
"""An array that is one word in quotes."""
_OPTION: Final = re.compile(r"(?<![\w-])--[A-Za-z][\w.-]*")
_ELEMENT: Final = re.compile(r"\[([^\]]*)\]=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(rf"(?<!\\)\$(?:({NAME})|\{{({NAME})\}})")
_PIECE: Final = re.compile(r"(?:\$\([^()]*\)|`[^`]*`|\S)+")
"""Text between blanks; a command whose output is not known is one."""
_MOST_CHARACTERS: Final = 1_000_000
"""Text of one file after expansion; variables that hold each other would grow without end."""
_DEEPEST: Final = 20
_TAKES_VALUE: Final = re.compile(r"-\w*[dinNptu]")
_READS_TO: Final = re.compile(r"-\w*d")
_INTO_ARRAY: Final = re.compile(r"-\w*a")
"""Options of ``read``, also joined."""
_COMPARES: Final = {"-eq": eq, "-ne": ne, "-gt": gt, "-ge": ge, "-lt": lt, "-le": le}
_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,18}\s*")
_CASES: Final = MappingProxyType({"^": str.upper, ",": str.lower})


@dataclass(slots=True)
class Variables:
    """Variables as far as the text sets them; positions are those of a call without arguments."""

    values: dict[str, list[str]] = field(default_factory=lambda: {"#": ["0"], "@": [], "*": []})
    exported: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Value and line."""
    lines: dict[str, int] = field(default_factory=dict[str, int])
    """Lines of options in variables."""
    n_characters: int = 0

    def assign(self, match: re.Match[str], line: int, *, exports: bool) -> None:
        """Set a variable, an array, or an element of one."""
        name, index, adds, written = match[1], match[2], bool(match[3]), match[4]
        if written.startswith("("):
            inside = written[1:-1] if written.endswith(")") else written[1:]
            value: list[str] = []
            for word in array_words(inside):
                if (element := _ELEMENT.fullmatch(word.text)) is not None:
                    self.values[f"{name}[{self.text(element[1])}]"] = [self.text(element[2])]
                    continue
                expanded = self.words(word.text)
                value += expanded
                self.lines |= {text: line + word.line - 1 for text in expanded if word.text.startswith("-")}
            self.values[name] = [*self.values.get(name, ()), *value] if adds else value
            return
        text = self.text(written)
        self.lines |= {option[0]: line + written.count("\n", 0, option.start()) for option in _OPTION.finditer(written)}
        if index is not None:
            self.values[f"{name}[{self.text(index[1:-1])}]"] = [text]
            self.values[name] = [*self.values.get(name, ()), text]
            return
        if adds:
            text = " ".join(self.values.get(name, [""])) + text
        self.values[name] = [text]
        if exports:
            self.exported[name] = (text, line)

    def known(self, text: str) -> str:
        """Return a text with known variables substituted, as in a document."""

        def value(match: re.Match[str]) -> str:
            values = self.values.get(match[1] or match[2])
            found = match[0] if values is None or self.n_characters > _MOST_CHARACTERS else " ".join(values)
            self.n_characters += len(found)
            return found

        return _VARIABLE.sub(value, text).replace("\\$", "$")

    def document(self, document: Heredoc) -> str:
        """Return the text that a command is given."""
        if document.is_word:
            return self.text(document.text)
        return self.known(document.text) if document.expands else document.text

    def read(self, words: list[str], text: str) -> None:
        """Set the variables of ``read`` to the parts of the first line, or up to another end; the last has all that is left."""
        pairs = [*zip(("", *words), words, strict=False)]
        is_array = any(_INTO_ARRAY.fullmatch(word) for word in words)
        *names, last = [word for before, word in pairs if not word.startswith("-") and not _TAKES_VALUE.fullmatch(before)] or ["REPLY"]
        end = next((_unescaped(word) for before, word in pairs if _READS_TO.fullmatch(before)), "\n")
        separators = _unescaped("".join(self.values.get("IFS", [" \t\n"])))
        blanks, others = ("".join(each for each in separators if each.isspace() is blank) for blank in (True, False))
        text = (text.partition(end[0])[0] if end else text).strip(blanks)
        # Blanks separate together; between two other separators there is a part, also an empty one.
        blank, other = (f"[{re.escape(each)}]" if each else "(?:(?!))" for each in (blanks, others))
        between = f"{blank}*{other}{blank}*|{blank}+"
        parts = re.split(between, text, maxsplit=0 if is_array else len(names)) if names or is_array else [text]
        if is_array:
            self.values[last] = parts if parts[-1] else parts[:-1]
            return
        self.values |= {name: [part] for name, part in zip_longest((*names, last), parts, fillvalue="")}

    def options(self) -> tuple[Word, ...]:
        """Return the options that variables hold, without those of a variable that another one takes in."""
        held = [self.words(f"${{{name}[@]}}") for name, values in self.values.items() if any("--" in value for value in values)]
        held = [words for words in held if words and words[0].startswith("--")]
        kept = [words for words in held if not any(set(words) < set(other) for other in held)]
        return tuple(Word(text=text, line=self.lines.get(text, 1)) for words in kept for text in words)

    def text(self, written: str, depth: int = 0) -> str:
        """Return the text that a word becomes, without splitting it."""
        return " ".join(self.words(written, depth, splits=False))

    def number(self, formula: str, depth: int = 0) -> int | None:
        """Return the value of a formula of variables; None where one is unknown."""
        inside = re.sub(rf"(?<![\w${{])({NAME})", r"$\1", formula)
        return arithmetic(self.text(inside, depth))

    def words(self, text: str, depth: int = 0, *, splits: bool = True) -> list[str]:
        """Return the words that a word becomes: quotes taken off, variables put in, split at blanks outside of quotes."""
        found = _Words(splits=splits)
        at, quoted = 0, False
        while at < len(text) and self.n_characters < _MOST_CHARACTERS:
            character = text[at]
            if character == "'" and not quoted:
                end = text.find("'", at + 1) % (len(text) + 1)
                found.add(text[at + 1 : end], whole=True)
                at = end + 1
            elif character == '"':
                quoted, at = not quoted, at + 1
            elif character == "\\":
                # Inside double quotes a backslash stays before all but these.
                stays = quoted and text[at + 1 : at + 2] not in ("$", "`", '"', "\\", "\n")
                found.add(text[at : at + 2] if stays else text[at + 1 : at + 2].strip("\n"), whole=True)
                at += 2
            elif character in "$`" and depth < _DEEPEST:
                joined = quoted and _JOINED_ARRAY.match(text, at) is not None
                values, at = self._parameter(text, at, depth)
                values = [" ".join(values)] if joined else values
                self.n_characters += sum(len(value) + 1 for value in values)
                for number, value in enumerate(values):
                    if number:
                        found.next()
                    # A command in a text, which only a shell could run, stays one word.
                    found.add(value, whole=quoted or (value[:1] in ("$", "`") and word_end(value, 0) == len(value)))
            else:
                found.add(character, whole=True)
                at += 1
        kept = [word for word in found.words if word]
        if not kept and _WHOLE_ARRAY.fullmatch(text):
            return []  # an empty array is no word, also in quotes
        return kept or ([""] if "'" in text or '"' in text else [])

    def _parameter(self, text: str, at: int, depth: int) -> tuple[list[str], int]:
        """Return the substitution of a ``$`` and the position after it; what only a shell knows stays as written."""
        if text.startswith("$((", at):
            end = _closing(text, at + 2, "()") + 1
            found = self.number(text[at + 3 : end - 2], depth + 1)
            return [text[at:end] if found is None else str(found)], end
        if text.startswith(("$(", "`"), at):
            begin = at + 1 + (text[at] == "$")
            end = text.find("`", begin) % (len(text) + 1) if text[at] == "`" else _closing(text, begin, "()")
            output = self._output(text[begin:end], depth + 1)
            return [text[at : end + 1] if output is None else output], end + 1
        match = _PARAMETER.match(text, at)
        if match is None:
            return ["$"], at + 1
        if match[1] is not None:
            return self.values.get(match[1], [match[0]]), match.end()
        end = _closing(text, match.end())
        found = self._braced(match, text[match.end() : end], depth)
        return [text[at : end + 1]] if found is None else list(found), end + 1

    def _output(self, inside: str, depth: int) -> str | None:
        """Return the output of a command that only writes what its text says; None for any other."""
        block = parse_shell(inside) if depth < _DEEPEST else ()
        if len(block) != 1 or not isinstance(node := block[0][1], Simple):
            return None
        words = [text for word in node.words for text in self.words(word.text, depth)]
        match words:
            case ["cat"] if node.heredoc is not None:
                return self.document(node.heredoc)
            case ["echo", *rest] if not any(part.startswith("$(") for part in rest):
                return " ".join(part for part in rest if part not in ("-n", "-e"))
            case ["expr", *rest]:
                number = arithmetic(" ".join(rest))
                return None if number is None else str(number)
            case _:
                return None

    def _braced(self, match: re.Match[str], rest: str, depth: int) -> list[str] | None:
        """Return the text between braces; None where unknown."""
        name, index = match[3], match[4]
        known = self.values.get(name)
        if match[2] == "!":
            return self.values.get(known[0]) if known else None
        if index is not None and index not in ("@", "*"):
            key = self.text(index, depth + 1)
            element = known[int(key)] if known and key.isdecimal() and len(key) < 6 and int(key) < len(known) else None
            known = self.values.get(f"{name}[{key}]") or (None if element is None else [element])
        if match[2] == "#":
            return None if known is None else [str(len(known) if index is not None else len(known[0] if known else ""))]
        operator = _OPERATOR.match(rest)
        sign, word = (operator[0], rest[operator.end() :]) if operator is not None else ("", rest)
        empty = known is None or (sign.startswith(":") and not "".join(known))
        if sign in ("-", "=", "?", ":-", ":=", ":?"):
            if empty and "=" in sign:
                self.values[name] = [self.text(word, depth + 1)]
            return (self.words(word, depth + 1, splits=False) or [""]) if empty else known
        if sign in ("+", ":+"):
            return [] if empty else self.words(word, depth + 1)
        if known is None or not sign:
            return known
        return [_changed(value, sign, self.text(word, depth + 1)) for value in known]


def _unescaped(text: str) -> str:
    """Return the newlines and tabs of a word in ``$'...'``, which has kept its dollar; any other as it is."""
    return text[1:].replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "") if text.startswith("$\\") else text


def _changed(value: str, sign: str, word: str) -> str:
    """Return a value after an operator that cuts, replaces or changes letters."""
    if sign[0] in _CASES:
        return _CASES[sign[0]](value) if len(sign) == 2 else _CASES[sign[0]](value[:1]) + value[1:]
    if sign == ":":
        start, _, length = word.partition(":")
        numbers = [arithmetic(part) for part in (start or "0", length or str(len(value)))]
        return value if None in numbers else value[numbers[0] :][: numbers[1]]
    if sign[0] == "/":
        old, _, new = word.partition("/")
        return value.replace(old, new, -1 if sign == "//" else 1) if old else value
    pattern = re.compile(translate(word))
    sizes = range(len(value) + 1) if (sign[0] == "#") == (len(sign) == 1) else range(len(value), -1, -1)
    front = sign[0] == "#"
    if len(value) * len(word) > _MOST_CHARACTERS or word.count("*") > 2:
        return value
    return next((value[n:] if front else value[:n] for n in sizes if pattern.match(value[:n] if front else value[n:])), value)


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
        pieces = _PIECE.findall(part)
        if part[:1].isspace():
            self.next()
        if not pieces:
            return
        self.words[-1] += pieces[0]
        self.words.extend(pieces[1:])
        if part[-1].isspace():
            self.next()

    def next(self) -> None:
        """Begin another word."""
        if self.words[-1]:
            self.words.append("")


def _closing(text: str, at: int, brackets: str = "{}") -> int:
    """Return where the bracket that is open closes."""
    depth = 1
    while at < len(text):
        depth += (text[at] == brackets[0]) - (text[at] == brackets[1])
        if depth == 0:
            return at
        at += 1
    return len(text)


def text_test(values: list[str]) -> bool | None:
    """Return whether a test of texts holds; None for a test of the machine."""
    match values:
        case []:
            return False
        case [value]:
            return value != ""
        case ["-n", value]:
            return value != ""
        case ["-z", value]:
            return value == ""
        case [left, "=" | "==" | "!=" as sign, right]:
            return (left == right or fnmatchcase(left, right)) is (sign != "!=")
        case [left, "=~", right]:
            return None if re.search(r"[\\^$.|?*+(){}\[\]]", right) else right in left
        case [left, sign, right] if sign in _COMPARES and _INTEGER.fullmatch(left) and _INTEGER.fullmatch(right):
            return _COMPARES[sign](int(left), int(right))
        case _:
            return None
