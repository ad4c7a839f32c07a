r"""Driving: the law of a callable's outcome is found by calling it at chosen random numbers.

As a function of each uniform that it draws, a verifier is a step function: accept below a
threshold, one token of an inverse CDF after the other. The steps are found by bisection, one draw
after the other, and what follows is explored once for each step. A draw from known weights
(`multinomial`, `bernoulli`) branches without bisection, and a row of exponentials of which
:math:`\arg\max_i w_i / e_i` counts is one branch whose weights are found by bisection.

What a value of a draw leads to can only be seen with some values for the draws that follow: these
continuations are random ones, all draws at their lower and all at their upper end, and every
counterexample that later turned up: the tree is tried at random and near the ends of its steps,
and is built again with each run that it does not foretell as one more continuation, and its numbers
as points to begin from. The law is exact up to these checks: a step that none of them has met stays
hidden.
"""

from mdsd_opt.auditing.driving.draw_tree import Budget, DrawTree, OutOfTime, Undrivable, driven_tree
from mdsd_opt.auditing.driving.tape import Tape

__all__ = ["Budget", "DrawTree", "OutOfTime", "Tape", "Undrivable", "driven_tree"]
