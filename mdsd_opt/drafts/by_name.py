"""Draft schemes by name: those of the package, registered ones, and ``"module:attribute"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.installed import loaded
from mdsd_opt.drafts.base import DraftScheme
from mdsd_opt.drafts.fixed_set import GreedyDrafts, TopKDrafts
from mdsd_opt.drafts.sequential import NextLaw, SequentialDrafts
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.drafts.without_replacement import WithoutReplacement
from mdsd_opt.errors import InvalidInput, UnknownName

#: Makes a scheme from a draft law and the number of drafts.
SchemeMaker = Callable[[NDArray[np.float64], int], DraftScheme]

#: Schemes described by one draft distribution and K, by name.
SINGLE_MODEL_SCHEMES: dict[
    str, type[WithReplacement | WithoutReplacement | GreedyDrafts | TopKDrafts | SequentialDrafts]
] = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDrafts,
    "top_k": TopKDrafts,
}


def scheme_maker(scheme: str | SchemeMaker) -> SchemeMaker:
    """A scheme by name ("with_replacement", ...), or a function (q, num_drafts) -> scheme."""
    return scheme if callable(scheme) else SINGLE_MODEL_SCHEMES[checked_scheme(scheme)]


def checked_scheme(scheme: Any) -> str:
    """The name of a scheme that is known; ``"module:attribute"`` is, once it is loaded.

    Raises
    ------
    UnknownName
        No such scheme; the message lists those that exist.
    InvalidInput
        What ``"module:attribute"`` names cannot be loaded, or is no function.
    """
    if not isinstance(scheme, str) or not (":" in scheme or scheme in SINGLE_MODEL_SCHEMES):
        raise UnknownName.among("draft scheme", scheme, SINGLE_MODEL_SCHEMES)
    if scheme not in SINGLE_MODEL_SCHEMES:
        SINGLE_MODEL_SCHEMES[scheme] = _scheme_of(scheme, loaded(scheme))
    return scheme


def register(name: str, next_law: NextLaw) -> None:
    """Make a way of drafting known by a name, wherever the name of a draft scheme is taken.

    Parameters
    ----------
    name : str
        Letters, digits and underscores, and not taken.
    next_law : callable
        ``next_law(q, earlier)``: the draft distribution, shape (V,), and the drafts before, in draw
        order, shape (k,) -> probabilities of the next draft, shape (V,). What is missing to a sum
        of one is the probability that drafting ends there. It must depend on nothing else.

    Raises
    ------
    InvalidInput
        No such name, or no function.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> def two_looks(q, earlier):  # the second draft is never the first
    ...     law = q.copy()
    ...     law[earlier] = 0.0
    ...     return law / law.sum()
    >>> mo.drafts.register("two_looks", two_looks)
    >>> float(mo.acceptance_rates([[1.0, 0.0]], [[0.0, 1.0]], 2, drafts="two_looks")[0])
    1.0
    """
    if not str(name).isidentifier() or name == "all":
        raise InvalidInput(f"the name of the draft scheme is {name!r}: give letters, digits and _")
    if name in SINGLE_MODEL_SCHEMES:
        raise InvalidInput(f"there is a draft scheme {name!r} already: give another name")
    SINGLE_MODEL_SCHEMES[name] = _scheme_of(name, next_law)


def _scheme_of(name: str, next_law: Any) -> type[SequentialDrafts]:
    if not callable(next_law) or isinstance(next_law, type):
        raise InvalidInput(
            f"the draft scheme {name!r} is {next_law!r:.60}: give a function (q, earlier) -> "
            "probabilities of the next draft"
        )
    return type("RegisteredDrafts", (SequentialDrafts,), {
        "scheme": name, "rule": staticmethod(next_law),
    })  # fmt: skip
