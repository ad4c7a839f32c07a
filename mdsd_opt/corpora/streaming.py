"""Mean, confidence interval and quantiles of values that arrive in pieces, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.corpora.intervals import MeanInterval, interval_of_groups
from mdsd_opt.problem.solution import weighted_count

#: Prompts that are told apart. Further ones are pooled with these: the pools are independent of
#: each other as the prompts are, so the interval stays valid, on this many samples.
MAX_GROUPS = 1 << 14

#: Cells of the histogram behind the quantiles.
NUM_BINS = 10_000


class RunningSummary:
    r"""Summary of columns of values in [0, 1], prompt by prompt.

    The interval is that of `mdsd_opt.corpora.intervals.mean_interval`: the variance of the mean is
    :math:`\frac{G}{G-1} \sum_g (S_g - n_g \bar x)^2 / N^2` with the totals S_g and counts n_g of
    the prompts, which is all that has to be kept.

    Parameters
    ----------
    num_columns : int
    max_groups : int
        See `MAX_GROUPS`.
    """

    def __init__(self, num_columns: int, max_groups: int = MAX_GROUPS) -> None:
        self._max_groups = max_groups
        self._slots: dict[int, int] = {}
        self._num_loose = 0
        self._counts = np.zeros(0)
        self._sums = np.zeros((0, num_columns))
        self._histogram = np.zeros((num_columns, NUM_BINS), dtype=np.int64)
        self._least = np.full(num_columns, np.inf)
        self._most = np.full(num_columns, -np.inf)
        self.num_values = 0

    def add(self, values: NDArray[np.float64], groups: NDArray[np.int64] | None = None) -> None:
        """Take in values, shape (n, C), and the prompt of each row; without it rows are loose."""
        n = len(values)
        if n == 0:
            return
        slots = self._loose_slots(n) if groups is None else self._slots_of(groups)
        used = int(slots.max()) + 1
        if used > len(self._counts):
            more = max(used, 2 * len(self._counts)) - len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros(more)])
            self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])
        self._counts[:used] += np.bincount(slots, minlength=used)
        cells = np.clip((values * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
        for column in range(values.shape[1]):
            self._sums[:used, column] += weighted_count(slots, values[:, column], used)
            self._histogram[column] += np.bincount(cells[:, column], minlength=NUM_BINS)
        self._least = np.minimum(self._least, values.min(axis=0))
        self._most = np.maximum(self._most, values.max(axis=0))
        self.num_values += n

    def _slots_of(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        names, index = np.unique(groups, return_inverse=True)
        slots = np.empty(names.size, dtype=np.int64)
        for i, name in enumerate(names.tolist()):
            if name not in self._slots and len(self._slots) < self._max_groups:
                self._slots[name] = len(self._slots)
            slots[i] = self._slots.get(name, name % self._max_groups)
        return slots[index.ravel()]

    def _loose_slots(self, n: int) -> NDArray[np.int64]:
        first = self._num_loose
        self._num_loose += n
        return np.arange(first, first + n) % self._max_groups

    def intervals(self, confidence: float = 0.95) -> list[MeanInterval]:
        """Mean of each column, with its confidence interval."""
        present = self._counts > 0
        counts, sums = self._counts[present], self._sums[present]
        means = sums.sum(axis=0) / max(self.num_values, 1)
        return [
            interval_of_groups(float(mean), column - counts * mean, self.num_values, confidence)
            for mean, column in zip(means, sums.T, strict=True)
        ]

    def quantiles(self, levels: tuple[float, ...]) -> NDArray[np.float64]:
        """Quantiles over the values, shape (C, len(levels)), to within 1 / `NUM_BINS`.

        The quantile of level u is the least value that a share u of the values does not exceed.
        """
        reached = np.cumsum(self._histogram, axis=1)
        result = np.empty((len(reached), len(levels)))
        for column, counts in enumerate(reached):
            wanted = np.clip(np.ceil(np.asarray(levels) * self.num_values), 1, None)
            cell = np.searchsorted(counts, wanted)
            middle = (cell + 0.5) / NUM_BINS
            result[column] = np.clip(middle, self._least[column], self._most[column])
        return result
