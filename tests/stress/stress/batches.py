"""Rates of batches of logits, column by column, against the exact softmax of these logits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
from support import oracles

import mdsd_opt as mo
from stress import reference
from stress.tally import Tally
from stress.weights import SMALLEST, Weights, draw_beside, draw_weights

#: As documented: from logits of 64 bits, and with replacement from fewer.
FULL, SINGLE = 1e-12, 1e-7

ROWS = 8
COUNTS = (1, 2, 3, 5)
SIZES = (1, 2, 3, 4, 5)

#: Digits beyond the smallest probability that the integers of a row keep.
_DIGITS = 340


def check(rng: np.random.Generator, tally: Tally) -> None:
    """Some rows of one vocabulary, through every column."""
    size = int(rng.choice(SIZES))
    dtype = np.float32 if rng.random() < 0.2 else np.float64
    pairs = [_logits(rng, size) for _ in range(ROWS)]
    target = np.array([p for p, _ in pairs]).astype(dtype)
    draft = np.array([q for _, q in pairs]).astype(dtype)
    rows = [(softmax(p), softmax(q)) for p, q in zip(target, draft, strict=True)]
    for (scheme, verifier), exact in COLUMNS.items():
        counts = (2,) if verifier == "spechub" else COUNTS
        is_bound = exact is None
        try:
            rates = mo.acceptance_rates(
                target, draft, counts, scheme, verifier, num_threads=1, rng=1
            )
        except Exception as error:
            rates = np.full((ROWS, len(counts)), np.nan)
            tally.failures.append(f"{tally.area}:{tally.seed} {scheme}, {verifier}: {error!r}")
        tolerance = SINGLE if dtype == np.float32 and scheme == "with_replacement" else FULL
        for n, (p, q) in enumerate(rows):
            for c, k in enumerate(counts):
                with tally.trial(
                    f"{scheme}, {verifier}",
                    lambda n=n, k=k: (
                        f"K={k} {np.dtype(dtype).name} target={target[n].tolist()} "
                        f"draft={draft[n].tolist()}"
                    ),
                ) as trial:
                    rate = float(rates[n, c])
                    if is_bound:
                        best = _optimum(reference.with_replacement)(p, q, k)
                        trial.that(
                            0 <= rate <= float(best) + tolerance,
                            f"bound {rate!r} above the optimum {float(best)!r}",
                        )
                    else:
                        trial.near(rate, exact(p, q, k), tolerance, "rate")


def _logits(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    q = draw_weights(rng, size)
    p = draw_beside(rng, q) if rng.random() < 0.6 else draw_weights(rng, size)
    shift = float(rng.choice([0.0, 0.0, 37.5, -1e4]))
    with np.errstate(divide="ignore"):
        target, draft = (np.log(np.array([float(x) for x in w.given])) for w in (p, q))
    return target + shift, draft - shift


def softmax(logits: np.ndarray) -> Weights:
    """Exact up to 40 digits of each probability; below 1e-300 they count as zero."""
    values = [Decimal(float(x)) for x in logits]
    largest = max(values)
    with localcontext() as context:
        context.prec = 60
        weights = [_exp(x - largest) for x in values]
        total = sum(weights)
        scaled = [int((w / total).scaleb(_DIGITS)) for w in weights]
    least = int(Decimal(SMALLEST).scaleb(_DIGITS))
    kept = tuple(n if n >= least else 0 for n in scaled)
    return Weights(logits, kept, sum(kept))


@cache
def _exp(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return x.exp()


Column = Callable[[Weights, Weights, int], Fraction]
Contained = Callable[[Weights, int], reference.Subsets]


def _of(law: Callable[..., oracles.Law]) -> Contained:
    return lambda q, k: reference.of_law(law(q.exact, k), q.size)


_greedy, _top_k = _of(oracles.greedy), _of(oracles.top_k)


def _optimum(contained: Contained) -> Column:
    return lambda p, q, k: reference.optimum(p, contained(q, k))


def _naive(contained: Contained) -> Column:
    return lambda p, q, k: reference.naive_target(p, contained(q, k))


#: (drafts, verifier): its rate; None for columns that are lower bounds.
COLUMNS: dict[tuple[str, str], Column | None] = {
    ("with_replacement", "optimal"): _optimum(reference.with_replacement),
    ("with_replacement", "naive_target"): _naive(reference.with_replacement),
    ("with_replacement", "rrs"): lambda p, q, k: reference.rejection(p.exact, [q.exact] * k),
    ("with_replacement", "kseq"): reference.kseq,
    ("with_replacement", "single_draft"): lambda p, q, k: reference.single_draft(
        p.exact, q.exact, k
    ),
    ("with_replacement", "importance_sampling"): None,
    ("with_replacement", "gumbel"): None,
    ("without_replacement", "optimal"): _optimum(reference.without_replacement),
    ("without_replacement", "naive_target"): _naive(reference.without_replacement),
    ("without_replacement", "rrs"): lambda p, q, k: reference.successive_rejection(
        p.exact, q.exact, k
    ),
    ("greedy", "optimal"): _optimum(_greedy),
    ("greedy", "greedy"): _optimum(_greedy),
    ("greedy", "spechub"): _optimum(_greedy),
    ("greedy", "naive_target"): _naive(_greedy),
    ("top_k", "optimal"): _optimum(_top_k),
    ("top_k", "greedy"): _optimum(_top_k),
    ("top_k", "naive_target"): _naive(_top_k),
}
