"""Comparison of several rules on the same prompts, a step each in turn, on a machine alike for all.

Nor is the loading of kernels timed: `warm_up` decodes from models made of noise before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Model, Text
from mdsd_opt.base.frames import Result, Table, wrapped
from mdsd_opt.decoding.generation import Generation, Metrics, generate_steps
from mdsd_opt.decoding.growth import first_plan
from mdsd_opt.drafts import SchemeMaker
from mdsd_opt.errors import InvalidInput, MdsdError
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.trees import (
    MANY_TOKENS,
    DynamicTree,
    PlannedTree,
    Tree,
    k_ary,
    parse_topology,
)

#: Begins a prompt under a rule: (rule, prompt's number) -> steps, see `generate_steps`.
Begin = Callable[[str, int], Iterator[tuple[Text, Metrics]]]


class Observed(NamedTuple):
    """Means over prompts, and the sum of all."""

    accept_length: MeanInterval
    acceptance_rate: MeanInterval
    observed_accepted: MeanInterval
    total: Metrics


@dataclass(slots=True)
class ComparedRule(Result):
    """Results of a rule so far, prompt by prompt; and why it decodes no further, if so."""

    rule: str
    prompts: list[Metrics] = field(default_factory=list)
    refusal: str = ""

    columns: ClassVar = ("rule", "refused?", "*observed")

    @property
    def refused(self) -> str:
        return self.refusal

    @property
    def observed(self) -> Observed | None:
        """What came of the prompts; None before the first."""
        if not self.prompts:
            return None
        return Observed(
            _over_prompts(self, "accept_length"),
            _over_prompts(self, "first_token_acceptance_rate"),
            _over_prompts(self, "accepted_per_step"), self.total,
        )  # fmt: skip

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


def compared_rules(
    rules: list[str], warm: Callable[[str], None], by_default: bool
) -> list[ComparedRule]:
    """Rules, each warmed up; refused, or by default left out, if they cannot decode here.

    By default not lp: where it almost fits, it takes minutes.
    """
    rows = [ComparedRule(name) for name in rules if not (by_default and name == "lp")]
    for row in rows:
        try:
            warm(row.rule)
        except MdsdError as error:
            row.refusal = str(error)
    require_some([row for row in rows if not row.refusal], rows)
    return [row for row in rows if not (by_default and row.refusal)]


def require_some(done: list[ComparedRule], rows: list[ComparedRule]) -> None:
    """Raise with the reasons of all rules where none is done."""
    if not done:
        raise InvalidInput("; ".join(dict.fromkeys(row.refusal for row in rows)))


COMPARED = "rules on the same prompts; accept length, tokens a target call: higher is better"

_MEANINGS = (
    "acceptance rate: steps with a draft accepted; verifier's share: of the time; "
    "-: the rule was refused"
)


def prompts_table(outputs: Sequence[Generation]) -> Table:
    """Table of one line for each prompt, by number."""
    lines = enumerate(outputs, start=1)
    return metrics_table(("#", "ended by"), (((str(n), x.ended_by), x.metrics) for n, x in lines))


def metrics_table(
    keys: Sequence[str], lines: Iterable[tuple[tuple[str, ...], Metrics]], title: str = ""
) -> Table:
    """Table of metrics, each after its key cells."""
    headings = (
        *("tokens", "target\ncalls", "accept\nlength", "acceptance\nrate", "ms a\ntoken"),
        "verifier's\nshare",
    )
    rows = (
        (
            *cells,
            str(metrics.num_tokens),
            str(metrics.num_steps),
            f"{metrics.accept_length:.2f}",
            f"{metrics.first_token_acceptance_rate:.3f}",
            f"{1e3 * metrics.seconds_per_token:.0f}",
            f"{metrics.verify_share:.1%}",
        )
        for cells, metrics in lines
    )
    return Table.of(title, (*keys, *headings), rows, words=keys)


def rules_table(rows: Sequence[ComparedRule], title: str) -> Table:
    """Table of one line for each rule, with the reason if it was refused."""
    headings = ["rule", "accept\nlength", "acceptance\nrate", "ms a\ntoken", "verifier's\nshare"]
    relaxed = any(row.total.kl > 0 for row in rows)
    if relaxed:
        headings.append("KL, nats\na token")
    count = len(headings)
    if any(row.refusal for row in rows):
        headings.append("refused")

    def line(row: ComparedRule) -> list[str]:
        cells, total = [row.rule], row.total
        if row.prompts:
            cells.append(_over_prompts(row, "accept_length").shown)
            cells.append(_over_prompts(row, "first_token_acceptance_rate").shown)
            cells += [f"{1e3 * total.seconds_per_token:.1f}", f"{total.verify_share:.1%}"]
            cells += [f"{total.kl_per_token:.4g}"] if relaxed else []
        cells += ["-"] * (count - len(cells))
        return cells + [wrapped(row.refusal, 60)] * (len(headings) - count)

    return Table.of(
        f"{COMPARED}\n{title}",
        headings,
        map(line, rows),
        words=("rule", "refused"),
        caption=_MEANINGS,
    )


def rules_conclusion(rows: Sequence[ComparedRule]) -> str:
    """Sentence about the rules with the longest steps, and whether others may be as good."""
    done = {row.rule: _over_prompts(row, "accept_length") for row in rows if row.prompts}
    longest = max(done.values(), key=lambda length: length.mean)
    best = [name for name, length in done.items() if length.mean == longest.mean]
    text = f"most tokens a step: {', '.join(best)}, {longest.mean:.2f}"
    if longest.num_groups == 1 and len(done) > 1:
        return f"{text}; one prompt tells no rules apart: give several"
    near = [name for name in done if name not in best and done[name].high >= longest.low]
    if near:
        them = "it" if len(best) == 1 else "them"
        text += f"; not told apart from {them} by these prompts: {', '.join(near)}"
    return text


def _over_prompts(row: ComparedRule, value: str) -> MeanInterval:
    mean = mean_interval(np.array([getattr(metrics, value) for metrics in row.prompts]))
    return mean.within(0.0, 1.0) if value.endswith("rate") else mean
