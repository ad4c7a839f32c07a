"""Acceptance rates at a distance from the target, for batches of logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import checked_amount, checked_names, of_kind
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.batch.acceptance import RowWork, checked_counts, paired_rows
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.solvers import ERROR, RelaxedRows, the_budget

_SPREADS = ("equal", "best")

#: Slopes that are tried first; the one of a mean budget lies between two of them, and is then
#: looked for between these, in so many parts, again and again.
_SLOPES = tuple(np.geomspace(1e-6, 1e6, 24).tolist())
_PARTS = 10
_PASSES = 2

#: Share of a mean budget that groups of tokens may hide and thereby waste.
_DOUBTFUL = 1e-3


@of_logits()
def relaxed_rates(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int | Sequence[int] = 3,
    drafts: str | Sequence[str] = "with_replacement",
    *,
    tv: float | Sequence[float] | None = None,
    kl: float | Sequence[float] | None = None,
    chi2: float | Sequence[float] | None = None,
    spread: str = "equal",
    num_threads: int | None = None,
    progress: bool = False,
    **options: Unpack[LogitsKeywords],
) -> Any:
    r"""Largest acceptance rates within a distance from the target, for every row of logits.

    The rate of `mdsd_opt.relax`, without the law: the largest a with

    .. math:: D(p_a, p) \le \text{budget}, \qquad \mathrm{TV}(p_a, p) = a - \alpha^*,

    D the total variation, KL(p_a || p) in nats or chi-square. Tokens are sorted into buckets of
    p/q, 2048 to an octave, and the frontier is one concave hull of these, less what it may hide;
    where that could take more than 1e-6 from a rate, and for schemes of your own, the row is done
    token by token.

    This is a statement about one step; over a text, distances add up.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        As for `acceptance_rates`, but for arrays of Dask, and a pair as the first argument; on
        the CPU.
    num_drafts : int or sequence of int
        K.
    drafts : str or sequence of str
        Scheme by which the drafts come from q: "with_replacement", "without_replacement", "greedy",
        "top_k", or a name that is registered.
    tv, kl, chi2 : float or sequence of float
        The budget, at least 0, and exactly one of them. Several cost hardly more than one.
    spread : {"equal", "best"}
        "equal" gives each row the budget. "best" takes it as a mean over all rows, for each scheme
        and K by itself, and spends it where it buys most: the divergence has one slope in a at all
        rows. No other way of spending it has a larger mean rate. Not for tv: a unit of it buys the
        same wherever it is spent.
    num_threads, progress : optional
        As for `acceptance_rates`.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`: the distance
        is from the law that is sampled.

    Returns
    -------
    array, shape (...) and an axis for each of `drafts`, `num_drafts` and budget that is a sequence
        float64, in the library of the input. With a budget of 0, and the lossless part of tv, those
        of `acceptance_rates`; else at most 1e-6 is lacking, and no budget is overspent (but for
        the 1e-6 to which `relax` knows the frontier of a scheme of your own). Rows with a total
        variation of less than the budget reach 1.

    Raises
    ------
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``; the message names the row.
    InvalidInput
        Not exactly one budget, a parameter out of range, or shapes that do not fit.
    UnknownName
        No such draft scheme or spread.
    ProblemTooLarge
        There are so many drafts without replacement that a row would take more than about ten
        seconds.

    Notes
    -----
    See the theory page "Beyond lossless".
    """
    name, budget = the_budget({"tv": tv, "kl": kl, "chi2": chi2})
    listed = tuple(budget) if isinstance(budget, Iterable) else (budget,)
    amounts = tuple(float(checked_amount(name, amount)) for amount in listed)
    schemes = tuple(checked_names(drafts, "drafts"))
    for subject, values in ((name, amounts), ("drafts", schemes)):
        if not values:
            raise InvalidInput(f"{subject} is empty: give at least one")
    if of_kind(spread, str, "spread", "its name") not in _SPREADS:
        raise UnknownName.among("spread", spread, _SPREADS)
    if spread == "best" and name == "tv":
        raise InvalidInput(
            "a unit of tv buys the same acceptance wherever it is spent: give spread='equal', or a "
            "budget of kl or chi2"
        )
    if spread == "best" and np.inf in amounts:
        raise InvalidInput(f"{name} is infinite: there is nothing to spread")
    counts = checked_counts(num_drafts)
    work = RowWork(schemes[0], "optimal", counts, num_threads, progress)
    functions = tuple(
        replace(work, scheme=scheme).declared.row_function(work.seed) for scheme in schemes
    )
    pair = Logits.of(target_logits, draft_logits, options)
    if pair.is_lazy:
        raise InvalidInput("relaxed_rates takes no Dask arrays: call it on their blocks")
    rows = paired_rows(*pair.sides)
    asked = RelaxedRows(functions, schemes, name, amounts)
    shape = len(schemes), len(counts), len(amounts)

    def run(asked: RelaxedRows) -> Floats:
        found = work.rates(*rows, asked, shape[0] * shape[1] * asked.num_columns)
        return found.reshape(-1, *shape[:2], asked.num_columns)

    rates = run(asked) if spread == "equal" else _Spread(asked, run).rates()
    several = not isinstance(drafts, str), *(isinstance(x, Iterable) for x in (num_drafts, budget))
    axes = tuple(n for n, is_kept in zip(shape, several, strict=True) if is_kept)
    rates = rates.reshape((*rows[0].index_shape, *axes))
    return rates[()] if pair.reference.library == "numpy" else pair.reference.like(rates)


@dataclass(frozen=True, slots=True)
class _Spread:
    """A mean budget, spent where it buys most.

    `asked` are the mean budgets, `run` gives what rows find, shape (rows, schemes, K, columns).
    """

    asked: RelaxedRows
    run: Callable[[RelaxedRows], Floats]

    def rates(self) -> Floats:
        """Rates of all rows, shape (rows, schemes, K, budgets)."""
        slopes: tuple[float, ...] = (0.0, *_SLOPES)
        for _ in range(_PASSES):
            _, costs = self._at(slopes)
            slopes = self._finer(slopes, costs.mean(axis=0))
        rates, costs = self._at(slopes)
        return self._between(rates, costs)

    def _at(self, slopes: tuple[float, ...]) -> tuple[Floats, Floats]:
        """Rates and costs at given slopes, shape (rows, schemes, K, slopes)."""
        spent = [amount for amount in self.asked.amounts if amount > 0]
        doubtful = min([ERROR, *(_DOUBTFUL * amount for amount in spent)])
        table = self.run(replace(self.asked, amounts=slopes, by_slope=True, doubtful=doubtful))
        return table[..., 0::2], table[..., 1::2]

    def _finer(self, slopes: tuple[float, ...], means: Floats) -> tuple[float, ...]:
        """Slopes between those whose mean costs enclose a budget."""
        tried = {0.0}
        for costs in means.reshape(-1, len(slopes)):
            for n in np.searchsorted(costs, self.asked.amounts, side="right").tolist():
                low, high = max(slopes[n - 1], slopes[1] / 1e6), [*slopes, np.inf][n]
                tried.add(high)
                if low < np.inf:
                    stretch = np.geomspace(low, min(high, low * 1e6), _PARTS + 1)
                    tried.update(stretch.tolist())
        return tuple(sorted(tried))

    def _between(self, rates: Floats, costs: Floats) -> Floats:
        """Means of the laws at neighbouring slopes, which cost no more than the mean of costs."""
        means = costs.mean(axis=0)
        result = np.empty((*rates.shape[:3], len(self.asked.amounts)))
        for place in np.ndindex(means.shape[:2]):
            here, curve = rates[(slice(None), *place)], means[place]
            for b, amount in enumerate(self.asked.amounts):
                n = int(np.searchsorted(curve, amount, side="right"))
                if n == curve.size:
                    result[(slice(None), *place, b)] = here[:, -1]
                    continue
                share = (amount - curve[n - 1]) / (curve[n] - curve[n - 1])
                result[(slice(None), *place, b)] = here[:, n - 1] + share * (
                    here[:, n] - here[:, n - 1]
                )
        return result
