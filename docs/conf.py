"""Sphinx configuration: Markdown by MyST, the theme furo, the API from the docstrings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

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


def keep_single_letters(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list
) -> None:
    """A line such as "K." is a description, not the start of a list."""
    lines[:] = [re.sub(r"^(\s*)([A-Za-z]\.)(?=\s|$)", r"\1\\\2", line) for line in lines]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", keep_single_letters, priority=400)
