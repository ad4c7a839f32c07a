"""mdsd-opt decode: a language model's text, by trees of drafts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.decoding import DynamicTree, Generation, Metrics, Topology
    from mdsd_opt.decoding.draft_tree import SchemeMaker
    from mdsd_opt.report.intervals import MeanInterval


def decode(
    target: options.TargetModel,
    draft: options.DraftModel,
    prompt: Annotated[
        list[str] | None, typer.Option(help="May be given several times.", show_default=False)
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='One prompt a line, or .jsonl with the field "prompt".', show_default=False
        ),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            help="level_sequential (the default), traversal_hull, traversal, block_verification, "
            "or a token-level verifier; with --compare several, separated by commas: all by "
            "default that are lossless for the drafts, but for lp, which is for few tokens.",
            show_default=False,
        ),
    ] = None,
    tree: Annotated[str, typer.Option(help="Drafts x depth, chain5, sparse, dynamic24.")] = "4x3",
    scheme: Annotated[
        str, typer.Option(help="How the drafts of a node are drawn.")
    ] = "with_replacement",
    tokens: Annotated[int, typer.Option(help="New tokens for each prompt, at most.")] = 64,
    temperature: Annotated[float, typer.Option(help="Of the target; 0 is greedy.")] = 1.0,
    draft_temperature: Annotated[
        float | None, typer.Option(help="Of the draft; the target's unless given.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Top-k filter, on each side.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Top-p filter, on each side.")] = None,
    seed: Annotated[int, typer.Option(help="Of all sampling.")] = 0,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="All rules on the same prompts, with confidence intervals."),
    ] = False,
    precision: Annotated[
        str, typer.Option(help="The models run in: bfloat16, float16, float32.")
    ] = "bfloat16",
    device: Annotated[str, typer.Option(help="The models run on: cpu, cuda, ...")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Continue prompts; the text follows the target model exactly, whatever the draft.

    Text comes to stdout as it is accepted, on a terminal with a table that follows it; a summary
    goes to stderr. --compare prints a table.
    """
    from mdsd_opt.capture.texts import read_prompts
    from mdsd_opt.cli.capture import load_pair, skipped_layers
    from mdsd_opt.decoding import generate, get_rule, parse_topology
    from mdsd_opt.decoding.draft_tree import scheme_maker
    from mdsd_opt.models.tree_pass import TreeModel

    if bool(prompt) == (prompts is not None):
        raise InvalidInput("give either --prompt or --prompts")
    if tokens < 1:
        raise InvalidInput(f"--tokens is {tokens}: give at least 1")
    topology, make = parse_topology(tree), scheme_maker(scheme)
    if verifier is not None:
        rules = list(dict.fromkeys(name.strip() for name in verifier.split(",")))
    else:
        rules = _rules_for(make, topology) if compare else ["level_sequential"]
    if len(rules) > 1 and not compare:
        raise InvalidInput("several verifiers: give --compare, or one of them")
    for name in rules:
        get_rule(name)
    texts = prompt or read_prompts(prompts)  # type: ignore[arg-type]  # one of the two is given
    if any(not text.strip() for text in texts):
        raise InvalidInput("an empty prompt: give some text")
    skip = skipped_layers(draft)
    big, small = load_pair(target, draft, skip, None, None, precision, device)
    ids = [big.encode(text) for text in texts]
    stop = big.end_tokens()

    def run(rule: str, n: int, on_step: Any = None) -> Generation:
        return generate(
            TreeModel(big), TreeModel(small), ids[n], tree=topology, scheme=make, rule=rule,
            max_new_tokens=tokens, temperature=temperature, draft_temperature=draft_temperature,
            rng=seed + n, stop_tokens=stop, on_step=on_step, top_k=top_k, top_p=top_p,
        )  # fmt: skip

    if compare:
        _compare(rules, run, len(ids), as_json)
        return
    outputs = []
    for n, text in enumerate(texts):
        if as_json:
            outputs.append(run(rules[0], n))
            continue
        with _Screen(text, big.tokenizer) as screen:
            outputs.append(run(rules[0], n, screen))
    total = sum((output.metrics for output in outputs[1:]), outputs[0].metrics)
    if as_json:
        import json

        found = [
            {"prompt": text, "text": big.tokenizer.decode(list(o.tokens)), **o.metrics.to_dict()}
            for text, o in zip(texts, outputs, strict=True)
        ]
        print(json.dumps({"rule": rules[0], "tree": tree, "outputs": found}, indent=2))
    else:
        from mdsd_opt.cli.output import remark

        remark(_summary(total))


def _rules_for(make: SchemeMaker, topology: Topology | DynamicTree) -> list[str]:
    """All rules that are lossless for the drafts and feasible for many tokens."""
    import numpy as np

    from mdsd_opt import verifiers
    from mdsd_opt.decoding import Topology, rule_names

    counts = {topology.num_drafts} if not isinstance(topology, Topology) else {
        *topology.num_drafts.values()
    }  # fmt: skip
    examples = [make(np.full(50, 0.02), count) for count in counts]
    fitting = []
    for name in rule_names():
        if name in ("block_verification", "traversal"):
            drawn = all(x.scheme in ("with_replacement", "without_replacement") for x in examples)
            fits = drawn and (name == "traversal" or counts == {1})
        elif name in verifiers.names():
            fits = name != "lp" and all(verifiers.get(name).supports(x) for x in examples)
        else:
            fits = True
        if fits:
            fitting.append(name)
    return fitting


def _summary(metrics: Metrics) -> str:
    return (
        f"{metrics.num_tokens} tokens in {metrics.num_steps} target calls: accept length "
        f"{metrics.accept_length:.2f}, acceptance rate {metrics.acceptance_rate:.3f}, "
        f"{1e3 * metrics.seconds_per_token:.0f} ms a token, verifier "
        f"{metrics.verify_share:.1%} of it"
    )


class _Screen:
    """Text and numbers as they come: in place on a terminal, else the text alone."""

    def __init__(self, prompt: str, tokenizer: Any) -> None:
        self._prompt, self._tokenizer = prompt, tokenizer
        self._tokens: list[int] = []
        self._printed = ""
        self._live: Any = None

    def __enter__(self) -> _Screen:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(transient=True, refresh_per_second=8)
            self._live.start()
        else:
            print(self._prompt, end="", flush=True)
        return self

    def __call__(self, tokens: tuple[int, ...], metrics: Metrics) -> None:
        """After a step."""
        self._tokens += tokens
        text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        if self._live is not None:
            self._live.update(_panel(self._prompt + text, metrics))
        elif text.startswith(self._printed) and not text.endswith("\ufffd"):  # a whole letter
            print(text[len(self._printed) :], end="", flush=True)
            self._printed = text

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
            print(self._prompt + text, end="")
        print(flush=True)


def _panel(text: str, metrics: Metrics) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table()
    headings = ("tokens", "target calls", "accept length", "acceptance rate", "ms a token")
    for heading in (*headings, "verifier's share"):
        table.add_column(heading, justify="right")
    table.add_row(
        str(metrics.num_tokens),
        str(metrics.num_steps),
        f"{metrics.accept_length:.2f}",
        f"{metrics.acceptance_rate:.3f}",
        f"{1e3 * metrics.seconds_per_token:.0f}",
        f"{metrics.verify_share:.1%}",
    )
    return Group(Text(text), table)


def _compare(rules: list[str], run: Any, num_prompts: int, as_json: bool) -> None:
    """All rules on the same prompts."""
    import json

    import numpy as np

    from mdsd_opt.cli.output import remark, show_table
    from mdsd_opt.report.intervals import mean_interval

    found: dict[str, list[Metrics]] = {}
    for name in rules:
        for n in range(num_prompts):
            found.setdefault(name, []).append(run(name, n).metrics)
        remark(f"{name}: {_summary(sum(found[name][1:], found[name][0]))}")

    def over_prompts(name: str, value: str) -> MeanInterval:
        return mean_interval(np.array([getattr(metrics, value) for metrics in found[name]]))

    if as_json:
        rows = [
            {
                "rule": name,
                "accept_length": over_prompts(name, "accept_length").to_dict(),
                "acceptance_rate": over_prompts(name, "acceptance_rate").to_dict(),
                **{"total": sum(found[name][1:], found[name][0]).to_dict()},
            }
            for name in rules
        ]
        print(json.dumps({"num_prompts": num_prompts, "rows": rows}, indent=2))
        return
    from rich.table import Table

    from mdsd_opt.report.tables import with_interval

    table = Table(title=f"{num_prompts} prompts; 95% intervals over them", title_justify="left")
    table.add_column("rule")
    for heading in ("accept length", "acceptance rate", "ms a token", "verifier's share"):
        table.add_column(heading, justify="right")
    for name in rules:
        total = sum(found[name][1:], found[name][0])
        table.add_row(
            name,
            with_interval(over_prompts(name, "accept_length")),
            with_interval(over_prompts(name, "acceptance_rate")),
            f"{1e3 * total.seconds_per_token:.1f}",
            f"{total.verify_share:.1%}",
        )
    show_table(table)
