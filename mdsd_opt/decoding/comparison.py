"""Comparison of several rules on the same prompts, a step each in turn, on a machine alike for all.

Nor is the loading of kernels timed: `warm_up` decodes from models made of noise before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Model, Text
from mdsd_opt.decoding.generation import Metrics, generate_steps
from mdsd_opt.decoding.growth import first_plan
from mdsd_opt.drafts import SchemeMaker
from mdsd_opt.trees import (
    MANY_TOKENS,
    AutoTree,
    DynamicTree,
    PlannedTree,
    Tree,
    k_ary,
    parse_topology,
)

#: Begins a prompt under a rule: (rule, prompt's number) -> steps, see `generate_steps`.
Begin = Callable[[str, int], Iterator[tuple[Text, Metrics]]]


@dataclass(slots=True)
class ComparedRule:
    """Results of a rule so far, prompt by prompt; and why it decodes no further, if so."""

    rule: str
    prompts: list[Metrics] = field(default_factory=list)
    refusal: str = ""

    @property
    def total(self) -> Metrics:
        return sum(self.prompts, Metrics())


def compare_rules(
    rows: Sequence[ComparedRule],
    num_prompts: int,
    begin: Begin,
    advance: Callable[[int], None] = lambda tokens: None,
) -> None:
    """Decode prompts by every rule that is not refused; results are kept in the rows.

    Each round is one step of each rule, and each round begins with another rule. A rule that fails
    is refused from then on, and the others go on. The rows are updated after every step, so that
    they hold what is done if this is interrupted; `advance` is called with the number of tokens of
    each.
    """
    for n in range(num_prompts):
        running = {row.rule: begin(row.rule, n) for row in rows if not row.refusal}
        begun: set[str] = set()
        round_number = n
        while running:
            first = round_number % len(rows)
            for row in [*rows[first:], *rows[:first]]:
                if row.rule not in running:
                    continue
                try:
                    step = next(running[row.rule], None)
                except Exception as error:  # the other rules' steps are not to be lost
                    row.refusal, step = str(error) or type(error).__name__, None
                if step is None:
                    del running[row.rule]
                    continue
                tokens, metrics = step
                if row.rule in begun:
                    row.prompts[-1] = metrics
                else:
                    row.prompts.append(metrics)
                    begun.add(row.rule)
                advance(len(tokens))
            round_number += 1


#: Number of steps: few, but enough to accept, to reject and to reach a rule's rarer branches.
_STEPS = 8

_ROWS = 7


def warm_up(
    rule: str,
    vocab_size: int,
    tree: Tree | str = "4x3",
    scheme: str | SchemeMaker = "with_replacement",
    **settings: Any,
) -> None:
    """Decode some steps, silently, as `generate` will: by the same kernels, already compiled then.

    Small trees have the whole vocabulary, so that a rule that cannot decode there says so, by the
    error that `generate` would raise, before anything has been decoded; the tree itself has a few
    thousand tokens. Settings are temperatures and filters, as for `generate`.
    """
    topology = parse_topology(tree) if isinstance(tree, str) else tree
    if isinstance(topology, PlannedTree):
        topology = first_plan(topology).topology
    if isinstance(topology, AutoTree):
        topology = k_ary(3, 2)
    if isinstance(topology, DynamicTree):
        counts = {topology.num_drafts}
    else:
        counts = set(topology.num_drafts.values())
    for shape in [*(k_ary(count, 1) for count in sorted(counts)), topology]:
        size = vocab_size if shape is not topology else min(vocab_size, MANY_TOKENS)
        target, draft = _noise(size)
        steps = generate_steps(
            target, draft, [0], tree=shape, scheme=scheme, rule=rule, rng=0,
            max_new_tokens=10**6, **settings,
        )  # fmt: skip
        for _ in islice(steps, _STEPS):
            pass


def _noise(vocab_size: int) -> tuple[Model, Model]:
    """A target and a draft that resemble each other somewhat."""
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((_ROWS, vocab_size))
    target = draft + rng.standard_normal(draft.shape)
    return (lambda ids: target[sum(ids) % _ROWS]), (lambda ids: draft[sum(ids) % _ROWS])
