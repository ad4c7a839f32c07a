"""Options made of signatures: of verbs, of dataclasses, and of public functions, whose docs help.

A verb is a function. ``Annotated[int, "Of the sampling."]`` is an option of its own with its help,
an argument where it stands before the star. A parameter that is a dataclass stands for its fields.
One whose default is `given` stands for parameters of a public function, of which the verb gets a
dictionary: their types, defaults and helps are read off the source of the function, so that help
imports nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli.output import look_here_for_modules
from mdsd_opt.errors import InvalidInput

_PACKAGE = Path(__file__).parents[1]

#: Most numbers in a range, and the largest that is none of another bound.
_MOST_NUMBERS, _LARGEST = 10_000, 10**9

#: One-letter options, beside these of a word.
_SHORT = {"num_drafts": "-k", "vocab_size": "-V"}

#: Values of parameters of a public function, by their names there; without those left out.
Given: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Parameters of a public function, by the names that they have as options."""

    place: str
    names: Mapping[str, str]
    panel: str | None
    defaults: Mapping[str, Any]


def given(place: str, names: str, panel: str | None = None, **defaults: Any) -> Any:
    """Options that are parameters of a function or class of a room, as ``"auditing:audit"``.

    The names have a space between them; one that is another as an option is ``rng=seed``. All that
    they are is the function's, but for other defaults.
    """
    pairs = (name.partition("=") for name in names.split())
    return _Taken(place, {name: option or name for name, _, option in pairs}, panel, defaults)


@cache
def _tree(path: Path) -> ast.Module:
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _source(place: str) -> ast.Module:
    """Module that has a name of a room's face, or of a module of `base`."""
    room, _, name = place.partition(":")
    path = _PACKAGE.joinpath(*room.split("."))
    stub = path / "__init__.pyi"
    if not stub.exists():
        return _tree(path)
    for line in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom) and name in {x.name for x in line.names}:
            return _tree(path.joinpath(*str(line.module).split(".")))
    raise AssertionError(f"{place} is none of the room's names")


@cache
def _parameters(place: str) -> dict[str, tuple[str, Any, str]]:
    """Type in words, default and help of each parameter; None for a default that is computed."""
    known = {
        x.name: x for x in _source(place).body if isinstance(x, ast.FunctionDef | ast.ClassDef)
    }
    node = known[place.partition(":")[2]]
    docs = dict(_documented(ast.get_docstring(node) or ""))
    found = {}
    for each in _with_bases(node, known):
        for name, hint, default in _declared(each):
            words, told = docs.get(name, ("", ""))
            found[name] = hint or words, default, told
    return {**{name: (words, None, told) for name, (words, told) in docs.items()}, **found}


def _with_bases(node: Any, known: Mapping[str, Any]) -> Iterator[Any]:
    for base in getattr(node, "bases", ()):
        if isinstance(base, ast.Name) and base.id in known:
            yield from _with_bases(known[base.id], known)
    yield node


def _declared(node: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, annotation and default of the parameters of a function, or of a class."""
    if isinstance(node, ast.ClassDef):
        for x in node.body:
            if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
                yield x.target.id, ast.unparse(x.annotation), _literal(x.value or _REQUIRED)
            elif isinstance(x, ast.FunctionDef) and x.name == "__init__":
                yield from _declared(x)
        return
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    required = [_REQUIRED] * (len(places) - len(arguments.defaults))
    defaults = [*required, *arguments.defaults]
    for argument, default in zip(
        [*places, *arguments.kwonlyargs],
        [*defaults, *(x or _REQUIRED for x in arguments.kw_defaults)],
        strict=True,
    ):
        hint = "" if argument.annotation is None else ast.unparse(argument.annotation)
        yield argument.arg, hint, _literal(default)


#: In the place of a default where there is none.
_REQUIRED = ast.Constant(...)


def _literal(node: ast.expr) -> Any:
    """Value of a default, None where it is computed; the sign of none where there is none."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return inspect.Parameter.empty if value is ... else value


def _documented(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names of numpydoc's parameters, each with its type and the first sentence on it."""
    lines = re.split(r"^(?:Parameters|Attributes)\n-+\n", text, flags=re.M)[1:]
    part = re.split(r"^\w[\w ]*\n-+$", lines[0], flags=re.M)[0] if lines else ""
    entry = r"^([\w*, ]+?) *(?::\s*(.*))?\n((?: {4}.*\n?|\n)*)"
    for names, words, told in re.findall(entry, part, re.M):
        plain = re.sub(r"`+([^`]*)`+|:math:|\*\*", r"\1", " ".join(told.split()))
        sentence = re.match(r"(.*?[.:;])(?= [A-Z]|$)", plain)
        for name in names.split(","):
            yield name.strip(), (words, sentence[1] if sentence else plain)


def _parts(text: str, option: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _loaded(text: str, option: str) -> Any:
    look_here_for_modules()
    return loaded(text)


#: Types of options by what annotations and numpydoc say, what makes the value of the text, and
#: words round the help.
_KINDS: tuple[tuple[str, Any, Callable[[str, str], Any] | None, str], ...] = (
    (r"\bRng\b|Generator", int, None, "Seed of everything random."),
    (r"Promise|[Cc]allable", str, _loaded, "module:function. {}"),
    (r"Path|\bpath\b", Path, None, "{}"),
    (
        r"([Ss]equence|tuple)(\[| of )int", str,
        lambda text, option: parse_numbers(text, option), "{} As 2,4 or 2-4.",
    ),
    (r"([Ss]equence|tuple)(\[| of )str", str, _parts, "{} Separated by commas."),
    (r"\bbool\b", bool, None, "{}"),
    (r"\bfloat\b", float, None, "{}"),
    (r"\bint\b", int, None, "{}"),
    ("", str, None, "{}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """Options that a parameter of a verb stands for, and its value by theirs."""

    shown: list[inspect.Parameter]
    value: Callable[[Mapping[str, Any]], Any]


def command_of(verb: Callable[..., Any]) -> Callable[..., None]:
    """The verb for Typer to read: options in the place of parameters that stand for several."""
    own = inspect.signature(verb, eval_str=True).parameters.values()
    parts = {parameter.name: _part(parameter) for parameter in own}

    @wraps(verb)
    def command(**values: Any) -> None:
        verb(**{name: part.value(values) for name, part in parts.items()})

    shown: dict[str, inspect.Parameter] = {}
    for parameter in (x for part in parts.values() for x in part.shown):
        shown.setdefault(parameter.name, parameter)
    vars(command)["__signature__"] = inspect.Signature([*shown.values()])
    command.__annotations__ = {x.name: x.annotation for x in shown.values()}
    return command


def _part(parameter: inspect.Parameter, panel: str | None = None) -> _Part:
    name, hint, default = parameter.name, parameter.annotation, parameter.default
    if isinstance(default, _Taken):
        return _part_of_taken(default)
    if is_dataclass(hint):
        return _part_of_class(hint, panel)
    is_argument = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    option = _option(name, hint, panel, is_argument=is_argument, default=default)
    return _Part([_shown(name, option, default)], lambda values: values[name])


def _part_of_class(group: Any, panel: str | None) -> _Part:
    hints, panel = get_type_hints(group, include_extras=True), getattr(group, "PANEL", panel)
    parts = {
        field.name: _part(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            ),
            panel,
        )
        for field in fields(group)
    }  # fmt: skip
    shown = [x for part in parts.values() for x in part.shown]
    return _Part(
        shown, lambda values: group(**{name: part.value(values) for name, part in parts.items()})
    )


def _part_of_taken(taken: _Taken) -> _Part:
    known, shown, makers = _parameters(taken.place), [], {}
    for name, word in taken.names.items():
        words, default, told = known[name]
        pattern, kind, maker, form = next(x for x in _KINDS if re.search(x[0], words))
        default = taken.defaults.get(name, None if default == () else default)
        hint = kind | None if default is None else kind
        least = 0 if pattern == _KINDS[0][0] else None
        option = _option(
            word, Annotated[hint, form.format(told)], taken.panel, default=default, least=least
        )
        shown.append(_shown(word, option, default))
        makers[name] = word, maker

    def value(values: Mapping[str, Any]) -> Given:
        found = {name: (values[word], word, maker) for name, (word, maker) in makers.items()}
        return {
            name: maker(x, flag(word)) if maker and isinstance(x, str) else x
            for name, (x, word, maker) in found.items()
            if x is not None
        }

    return _Part(shown, value)


def _shown(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def flag(name: str) -> str:
    """Name of an option on the command line."""
    return f"--{name.replace('_', '-')}"


def _option(
    name: str, hint: Any, panel: str | None, *, is_argument: bool = False, default: Any = None,
    least: int | None = None,
) -> Any:  # fmt: skip
    """Annotation as Typer reads it, of a type and a text, or of an option that is there."""
    kind, found = hint.__origin__, hint.__metadata__[0]
    if isinstance(found, str) and is_argument:
        found = typer.Argument(help=found, metavar=name.upper())
    elif isinstance(found, str):
        names = [flag(name), *filter(None, [_SHORT.get(name)])]
        is_flag = kind is bool and not default
        found = typer.Option(*names if name in _SHORT or is_flag else (), help=found, min=least)
    option = copy(found)
    option.rich_help_panel = panel or option.rich_help_panel
    return Annotated[kind, option]


def parse_numbers(text: str, option: str, most: int = _LARGEST) -> list[int]:
    """Numbers of an option, from a list of numbers and ranges of at most 10,000."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise InvalidInput(
                f"{option} is {text!r:.60}: give numbers and ranges, as 1-8 or 1,2,4"
            )
        # too many digits for int() are beyond all bounds here anyway
        first, last = (int(digits[:20]) for digits in (match[1], match[2] or match[1]))
        if not 1 <= first <= last <= most or last - first > _MOST_NUMBERS:
            raise InvalidInput(
                f"{option} is {part.strip()!r:.60}: give numbers from 1 up to {most}, "
                "ranges ascending"
            )
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def parse_cost(text: str, option: str = "--cost", of: str = "drafts") -> dict[int, float]:
    """Milliseconds by a number `of` something: "1:20,16:22" gives 20 for 1 and 22 for 16."""
    table: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*:\s*(\d+\.?\d*|\.\d+)\s*", part)
        if not match or int(match[1]) in table:
            raise InvalidInput(
                f"{option} is {text!r:.60}: give {of} and milliseconds, as 1:20,16:22,64:40, and "
                "each number once"
            )
        table[int(match[1])] = float(match[2])
    return table
