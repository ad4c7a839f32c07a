"""Two and three different drafts on real logits: the optimum against every rule that takes them.

The drafts are one draft model at several temperatures, the target has temperature 1; means over the
bundled positions. "kseq" takes drafts of one model only: it is shown for as many draws at the one
temperature 1, beside the optimum for those. A second table holds the loss of the truncated LP
beside the bound that is proven for it.

    python benchmarks/different_drafts.py [--positions 42] [--plot FILE.png] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.optimal import Optimal
from mdsd_opt.verifiers.ratio_hull import RatioHull
from mdsd_opt.versions import versions

#: Temperatures of the drafts, in the order in which rules that go one by one see them.
SETTINGS = ((1.0, 1.0), (0.7, 1.4), (1.0, 1.5), (0.5, 1.0), (0.7, 1.0, 1.4), (0.5, 1.0, 1.5))
COLUMNS = ("optimum", "optimal", "ratio_hull", "is_ratio", "is_published", "rrs", "same_optimum",
           "same_kseq", "same_rrs")  # fmt: skip
HEADINGS = {
    "optimum": "alpha*",
    "optimal": "optimal",
    "ratio_hull": "ratio_hull",
    "is_ratio": "importance_sampling, ratio rule",
    "is_published": "importance_sampling",
    "rrs": "rrs",
    "same_optimum": "one temperature: alpha*",
    "same_kseq": "kseq",
    "same_rrs": "rrs",
}
SIZES = (5, 10, 20, 50)
SAMPLES = 60

Rates = dict[str, float]


def rates_of(
    target: np.ndarray, draft: np.ndarray, temperatures: tuple[float, ...]
) -> tuple[Rates, Rates]:
    """Acceptance rate by column, and costs."""
    p = mo.softmax(target)
    models = [mo.softmax(draft, temperature=t) for t in temperatures]
    problem = mo.TransportProblem(p, mo.IndependentDrafts(models))
    solution = mo.solve(problem, "submodular")
    certificate = mo.certify(problem, solution)
    assert certificate.valid, certificate.violations
    start = time.perf_counter()
    verifier = Optimal()
    reached: Any = verifier.acceptance_rate(problem)
    fit_seconds = time.perf_counter() - start
    evaluations = verifier._rule(problem).potentials.evaluations
    k = len(temperatures)
    same = mo.TransportProblem(p, mo.WithReplacement(mo.softmax(draft), k))
    rates = {
        "optimum": solution.acceptance_rate,
        "optimal": float(reached),
        "ratio_hull": float(RatioHull().acceptance_rate(problem, num_samples=SAMPLES)),
        "is_ratio": float(
            ImportanceSampling(rule="ratio").acceptance_rate(problem, num_samples=SAMPLES)
        ),
        "is_published": float(ImportanceSampling().acceptance_rate(problem, num_samples=SAMPLES)),
        "rrs": float(mo.verifiers.get("rrs").acceptance_rate(problem)),
        "same_optimum": mo.solve(same).acceptance_rate,
        "same_kseq": mo.verifiers.get("kseq").acceptance_rate(same),
        "same_rrs": mo.verifiers.get("rrs").acceptance_rate(same),
    }
    costs = {
        "solve_ms": 1e3 * solution.solve_seconds,
        "tiles": float(solution.stats["tiles"]),
        "gap": float(certificate.gap),
        "fit_ms": 1e3 * fit_seconds,
        "evaluations": float(evaluations),
        "fitted_gap": reached.gap,
    }
    return rates, costs


def losses_of(target: np.ndarray, draft: np.ndarray, temperatures: tuple[float, ...]) -> Rates:
    """True loss and bounds of the truncated LP, by size."""
    models = [mo.softmax(draft, temperature=t) for t in temperatures]
    problem = mo.TransportProblem(mo.softmax(target), mo.IndependentDrafts(models))
    optimum = mo.solve(problem, "submodular").acceptance_rate
    result = {}
    for size in SIZES:
        published = mo.solve(problem, "truncated_lp", size=size)
        ratio = mo.solve(problem, "truncated_lp", size=size, rule="ratio")
        result[f"loss_{size}"] = optimum - published.lower_bound
        result[f"bound_{size}"] = min(published.stats["loss_bound"], 1.0)
        result[f"tighter_{size}"] = min(published.stats["loss_bound_tighter"], 1.0)
        result[f"ratio_{size}"] = optimum - ratio.lower_bound
    return result


def means(rows: list[Rates]) -> Rates:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def named(temperatures: tuple[float, ...]) -> str:
    return ", ".join(f"{t:g}" for t in temperatures)


def print_tables(tables: dict[str, Any]) -> None:
    """In Markdown."""
    print("| drafts at temperatures | " + " | ".join(HEADINGS[c] for c in COLUMNS) + " |")
    print("|" + "---|" * (len(COLUMNS) + 1))
    for setting, row in tables["rates"].items():
        print(f"| {setting} | " + " | ".join(f"{row[c]:.4f}" for c in COLUMNS) + " |")
    print()
    print("| drafts at temperatures | tiles | solve ms | evaluations | optimal ms | its gap |")
    print("|---|---|---|---|---|---|")
    for setting, row in tables["costs"].items():
        print(
            f"| {setting} | {row['tiles']:.1f} | {row['solve_ms']:.0f} | {row['evaluations']:.0f} "
            f"| {row['fit_ms']:.0f} | {row['fitted_gap']:.1e} |"
        )
    print()
    print("| drafts at temperatures | s | true loss | bound | bound of [Khisti25] | ratio rule |")
    print("|---|---|---|---|---|---|")
    for setting, row in tables["losses"].items():
        for size in SIZES:
            figures = (row[f"{name}_{size}"] for name in ("loss", "tighter", "bound", "ratio"))
            print(f"| {setting} | {size} | " + " | ".join(f"{x:.4f}" for x in figures) + " |")


def draw(tables: dict[str, Any], path: Path) -> None:
    """Acceptance by setting on the left, losses of the truncated LP on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    settings = list(tables["rates"])
    shown = ("optimum", "ratio_hull", "is_ratio", "is_published", "rrs", "same_kseq")
    markers = "_osD^v"
    for marker, name in zip(markers, shown, strict=True):
        values = [tables["rates"][setting][name] for setting in settings]
        size = 24 if name == "optimum" else 6
        label = HEADINGS[name] + (", one temperature" if name == "same_kseq" else "")
        left.plot(range(len(settings)), values, marker, markersize=size, label=label)
    left.set_xticks(range(len(settings)), [s.replace(", ", "\n") for s in settings])
    left.set_xlabel("temperatures of the drafts")
    left.set_ylabel("acceptance rate")
    left.legend(fontsize=8, markerscale=0.6)
    for colour, (setting, row) in enumerate(tables["losses"].items()):
        for name, style in (("loss", "-"), ("tighter", "--"), ("ratio", ":")):
            values = [row[f"{name}_{size}"] for size in SIZES]
            words = {"loss": "true loss", "tighter": "bound", "ratio": "ratio rule, true loss"}
            right.plot(SIZES, values, style, marker=".", color=f"C{colour}",
                       label=f"{setting}: {words[name]}")  # fmt: skip
    right.set_xlabel("free tokens s of the truncated LP")
    right.set_ylabel("loss of acceptance")
    right.set_yscale("log")
    right.legend(fontsize=7)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--positions", type=int, default=42)
    parser.add_argument("--plot", type=Path, help="draw the picture to this file")
    parser.add_argument("--json", type=Path, help="write tables and circumstances to this file")
    options = parser.parse_args()
    sample = np.load(sample_logits_path())
    target = sample["target"][: options.positions].astype(np.float64)
    draft = sample["draft"][: options.positions].astype(np.float64)
    tables: dict[str, Any] = {"rates": {}, "costs": {}, "losses": {}}
    rates_of(target[0], draft[0], (1.0, 1.2))  # load compiled kernels
    for temperatures in SETTINGS:
        measured = [rates_of(*pair, temperatures) for pair in zip(target, draft, strict=True)]
        tables["rates"][named(temperatures)] = means([rates for rates, _ in measured])
        tables["costs"][named(temperatures)] = means([costs for _, costs in measured])
        if len(temperatures) == 2:
            losses = [losses_of(*pair, temperatures) for pair in zip(target, draft, strict=True)]
            tables["losses"][named(temperatures)] = means(losses)
    print_tables(tables)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {versions()}")
    if options.plot:
        draw(tables, options.plot)
    if options.json:
        circumstances = {"positions": len(target), **versions()}
        document = {"circumstances": circumstances, **tables}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
