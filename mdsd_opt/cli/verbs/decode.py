"""mdsd-opt decode: a language model's text, by trees of drafts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput, MdsdError

if TYPE_CHECKING:
    from mdsd_opt.base.array_types import Text
    from mdsd_opt.decoding import Begin, ComparedRule, Generation, Metrics

#: Number of prompts on which the rates behind plans and forecasts are measured.
_MEASURED_PROMPTS = 16


@options.gathers_options()
def decode(
    *,
    target: options.TargetModel,
    draft: Annotated[
        str,
        "A model as well, skip:14,18 for the target without these decoder layers, or "
        "module:function, which is given the target and makes a draft of its own kind.",
    ],
    prompt: Annotated[list[str] | None, "May be given several times."] = None,
    prompts: Annotated[Path | None, 'One prompt a line, or .jsonl with the field "prompt".'] = None,
    verifier: Annotated[
        str | None,
        "traversal_hull (the default), level_sequential, traversal, block_verification, "
        "or a token-level verifier, also as module:attribute; with --compare several, "
        "separated by commas: all by default that can decode with these drafts, but for lp, "
        "which is for few tokens.",
    ] = None,
    tree: Annotated[
        str,
        "planned16: what accepts most with 16 drafts, by rates measured on the "
        "(first 16) prompts and then on the steps; or drafts x depth as 4x3, chain5, paths3x4, "
        "sparse, sparse16, dynamic24.",
    ] = "planned16",
    scheme: Annotated[str, "How the drafts of a node are drawn."] = "with_replacement",
    tokens: Annotated[int, "New tokens for each prompt, at most."] = 64,
    sampling: options.SamplingOptions,
    relax: Annotated[
        str | None,
        "Give up losslessness for acceptance: kl=0.01 lets each token's law be so many "
        "nats from the target's; tv, chi2 or acceptance_rate likewise. With a tree such as "
        "4x3, or a token-level verifier.",
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all sampling.")] = 0,
    compare: Annotated[bool, "All rules on the same prompts, a step each in turn."] = False,
    precision: Annotated[str, "The models run in: bfloat16, float16, float32."] = "bfloat16",
    device: Annotated[str, "The models run on: cpu, cuda, ...; auto: on all there is."] = "cpu",
    attention: Annotated[
        str | None,
        "Implementation of attention: eager, sdpa, ...; the library's choice if left out.",
    ] = None,
    packed: Annotated[
        bool, "Pack weights for the few rows of a tree, on a CPU: ten take little longer than one."
    ] = False,
    on_device: Annotated[
        bool | None,
        "Leave the laws where the logits are and decide by sums over bins: for "
        "traversal_hull, level_sequential and optimal, with and without replacement; so it is "
        "done on a device if neither is said.",
    ] = None,
    static_cache: Annotated[bool, "Keys and values in memory that is taken once."] = False,
    chat: Annotated[bool, "Each prompt is a message in the chat template."] = False,
    as_json: options.AsJson = False,
) -> None:
    """Continue prompts; the text follows the target model exactly, whatever the draft.

    That is up to the rounding of its passes, which --precision float32 makes small. With --relax
    it follows the closest laws that the budget allows, and the summary says how far from the
    target it was.

    Rules that look down (traversal_hull, the default, and level_sequential) are the safe ones.
    traversal, and a verifier from the root down, settle a draft before they know what is below it,
    and may lose nearly all levels of a tree but one.

    Text comes to stdout as it is accepted, on a terminal with a table that follows it; a summary
    goes to stderr, of several prompts with a line for each. After Ctrl-C it tells what is done.
    --compare prints a table: with intervals if there are several prompts, with the
    reason where a rule cannot decode, and after Ctrl-C with what is done. What is to be compiled
    is compiled before a clock runs. How many drafts a step accepts is forecast, too, by the rates
    of the prompts' own tokens, and stands beside what came of it.
    """
    from mdsd_opt.base.sampling import Sampling
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.cli.verbs.capture import load_pair, maker_of_drafts
    from mdsd_opt.corpora import read_prompts
    from mdsd_opt.decoding import (
        DEVICE_RULES,
        TreeModel,
        check_tree,
        generate_steps,
        get_rule,
        informed,
        load_model,
        parse_topology,
        require_device_rule,
        require_room,
        rule_names,
        warm_up,
    )
    from mdsd_opt.drafts import scheme_maker

    if bool(prompt) == (prompts is not None):
        raise InvalidInput("give either --prompt or --prompts")
    if tokens < 1:
        raise InvalidInput(f"--tokens is {tokens}: give at least 1")
    budget = None if relax is None else parse_budget(relax)
    settings = asdict(sampling)
    Sampling.of_both(**settings)  # refused before the models are loaded
    topology, make = parse_topology(tree), scheme_maker(scheme)
    if verifier is not None:
        rules = list(dict.fromkeys(name.strip() for name in verifier.split(",")))
    else:
        known = DEVICE_RULES if on_device else rule_names()
        rules = [*known] if compare else ["traversal_hull"]
    if len(rules) > 1 and not compare:
        raise InvalidInput("several verifiers: give --compare, or one of them")
    look_here_for_modules()
    for name in rules:
        get_rule(name)
    if on_device:
        for name in rules:
            require_device_rule(make, get_rule(name))
    if budget is not None and not compare:
        check_tree(topology, get_rule(rules[0]))
    texts = prompt or read_prompts(prompts)  # type: ignore[arg-type]  # one of the two is given
    if any(not text.strip() for text in texts):
        raise InvalidInput("an empty prompt: give some text")
    make_draft = maker_of_drafts(draft)
    built: dict[str, Any] = {"attention": attention, "packed": packed}
    if make_draft is None:
        big, small = load_pair(target, draft, precision, device, **built)
    else:
        big = load_model(target, dtype=precision, device=device, **built)
    ids = [big.encode_message(text) if chat else big.encode(text) for text in texts]
    stop = big.end_tokens()
    longest = max(map(len, ids)) + tokens if static_cache else None
    big_model = partial(TreeModel, big, static_length=longest)
    small_model = (
        partial(TreeModel, small, vocab_size=big.vocab_size, static_length=longest)
        if make_draft is None
        else partial(make_draft, big)
    )
    pair = big_model(), small_model()
    require_room(*pair, ids)
    forecast = None
    if make_draft is None:
        topology, forecast = informed(topology, *pair, ids[:_MEASURED_PROMPTS], scheme, settings)
    if budget is not None:
        forecast = None  # of lossless steps
        settings["relax"] = budget
    begun: dict[str, Any] = settings | {"on_device": on_device}

    def warm(rule: str) -> None:
        warm_up(rule, big.vocab_size, topology, make, **settings)

    def options(rule: str, n: int) -> dict[str, Any]:
        return {
            "target": big_model(), "draft": small_model(), "prompt": ids[n],
            "tree": topology, "scheme": make, "rule": rule, "max_new_tokens": tokens,
            "rng": seed + n, "stop_tokens": stop, **begun,
        }  # fmt: skip

    def begin(rule: str, n: int) -> Iterator[tuple[Text, Metrics]]:
        return generate_steps(**options(rule, n))

    if compare:
        rows = compared_rules(rules, warm, by_default=verifier is None)
        next(begin(next(row.rule for row in rows if not row.refusal), 0))  # warms up the models
        _compare(rows, begin, len(ids), tokens, as_json, forecast)
        return
    warm(rules[0])
    next(begin(rules[0], 0))  # a step of the models, the first of which takes longer
    every = options(rules[0], 0)
    del every["prompt"]
    facts = {"rule": rules[0], "tree": tree, "relax": budget, "forecast_accepted": forecast}
    if chat and not as_json:
        texts = [f"{text}\n" for text in texts]  # the answer is not the rest of the message
    _continue_all(every | {"prompts": ids, "rng": seed}, texts, big.tokenizer, as_json, facts)


def _continue_all(
    options: dict[str, Any], texts: list[str], tokenizer: Any, as_json: bool, facts: dict[str, Any]
) -> None:
    """Continue each prompt by the same rule; finished work is summed up even if interrupted."""
    from mdsd_opt.base.long_runs import progress_bar
    from mdsd_opt.cli.output import notices_afterwards
    from mdsd_opt.cli.report.decoding import Screen
    from mdsd_opt.decoding import Generation, generate_batch

    outputs: list[Generation] = []
    begun: dict[int, Generation] = {}
    count, tokens = len(texts), options["max_new_tokens"]
    screens = [
        Screen(text, ids, tokenizer, f"prompt {n} of {count}" if count > 1 else None)
        for n, (text, ids) in enumerate(zip(texts, options["prompts"], strict=True), start=1)
    ]

    def show(n: int, new: Text, metrics: Metrics) -> None:
        before = begun[n].tokens if n in begun else ()
        begun[n] = Generation(before + new, metrics, "interrupted")
        if as_json:
            advance(len(new))
        else:
            screens[n](new, metrics)

    facts["interrupted"] = False
    try:
        with progress_bar("tokens", count * tokens, as_json and sys.stderr.isatty()) as advance:
            continued = generate_batch(**options, on_step=show)
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
        if as_json:
            _print_document(outputs, total, texts, options["prompts"], tokenizer, facts)
        else:
            _sum_up(outputs, total, facts)
    if facts["interrupted"]:
        raise KeyboardInterrupt


def _print_document(
    outputs: list[Generation],
    total: Metrics,
    texts: list[str],
    ids: list[list[int]],
    tokenizer: Any,
    facts: dict[str, Any],
) -> None:
    from mdsd_opt.cli.report.decoding import continuation
    from mdsd_opt.cli.view import Form, View, present

    entries = [
        {
            "prompt": text,
            "text": continuation(tokenizer, before, output.tokens, skip_special_tokens=False),
            "ended_by": output.ended_by,
            **output.metrics.to_dict(),
        }
        # fewer if it is interrupted
        for text, before, output in zip(texts, ids, outputs, strict=False)
    ]
    facts |= {"observed_accepted": total.to_dict()["accepted_per_step"], "outputs": entries}
    present(View(document=facts), Form(as_json=True))


def _sum_up(outputs: list[Generation], total: Metrics, facts: dict[str, Any]) -> None:
    from mdsd_opt.cli.output import remark, show_table
    from mdsd_opt.cli.report.decoding import prompts_table

    if len(outputs) > 1:
        show_table(prompts_table(outputs), file=sys.stderr)
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


def compared_rules(
    rules: list[str], warm: Callable[[str], None], by_default: bool
) -> list[ComparedRule]:
    """Rules, each warmed up; refused, or by default left out, if they cannot decode here.

    By default not lp: where it almost fits, it takes minutes.
    """
    from mdsd_opt.decoding import ComparedRule

    rows = [ComparedRule(name) for name in rules if not (by_default and name == "lp")]
    for row in rows:
        try:
            warm(row.rule)
        except MdsdError as error:
            row.refusal = str(error)
    _require_some([row for row in rows if not row.refusal], rows)
    return [row for row in rows if not (by_default and row.refusal)]


def _require_some(done: list[ComparedRule], rows: list[ComparedRule]) -> None:
    if not done:
        raise InvalidInput("; ".join(dict.fromkeys(row.refusal for row in rows)))


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
    begin: Begin,
    num_prompts: int,
    tokens: int,
    as_json: bool,
    forecast: float | None,
) -> None:
    """Run all rules on the same prompts; finished work is shown even if interrupted."""
    from mdsd_opt.base.long_runs import progress_bar
    from mdsd_opt.cli.report.decoding import compared_view
    from mdsd_opt.cli.view import present
    from mdsd_opt.decoding import compare_rules

    most = num_prompts * tokens * sum(not row.refusal for row in rows)
    interrupted = False
    try:
        with progress_bar("tokens", most, sys.stderr.isatty()) as advance:
            compare_rules(rows, num_prompts, begin, advance)
    except KeyboardInterrupt:
        interrupted = True
    done = [row for row in rows if row.prompts]
    if not interrupted:
        _require_some(done, rows)
    if done:  # not interrupted at once
        present(compared_view(rows, num_prompts, interrupted, forecast), Form(as_json=as_json))
    if interrupted:
        raise KeyboardInterrupt
