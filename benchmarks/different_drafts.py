"""Two and three different drafts on real logits: the optimum and every rule that takes them.

The drafts are one draft model at several temperatures, the target has temperature 1; means over the
bundled positions. "kseq" takes drafts of one model only: it is shown for as many draws at the one
temperature 1, beside the optimum for those. A second table holds the loss of the truncated LP
beside the bound that is proven for it. A third measures time against the vocabulary: target logits
2.5 N(0, 1), those of each draft model the target's plus N(0, 1).

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
from mdsd_opt.base.installed import versions
from mdsd_opt.data import sample_logits_path
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.optimal import Optimal
from mdsd_opt.verifiers.ratio_hull import RatioHull

#: Temperatures of the drafts, in the order in which sequential rules take them.
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
VOCAB_SIZES = (1024, 32_768, 65_536, 131_072)
NUM_DRAFTS = (2, 3, 4, 8)

Rates = dict[str, float]


def rates_of(
    target: np.ndarray, draft: np.ndarray, temperatures: tuple[float, ...]
) -> tuple[Rates, Rates]:
    """Acceptance rates by column, and costs."""
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
    passes = verifier._rule(problem).rule.evaluations
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
        "passes": float(passes),
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
        published = mo.solve(problem, "truncated_lp", size=size, rule="published")
        ratio = mo.solve(problem, "truncated_lp", size=size, rule="ratio")
        result[f"loss_{size}"] = optimum - published.lower_bound
        result[f"bound_{size}"] = min(published.stats["loss_bound"], 1.0)
        result[f"tighter_{size}"] = min(published.stats["loss_bound_tighter"], 1.0)
        result[f"ratio_{size}"] = optimum - ratio.lower_bound
    return result


def reach_of(vocab_size: int, num_drafts: int, seed: int) -> Rates:
    """Milliseconds of the solver, its certificate, both verifiers and one decision."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    models = [mo.softmax(logits + rng.standard_normal(vocab_size)) for _ in range(num_drafts)]
    problem = mo.TransportProblem(mo.softmax(logits), mo.IndependentDrafts(models))
    seconds = [time.perf_counter()]
    solution = mo.solve(problem, "submodular")
    seconds.append(time.perf_counter())
    certificate = mo.certify(problem, solution)
    seconds.append(time.perf_counter())
    verifier = Optimal()
    rule = verifier._rule(problem).rule
    seconds.append(time.perf_counter())
    drafts = problem.drafts.sample(rng, 11)
    verifier.verify(problem, drafts[0], rng)  # the residual law is made once
    decided = time.perf_counter()
    for row in drafts[1:]:
        verifier.verify(problem, row, rng)
    decision = (time.perf_counter() - decided) / 10
    hulled = time.perf_counter()
    bound = RatioHull().acceptance_bound(problem)
    hull = time.perf_counter() - hulled
    solve, certify, fit = 1e3 * np.diff(seconds)
    sort = 1e3 * sort_seconds(rng.random(vocab_size))
    return {
        "solve_ms": solve,
        "tiles": float(solution.stats["tiles"]),
        "certify_ms": certify,
        "certified_gap": max(float(certificate.gap), 0.0),
        "fit_ms": fit,
        "fit_sorts": fit / sort,
        "passes": float(rule.evaluations),
        "fitted_gap": rule.gap,
        "decision_ms": 1e3 * decision,
        "hull_ms": 1e3 * hull,
        "hull_loss": solution.acceptance_rate - bound,
    }


def sort_seconds(values: np.ndarray) -> float:
    """Best time of three stable argsorts, with which a fit is compared."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        np.argsort(values, kind="stable")
        times.append(time.perf_counter() - start)
    return min(times)


def print_reach(rows: dict[tuple[int, int], Rates]) -> None:
    """Print the reach as Markdown."""
    print("| V | K | tiles | solve ms | certify ms | gap | passes | heights ms | in sorts | gap "
          "| decision ms | ratio_hull ms | its loss |")  # fmt: skip
    print("|" + "---|" * 13)
    for (vocab_size, num_drafts), row in rows.items():
        print(
            f"| {vocab_size:,} | {num_drafts} | {row['tiles']:.0f} | {row['solve_ms']:.0f} | "
            f"{row['certify_ms']:.0f} | {row['certified_gap']:.0e} | {row['passes']:.0f} | "
            f"{row['fit_ms']:.1f} | {row['fit_sorts']:.1f} | {row['fitted_gap']:.0e} | "
            f"{row['decision_ms']:.2f} | "
            f"{row['hull_ms']:.1f} | {row['hull_loss']:.1e} |"
        )


def medians(rows: list[Rates]) -> Rates:
    return {name: float(np.median([row[name] for row in rows])) for name in rows[0]}


def means(rows: list[Rates]) -> Rates:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def named(temperatures: tuple[float, ...]) -> str:
    return ", ".join(f"{t:g}" for t in temperatures)


def print_tables(tables: dict[str, Any]) -> None:
    """Print the tables as Markdown."""
    print("| drafts at temperatures | " + " | ".join(HEADINGS[c] for c in COLUMNS) + " |")
    print("|" + "---|" * (len(COLUMNS) + 1))
    for setting, row in tables["rates"].items():
        print(f"| {setting} | " + " | ".join(f"{row[c]:.4f}" for c in COLUMNS) + " |")
    print()
    print("| drafts at temperatures | tiles | solve ms | passes | optimal ms | its gap |")
    print("|---|---|---|---|---|---|")
    for setting, row in tables["costs"].items():
        print(
            f"| {setting} | {row['tiles']:.1f} | {row['solve_ms']:.0f} | {row['passes']:.0f} "
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
    """Draw acceptance by setting on the left, losses of the truncated LP on the right."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(10.5, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    settings = list(tables["rates"])
    shown = ("optimum", "ratio_hull", "is_ratio", "is_published", "rrs", "same_kseq")
    for marker, name in zip("_osD^v", shown, strict=True):
        values = [tables["rates"][setting][name] for setting in settings]
        size = 24 if name == "optimum" else 6
        label = HEADINGS[name] + (", all drafts at temperature 1" if name == "same_kseq" else "")
        left.plot(range(len(settings)), values, marker, markersize=size, label=label)
    left.set_xticks(range(len(settings)), [s.replace(", ", "\n") for s in settings])
    left.set_xlabel("temperatures of the drafts")
    left.set_ylabel("acceptance rate")
    styles = {"tighter": ("--", "bound"), "loss": ("-", "true loss"),
              "ratio": (":", "ratio rule, true loss")}  # fmt: skip
    for colour, row in enumerate(tables["losses"].values()):
        for name, (style, _) in styles.items():
            values = [row[f"{name}_{size}"] for size in SIZES]
            right.plot(SIZES, values, style, marker=".", color=f"C{colour}")
    right.set_xlabel("free tokens s of the truncated LP")
    right.set_ylabel("loss of acceptance")
    right.set_yscale("log")
    handles = [Line2D([], [], color="black", linestyle=s, label=t) for s, t in styles.values()]
    handles += [
        Line2D([], [], color=f"C{colour}", label=f"temperatures {setting}")
        for colour, setting in enumerate(tables["losses"])
    ]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.24), "ncols": 2, "fontsize": 8}
    left.legend(markerscale=0.6, **below)
    right.legend(handles=handles, **below)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--positions", type=int, default=42, help="0: only the times")
    parser.add_argument("--repeats", type=int, default=3, help="problems of each size")
    parser.add_argument("--plot", type=Path, help="draw the picture to this file")
    parser.add_argument("--json", type=Path, help="write tables and circumstances to this file")
    options = parser.parse_args()
    sample = np.load(sample_logits_path())
    target = sample["target"][: options.positions].astype(np.float64)
    draft = sample["draft"][: options.positions].astype(np.float64)
    tables: dict[str, Any] = {"rates": {}, "costs": {}, "losses": {}}
    rates_of(sample["target"][0, :99], sample["draft"][0, :99], (1.0, 1.2))  # load kernels
    for temperatures in SETTINGS if len(target) else ():
        measured = [rates_of(*pair, temperatures) for pair in zip(target, draft, strict=True)]
        tables["rates"][named(temperatures)] = means([rates for rates, _ in measured])
        tables["costs"][named(temperatures)] = means([costs for _, costs in measured])
        if len(temperatures) == 2:
            losses = [losses_of(*pair, temperatures) for pair in zip(target, draft, strict=True)]
            tables["losses"][named(temperatures)] = means(losses)
    reach = {
        (v, k): medians([reach_of(v, k, seed) for seed in range(options.repeats)])
        for v in VOCAB_SIZES
        for k in NUM_DRAFTS
    }
    tables["reach"] = {f"V={v}, K={k}": row for (v, k), row in reach.items()}
    if tables["rates"]:
        print_tables(tables)
        print()
    print_reach(reach)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {versions()}")
    if options.plot and tables["rates"]:
        draw(tables, options.plot)
    if options.json:
        circumstances = {"positions": len(target), **versions()}
        document = {"circumstances": circumstances, **tables}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
