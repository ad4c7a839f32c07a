"""How much a law may give up, as it is asked for: one distance, or an acceptance rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mdsd_opt.base.checked import checked_amount
from mdsd_opt.errors import InvalidInput, UnknownName

#: What a law can be relaxed by.
NAMES = ("acceptance_rate", "tv", "kl", "chi2")


def the_budget(budgets: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and value of the only one that is given (not None).

    Raises
    ------
    InvalidInput
        None is given, or several.
    """
    given = {name: budget for name, budget in budgets.items() if budget is not None}
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "no budget is given"
        raise InvalidInput(f"{what}: give exactly one of {', '.join(budgets)}")
    return next(iter(given.items()))


def checked_relax(relax: Any) -> dict[str, Any]:
    """The budget of an argument such as ``relax={"kl": 0.01}``, for `relax(problem, **budget)`.

    Raises
    ------
    UnknownName
        There is no such budget.
    InvalidInput
        No mapping with one budget.
    """
    if not isinstance(relax, Mapping):
        raise InvalidInput(f'relax is {relax!r}: give one budget, as {{"kl": 0.01}}')
    for name in relax:
        if name not in NAMES:
            raise UnknownName.among("budget", name, NAMES)
    name, budget = the_budget({name: relax.get(name) for name in NAMES})
    return {name: checked_amount(name, budget)}
