"""Sphinx configuration: Markdown by MyST, the theme furo, the API from the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import mdsd_opt

project = "mdsd-opt"
author = "mdsd-opt developers"
copyright = "2026, mdsd-opt developers"
release = version = mdsd_opt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "pictures"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "mdsd-opt"

autodoc_typehints = "none"  # the docstrings say shapes and dtypes, which the hints do not
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "code"  # `name` in a docstring is code
