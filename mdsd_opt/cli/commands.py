"""Commands of verbs, which take options from a file of TOML, and write them into one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from mdsd_opt.base.files import check_writable, write_text
from mdsd_opt.cli.output import verb_running
from mdsd_opt.cli.signatures import command_of
from mdsd_opt.errors import InvalidInput

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


class Named(TyperGroup):
    """Commands by their names, each made when it is asked for, and listed without that."""

    def __init__(
        self, told: Mapping[str, str], make: Callable[[str], Any], **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._told, self._make = told, make

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self._told]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self._told and cmd_name not in self.commands:
            self.commands[cmd_name] = self._make(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*self._told.items()])


class Kinds(Named):
    """A verb of several kinds, each with options of its own, and only these.

    Where the first word names none, `chosen` makes words that do of the words and of those among
    them that belong to no option.
    """

    def __init__(
        self, name: str, kinds: Mapping[str, Callable[..., Any]], told: str,
        chosen: Callable[[list[str], list[str]], list[str]],
    ) -> None:  # fmt: skip
        sentences = {kind: str(verb.__doc__).partition("\n")[0] for kind, verb in kinds.items()}
        super().__init__(
            sentences, lambda kind: made(kinds[kind], kind, sentences[kind]), name=name, help=told,
            subcommand_metavar="KIND ...", rich_markup_mode=None, no_args_is_help=False,
            context_settings=HELP,
        )  # fmt: skip
        self._chosen = chosen

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--"
        if not ctx.resilient_parsing and first not in {*self._told, *ctx.help_option_names}:
            args = self._chosen(args, self._arguments(args))
        own = {x for y in self._options(args[0]) for x in y.opts} if args[0] in self._told else {}
        for word in (word.partition("=")[0] for word in args if word.startswith("--")):
            if own and word not in own and (takers := self._takers(word)):
                raise InvalidInput(f"{word} goes with {', '.join(takers)}, not with {args[0]}")
        return super().parse_args(ctx, args)

    def _options(self, kind: str) -> list[Any]:
        found: list[Any] = self.get_command(None, kind).params
        return found

    def _takers(self, option: str) -> list[str]:
        return [x for x in self._told if any(option in y.opts for y in self._options(x))]

    def _arguments(self, words: Sequence[str]) -> list[str]:
        """Words that are no options of any kind, nor the values of such."""
        takes = {
            option for kind in self._told for x in self._options(kind)
            if x.param_type_name == "option" and not x.is_flag for option in x.opts
        }  # fmt: skip
        is_value = [False, *(word in takes for word in words)]
        pairs = zip(words, is_value, strict=False)
        return [x for x, is_of_option in pairs if not is_of_option and (x == "-" or x[:1] != "-")]


#: Settings of a command: the words for its help.
HELP = {"help_option_names": ["-h", "--help"]}


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
        raise InvalidInput(f"--config {path} cannot be read as TOML: {error}") from error
    for word, value in document.items():
        if word not in known:
            words = ", ".join(sorted(known))
            raise InvalidInput(f"--config {path} has {word!r}; this verb takes {words}")
        if isinstance(value, dict):
            raise InvalidInput(f"--config {path} has a table {word!r}: write {word} = VALUE")
    return {known[word].name: value for word, value in document.items()}


def _read(ctx: typer.Context, path: Path | None) -> None:
    if path is not None:
        values = _options_of(path, _by_word(ctx.command.params))
        ctx.default_map = {**(ctx.default_map or {}), **values}


def _save(ctx: typer.Context, path: Path | None) -> None:
    if path is None:
        return
    check_writable(path)
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
