"""How large the race of drafts without replacement may get before it is refused with advice."""

from __future__ import annotations

from mdsd_opt.errors import ProblemTooLarge


def require_race(tokens: int, num_drafts: int, slowest: float) -> None:
    """Raise `ProblemTooLarge` where Q without replacement would take more than about ten seconds.

    Parameters
    ----------
    tokens : int
        How many are added to the race one at a time.
    num_drafts : int
        K.
    slowest : float
        1 minus the K - 1 largest q.
    """
    from mdsd_opt.prefix_search.race_kernels import race_terms
    from mdsd_opt.prefix_search.race_quadrature_kernels import MAX_RACE_WORK

    def work_of(most: int) -> float:
        return float(tokens) * most * race_terms(slowest, most, False)[3]

    work = work_of(num_drafts)
    if work <= MAX_RACE_WORK:
        return
    fits, fails = 2, num_drafts
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if work_of(middle) <= MAX_RACE_WORK:
            fits = middle
        else:
            fails = middle
    raise ProblemTooLarge(
        f"{num_drafts} drafts without replacement and {tokens:,} tokens take about {work:.1e} "
        f"operations (drafts x tokens x quadrature nodes); the budget is {MAX_RACE_WORK:.1e}. "
        f"Draft about {fits} tokens, or restrict the vocabulary (top_k, top_p)."
    )
