"""Code and commands that README and documentation show: found block by block, in the order in which a reader meets them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if not path.relative_to(ROOT).parts[1].startswith("_")),
)
FENCE: Final = re.compile(
    r"^(?P<indent> *)(?P<marks>`{3,}|~{3,}|:{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=marks)$", re.MULTILINE | re.DOTALL
)
PROGRAM: Final = ".venv/bin/"
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("", "bash", "sh", "shell", "zsh", "console", "shell-session"), "commands"),
        **dict.fromkeys(("py", "python", "python3"), "python"),
        **dict.fromkeys(("yaml", "yml"), "yaml"),
        "json": "json",
        "text": "text",
    }
)
"""Kind of a block by its language. A block without a language holds commands; output is ``text``."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page; ``kind`` is a value of KINDS, or the name of a directive in braces."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        """Return where it stands."""
        return f"{self.page}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a page from top to bottom."""
    return blocks_in(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


def blocks_in(text: str, page: str) -> list[Block]:
    """Return the blocks of a text; text with a prompt in it holds commands."""
    found = []
    for match in FENCE.finditer(text):
        language, inside = match["language"].strip(), dedent(match["text"])
        kind = KINDS.get(language, language)
        if kind == "text" and re.search(r"^\$ ", inside, re.MULTILINE):
            kind = "commands"
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, kind, inside))
    return found


def commands_of(block: Block) -> list[str]:
    """Return the commands of a block as they are typed, in the quotes of ``shlex.join``.

    They are what stands behind the prompt if there is one, and all lines otherwise; comments are left out. The program is ``clustersim``,
    also where it is called by its path in the environment of the project.
    """
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    typed = [shlex.join(shlex.split(line, comments=True)) for line in lines]
    return [line.removeprefix(PROGRAM) for line in typed if line]
