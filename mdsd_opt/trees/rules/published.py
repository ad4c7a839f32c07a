"""Published rules that verify drafts, and the name of each here.

`published.csv` beside this file is the one place that says so; the page of the documentation shows
it, and a test holds it against the names that exist.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class PublishedRule:
    """A rule that verifies drafts.

    Attributes
    ----------
    name : str
    year : str
    source : str
        arXiv number of its paper, or the venue of one that has none.
    lossless_for : str
        Drafts with which the output follows the target.
    here : str
        Name that `get_rule` takes, or a class of `mdsd_opt.solvers.frontier.rules`; empty if it is
        not here.
    note : str
        Difference from the paper, or why it is not here.
    """

    name: str
    year: str
    source: str
    lossless_for: str
    here: str
    note: str


@cache
def published_rules() -> tuple[PublishedRule, ...]:
    """All published rules that are known here, and those of this package.

    Rules for one token come first, then those for paths and trees, then lossy ones.
    """
    text = (files(__package__) / "published.csv").read_text(encoding="utf-8")
    return tuple(PublishedRule(*row) for row in list(csv.reader(text.splitlines()))[1:])
