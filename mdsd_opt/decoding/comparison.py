"""Several rules on the same prompts, a step each in turn, so that none has the better machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mdsd_opt.decoding.draft_tree import Tokens
from mdsd_opt.decoding.generation import Metrics

#: Begins a prompt under a rule: (rule, prompt's number) -> steps, see `generate_steps`.
Begin = Callable[[str, int], Iterator[tuple[Tokens, Metrics]]]


@dataclass(slots=True)
class ComparedRule:
    """What a rule has brought so far.

    Attributes
    ----------
    rule : str
    prompts : list of Metrics
        Of every prompt that it has made a step of.
    refusal : str
        Why it decodes no further; empty if it does.
    """

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
    """Decode prompts by every rule that is not refused; what is done stands in the rows.

    Each round is one step of each rule, and each round begins with another rule. A rule that fails
    is refused from then on, and the others go on.

    Parameters
    ----------
    rows : sequence of ComparedRule
        Updated after every step, so that they hold what is done if this is interrupted.
    num_prompts : int
    begin : callable
    advance : callable, optional
        Called with the number of tokens of each step.
    """
    for n in range(num_prompts):
        running = {row.rule: begin(row.rule, n) for row in rows if not row.refusal}
        begun: set[str] = set()
        round_number = n
        while running:
            for row in rotated(rows, round_number):
                if row.rule not in running:
                    continue
                try:
                    tokens, metrics = next(running[row.rule])
                except StopIteration:
                    del running[row.rule]
                    continue
                except Exception as error:  # the other rules' steps are not to be lost
                    row.refusal = str(error) or type(error).__name__
                    del running[row.rule]
                    continue
                if row.rule in begun:
                    row.prompts[-1] = metrics
                else:
                    row.prompts.append(metrics)
                    begun.add(row.rule)
                advance(len(tokens))
            round_number += 1


def rotated(rows: Sequence[ComparedRule], number: int) -> list[ComparedRule]:
    """The same rows, another one first in every round."""
    first = number % len(rows)
    return [*rows[first:], *rows[:first]]
