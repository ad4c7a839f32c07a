"""Options that several commands share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
Temperature = Annotated[float, typer.Option(help="Of the target; 0 is greedy.")]
DraftTemperature = Annotated[
    float | None, typer.Option(help="Of the draft; the target's unless given.")
]
TopK = Annotated[int | None, typer.Option(help="Top-k filter, on each side.")]
TopP = Annotated[float | None, typer.Option(help="Top-p filter, on each side.")]
MinP = Annotated[float | None, typer.Option(help="Min-p filter, on each side.")]
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
