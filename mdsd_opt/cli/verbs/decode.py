"""mdsd-opt decode: a language model's text, by trees of drafts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mdsd_opt import corpora, decoding
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.cli import options as shared
from mdsd_opt.cli.output import (
    look_here_for_modules,
    notices_afterwards,
    remark,
    rich_table,
    show_table,
    to_results,
)
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Section, TableForm, View, present, save_all
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.base.arrays import Text
    from mdsd_opt.decoding import ComparedRule, Generation, Metrics

#: Number of prompts on which the rates behind plans and forecasts are measured.
_MEASURED_PROMPTS = 16


@dataclass(frozen=True)
class Continuation(Result):
    """A prompt and its text, with what it took."""

    prompt: str
    text: str
    ended_by: str
    metrics: Metrics

    columns: ClassVar = ("prompt", "text", "ended_by", "*metrics")


@dataclass(frozen=True, kw_only=True)
class Decoded(Result):
    """What is told of texts by one rule."""

    rule: str
    tree: str
    relax: dict[str, float] | None
    forecast_accepted: float | None
    interrupted: bool
    total: Metrics
    outputs: list[Continuation]

    columns: ClassVar = (
        "rule", "tree", "relax", "forecast_accepted", "interrupted",
        Column("observed_accepted", of="total.accepted_per_step"), "outputs",
    )  # fmt: skip


@dataclass(frozen=True)
class Compared(Result):
    """What is told of several rules on the same prompts."""

    num_prompts: int
    interrupted: bool
    forecast_accepted: float | None
    rows: Sequence[ComparedRule]


def decode(
    *,
    target: shared.Target,
    draft: shared.Draft,
    prompt: shared.Prompt = None,
    prompts: shared.Prompts = None,
    verifier: Annotated[
        str | None,
        "traversal_hull (the default), level_sequential, traversal, block_verification, "
        "or a token-level verifier, also as module:attribute; with --compare several, "
        "separated by commas: all by default that can decode with these drafts, but for lp, "
        "which is for few tokens.",
    ] = None,
    asked: Given = given(
        "decoding:generate",
        "tree scheme max_new_tokens=tokens rng=seed on_device",
        tree="planned16",
    ),
    sampling: Given = shared.SAMPLING,
    relax: Annotated[
        str | None,
        "Give up losslessness for acceptance: kl=0.01 lets each token's law be so many "
        "nats from the target's; tv, chi2 or acceptance_rate likewise. With a tree such as "
        "4x3, or a token-level verifier.",
    ] = None,
    compare: Annotated[bool, "All rules on the same prompts, a step each in turn."] = False,
    model: Given = given("decoding:load_model", "dtype=precision device attention packed"),
    static_cache: Annotated[bool, "Keys and values in memory that is taken once."] = False,
    chat: Annotated[bool, "Each prompt is a message in the chat template."] = False,
    form: TableForm,
) -> None:
    """Continue prompts; the text follows the target model exactly, whatever the draft.

    That is up to the rounding of its passes, which --precision float32 makes small. With --relax
    it follows the closest laws that the budget allows, and the summary says how far from the
    target it was.

    The tree is planned16: what accepts most with 16 drafts, by rates measured on the (first 16)
    prompts and then on the steps; or drafts x depth as 4x3, chain5, paths3x4, sparse, sparse16,
    dynamic24. Rules that look down (traversal_hull, the default, and level_sequential) are the
    safe ones. traversal, and a verifier from the root down, settle a draft before they know what is
    below it, and may lose nearly all levels of a tree but one.

    Text comes to stdout as it is accepted, on a terminal with a table that follows it; a summary
    goes to stderr, of several prompts with a line for each. After Ctrl-C it tells what is done.
    --compare prints a table: with intervals if there are several prompts, with the
    reason where a rule cannot decode, and after Ctrl-C with what is done. What is to be compiled
    is compiled before a clock runs. How many drafts a step accepts is forecast, too, by the rates
    of the prompts' own tokens, and stands beside what came of it.
    """
    from mdsd_opt.base.sampling import Sampling
    from mdsd_opt.drafts import scheme_maker

    tokens, seed = asked["max_new_tokens"], asked["rng"]
    if bool(prompt) == (prompts is not None):
        raise InvalidInput("give either --prompt or --prompts")
    if tokens < 1:
        raise InvalidInput(f"--tokens is {tokens}: give at least 1")
    budget = None if relax is None else parse_budget(relax)
    settings: dict[str, Any] = dict(sampling)
    Sampling.of_both(**settings)  # refused before the models are loaded
    tree, scheme, on_device = asked["tree"], asked["scheme"], asked.get("on_device")
    topology, make = decoding.parse_topology(tree), scheme_maker(scheme)
    if verifier is not None:
        rules = list(dict.fromkeys(name.strip() for name in verifier.split(",")))
    else:
        known = decoding.DEVICE_RULES if on_device else decoding.rule_names()
        rules = [*known] if compare else ["traversal_hull"]
    if len(rules) > 1 and not compare:
        raise InvalidInput("several verifiers: give --compare, or one of them")
    look_here_for_modules()
    for name in rules:
        rule = decoding.get_rule(name)
        if on_device:
            decoding.require_device_rule(make, rule)
    if budget is not None and not compare:
        decoding.check_tree(topology, decoding.get_rule(rules[0]))
    texts = prompt or corpora.read_prompts(prompts)  # type: ignore[arg-type]  # one is given
    if any(not text.strip() for text in texts):
        raise InvalidInput("an empty prompt: give some text")
    make_draft = decoding.maker_of_drafts(draft)
    if make_draft is None:
        big, small = decoding.load_pair(target, draft, **model)
    else:
        big = decoding.load_model(target, **model)
    ids = [big.encode_message(text) if chat else big.encode(text) for text in texts]
    longest = max(map(len, ids)) + tokens if static_cache else None
    big_model = partial(decoding.TreeModel, big, static_length=longest)
    small_model = (
        partial(decoding.TreeModel, small, vocab_size=big.vocab_size, static_length=longest)
        if make_draft is None
        else partial(make_draft, big)
    )
    pair = big_model(), small_model()
    decoding.require_room(*pair, ids)
    forecast = None
    if make_draft is None:
        measured = ids[:_MEASURED_PROMPTS]
        topology, forecast = decoding.informed(topology, *pair, measured, scheme, settings)
    if budget is not None:
        forecast = None  # of lossless steps
        settings["relax"] = budget

    def warm(rule: str) -> None:
        decoding.warm_up(rule, big.vocab_size, topology, make, **settings)

    def options(rule: str, n: int) -> dict[str, Any]:
        return {
            "target": big_model(), "draft": small_model(), "prompt": ids[n],
            "tree": topology, "scheme": make, "rule": rule, "max_new_tokens": tokens,
            "rng": seed + n, "stop_tokens": big.end_tokens(), "on_device": on_device, **settings,
        }  # fmt: skip

    def begin(rule: str, n: int) -> Iterator[tuple[Text, Metrics]]:
        return decoding.generate_steps(**options(rule, n))

    if compare:
        rows = decoding.compared_rules(rules, warm, by_default=verifier is None)
        next(begin(next(row.rule for row in rows if not row.refusal), 0))  # warms up the models
        _compare(rows, begin, len(ids), tokens, form, forecast)
        return
    warm(rules[0])
    next(begin(rules[0], 0))  # a step of the models, the first of which takes longer
    every = options(rules[0], 0)
    del every["prompt"]
    facts = {"rule": rules[0], "tree": tree, "relax": budget, "forecast_accepted": forecast}
    if chat and not form.as_json:
        texts = [f"{text}\n" for text in texts]  # the answer is not the rest of the message
    _continue_all(every | {"prompts": ids, "rng": seed}, texts, big.tokenizer, form, facts)


def parse_budget(text: str) -> dict[str, float]:
    """Parse kl=0.01 as a budget of `mdsd_opt.relax`."""
    from mdsd_opt.solvers import checked_relax

    name, _, amount = text.partition("=")
    try:
        value = float(amount)
    except ValueError:
        raise InvalidInput(f"--relax is {text!r}: give one budget, as kl=0.01") from None
    return checked_relax({name.strip(): value})


def _compare(
    rows: list[ComparedRule],
    begin: decoding.Begin,
    num_prompts: int,
    tokens: int,
    form: TableForm,
    forecast: float | None,
) -> None:
    """Run all rules on the same prompts; finished work is shown even if interrupted."""
    most = num_prompts * tokens * sum(not row.refusal for row in rows)
    interrupted = False
    try:
        with progress_bar("tokens", most, sys.stderr.isatty()) as advance:
            decoding.compare_rules(rows, num_prompts, begin, advance)
    except KeyboardInterrupt:
        interrupted = True
    done = [row for row in rows if row.prompts]
    if not interrupted:
        decoding.require_some(done, rows)
    if done:  # not interrupted at once
        present(compared_view(rows, num_prompts, interrupted, forecast), form)
    if interrupted:
        raise KeyboardInterrupt


def compared_view(
    rows: Sequence[ComparedRule], num_prompts: int, interrupted: bool, forecast: float | None = None
) -> View:
    """View of rules on the same prompts, beside the forecast of the drafts that a step accepts."""
    from mdsd_opt.evidence import interval_note

    done = max(len(row.prompts) for row in rows)
    prompts = "1 prompt" if num_prompts == 1 else f"{num_prompts} prompts"
    title = f"{prompts}; {interval_note(done, 'prompts')}"
    if interrupted:
        title += f"; interrupted in prompt {max(done, 1)}: what is done so far"
    if forecast is not None:
        title += f"\nforecast of the accept length: {1.0 + forecast:.2f}"
    document = Compared(num_prompts, interrupted, forecast, rows)
    table, conclusion = decoding.rules_table(rows, title), decoding.rules_conclusion(rows)
    refused = Section(values=[(x.rule, x.refusal) for x in rows if x.refusal], inline=True)
    return View(decoding.COMPARED, [table, refused], [conclusion], document)


def _continue_all(
    options: dict[str, Any],
    texts: list[str],
    tokenizer: Any,
    form: TableForm,
    facts: dict[str, Any],
) -> None:
    """Continue each prompt by the same rule; finished work is summed up even if interrupted."""
    outputs: list[Generation] = []
    begun: dict[int, Generation] = {}
    count, tokens, as_json = len(texts), options["max_new_tokens"], form.as_json
    screens = [
        Screen(text, ids, tokenizer, f"prompt {n} of {count}" if count > 1 else None)
        for n, (text, ids) in enumerate(zip(texts, options["prompts"], strict=True), start=1)
    ]

    def show(n: int, new: Text, metrics: Metrics) -> None:
        before = begun[n].tokens if n in begun else ()
        begun[n] = decoding.Generation(before + new, metrics, "interrupted")
        if as_json:
            advance(len(new))
        else:
            screens[n](new, metrics)

    facts["interrupted"] = False
    try:
        with progress_bar("tokens", count * tokens, as_json and sys.stderr.isatty()) as advance:
            continued = decoding.generate_batch(**options, on_step=show)
            for screen in screens:
                with ExitStack() as shown:
                    if not as_json:
                        shown.enter_context(notices_afterwards())
                        shown.enter_context(screen)
                    outputs.append(next(continued))
                advance(tokens - len(outputs[-1].tokens))  # what an early end leaves out
    except KeyboardInterrupt:
        facts["interrupted"] = True
        outputs += [output for n, output in begun.items() if n == len(outputs)]
    if outputs:
        total = sum((output.metrics for output in outputs[1:]), outputs[0].metrics)
        entries = [
            Continuation(
                text,
                continuation(tokenizer, before, output.tokens, skip_special_tokens=False),
                output.ended_by,
                output.metrics,
            )
            # fewer if it is interrupted
            for text, before, output in zip(texts, options["prompts"], outputs, strict=False)
        ]
        tables = [decoding.prompts_table(outputs)] if len(outputs) > 1 else []
        document = Decoded(**facts, total=total, outputs=entries)
        view = View("Texts and their numbers", tables, document=document)
        if as_json:
            present(view, form)
        else:
            _sum_up(outputs, total, facts)
            save_all(view, form)
    if facts["interrupted"]:
        raise KeyboardInterrupt


def _sum_up(outputs: list[Generation], total: Metrics, facts: dict[str, Any]) -> None:
    if len(outputs) > 1:
        show_table(decoding.prompts_table(outputs), file=sys.stderr)
    remark(
        f"{total.num_tokens} tokens in {total.num_steps} target calls: accept length "
        f"{total.accept_length:.2f}, acceptance rate {total.first_token_acceptance_rate:.3f}, "
        f"{1e3 * total.seconds_per_token:.0f} ms a token, verifier {total.verify_share:.1%} of it"
    )
    if facts["relax"] is not None:
        remark(
            f"not lossless: KL {total.kl_per_token:.4g} nats and TV {total.tv_per_token:.4g} a "
            f"token, KL {total.kl:.4g} nats in all"
        )
    if facts["forecast_accepted"] is not None:
        remark(
            f"accepted drafts a step: forecast {facts['forecast_accepted']:.2f}, observed "
            f"{total.accepted_per_step:.2f}"
        )


#: Number of prompt tokens that determine how the following ones are written.
_BEFORE = 8


def continuation(
    tokenizer: Any, ids: Sequence[int], tokens: Sequence[int], skip_special_tokens: bool
) -> str:
    """Text that tokens add to a prompt: alone, many tokenizers leave their first space out."""

    def written(tokens: Sequence[int]) -> str:
        text: str = tokenizer.decode(
            list(tokens),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,  # which changes what is on the screen already
        )
        return text

    before = ids[-_BEFORE:]
    return written([*before, *tokens])[len(written(before)) :]


class Screen:
    """Display of text and numbers as they come: in place on a terminal, else the text alone.

    `prompt` is what is shown, `ids` what the models read; the title stands above the numbers.
    """

    def __init__(
        self, prompt: str, ids: Sequence[int], tokenizer: Any, title: str | None = None
    ) -> None:
        self._prompt, self._ids, self._tokenizer, self._title = prompt, ids, tokenizer, title
        self._tokens: list[int] = []
        self._printed = ""
        self._live: Any = None

    @to_results()
    def __enter__(self) -> Screen:
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stdout)  # also for the thread that draws
            self._live = Live(
                console=console, transient=True, refresh_per_second=8, redirect_stderr=False
            )
            self._live.start()
        else:
            print(self._prompt, end="", flush=True)
        return self

    @to_results()
    def __call__(self, tokens: tuple[int, ...], metrics: Metrics) -> None:
        """Show the results of a step."""
        self._tokens += tokens
        text = self._text()
        if self._live is not None:
            from rich.console import Group
            from rich.text import Text

            numbers = rich_table(decoding.metrics_table((), [((), metrics)]))
            numbers.title = self._title
            self._live.update(Group(Text(self._prompt + text), numbers))
        elif text.startswith(self._printed) and not text.endswith("\ufffd"):  # a whole letter
            print(text[len(self._printed) :], end="", flush=True)
            self._printed = text

    @to_results()
    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            print(self._prompt + self._text(), end="")
        else:
            print(self._text()[len(self._printed) :], end="")
        print(flush=True)

    def _text(self) -> str:
        return continuation(self._tokenizer, self._ids, self._tokens, skip_special_tokens=True)
