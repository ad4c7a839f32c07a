"""mdsd-opt stability: how far may a text change if its logits move a little?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample

#: Moves of logits that are looked at, unless others are given.
_DELTAS = "0.01,0.03,0.1,0.3,1"


@options.gathers_options()
def stability(
    logits: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A .npy file with logits [..., V] along texts ([B, T, V] for B texts), or a .npz, "
            ".safetensors or .pt file whose array 'target' they are, with 'sequence', 'position' "
            "and 'tokens' if it has them; the bundled real logits if left out. A second file is "
            "another run of the same positions, whose changes are measured."
        ),
    ] = None,
    *,
    delta: Annotated[
        str | None, f"How far a logit moves at most, as 0.1 or {_DELTAS}, the latter if left out."
    ] = None,
    temperature: Annotated[
        float, "0 for greedy texts; else of tokens that are drawn with shared Gumbel noise."
    ] = 0.0,
    kind: options.Kind = None,
    confidence: options.Confidence = 0.95,
    form: Form,
) -> None:
    """How many tokens may change, and where a text may first, if no logit moves by more than delta.

    Passes of another shape, over five rows instead of one or over eight texts instead of one, round
    differently; that is what such changes are.
    """
    from mdsd_opt.cli.report.stability import stability_view
    from mdsd_opt.cli.view import present
    from mdsd_opt.corpora import text_stability

    paths = list(logits or [])
    if len(paths) > 2:
        raise InvalidInput(f"{len(paths)} files given: give one run, or two of the same positions")
    runs = [_run(path, kind) for path in paths] or [options.given_sample(None, None)]
    if len(runs) == 2 and delta is not None:
        raise InvalidInput("--delta is given, and two runs: their changes are measured")
    one = runs[0]
    result = text_stability(
        one.target,
        None if len(runs) == 2 else _numbers(delta or _DELTAS),
        other=runs[1].target if len(runs) == 2 else None,
        temperature=temperature, tokens=one.tokens if temperature else None,
        sequence=one.sequence, position=one.position, confidence=confidence, kind="logits",
    )  # fmt: skip
    name = " and ".join(map(str, paths)) or Path(one.source).name
    unit = "positions" if one.texts is None else "texts"
    present(stability_view(result, name, unit, confidence), form)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--delta is {text!r:.60}: give numbers, as {_DELTAS}") from None


def _run(path: Path, kind: str | None) -> LogitsSample:
    """Logits of one run, as the target of a sample."""
    from mdsd_opt.base.files.arrays import read_npy
    from mdsd_opt.base.files.logits import LogitsSample, load_logits

    if path.suffix.lower() != ".npy":
        return load_logits(path).taken_as(kind)
    array = read_npy(path)
    taken = LogitsSample(array, array, source=str(path)).taken_as(kind)
    return replace(taken, draft=taken.target)
