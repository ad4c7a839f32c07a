"""Draft schemes by name: the package's, registered and installed ones, ``"module:attribute"``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.registry import Registry
from mdsd_opt.drafts.independent import IndependentDrafts
from mdsd_opt.drafts.scheme import Composition, DraftScheme, SingleModelDrafts
from mdsd_opt.drafts.set_law import NextLaw, SequentialDrafts
from mdsd_opt.errors import InvalidInput

_PACKAGE = "mdsd_opt.drafts"

#: Names that come first in lists, in this order; the others follow by name.
_FIRST = ("with_replacement", "without_replacement", "greedy", "top_k", "independent")

#: Makes a scheme from a draft law and the number of drafts.
SchemeMaker = Callable[[NDArray[np.float64], int], DraftScheme]


def _declared(base: Any) -> Iterable[Any]:
    """Classes of this folder that are derived from another and have a name as schemes."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith(_PACKAGE) and "scheme" in vars(kind):
            yield kind
        yield from _declared(kind)


def _by_name(kinds: Iterable[Any]) -> dict[str, Any]:
    places = {name: place for place, name in enumerate(_FIRST)}
    schemes = {kind.scheme: kind for kind in kinds}
    return {x: schemes[x] for x in sorted(schemes, key=lambda x: (places.get(x, len(places)), x))}


for _module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__):
    if not _module.name.endswith("_kernels"):  # which would import numba
        importlib.import_module(f"{_PACKAGE}.{_module.name}")

#: Schemes described by one draft distribution and K, by name.
SINGLE_MODEL_SCHEMES: dict[str, type[SingleModelDrafts]] = _by_name(_declared(SingleModelDrafts))

#: Schemes that need more for their description, by name.
_OTHER_SCHEMES: dict[str, type[DraftScheme]] = {
    name: kind
    for name, kind in _by_name(_declared(DraftScheme)).items()
    if name not in SINGLE_MODEL_SCHEMES
}


def _scheme_of(next_law: Any, given: str) -> type[SingleModelDrafts]:
    if not callable(next_law) or isinstance(next_law, type):
        raise InvalidInput(
            f"{given} is {next_law!r:.60}: give a function (q, earlier) -> probabilities of the "
            "next draft"
        )
    return type("RegisteredDrafts", (SequentialDrafts,), {"rule": staticmethod(next_law)})


_SCHEMES: Registry[type[SingleModelDrafts]] = Registry(
    "draft scheme", "mdsd_opt.draft_schemes", dict, _scheme_of, registered=SINGLE_MODEL_SCHEMES
)


def all_schemes() -> dict[str, type[DraftScheme]]:
    """All schemes that have a name, those of one model first."""
    return {**SINGLE_MODEL_SCHEMES, **_OTHER_SCHEMES}


def scheme_maker(scheme: str | SchemeMaker) -> SchemeMaker:
    """Maker of a scheme of this name ("with_replacement", ...); functions are returned as given."""
    return scheme if callable(scheme) else SINGLE_MODEL_SCHEMES[checked_scheme(scheme)]


def has_many_models(scheme: str) -> bool:
    """Whether each draft of a scheme comes from a model of its own."""
    kind = all_schemes().get(scheme)
    return kind is not None and kind.has_many_models


def batch_maker(scheme: str) -> tuple[Callable[[Any, int], DraftScheme], bool]:
    """Maker of the scheme of each position of a batch, and whether it takes laws (K, V) there."""
    if has_many_models(scheme):
        return lambda models, num_drafts: IndependentDrafts(models), True
    return scheme_maker(scheme), False


def composition_of(maker: SchemeMaker) -> Composition | None:
    """Composition of the drafts from q, if a scheme declares it; None for functions."""
    return getattr(maker, "composition", None)


def title_of(scheme: str) -> str:
    """Title of a scheme for readers; its name if it has no other title."""
    kind = all_schemes().get(scheme)
    return (kind and kind.title) or scheme


def checked_scheme(scheme: Any) -> str:
    """Name of a scheme that is known; ``"module:attribute"`` is known once it is loaded.

    Raises
    ------
    UnknownName
        No such scheme; the message lists those that exist.
    InvalidInput
        The object of ``"module:attribute"`` cannot be loaded, or is no function.
    """
    kind = _SCHEMES.get(scheme)
    if scheme not in SINGLE_MODEL_SCHEMES:
        _keep(scheme, kind)
    return scheme


def register(name: str, next_law: NextLaw) -> None:
    """Register a way of drafting by a name, which is then known wherever a scheme's name is.

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
    kind = _scheme_of(next_law, "the draft scheme to register")
    _keep(_SCHEMES.new_name(name, _OTHER_SCHEMES), kind)


def _keep(name: str, kind: type[SingleModelDrafts]) -> None:
    kind.scheme = kind.title = name
    SINGLE_MODEL_SCHEMES[name] = kind
