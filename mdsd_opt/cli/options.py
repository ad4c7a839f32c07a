"""Options that several commands share, with their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

#: What rates are shown of unless somebody says so.
SCHEMES = "with_replacement,without_replacement,greedy,top_k"
VERIFIERS = "optimal,rrs,kseq"
NUM_DRAFTS = "1-8"

LogitFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V], or two "
        ".npy or .pt files; the bundled real logits if left out.",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        help="What the arrays hold: logits, logprobs or probs; logits if left out, but those that "
        "look like probabilities are refused.",
        show_default=False,
    ),
]
TargetModel = Annotated[
    str,
    typer.Option(
        help="Folder, .gguf file, wheel:PACKAGE with one inside, or name on the model hub.",
        show_default=False,
    ),
]
DraftModel = Annotated[
    str,
    typer.Option(
        help="The same, or skip:14,18 for the target without these decoder layers.",
        show_default=False,
    ),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all by default.")]
Plot = Annotated[Path | None, typer.Option(help="Save the picture (.png, .svg or .pdf).")]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Save a page (.html) with findings, tables and picture, whole in one file.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Progress bar on stderr.")
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Of a folder: local (by default), torchrun, dask or ray.", show_default=False
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        help="Of a folder: hold each shard against its sum in the manifest before it is read.",
    ),
]
RankTimeout = Annotated[
    float | None,
    typer.Option(
        help="Of torchrun: seconds without a sign of life after which a rank counts as lost; 600 "
        "if left out.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Of a folder: processes to start on this machine.", show_default=False),
]
Address = Annotated[
    str | None,
    typer.Option(help="Of a folder: a Dask or Ray cluster that runs.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a verb's logits become probabilities."""

    temperature: Annotated[float, typer.Option(help="Of the target; 0 is greedy.")] = 1.0
    draft_temperature: Annotated[
        float | None, typer.Option(help="Of the draft; the target's unless given.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Top-k filter, on each side.")] = None
    top_p: Annotated[float | None, typer.Option(help="Top-p filter, on each side.")] = None
    min_p: Annotated[float | None, typer.Option(help="Min-p filter, on each side.")] = None


def gathers_options(**helps: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a parameter that is a dataclass of options, such as `Sampling`, stand for its fields.

    The command line has the fields in its place. Where the verb has a parameter of the name of a
    field, that is the option, and the field gets its value, too. `helps` are other words on some.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True).parameters
        groups: dict[str, Any] = {
            name: x.annotation for name, x in own.items() if is_dataclass(x.annotation)
        }
        shown: list[inspect.Parameter] = []
        for name, parameter in own.items():
            if name not in groups:
                shown.append(parameter)
                continue
            hints = get_type_hints(groups[name], include_extras=True)
            for field in fields(groups[name]):
                hint = hints[field.name]
                if field.name in helps:
                    hint = Annotated[hint.__origin__, typer.Option(help=helps[field.name])]
                if field.name not in own:
                    told = {"annotation": hint, "default": field.default}
                    shown.append(parameter.replace(name=field.name, **told))

        @wraps(verb)
        def gathered(**given: Any) -> None:
            taken = {
                name: group(**{field.name: given[field.name] for field in fields(group)})
                for name, group in groups.items()
            }
            verb(**{name: value for name, value in given.items() if name in own}, **taken)

        # what Typer reads
        vars(gathered)["__signature__"] = inspect.Signature(shown)
        gathered.__annotations__ = {x.name: x.annotation for x in shown}
        return gathered

    return decorate
