"""Frequency of wrong numbers of vertices by cdd in floating point, where the truth is V!.

python benchmarks/floating_point_polyhedra.py [--trials 100]
"""

from __future__ import annotations

import argparse
import random
from fractions import Fraction
from math import factorial

from mdsd_opt.cddlib_checks.condition import subset_inequalities
from mdsd_opt.cddlib_checks.draft_laws import drafts_for
from mdsd_opt.cddlib_checks.subsets import containment_table, without_last_token


def floating_point_vertices(rows: list[tuple[int, ...]]) -> int:
    """Number of vertices that cddlib finds in floating point, for this comparison only."""
    import cdd

    matrix = cdd.matrix_from_array([[float(x) for x in row] for row in rows],
                                   rep_type=cdd.RepType.INEQUALITY)  # fmt: skip
    found = cdd.copy_generators(cdd.polyhedron_from_matrix(matrix))
    return sum(row[0] == 1 for row in found.array)


def compare_floating_point(trials: int) -> None:
    rng = random.Random(0)
    for v, k in ((4, 3), (5, 3), (6, 3)):
        wrong = failed = 0
        for _ in range(trials):
            weights = [rng.randint(1, 30) for _ in range(v)]
            q = [Fraction(w, sum(weights)) for w in weights]
            table = containment_table(
                drafts_for("with_replacement", v, k, q).law(exact=True).support_law().masses(), v
            )
            claimed = subset_inequalities(table, v)
            rows = sorted(without_last_token(x.bound, x.coefficients) for x in claimed)
            scaled = [tuple(Fraction(x, max(map(abs, row))) for x in row) for row in rows]
            try:
                count = floating_point_vertices(scaled)
            except RuntimeError:  # cddlib noticed a numerical inconsistency
                failed += 1
                continue
            wrong += count != factorial(v)
        print(f"floating-point cdd, V = {v}, K = {k}: of {trials} q, {wrong} wrong vertex counts, "
              f"{failed} errors")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    compare_floating_point(parser.parse_args().trials)


if __name__ == "__main__":
    main()
