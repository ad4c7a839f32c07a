"""The application: verbs by their names, each imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mdsd_opt._version import __version__
from mdsd_opt.cli.commands import made

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


class _Program(TyperGroup):
    """Program that imports a verb when it is asked for, and lists all without that."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(_VERBS)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_VERBS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _VERBS and self.commands[cmd_name] is None:
            file = _BESIDE.get(cmd_name, cmd_name)
            module = importlib.import_module(f"{__package__}.verbs.{file}")
            verb, told = getattr(module, cmd_name), _VERBS[cmd_name]
            is_group = isinstance(verb, TyperGroup)
            self.commands[cmd_name] = verb if is_group else made(verb, cmd_name, told)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_VERBS.items()])


app = typer.Typer(
    name="mdsd-opt",
    cls=_Program,
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
