"""mdsd-opt rates: how often can the drafts be accepted?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form


@options.gathers_options()
def rates(
    logits: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
            "perhaps 'sequence' [...], the text of each position, for the intervals (of [B, T, V] "
            "the first axis if left out), 'd2t' or 'draft_token_ids' where the draft has a part "
            "of the tokens; two .npy, .pt or .safetensors files; the target's and those of several "
            "drafts, which are then compared; a folder of shards; or two "
            ".jsonl files with the top-k log-probabilities that vLLM, SGLang or an OpenAI-style "
            "server gave the same texts, for certified intervals; the bundled real logits if "
            "left out."
        ),
    ] = None,
    *,
    schemes: Annotated[
        str,
        "Draft schemes, separated by commas: names, or module:attribute for a law of "
        "your own of the next draft given those before; 'all' also ranks others at the "
        "largest K: draft temperatures, mixtures, likeliest tokens beside drawn ones.",
    ] = options.SCHEMES,
    verifiers: Annotated[
        str,
        "Verification algorithms, separated by commas: names, or module:attribute for "
        "one of your own; or 'all'.",
    ] = options.VERIFIERS,
    num_drafts: Annotated[str, "Numbers of drafts, as 1-8 or 1,2,4."] = options.NUM_DRAFTS,
    others: options.RatesOptions,
    form: Form,
    progress: options.Progress = None,
    folder: options.Folder,
) -> None:
    """Acceptance rates of draft schemes and verifiers beside the optimum, averaged over positions.

    Where there is no verifier for a scheme or K, the cell stays empty. Lower bounds are marked.
    """
    from mdsd_opt.cli.verbs import (
        rates_of_counts,
        rates_of_drafts,
        rates_of_files,
        rates_of_folder,
        rates_of_servers,
    )
    from mdsd_opt.cli.view import present

    asked = options.Asked(
        paths=logits or [],
        schemes=options.parse_schemes(schemes),
        verifiers=options.parse_verifiers(verifiers),
        num_drafts=options.parse_counts(num_drafts),
        all_schemes=schemes == "all",
        usual_schemes=schemes == options.SCHEMES,
        folder=folder,
        progress=bool(progress),
        plot=form.plot,
        **vars(others),
    )
    for input_kind in (
        rates_of_counts, rates_of_servers, rates_of_drafts, rates_of_folder, rates_of_files
    ):  # fmt: skip
        if input_kind.takes(asked):
            view = input_kind.view(asked)
            if view is not None:
                present(view, form)
            return
