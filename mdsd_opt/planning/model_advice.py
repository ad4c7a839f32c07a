"""Advice for two models at hand: passes are measured, texts read, and the tree is tried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Text
from mdsd_opt.base.checked import Rng, drawn_seed
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.corpora import RatesConfig
from mdsd_opt.decoding import Metrics, Topology, generate_steps, k_ary, tree_logits, warm_up
from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning.advice import SCHEMES, Advice, advice_from_rates
from mdsd_opt.planning.costs import ROWS, StepCosts, median_ms
from mdsd_opt.planning.tree_forecasts import (
    MAX_WIDTH,
    PositionRates,
    following_positions,
    rates_config,
    rates_of_sample,
)

#: Relative error above which a term of the forecast is named.
NEAR = 0.15

_RULE = "traversal_hull"

#: Counts and times of each step, by the text.
Steps = list[list[Metrics]]


@dataclass(frozen=True, slots=True)
class Term(Result):
    """One term of the forecast of a step, beside its observed value."""

    name: str
    forecast: float
    observed: float

    columns: ClassVar = (
        Column("name", " ", is_text=True), Column("forecast", shown="{0:.2f}"),
        Column("observed", shown="{0:.2f}"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelAdvice(Result):
    """Advice by measured costs, and the result of one call of decoding with its tree.

    Attributes
    ----------
    advice : Advice
    terms : tuple of Term
        Tokens a second, and their parts: tokens a step, and the milliseconds of target, draft and
        decision. Times are medians over the steps without the first of each text, which reads the
        prompt.
    num_steps : int
        Number of steps of the call.
    """

    advice: Advice
    terms: tuple[Term, ...]
    num_steps: int

    columns: ClassVar = (
        "*advice", Column("tried_out", of="terms"), "num_steps",
        Column("tried_out_sentence", of="sentence"),
    )  # fmt: skip

    @property
    def sentences(self) -> list[str]:
        """Decision in words, and what came of it."""
        return [*self.advice.sentences, self.sentence]

    @property
    def notes(self) -> tuple[str, ...]:
        return self.advice.notes

    @property
    def flags(self) -> dict[str, str]:
        return self.advice.flags

    def tables(self) -> list[Table]:
        """Tables of the advice, and of a step as it was forecast and observed."""
        title = "a step: forecast by the measured costs, and observed"
        return [*self.advice.tables(), Table(title, Term.columns, self.terms, heading="Tried out")]

    @property
    def sentence(self) -> str:
        """Sentence on the observed speed beside the forecast, and on the term that was off most."""
        speed, *parts = self.terms
        error = speed.observed / speed.forecast - 1.0
        text = (
            f"Tried out: {speed.observed:.1f} tokens a second where {speed.forecast:.1f} were "
            f"forecast ({error:+.0%}, {self.num_steps} steps)"
        )
        if abs(error) <= NEAR:
            return f"{text}."
        worst = max(parts, key=self._weight)
        return (
            f"{text}; mostly {worst.name}: {worst.observed:.2f} where {worst.forecast:.2f} was "
            "forecast."
        )

    def _weight(self, term: Term) -> float:
        """Share of the error that a term makes, of the tokens or of the time of a step."""
        if term.name == "tokens a step":
            return abs(term.observed / term.forecast - 1.0)
        whole = sum(x.forecast for x in self.terms[2:])
        return abs(term.observed - term.forecast) / whole


def advise_models(
    target: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int = 32,
    max_drafts: int = 15,
    temperature: float = 1.0,
    schemes: Sequence[str] = SCHEMES,
    confidence: float = 0.95,
    rng: Rng = 0,
    tell: Callable[[str], None] = lambda line: None,
    **sampling: Any,
) -> ModelAdvice:
    """Measure two models, advise, and decode with the advised tree.

    Each prompt is continued by the target's law, the rates are those of the new tokens, and then
    continued again, by other draws, with the tree advised.

    Parameters
    ----------
    target, draft : model
        Models as for `mdsd_opt.decoding.generate`.
    prompts : sequence of sequences of int
        Token ids of each prompt.
    num_tokens : int
        Number of new tokens of each prompt.
    max_drafts, temperature, schemes, confidence
        Options of `mdsd_opt.advise`; more drafts than 15 have more rows than are measured.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one.
    tell : callable
        Function that is called with a line when something longer begins.
    **sampling
        Options `draft_temperature`, `top_k`, `top_p`, `min_p`, `joint`.

    Returns
    -------
    ModelAdvice
    """
    if num_tokens < 1 or not prompts:
        raise InvalidInput(
            f"{len(prompts)} prompts, num_tokens {num_tokens}: give at least one of both"
        )
    settings = {"temperature": temperature, **sampling}
    config = rates_config(
        list(dict.fromkeys(["with_replacement", *schemes])),
        "optimal",
        min(max_drafts, MAX_WIDTH),
        settings,
    )
    tell("measuring the passes")
    rows_ms = {n: _pass_ms(target, prompts[0], n) for n in ROWS}
    draft_ms = _pass_ms(draft, prompts[0], 1)

    def decoded(tree: Topology, scheme: str, seed: int) -> tuple[list[Text], Steps]:
        vocab_size = tree_logits(target)(prompts[0], [()]).shape[-1]
        warm_up(_RULE, vocab_size, tree, scheme, **settings)
        texts: list[Text] = []
        steps: Steps = []
        for n, prompt in enumerate(prompts):
            text: Text = ()
            before = Metrics()
            steps.append([])
            for new, metrics in generate_steps(
                target, draft, prompt, tree=tree, scheme=scheme, rule=_RULE, rng=seed + n,
                max_new_tokens=num_tokens, **settings,
            ):  # fmt: skip
                text += new
                steps[-1].append(metrics - before)
                before = metrics
            texts.append(text)
        return texts, steps

    seed = drawn_seed(rng)
    tell("continuing the prompts")
    texts, steps = decoded(k_ary(2, 2), "with_replacement", seed)  # whose decision is a tree's
    tell("measuring acceptance")
    rates = _rates_of_texts(target, draft, prompts, texts, config)
    costs = StepCosts(rows_ms[1], draft_ms, rows_ms, _median(steps, "verify"))
    advice = advice_from_rates(rates, costs, schemes, max_drafts, confidence)
    tell(f"decoding with {advice.tree.name}")
    scheme = advice.scheme if advice.scheme in rates.by_scheme else "with_replacement"
    _, tried = decoded(advice.tree, scheme, seed + len(prompts))
    return ModelAdvice(advice, _terms(advice, tried), sum(map(len, tried)))


def _median(steps: Steps, name: str) -> float:
    """Median milliseconds of steps that read no prompt, or of all if each reads one."""
    later = [step for text in steps for step in text[1:]] or [text[0] for text in steps if text]
    return 1e3 * float(np.median([getattr(step, f"{name}_seconds") for step in later]))


def _terms(advice: Advice, steps: Steps) -> tuple[Term, ...]:
    costs, tree = advice.costs, advice.tree
    tokens = 1.0 + float(np.mean([step.num_passed for text in steps for step in text]))
    parts = [_median(steps, name) for name in ("target", "draft", "verify")]
    forecast = (
        costs.target_pass(1 + tree.num_nodes), tree.depth * costs.draft_pass(), costs.verify_ms,
    )  # fmt: skip
    names = ("the target's ms", "the draft's ms", "the decision's ms")
    return (
        Term("tokens a second", advice.tokens_per_second, 1e3 * tokens / sum(parts)),
        Term("tokens a step", advice.tokens_per_step, tokens),
        *map(Term, names, forecast, parts),
    )


def _pass_ms(model: Any, prompt: Sequence[int], rows: int) -> float:
    """Median milliseconds to read one more token of a text and `rows` - 1 drafts after it."""
    ask, text = tree_logits(model), [*prompt]
    path = tuple(int(prompt[n % len(prompt)]) for n in range(rows - 1))
    drafts = [path[:n] for n in range(rows)]

    def seconds() -> float:
        text.append(int(prompt[-1]))
        began = time.perf_counter()
        ask(text, drafts)
        return time.perf_counter() - began

    return median_ms(seconds)


def _rates_of_texts(
    target: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Text],
    config: RatesConfig,
) -> PositionRates:
    """Rates at the positions where the tokens of texts came."""
    parts = []
    for prompt, text in zip(prompts, texts, strict=True):
        ahead = [text[:n] for n in range(len(text))]
        ours, theirs = (np.asarray(tree_logits(x)([*prompt], ahead)) for x in (target, draft))
        parts.append(rates_of_sample(LogitsSample(ours, theirs, source="the models"), config))
    by_scheme = {
        name: np.concatenate([rates.by_scheme[name] for rates in parts])
        for name in parts[0].by_scheme
    }
    place = np.repeat(np.arange(len(parts)), [rates.num_positions for rates in parts])
    return PositionRates(by_scheme, place, following_positions(place.size, place))
