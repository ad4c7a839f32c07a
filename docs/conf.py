"""Sphinx configuration: Markdown by MyST, the theme furo, the API from the docstrings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as UnsortedStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import json_schemas
import mdsd_opt
from page_tables import with_tables

project = "mdsd-opt"
author = "mdsd-opt developers"
copyright = "2026, mdsd-opt developers"
release = version = mdsd_opt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # its scripts and fonts in the build: formulas need no network
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build", "pictures", "benchmarks/measured", "schemas"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

smartquotes = False  # two dashes are an option of the command line

html_theme = "furo"
html_title = "mdsd-opt"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_js_files = ["copy.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")

autodoc_typehints = (
    "none"  # the docstrings say shapes and dtypes, which the hints do not
)
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
suppress_warnings = [
    "ref.python"
]  # attributes of several classes may have one name
default_role = "code"  # `name` in a docstring is code


bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "keys"

_ENTRIES = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8")
_KEY = "|".join(re.findall(r"^@\w+\{(\w+),", _ENTRIES, re.MULTILINE))
_CITATION = re.compile(rf"\[({_KEY})\](?!\()")
_CODE = re.compile(r"(^```.*?^```$|`+[^`\n]+`+)", re.MULTILINE | re.DOTALL)


class KeyLabels(BaseLabelStyle):
    """Label every reference by its key."""

    def format_labels(self, sorted_entries: Any) -> list[str]:
        return [entry.key for entry in sorted_entries]


class KeyStyle(UnsortedStyle):
    default_label_style = KeyLabels


register_plugin("pybtex.style.formatting", "keys", KeyStyle)


def describe_program(app: Any, page: str, source: list) -> None:
    """The page of the command line ends with what the program says of itself.

    It has a link to the schema of each kind of document.
    """
    if page == "command-line":
        links = (
            f"[{name}](schemas/{name}.schema.json)"
            for name in json_schemas.DOCUMENTS
        )
        source[0] = source[0].replace("SCHEMAS", ", ".join(links))
        program = ["mdsd_opt.cli.verbs", "utils", "docs", "--name", "mdsd-opt"]
        done = subprocess.run(
            [sys.executable, "-m", "typer", *program],
            capture_output=True,
            text=True,
            check=True,
        )
        source[0] += done.stdout.partition("**Usage**:")[0].partition("\n")[2]
        source[0] += "".join(done.stdout.partition("\n## ")[1:])


def require_no_network(app: Any, error: Exception | None) -> None:
    """Pages load nothing from elsewhere: they read the same on a machine without a network."""
    if error is not None or app.builder.format != "html":
        return
    loads = (
        r"<(?:script|link|img|iframe|source|object)\b[^>]*\b(?:src|href|data)=[\"']"
    )
    of_html = re.compile(rf"{loads}(?:https?:)?//[^>]*>")
    of_css = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"';]*")
    for pattern, rule in (("**/*.html", of_html), ("**/*.css", of_css)):
        for path in Path(app.outdir).glob(pattern):
            for found in rule.findall(path.read_text(encoding="utf-8")):
                raise ExtensionError(f"{path} loads from elsewhere: {found}")


def insert_tables(app: Any, page: str, source: list) -> None:
    """Tables are made of records, and of what is declared."""
    source[0] = with_tables(source[0])


def cite_in_page(app: Any, page: str, source: list) -> None:
    """[Key] becomes a citation here, and stays readable where Markdown is shown as it is."""
    parts = _CODE.split(source[0])
    parts[::2] = [_CITATION.sub(r"{cite:p}`\1`", part) for part in parts[::2]]
    source[0] = "".join(parts)


def cite_in_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list
) -> None:
    lines[:] = [_CITATION.sub(r":cite:p:`\1`", line) for line in lines]


def keep_single_letters(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list
) -> None:
    """A line such as "K." is a description, not the start of a list."""
    lines[:] = [
        re.sub(r"^(\s*)([A-Za-z]\.)(?=\s|$)", r"\1\\\2", line) for line in lines
    ]


def setup(app: Any) -> None:
    json_schemas.write()
    app.connect("source-read", describe_program)
    app.connect("build-finished", require_no_network)
    app.connect("source-read", insert_tables)
    app.connect("source-read", cite_in_page)
    app.connect("autodoc-process-docstring", cite_in_docstring)
    app.connect("autodoc-process-docstring", keep_single_letters, priority=400)
