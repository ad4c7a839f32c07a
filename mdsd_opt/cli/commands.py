"""Commands of verbs, which take options from a file of TOML, and write them into one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from mdsd_opt.base.files import check_writable, write_text
from mdsd_opt.cli.output import verb_running
from mdsd_opt.cli.signatures import command_of
from mdsd_opt.errors import MdsdError

_SAVED_AS = f"{__name__}.saved_as"

#: Options that were given to the verb that runs: by their names, as they are on the command line.
_given: dict[str, str] = {}


def given_words() -> Mapping[str, str]:
    """Options that were given, on the command line or in a file, by the names of parameters."""
    return _given


class Configured(TyperCommand):
    """Command with ``--config`` and ``--save-config``; what the command line says goes first.

    Its help shows options in panels, each below its heading.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        own: list[Any] = super().get_params(ctx)
        return [*own[:-1], *_OPTIONS, *own[-1:]]  # the help is last

    def invoke(self, ctx: Any) -> Any:
        by_word = _by_word(self.params)
        told = {word: x for word, x in by_word.items() if _is_given(ctx, x)}
        _given.clear()
        for word, x in told.items():
            no = "no-" if ctx.params[x.name] is False else ""
            _given[x.name] = f"--{no}{word}"
        if (path := ctx.meta.get(_SAVED_AS)) is not None:
            lines = (f"{word} = {as_toml(ctx.params[x.name])}\n" for word, x in told.items())
            write_text(path, "".join(lines))
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[Any]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or usual
            panels.setdefault(panel, []).append(parameter.get_help_record(ctx))
        for panel, records in panels.items():
            if shown := [record for record in records if record is not None]:
                with formatter.section(panel):
                    formatter.write_dl(shown)


def made(verb: Callable[..., Any], name: str, told: str) -> TyperCommand:
    """Command of a verb, whose name and sentence on it are these."""
    program = typer.Typer(add_completion=False, rich_markup_mode=None)
    program.command(name, cls=Configured, short_help=told)(verb_running()(command_of(verb)))
    command: Any = get_command(program)
    return command


def _is_given(ctx: Any, parameter: Any) -> bool:
    source = ctx.get_parameter_source(parameter.name)
    named = source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")
    return named and ctx.params.get(parameter.name) is not None


def as_toml(value: Any) -> str:
    """Value of an option, as TOML writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return repr(value)  # infinities and NaN among them, which JSON has not
    return json.dumps(value if isinstance(value, int) else str(value), ensure_ascii=False)


def _by_word(parameters: Sequence[Any]) -> dict[str, Any]:
    """Parameters by their long option without dashes, or their name."""
    by_word = {}
    for parameter in parameters:
        longs = [word for word in parameter.opts if word.startswith("--")]
        by_word[longs[0][2:] if longs else parameter.name] = parameter
    return by_word


def _options_of(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Values in a file, by the names of parameters."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} cannot be read as TOML: {error}") from error
    for word, value in document.items():
        if word not in known:
            words = ", ".join(sorted(known))
            raise typer.BadParameter(f"{path} has {word!r}; this verb takes {words}")
        if isinstance(value, dict):
            raise typer.BadParameter(f"{path} has a table {word!r}: write {word} = VALUE")
    return {known[word].name: value for word, value in document.items()}


def _read(ctx: typer.Context, path: Path | None) -> None:
    if path is not None:
        values = _options_of(path, _by_word(ctx.command.params))
        ctx.default_map = {**(ctx.default_map or {}), **values}


def _save(ctx: typer.Context, path: Path | None) -> None:
    if path is None:
        return
    try:
        check_writable(path)
    except MdsdError as error:
        raise typer.BadParameter(str(error)) from error
    ctx.meta[_SAVED_AS] = path


_program = typer.Typer(add_completion=False)


@_program.command()
def _with_options(
    config: Annotated[
        Path | None,
        typer.Option(
            is_eager=True,
            expose_value=False,
            callback=_read,
            help="Take options from a file of TOML: top-k = 40.",
        ),
    ] = None,
    save_config: Annotated[
        Path | None,
        typer.Option(
            expose_value=False, callback=_save, help="Write the options given, for --config."
        ),
    ] = None,
) -> None:
    """Program that has these options alone, for other commands to share."""


_OPTIONS = typer.main.get_command(_program).params
