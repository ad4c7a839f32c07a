"""Linear programmes of a problem, for other solvers."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.checked import of_kind
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.solvers import full_lp, truncated_lp
from mdsd_opt.solvers.linear_programmes import TransportLP, support_network, tuple_network

#: Forms by name, with the formulation of `full_lp` that has the same size.
FORMS = {"primal": "supports", "dual": "supports", "pair": "pair", "tuples": "tuples"}


def linear_programme(
    problem: TransportProblem, form: str = "primal", **options: Any
) -> TransportLP:
    """Linear programme of the optimum, as `mdsd_opt.solve` builds it.

    Parameters
    ----------
    problem : TransportProblem
    form : {"primal", "dual", "truncated", "pair", "tuples"}
        Primal, dual, truncated, pair or tuples. The transport LP on draft sets; its dual; the
        truncated LP of two independent drafts, or the last stage of more; the LP of two drafts on
        pairs of tokens; the LP on ordered tuples.
    **options
        ``max_variables`` and ``max_bytes``, as of the method "full_lp"; for "truncated" instead
        ``size``, ``rule`` and ``order``, as of "truncated_lp".

    Returns
    -------
    TransportLP
        With c, A_ub, b_ub, A_eq, b_eq and bounds of `scipy.optimize.linprog`, ``columns`` and
        ``rows``, ``save`` and ``to_cvxpy``; ``acceptance_rate(value)`` reads a value.

    Raises
    ------
    UnknownName
        No such form.
    InvalidInput
        No such option, or the form is not one of this problem.
    ProblemTooLarge
        The programme does not fit the budget; nothing is built.
    """
    checked_problem(problem)
    truncated = of_kind(form, str, "form", "its name") == "truncated"
    if not truncated and form not in FORMS:
        raise UnknownName.among("form", form, [*FORMS, "truncated"])
    known = ("size", "rule", "order") if truncated else ("max_variables", "max_bytes")
    for name in options:
        if name not in known:
            raise InvalidInput(f"form {form!r} has no option {name!r}: {', '.join(known)}")
    if truncated:
        return truncated_lp.programme_of(problem, **options)
    full_lp.needs(problem, FORMS[form], **options).require()
    if form == "tuples":
        return tuple_network(problem)[0].programme(form)
    law = problem.drafts.support_law()
    if form == "pair":
        return full_lp.pairs_of(problem, law)[0]
    return support_network(problem, law).programme(form)
