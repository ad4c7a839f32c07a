"""Calibration of audits: p-values of lossless verifiers, and how often wrong ones are found.

    python benchmarks/audit_calibration.py --audits 2000

Tokens are drawn from the output law itself and put to the checks of `mdsd_opt.audit`. Beside the
p-value of the report stands that of equal shares: six checks, duplicates and all.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.auditing.checks import output_checks
from mdsd_opt.evidence import statistics
from mdsd_opt.evidence.report import ACCEPTANCE_WEIGHT, Check
from mdsd_opt.evidence.settings import Options

#: Vocabulary sizes, and trials of each audit.
SIZES = ((2, 2_000), (4, 2_000), (16, 2_000), (100, 5_000))
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.01)
EQUAL_SHARES = 6


def slightly_wrong(p: Any, q: Any, share: float) -> Any:
    """Output law if so many rejected drafts are replaced by the target, not by the residual."""
    accepted = np.minimum(p, q)
    rejected = 1 - accepted.sum()
    residual = np.maximum(p - q, 0) / rejected
    return accepted + rejected * (share * p + (1 - share) * residual)


def p_values(problem: Any, law: Any, trials: int, rng: Any) -> tuple[float, float]:
    """p-value of one audit, as reported and by equal shares."""
    tokens = rng.choice(law.size, trials, p=law)
    rate = float(np.minimum(problem.target, problem.drafts.q).sum())  # of a rule at its optimum
    above = statistics.at_most(int(rng.binomial(trials, rate)), trials, rate)
    acceptance = Check("acceptance", "", above, weight=ACCEPTANCE_WEIGHT)
    checks = (*output_checks(problem, tokens, rng), acceptance)
    equal = min(1.0, EQUAL_SHARES * min(check.p_value for check in checks))
    return Options(num_trials=trials).combined(checks), equal


def random_problem(vocab_size: int, rng: Any) -> Any:
    p, q = rng.dirichlet(np.ones(vocab_size), 2)
    return mo.TransportProblem(p, mo.WithReplacement(q, 1))


def calibration(vocab_size: int, trials: int, audits: int, rng: Any) -> Any:
    """Shares of lossless audits whose p-values lie below each level, shape (2, levels)."""
    found = []
    for _ in range(audits):
        problem = random_problem(vocab_size, rng)
        found.append(p_values(problem, problem.target, trials, rng))
    return (np.array(found).T[:, :, None] <= np.array(LEVELS)).mean(axis=1)


def power(vocab_size: int, trials: int, audits: int, level: float, rng: Any) -> tuple[Any, float]:
    """Shares of wrong verifiers found at a level, (2,), and their mean total variation.

    Each is as wrong as chi-square sees in half of the audits, by the noncentrality of its law.
    """
    from mdsd_opt.evidence.settings import needed_noncentrality

    needed = needed_noncentrality(min(vocab_size, 100) - 1, level / 3, 0.5)
    found, distances = [], []
    for _ in range(audits):
        problem = random_problem(vocab_size, rng)
        p, q = problem.target, problem.drafts.q
        full = slightly_wrong(p, q, 1.0) - p
        share = min(1.0, float(np.sqrt(needed / (trials * (full**2 / p).sum()))))
        found.append(p_values(problem, slightly_wrong(p, q, share), trials, rng))
        distances.append(share * np.abs(full).sum() / 2)
    return (np.array(found) < level).mean(axis=0), float(np.mean(distances))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audits", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    print(f"{given.audits} lossless audits: share of p-values up to each level")
    print("| V | trials | p-value |" + "".join(f" {level:g} |" for level in LEVELS))
    print("|---|---|---|" + "---|" * len(LEVELS))
    for vocab_size, trials in SIZES:
        rows = calibration(vocab_size, trials, given.audits, rng)
        for name, row in zip(("as reported", "equal shares"), rows, strict=True):
            print(f"| {vocab_size} | {trials:,} | {name} |" + "".join(f" {x:.4f} |" for x in row))
    print("\nfound, of verifiers that are slightly wrong")
    print("| V | trials | tv | level | as reported | equal shares |")
    print("|---|---|---|---|---|---|")
    for vocab_size, trials in SIZES:
        for level in (1e-6, 0.05):
            (ours, equal), tv = power(vocab_size, trials, given.audits // 2, level, rng)
            shown = f"| {vocab_size} | {trials:,} | {tv:.3f} | {level:g} |"
            print(f"{shown} {ours:.3f} | {equal:.3f} |", flush=True)


if __name__ == "__main__":
    main()
