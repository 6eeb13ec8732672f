"""Sphinx configuration: MyST pages, furo, warnings are errors (`make docs`)."""

from __future__ import annotations

import sys
from pathlib import Path

import clustersim

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "clustersim"
author = "The clustersim authors"
project_copyright = author
version = release = clustersim.__version__

extensions = ["myst_parser", "mathml", "gallery", "study_pictures", "browser_page"]
html_math_renderer = "mathml"
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_browser"]
nitpicky = True

html_theme = "furo"
html_title = f"clustersim {version}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["equations.css", "page.css"]
html_js_files = ["page.js"]
html_favicon = "_static/favicon.svg"
# A block that does not say what it is holds commands.
highlight_language = "bash"
