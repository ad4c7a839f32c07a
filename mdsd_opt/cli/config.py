"""Options of a verb from a file of TOML, and into one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mdsd_opt.base.files import check_writable, write_text
from mdsd_opt.errors import MdsdError

_GIVEN = ("COMMANDLINE", "DEFAULT_MAP")
_SAVED_AS = f"{__name__}.saved_as"


class Configured(TyperCommand):
    """Command with ``--config`` and ``--save-config``; what the command line says goes first."""

    def get_params(self, ctx: Any) -> list[Any]:
        own: list[Any] = super().get_params(ctx)
        return [*own[:-1], *_OPTIONS, *own[-1:]]  # the help is last

    def invoke(self, ctx: Any) -> Any:
        path = ctx.meta.get(_SAVED_AS)
        if path is not None:
            write_text(path, "".join(_lines(ctx)))
        return super().invoke(ctx)


def _lines(ctx: Any) -> Iterator[str]:
    """What was given, by the words of the command line."""
    for name, parameter in _by_word(ctx.command.params).items():
        value = ctx.params.get(parameter.name)
        source = ctx.get_parameter_source(parameter.name)
        if value is not None and source is not None and source.name in _GIVEN:
            yield f"{name} = {as_toml(value)}\n"


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
