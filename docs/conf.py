"""Sphinx configuration: MyST pages, furo, warnings are errors (`make docs`)."""

from __future__ import annotations

import clustersim

project = "clustersim"
author = "The clustersim authors"
project_copyright = author
version = release = clustersim.__version__

extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"clustersim {version}"
html_show_sphinx = False
