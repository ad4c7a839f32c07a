"""How large an exponential method may get before it is refused with advice."""

from __future__ import annotations

from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.drafts.counting import readable
from mdsd_opt.drafts.fixed_plus import peeled
from mdsd_opt.drafts.product_form import product_form
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem

#: Memory a method may be estimated to take, in bytes.
DEFAULT_MAX_BYTES = 8 * 1024**3


def require(
    method: str,
    problem: TransportProblem,
    *,
    variables: int,
    max_variables: int,
    num_bytes: int,
    max_bytes: int = DEFAULT_MAX_BYTES,
    alternative: str | None = None,
) -> None:
    """Raise `ProblemTooLarge` if the estimated size is over the budget.

    Parameters
    ----------
    method : str
        The method that was asked for.
    variables, num_bytes : int
        Estimated size.
    max_variables, max_bytes : int
        The budget.
    alternative : str, optional
        The method to advise; by default the polynomial one the scheme allows.
    """
    if variables <= max_variables and num_bytes <= max_bytes:
        return
    if alternative is None and isinstance(problem.drafts, PrefixDraftScheme):
        alternative = "subset_selection"
    if alternative is None and product_form(peeled(problem.drafts)[1]) is not None:
        alternative = "submodular"
    advice = (
        f"method={alternative!r} solves this size"
        if alternative
        else "restrict the vocabulary (top_k, top_p) or draft fewer tokens"
    )
    raise ProblemTooLarge(
        f"{method} at V={problem.vocab_size}, K={problem.num_drafts} needs about "
        f"{readable(variables)} variables and {readable(num_bytes // 10**9)} GB; the budget is "
        f"{max_variables:,} variables and {max_bytes / 1e9:.3g} GB (max_variables, max_bytes). "
        f"{advice}."
    )
