"""Race of the drafts without replacement over the groups of one row: its sums, and Q along them.

Groups are buckets or bins of p/q, in order; the last of them is outside all prefixes. Many light
tokens of a group are added at once by the power sums of their weights, heavy ones one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.arrays import Integers, Keys, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class RaceSums:
    """Sums of the draft's weights at one position, by groups.

    `slowest` is the weight of all tokens but the K - 1 heaviest, `others` of all but the heaviest.
    Up to the weight `unit` tokens are light: `moments`, shape (B, COLUMNS), has from column MOMENT
    on the sums of (weight / unit)^r over them, r = 1, 2, ... `chains` are the first heavy token of
    every group and the one after every heavy token, -1 ending a chain, and their weights.
    """

    slowest: float
    others: float
    unit: float
    moments: Matrix
    chains: tuple[Integers, Integers, Vector]

    def curve(
        self, sums: Matrix, num_drafts: Integers, total: float = 1.0, keeps: bool = False,
        checks: bool = False,
    ) -> RaceCurve:  # fmt: skip
        """Run the race of weights that sum up to `total`, for ascending K.

        `sums`, shape (B, 2) at least, are those of p and q over every group. With ``keeps=True``
        the race before every group is kept, with ``checks=True`` the quadrature is a finer one.
        """
        from mdsd_opt.prefix_search import race_group_kernels as kernels
        from mdsd_opt.prefix_search.race_kernels import RACE_ROWS, race_terms

        most, size, others = int(num_drafts[-1]), len(sums), self.others / total
        _, step, first, nodes = race_terms(self.slowest / total, most, checks)
        first_heavy, next_heavy, heavy = self.chains
        table, escapes = np.empty((RACE_ROWS + most, nodes)), np.empty((size, num_drafts.size))
        before = np.empty((size * most if keeps else 0, nodes)), np.empty(size), np.empty(size)
        kernels.race_curve(
            sums, self.moments, first_heavy, next_heavy, heavy if total == 1.0 else heavy / total,
            num_drafts, self.unit / total, step, first, others, table, np.empty((most, nodes)),
            *before, escapes,
        )  # fmt: skip
        return RaceCurve((1.0 - escapes).clip(0.0), others, table, before)


@dataclass(frozen=True, slots=True, eq=False)
class RaceCurve:
    """Race that was run over n groups.

    `contained`, shape (n + 1, number of K), is Q of the first 0, 1, ... groups. The rest is for
    `at`: what the race before every group was, if it was kept.
    """

    contained: Matrix
    others: float
    table: Matrix
    before: tuple[Matrix, Vector, Vector]

    def at(self, tokens: Integers, groups: Keys, q: Vector, num_drafts: int) -> Vector:
        """Values of Q at tokens of some whole groups, in order; each is asked for once."""
        from mdsd_opt.prefix_search.race_group_kernels import race_opened

        rates, contained = np.empty((2, tokens.size))
        race_opened(
            tokens, groups, q, np.array([num_drafts]), self.others, self.table, *self.before,
            np.empty(1), rates, contained,
        )  # fmt: skip
        return contained


def race_sums_of_row(
    weights: Vector, groups: Keys, num_drafts: int, num_groups: int, p: Vector | None = None,
    checks: bool = False,
) -> RaceSums:  # fmt: skip
    """Sums of a row for the race, by a pass for the heaviest tokens, and one for the sums.

    Weights and groups have shape (V,); K is below the number of tokens with a weight. `moments` has
    the sums of p, if it is given, and of the weights in its first columns. With ``checks=True``
    fewer tokens are light.
    """
    from mdsd_opt.prefix_search import race_group_kernels as kernels
    from mdsd_opt.prefix_search.race_kernels import most_heavy, race_terms

    slowest, others = kernels.race_rates(weights, num_drafts, np.empty(num_drafts, np.int64))
    unit = race_terms(slowest, num_drafts, checks)[0]
    room = weights.size if checks else most_heavy(weights.size, num_drafts)
    run, moments = np.empty((2, num_groups, kernels.COLUMNS))
    chains = np.empty(num_groups, np.int64), np.empty(room, np.int64), np.zeros(room)
    kernels.race_sums(weights if p is None else p, weights, groups, unit, run, moments, *chains)
    return RaceSums(slowest, others, unit, moments, chains)
