"""The application: verbs by their names, each imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import typer

from mdsd_opt._version import __version__
from mdsd_opt.cli.commands import HELP, Named, made
from mdsd_opt.errors import InvalidInput

#: Sentence on each verb, in the order of the help.
_VERBS = {
    "advise": "Whether drafts pay, and which tree of them, at your costs.",
    "rates": "Acceptance rates of drafts and verifiers, from logits.",
    "solve": "Solve a transport problem by every method, certified.",
    "audit": "Settle whether a verifier or an engine is lossless.",
    "check": "Prove or refute a claim of the theory at one size.",
    "search": "Search for laws that refute a claim of your own.",
    "prove": "Prove a claim of your own for all laws of V tokens.",
    "condition": "Whether inequalities are the condition for acceptance one.",
    "bench": "Measure speed beside the alternatives, in one run.",
    "capture": "Store the logits of a pair of models on prompts.",
    "decode": "Continue prompts with several drafts at each step.",
    "plan": "The draft tree that accepts most within its size.",
    "relax": "What acceptance beyond lossless costs, at best.",
    "reproduce": "A paper's experiment on your logits.",
}

#: Modules of verbs that stand beside another one.
_BESIDE = dict.fromkeys(("search", "prove", "condition"), "check")


def _made(name: str) -> Any:
    """Verb of this name, imported."""
    verb = getattr(importlib.import_module(f"{__package__}.{_BESIDE.get(name, name)}"), name)
    return verb if isinstance(verb, Named) else made(verb, name, _VERBS[name])


#: What Typer raises for words that make no command, wherever its version has it.
_USAGE: Any = typer.BadParameter.__base__


class _Program(Named):
    """Program of all verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(_VERBS, _made, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _in_a_line(ctx) if args else nullcontext():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _in_a_line(ctx):
            return super().invoke(ctx)


@contextmanager
def _in_a_line(ctx: Any) -> Iterator[None]:
    """What is wrong with the words of a command, in a line, and where it says what it takes."""
    try:
        yield
    except _USAGE as error:
        of: Any = error
        path = (of.ctx or ctx).command_path.partition(" ")[2] or ctx.invoked_subcommand or ""
        told = of.format_message().rstrip(".")
        raise InvalidInput(
            f"{told[:1].lower()}{told[1:]}; {' '.join(['mdsd-opt', *path.split(), '-h'])} says "
            "what to give"
        ) from error


app = typer.Typer(
    name="mdsd-opt",
    cls=_Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mdsd-opt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Acceptance rates, solvers and verifiers for multi-draft speculative decoding."""


_READING = ("weigh_kernels.decode_halves",)
_RATES = (
    *_READING,
    "rates_with_replacement_kernels.rates_of_rows",
    "rates_without_replacement_kernels.rates_of_rows",
    "rates_deterministic_kernels.rates_of_rows",
)
_TREES = ("tree_kernels.best_below",)
_SEARCH = tuple(
    f"ratio_groups_kernels.{name}"
    for name in ("fill_buckets", "sum_buckets", "arrange", "doubt_cut", "open_tokens", "narrow")
)
_DECISIONS = (
    *_SEARCH,
    "ratio_groups_kernels.ratio_keys",
    *(
        f"acceptance_rule_kernels.{name}"
        for name in (
            "death_levels", "fill_groups", "doubt_levels", "block_around", "doubt_block",
            "excess_token",
        )
    ),
)  # fmt: skip
_FRONTIERS = (
    "scan_kernels.smallest_prefix_difference",
    *(f"cost_kernels.{name}" for name in ("build_hull", "rate_at_slope", "point", "rate_within")),
)

#: Names of the kernels by verb, with its usual options.
KERNELS: dict[str, tuple[str, ...]] = {
    "advise": (*_RATES, *_TREES),
    "audit": _DECISIONS,
    "plan": (*_RATES[:2], *_TREES),
    "rates": _RATES,
    "relax": (*_READING, *_FRONTIERS),
    "reproduce": _RATES,
    "solve": _SEARCH,
}
