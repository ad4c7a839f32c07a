r"""Upper bound from the probability of each token to be drafted, whatever the law is besides.

No token has more of the accepted mass than p_i, nor more than :math:`\pi_i = \Pr(i \in S)`, so that
:math:`\alpha^* \le \sum_i \min(p_i, \pi_i)`. It is the cut of [Hu25] with the union bound
:math:`\Pr(S \text{ meets } A) \le \pi(A)`, at its best :math:`A = \{p > \pi\}`.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.drafts import inclusion_probabilities
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem


def inclusion_bound(problem: TransportProblem) -> float:
    r"""Bound :math:`\alpha^* \le \min(1, \sum_i \min(p_i, \pi_i))` by marginals of the drafts.

    Every law of draft sets in which token i is drafted with probability
    :math:`\pi_i = \Pr(i \in \{X_1, \dots, X_K\})` stays below it.

    Parameters
    ----------
    problem : TransportProblem

    Returns
    -------
    float
        Bound, up to rounding of about 1e-12.

    Raises
    ------
    ProblemTooLarge
        The law has no formula for its marginals and too many draft sets to list.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> problem = mo.TransportProblem([0.6, 0.3, 0.1], mo.WithoutReplacement([0.2, 0.3, 0.5], 2))
    >>> round(mo.inclusion_bound(problem), 4), round(mo.solve(problem).acceptance_rate, 4)
    (0.8857, 0.8857)
    """
    included = inclusion_probabilities(checked_problem(problem).drafts)
    return min(1.0, float(np.minimum(problem.target, included).sum()))
