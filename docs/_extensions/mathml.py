"""Equations as MathML, which browsers draw themselves: pages need no network and no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils.nodes import SkipNode, math, math_block
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def _inline(translator: HTML5Translator, node: math) -> None:
    translator.body.append(convert(node.astext()))
    raise SkipNode


def _block(translator: HTML5Translator, node: math_block) -> None:
    translator.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
