r"""Ways to vary the number of drafts: thresholds at given costs, and whether they are lossless.

Drafting is lossless as long as how many drafts there are is decided without a look at what the
tokens verified will be: by the batch, by steps that are over, by the law a draft is drawn from. A
draft that is thrown away because of which token was drawn changes the law of those that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mdsd_opt.base.checked import real
from mdsd_opt.base.frames import Result
from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning.costs import StepCosts
from mdsd_opt.planning.count_forecasts import CountOption

#: Batch sizes at which speed-ups are computed, and between which lengths are looked for.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_EQUAL = 1e-9

#: Acceptance from which on lengths are left out of the rule.
_HIGH = 0.9


@dataclass(frozen=True, slots=True)
class Policy(Result):
    """A way to choose the number of drafts of a step.

    Attributes
    ----------
    name : str
        "by batch", "by confidence", "by acceptance".
    rule : str
        Rule in words, with its thresholds.
    thresholds : dict of str to float
    lossless : str
        Sentence whether the text keeps the target's law, and on what condition.
    """

    name: str
    rule: str
    thresholds: dict[str, float]
    lossless: str


def lengths_by_batch(
    forecasts: Sequence[CountOption], costs: StepCosts
) -> tuple[tuple[int, int, int], ...]:
    """Lengths as (from, to, drafts) over batches up to 256; empty unless costs are known by batch.

    The length is that of the fastest chain in the middle of the assumptions, 0 where plain decoding
    is faster.
    """
    draft_known = not isinstance(costs.draft_ms, (int, float)) or costs.draft_ms == 0
    if isinstance(costs.draft_ms, Mapping):
        draft_known = len(costs.draft_ms) > 1
    if not (costs.knows_rows and draft_known):
        return ()
    parts: list[tuple[int, int, int]] = []
    for batch in range(1, BATCHES[-1] + 1):
        here = replace(costs, batch_size=batch)
        plain = here.plain()
        gains = {0: 1.0}
        for x in forecasts:
            gains[int(x.depth)] = x.tokens * plain / here.drafted(x.depth)
        chosen = max(gains, key=lambda k: (round(gains[k] / _EQUAL), -k))
        if parts and parts[-1][2] == chosen:
            parts[-1] = (parts[-1][0], batch, chosen)
        else:
            parts.append((batch, batch, chosen))
    return tuple(parts)


def policies_of(
    forecasts: Sequence[CountOption],
    depth: float,
    costs: StepCosts | None,
    by_batch: Sequence[tuple[int, int, int]],
) -> tuple[Policy, ...]:
    """Policies for which the costs are known."""
    if costs is None:
        return ()
    policies = []
    if by_batch:
        policies.append(_by_batch(by_batch))
    if costs.draft_passes is None:
        policies.append(_by_confidence(forecasts, max(round(depth), 1), costs))
    policies.append(_by_acceptance(costs, len(forecasts)))
    return tuple(policies)


def _by_batch(parts: Sequence[tuple[int, int, int]]) -> Policy:
    phrases = [
        f"{k or 'no'} draft{'s' if k != 1 else ''} at batch {low}"
        + (f" to {high}" if high > low else "")
        for low, high, k in parts
    ]
    off = [low for low, _, k in parts if k == 0]
    thresholds = {"no drafts from batch": float(off[0])} if off and parts[-1][2] == 0 else {}
    return Policy(
        "by batch",
        "; ".join(phrases),
        thresholds,
        "lossless: the batch does not depend on the tokens that will be drawn",
    )


def _by_confidence(forecasts: Sequence[CountOption], depth: int, costs: StepCosts) -> Policy:
    r"""Policy that stops where the next draft is worth less than it costs.

    A token is worth :math:`\lambda` milliseconds, the time of a token at the best chain; one more
    draft costs a draft pass and a row. It pays while the chance that all drafts so far and this
    one are accepted is above the ratio of the two.
    """
    chain = forecasts[min(depth, len(forecasts)) - 1]
    worth = costs.drafted(chain.depth) / chain.tokens
    more = costs.drafted(chain.depth + 1) - costs.drafted(chain.depth)
    joint = min(max(more / worth, 0.0), 1.0)
    reached = forecasts[0].accepted.mean
    single = min(joint / max(reached, joint, _EQUAL), 1.0)
    together = (
        f"; a pass is saved only where all {costs.batch_size} texts stop"
        if costs.batch_size > 1
        else ""
    )
    return Policy(
        "by confidence",
        f"go on while the chance that all drafts of the step are accepted is above {joint:.2f}; an "
        f"engine that looks at the next draft alone (p-min): above {single:.2f}{together}",
        {"joint": joint, "p_min": single},
        "lossless if the likeliest token's probability decides, before a draft is drawn; not if a "
        "drawn token is thrown away for its own probability. Its worth rests on confidence being "
        "right about acceptance, which counts do not show",
    )


def _by_acceptance(costs: StepCosts, most: int) -> Policy:
    """Policy of the best number of drafts by the acceptance of single ones, where all are alike."""
    thresholds: dict[str, float] = {}
    length = -1
    speedup_at = _speedups(costs, most)
    for alpha in np.linspace(0.0, 1.0, 101)[:-1]:
        gained, fastest = speedup_at(alpha)
        best = fastest if gained > 1.0 else 0
        if best > length:
            thresholds[f"{best}"] = float(round(alpha, 2))
            length = best
    lengths = ", ".join(f"{k} from {alpha:.2f}" for k, alpha in thresholds.items() if alpha < _HIGH)
    return Policy(
        "by acceptance",
        f"drafts by the acceptance rate of the last steps: {lengths}",
        thresholds,
        "lossless: steps that are over decide",
    )


def _speedups(costs: StepCosts, most: int) -> Callable[[float], tuple[float, int]]:
    """Function from the acceptance of single drafts, all alike, to the best speed-up and length."""
    plain = costs.plain()
    steps = np.array([costs.drafted(k) for k in range(1, most + 1)])

    def reached(alpha: float) -> tuple[float, int]:
        gains = (1.0 + np.cumsum(alpha ** np.arange(1, most + 1))) * plain / steps
        return float(gains.max()), int(gains.argmax()) + 1

    return reached


def acceptance_needed(
    speedup: float, costs: StepCosts | None, most: int, forecasts: Sequence[CountOption]
) -> str:
    """Sentence on the least acceptance of single drafts, all alike, that gives the speed-up.

    Raises `InvalidInput` for a speed-up that is not above 0, or without costs.
    """
    if not 0 < real(speedup) < float("inf"):
        raise InvalidInput(f"speedup is {speedup!r}: give a number above 0, such as 2")
    if costs is None:
        raise InvalidInput(
            f"what a speedup of {speedup:g} takes depends on costs: give target_ms and draft_ms"
        )
    reached = _speedups(costs, most)
    gives, takes = f"gives a speed-up of {speedup:g}", f"a speed-up of {speedup:g} takes"
    if speedup == 1:
        gives, takes = "breaks even", "breaking even takes"
    free = "".join(f", if {x}" for x in costs.conditions)
    top, length = reached(1.0)
    if top < speedup:
        return (
            f"No acceptance {gives} at these costs{free}: with every draft accepted, "
            f"chain{length} is {top:.2f} times as fast."
        )
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle)[0] >= speedup else (middle, high)
    text = (
        f"{takes.capitalize()} an acceptance of {high:.2f} at these costs{free} "
        f"(chain{reached(high)[1]})"
    )
    if not forecasts:
        return text + "."
    firsts = sorted(forecasts[0].by_assumption.values())
    has = f"{firsts[0]:.2f}" + (f" to {firsts[-1]:.2f}" if firsts[-1] - firsts[0] > 0.005 else "")
    return f"{text}; the first draft has {has}."
