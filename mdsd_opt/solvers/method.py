"""Description of a method, and the size from which it is refused with advice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from mdsd_opt.base.checked import check_function, of_kind
from mdsd_opt.drafts import product_form, readable
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.problem import Found, TransportProblem

#: Options of "auto": those that all methods without a prefix order share.
LIMITS = ("time_limit", "max_variables", "max_bytes")

#: Most memory that a method may be estimated to take, in bytes.
DEFAULT_MAX_BYTES = 8 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Method of solving, with its purpose, cost and needs.

    Attributes
    ----------
    solve : callable
        ``solve(problem, **options)`` -> `Found`: what it claims, and the evidence. Nothing in it is
        trusted by `mdsd_opt.certify`.
    name : str
        Letters, digits and underscores; that of the function unless given.
    purpose, cost, needs : str
        Words for people who choose.
    exact : bool
        Whether what it finds is the optimum, up to rounding.
    loads : tuple of str
        Modules that are imported before the clock runs.
    options : tuple of str
        Names of the method's options.
    takes_any : bool
        Whether the method takes options of any name.
    """

    solve: Callable[..., Found] = field(repr=False)
    name: str = ""
    purpose: str = ""
    cost: str = ""
    needs: str = ""
    exact: bool = True
    loads: tuple[str, ...] = field(default=(), repr=False)
    options: tuple[str, ...] = field(init=False, repr=False)
    takes_any: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_function(solve=self.solve)
        try:
            named = list(inspect.signature(self.solve).parameters.values())
        except ValueError as error:  # of a type that is built in
            raise InvalidInput(f"solve is {self.solve!r:.60}: give a function") from error
        several = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
        options = tuple(x.name for x in named[1:] if x.kind not in several)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "takes_any", any(x.kind is several[0] for x in named))
        if not of_kind(self.name, str, "name", "a string"):
            object.__setattr__(self, "name", getattr(self.solve, "__name__", ""))

    def __str__(self) -> str:
        parts = [self.purpose, self.cost and f"Cost: {self.cost}"]
        parts.append(self.needs and f"Needs: {self.needs}")
        return " ".join(f"{part}." for part in parts if part) or f"{self.name}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Estimated size of a method on a problem, before anything is built, and its budget.

    Estimated are `variables` and `num_bytes`; the budget is `max_variables` and `max_bytes`;
    `lists_draft_sets` says whether the method works on the law of the draft sets.
    """

    method: str
    problem: TransportProblem
    variables: int
    num_bytes: int
    max_variables: int
    max_bytes: int
    lists_draft_sets: bool = True

    @property
    def fit(self) -> bool:
        """Whether `require` passes."""
        try:
            self.require()
        except ProblemTooLarge:
            return False
        return True

    def require(self) -> None:
        """Raise `ProblemTooLarge` if the size is over the budget or the draft sets are too many."""
        if self.variables > self.max_variables or self.num_bytes > self.max_bytes:
            problem = self.problem
            raise ProblemTooLarge(
                f"{self.method} at V={problem.vocab_size}, K={problem.num_drafts} needs about "
                f"{in_words(self.variables)} variables and {_memory(self.num_bytes)}; the budget "
                f"is {in_words(self.max_variables)} variables and {_memory(self.max_bytes)} "
                f"(max_variables, max_bytes). {_advice(problem)}."
            )
        if self.lists_draft_sets:
            self.problem.drafts.require_listable()


def in_words(count: float) -> str:
    """Count in three digits and a word, as "62.5 trillion"; small and countless ones in digits."""
    return _scaled(count, ("million", "billion", "trillion"))


def _memory(num_bytes: float) -> str:
    return _scaled(num_bytes, ("MB", "GB", "TB", "PB", "EB"), " bytes")


def _scaled(count: float, units: tuple[str, ...], small: str = "") -> str:
    """Three digits of a count in millions or a multiple; `small` is the unit of one."""
    if count == inf:
        return f"unlimited{small}"
    for n, unit in enumerate(units):
        if 10 ** (3 * n + 6) <= count < 10 ** (3 * n + 9):
            return f"{count / 10 ** (3 * n + 6):.3g} {unit}"
    return readable(int(count)) + small


def _advice(problem: TransportProblem) -> str:
    """Name of the polynomial method that the scheme allows, as advice, if there is one."""
    if problem.drafts.prefix_form is not None:
        return "method='subset_selection' solves this size"
    if product_form(problem.drafts.beside_fixed) is not None:
        return "method='submodular' solves this size"
    return "restrict the vocabulary (top_k, top_p) or draft fewer tokens"
