"""The application, with all verbs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mdsd_opt._version import __version__
from mdsd_opt.cli.audits import KINDS, Kinds, audit, command_of, told_of
from mdsd_opt.cli.config import Configured
from mdsd_opt.cli.options import Panelled
from mdsd_opt.cli.output import verb_running
from mdsd_opt.cli.verbs.advise import advise
from mdsd_opt.cli.verbs.bench import bench
from mdsd_opt.cli.verbs.capture import capture
from mdsd_opt.cli.verbs.check import check, condition, prove, search
from mdsd_opt.cli.verbs.decode import decode
from mdsd_opt.cli.verbs.plan import plan
from mdsd_opt.cli.verbs.rates import rates
from mdsd_opt.cli.verbs.relax import relax
from mdsd_opt.cli.verbs.reproduce import reproduce
from mdsd_opt.cli.verbs.solve import solve


class _InOrder(TyperGroup):
    """Program that lists its verbs in the order of their table."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb.__name__ for verb in _VERBS]


app = typer.Typer(
    name="mdsd-opt",
    cls=_InOrder,
    help="Acceptance rates, solvers and verifiers for multi-draft speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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


_VERBS = {
    advise: "Whether drafts pay, and which tree of them, at your costs.",
    rates: "Acceptance rates of drafts and verifiers, from logits.",
    solve: "Solve a transport problem by every method, certified.",
    audit: "Settle whether a verifier or an engine is lossless.",
    check: "Prove or refute a claim of the theory at one size.",
    search: "Search for laws that refute a claim of your own.",
    prove: "Prove a claim of your own for all laws of V tokens.",
    condition: "Whether inequalities are the condition for acceptance one.",
    bench: "Measure speed beside the alternatives, in one run.",
    capture: "Store the logits of a pair of models on prompts.",
    decode: "Continue prompts with several drafts at each step.",
    plan: "The draft tree that accepts most within its size.",
    relax: "What acceptance beyond lossless costs, at best.",
    reproduce: "A paper's experiment on your logits.",
}
_kinds = typer.Typer(cls=Kinds, rich_markup_mode=None, subcommand_metavar="KIND SUBJECT ...")
for _kind in KINDS:
    _run = verb_running()(command_of(_kind))
    _kinds.command(_kind, cls=Panelled, short_help=told_of(_kind))(_run)

for _verb, _told in _VERBS.items():
    if _verb is audit:
        _kinds.callback()(audit)
        app.add_typer(_kinds, name="audit", short_help=_told)
    else:
        app.command(cls=Configured, short_help=_told)(verb_running()(_verb))
