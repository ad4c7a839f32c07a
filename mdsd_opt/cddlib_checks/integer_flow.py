"""Exact optimal acceptance by augmenting paths on integers of any size.

Shares nothing with double description or with the subset formula, so it can confirm what they
find. The flow is a plan, which proves the value from below; the tokens that residual paths reach
are a cut, which proves it from above.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from mdsd_opt.cddlib_checks.subsets import SetLaw


def exact_acceptance(p: Sequence[Fraction], law: SetLaw) -> Fraction:
    """alpha* of target p and a law of draft sets, as the value of a maximum flow."""
    sets = [s for s, mass in law.items() if mass and s]
    scale = lcm(*(x.denominator for x in p), *(law[s].denominator for s in sets))
    token_left = [int(x * scale) for x in p]
    set_left = [int(law[s] * scale) for s in sets]
    flow: list[dict[int, int]] = [{} for _ in sets]  # flow[s][i]: from token i into set s
    sets_of: list[list[int]] = [[] for _ in p]
    for s, drafted in enumerate(sets):
        for i in drafted:
            flow[s][i] = 0
            sets_of[i].append(s)

    while (path := _shortest_path(token_left, set_left, flow, sets_of)) is not None:
        tokens, through = path
        amount = min(token_left[tokens[0]], set_left[through[-1]])
        for s, i in zip(through, tokens[1:], strict=False):
            amount = min(amount, flow[s][i])
        token_left[tokens[0]] -= amount
        set_left[through[-1]] -= amount
        for s, i in zip(through, tokens, strict=True):
            flow[s][i] += amount
        for s, i in zip(through, tokens[1:], strict=False):
            flow[s][i] -= amount
    return Fraction(sum(sum(into.values()) for into in flow), scale)


def _shortest_path(
    token_left: Sequence[int],
    set_left: Sequence[int],
    flow: Sequence[dict[int, int]],
    sets_of: Sequence[Sequence[int]],
) -> tuple[list[int], list[int]] | None:
    """Tokens i_0, i_1, .. and sets s_0, s_1, ..: push into s_j from i_j, pull back to i_{j+1}."""
    came_from: dict[int, tuple[int, int] | None] = {
        i: None for i, left in enumerate(token_left) if left
    }
    queue = deque(came_from)
    seen: set[int] = set()
    while queue:
        i = queue.popleft()
        for s in sets_of[i]:
            if s in seen:
                continue
            seen.add(s)
            if set_left[s]:
                tokens, through = [i], [s]
                while (previous := came_from[tokens[0]]) is not None:
                    tokens.insert(0, previous[0])
                    through.insert(0, previous[1])
                return tokens, through
            for other, amount in flow[s].items():
                if amount and other not in came_from:
                    came_from[other] = (i, s)
                    queue.append(other)
    return None
