"""Device time of rates and decisions in microseconds, beside what PyTorch does on the same rows.

Every operation is captured in a CUDA graph, which is replayed with a cold cache; medians. Rates of
some rows are compared with those of a sort in extended precision. Without a device it says so in
one line and measures nothing.

    python benchmarks/gpu_rates.py [--rounds 20] [--json FILE] [--against COMMIT]
    python benchmarks/gpu_rates.py --read FILE --markdown table.md
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sorted_rates

from mdsd_opt.base.installed import versions
from mdsd_opt.batch import DecisionsPlan, RatesPlan
from mdsd_opt.gpu import why_unavailable

ROOT = Path(__file__).parents[1]

Launch = Callable[[], Any]

#: Options of `RatesPlan`, by the name in the table; K is 3, and 4 where a baseline has a rule.
RATES: dict[str, dict[str, Any]] = {
    "rates, with replacement, K = 3": {"num_drafts": 3},
    "rates, with replacement, K = 1..8": {"num_drafts": tuple(range(1, 9))},
    "rates, without replacement, K = 3": {"num_drafts": 3, "drafts": "without_replacement"},
    "rates, without replacement, K = 1..8": {
        "num_drafts": tuple(range(1, 9)),
        "drafts": "without_replacement",
    },
    "rates of rrs, K = 4": {"num_drafts": 4, "verifier": "rrs"},
    "rates of K-SEQ, K = 4": {"num_drafts": 4, "verifier": "kseq"},
    "rates of greedy drafts, K = 3": {"num_drafts": 3, "drafts": "greedy"},
    "rates of top-K drafts, K = 3": {"num_drafts": 3, "drafts": "top_k"},
    "rates, top_k = 50, top_p = .95, K = 3": {"num_drafts": 3, "top_k": 50, "top_p": 0.95},
}

#: Options of `DecisionsPlan`; K is 4.
DECISIONS = {
    "decisions, with replacement, K = 4": "with_replacement",
    "decisions, without replacement, K = 4": "without_replacement",
}

#: What the first rows are compared with: the rule of `sorted_rates`, and K.
CHECKED = {
    "rates, with replacement, K = 3": ("with_replacement", 3),
    "rates of greedy drafts, K = 3": ("greedy", 3),
    "rates of top-K drafts, K = 3": ("top_k", 3),
    "softmaxes, sort, gather, cumulative sums in PyTorch": ("with_replacement", 3),
}
_CHECKED_ROWS = 1
_FLUSH_BYTES = 256 << 20  # several times the second-level cache
_MANY_ROWS = 100  # of which the time of one is told
_MOST_SORTED = 1 << 27  # logits of a side that are sorted: the sort holds six more of their size


class Clock:
    """Clock for launches captured in CUDA graphs, with a cold cache."""

    def __init__(self, rounds: int) -> None:
        import torch

        self.torch, self.rounds = torch, rounds
        self.flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def microseconds(self, launch: Launch) -> float:
        """Median over the rounds, after one that is not counted."""
        times = []
        for number in range(self.rounds + 1):
            self.flush.fill_(number & 1)
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            launch()
            stop.record()
            stop.synchronize()
            times.append(1e3 * start.elapsed_time(stop))
        return float(np.median(times[1:]))

    def captured(self, launch: Launch) -> Launch:
        """Replay of a call."""
        launch()  # whatever is prepared at first
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            launch()
        return lambda: graph.replay()  # it lives as long as its replay

    def copy_bandwidth(self) -> float:
        """Bytes per second of a large copy, read and written both counted."""
        source = self.torch.ones(1 << 30, dtype=self.torch.uint8, device="cuda")
        target = self.torch.empty_like(source)
        return 2e6 * source.nbytes / self.microseconds(lambda: target.copy_(source))


def make_logits(torch: Any, size: int, num_rows: int, dtype: str, seed: int) -> list[Any]:
    """A target that is near its draft, which is like a language model's tail."""
    random = torch.Generator("cuda").manual_seed(seed)
    draft = 2.5 * torch.randn((num_rows, size), generator=random, device="cuda")
    target = draft + 0.7 * torch.randn((num_rows, size), generator=random, device="cuda")
    return [x.to(getattr(torch, dtype)) for x in (target, draft)]


def by_sort(torch: Any, target: Any, draft: Any, num_drafts: int) -> Any:
    """Rates by softmax on both sides, a sort of the ratios, two gathers, two cumulative sums."""
    p, q = (torch.softmax(x.float(), -1) for x in (target, draft))
    order = torch.sort(p / q, dim=-1).indices
    p, q = (torch.cumsum(torch.gather(x, -1, order), -1, dtype=torch.float64) for x in (p, q))
    return 1 + (p - q**num_drafts).amin(-1).clamp(max=0)


def rivals(torch: Any, pair: list[Any]) -> Iterator[tuple[str, Launch]]:
    """What PyTorch does on the same rows."""
    yield "both sides read once, by PyTorch's amax", lambda: [x.amax(-1) for x in pair]
    yield "two softmaxes in PyTorch", lambda: [torch.softmax(x, -1) for x in pair]
    if pair[0].numel() <= _MOST_SORTED:
        name = "softmaxes, sort, gather, cumulative sums in PyTorch"
        yield name, lambda: by_sort(torch, *pair, 3)


def operations(torch: Any, pair: list[Any], dtype: str) -> Iterator[tuple[str, Launch]]:
    """What plans do on a batch, one after another: only one has its buffers."""
    num_rows, size = pair[0].shape
    for name, options in RATES.items():
        plan = RatesPlan(size, num_rows, dtype, **options)
        yield name, lambda plan=plan: plan(*pair)
    drafts = torch.multinomial(torch.softmax(pair[1][:1].float(), -1), 4).repeat(num_rows, 1)
    for name, scheme in DECISIONS.items():
        decide = DecisionsPlan(size, num_rows, dtype, 4, scheme)
        yield name, lambda decide=decide: decide(*pair, drafts).tokens


def exact_rates(logits: list[Any], rule: str, num_drafts: int) -> Any:
    """Rates of rows by sorting."""
    p, q = ([sorted_rates.probabilities(row) for row in side] for side in logits)
    return np.array([sorted_rates.RATES[rule](*x, num_drafts) for x in zip(p, q, strict=True)])


def measure(clock: Clock, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Row of the table for every operation, batch and type."""
    torch = clock.torch
    for dtype in arguments.dtypes:
        for size in arguments.sizes:
            for num_rows in arguments.rows:
                pair = make_logits(torch, size, num_rows, dtype, arguments.seed)
                first = [x[:_CHECKED_ROWS].double().cpu().numpy() for x in pair]
                batch = {"vocab_size": size, "num_rows": num_rows, "dtype": dtype}
                for calls in (rivals(torch, pair), operations(torch, pair, dtype)):
                    for name, launch in calls:
                        if arguments.only not in name:
                            continue
                        rates, error = launch(), None
                        if name in CHECKED:
                            rates = rates[:_CHECKED_ROWS].cpu().numpy()
                            error = float(abs(rates - exact_rates(first, *CHECKED[name])).max())
                        median = clock.microseconds(clock.captured(launch))
                        yield batch | {"operation": name, "median_us": median, "error": error}


def commit() -> str:
    """What is measured, in words."""
    given = ["git", "describe", "--always", "--dirty"]
    asked = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=False)
    return f"Commit {asked.stdout.strip()}" if asked.returncode == 0 else "A copy of the sources"


def of_another(commit: str, arguments: list[str]) -> dict[str, Any]:
    """What this program measures of another commit's package, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given = ["git", "archive", commit, "mdsd_opt"]
        packed = subprocess.run(given, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
            tree.extractall(folder, filter="data")
        return of_folder(folder, arguments)


def of_folder(folder: str, arguments: list[str]) -> dict[str, Any]:
    """As `of_another`, of a package that lies in a folder."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, __file__, *arguments, "--json", file.name]
        subprocess.run(command, env=os.environ | {"PYTHONPATH": folder}, check=True)
        document: dict[str, Any] = json.loads(Path(file.name).read_text())
    return document


def of(document: dict[str, Any]) -> dict[tuple[Any, ...], float]:
    """Medians by operation, V, number of rows, and type."""
    key = "operation", "vocab_size", "num_rows", "dtype"
    return {tuple(row[x] for x in key): row["median_us"] for row in document["rows"]}


def values_of(document: dict[str, Any], name: str) -> list[Any]:
    """All values of a column, in the order in which they come."""
    return list(dict.fromkeys(row[name] for row in document["rows"]))


def markdown(document: dict[str, Any], other: dict[str, Any] | None = None) -> str:
    """Tables for every number of rows; beside those of another commit, as ratios, if any are there.

    Microseconds a call where a call is what counts, and a row where there are many.
    """
    used = ", ".join(f"{x} {y}" for x, y in document["versions"].items() if y != "not installed")
    lines = ["# Rates and decisions on a CUDA device", "", "## Measured on", ""]
    lines += [f"{document['circumstances']} {used}.", ""]
    medians, before = of(document), of(other or {"rows": []})
    sizes, types = values_of(document, "vocab_size"), values_of(document, "dtype")
    for num_rows in values_of(document, "num_rows"):
        share = 1 if num_rows < _MANY_ROWS else num_rows
        batch = "One row" if num_rows == 1 else f"{num_rows:,} rows"
        lines += [f"## {batch}, us a {'call' if share == 1 else 'row'}", ""]
        lines += [f"| {' / '.join(types)} | {' | '.join(f'{size:,}' for size in sizes)} |"]
        lines += ["|---" * (1 + len(sizes)) + "|"]
        for name in values_of(document, "operation"):
            cells = []
            for size in sizes:
                keys = [(name, size, num_rows, dtype) for dtype in types]
                found = [told(medians.get(key), share) for key in keys]
                ratios = [f"{medians[x] / before[x]:.2f}" for x in keys if x in before]
                cells.append(" / ".join(found) + (f" ({' / '.join(ratios)})" if ratios else ""))
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def told(median: float | None, share: int) -> str:
    if median is None:
        return "-"
    return f"{median / share:.{1 if share == 1 else 3}f}"


def report(path: Path) -> None:
    """Print the tables of a file."""
    print(markdown(json.loads(path.read_text())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", default=[32_768, 128_256, 151_936, 262_144])
    add("--dtypes", nargs="+", default=["float32", "bfloat16"])
    add("--rows", type=int, nargs="+", default=[1, 16, 132, 1024])
    add("--rounds", type=int, default=20)
    add("--seed", type=int, default=0)
    add("--json", type=Path, help="write the numbers with their circumstances here")
    add("--read", type=Path, help="measure nothing: take the numbers from here")
    add("--markdown", type=Path, help="where the table of --read goes")
    add("--only", default="", help="operations that have these words in their name")
    add("--commit", help="what is measured, where git cannot tell")
    add("--against", help="another commit, or a folder with its package, to measure beside")
    arguments = parser.parse_args()
    if (arguments.read is None) != (arguments.markdown is None):
        parser.error("--read and --markdown go together")
    if arguments.read:
        arguments.markdown.write_text(markdown(json.loads(arguments.read.read_text())))
        return
    reason = why_unavailable()
    if reason is not None:
        sys.exit(f"nothing to measure: {reason}")
    other = None
    if arguments.against:
        same = ["--rounds", str(arguments.rounds), "--seed", str(arguments.seed)]
        same += ["--only", arguments.only]
        for name in ("sizes", "dtypes", "rows"):
            same += [f"--{name}", *map(str, getattr(arguments, name))]
        is_folder = Path(arguments.against).is_dir()
        other = (of_folder if is_folder else of_another)(arguments.against, same)
    clock = Clock(arguments.rounds)
    bandwidth = clock.copy_bandwidth()
    rows = []
    for row in measure(clock, arguments):
        rows.append(row)
        print(*row.values(), flush=True, file=sys.stderr)
    device = clock.torch.cuda.get_device_name()
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    circumstances = (
        f"{arguments.commit or commit()} on {datetime.date.today():%d %B %Y}: {device}, driver "
        f"{driver}, copy bandwidth {bandwidth / 1e12:.2f} TB/s (read and written)."
    )
    document = {"circumstances": circumstances, "bandwidth": bandwidth}
    document |= {"versions": versions(), "rows": rows}
    print(markdown(document, other))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
