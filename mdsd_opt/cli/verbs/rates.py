"""mdsd-opt rates: how often can the drafts be accepted?"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput, UnknownName

#: Largest number of drafts that a table of rates takes.
MAX_DRAFTS = 1000

_ALL_SCHEMES = options.SCHEMES


@options.gathers_options()
def rates(
    logits: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
            "perhaps 'sequence' [...], the text of each position, for the intervals (of [B, T, V] "
            "the first axis if left out); two .npy or .pt files; a folder of shards; or two "
            ".jsonl files with the top-k log-probabilities that vLLM, SGLang or an OpenAI-style "
            "server gave the same texts, for certified intervals; the bundled real logits if "
            "left out.",
            show_default=False,
        ),
    ] = None,
    *,
    schemes: Annotated[
        str,
        typer.Option(
            help="Draft schemes, separated by commas: names, or module:attribute for a law of "
            "your own of the next draft given those before; 'all' also ranks others at the "
            "largest K: draft temperatures, mixtures, likeliest tokens beside drawn ones."
        ),
    ] = _ALL_SCHEMES,
    best_temperature: Annotated[
        bool,
        typer.Option(
            "--best-temperature",
            help="With --schemes all: also the best draft temperature of every position.",
        ),
    ] = False,
    verifiers: Annotated[
        str,
        typer.Option(
            help="Verification algorithms, separated by commas: names, or module:attribute for "
            "one of your own; or 'all'."
        ),
    ] = options.VERIFIERS,
    num_drafts: Annotated[
        str, typer.Option("--num-drafts", "-k", help="Numbers of drafts, as 1-8 or 1,2,4.")
    ] = options.NUM_DRAFTS,
    sampling: options.Sampling,
    kind: options.Kind = None,
    pad: Annotated[
        bool, typer.Option("--pad", help="Pad the narrower vocabulary with impossible tokens.")
    ] = False,
    vocab_size: Annotated[
        int | None,
        typer.Option(help="Of .jsonl files: V, if known.", show_default=False),
    ] = None,
    accepted: Annotated[
        Path | None,
        typer.Option(
            help="Counts of an engine, .jsonl, .npz or .npy: 'accepted' tokens of each step, "
            "'num_drafts' for a place, perhaps 'depth' (places of a step) and 'sequence'; shown "
            "beside the optimum if LOGITS are given.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: options.Plot = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    threads: options.Threads = None,
    progress: options.Progress = None,
    seed: Annotated[
        int, typer.Option(help="Of rates that are estimated, as rrs without replacement.")
    ] = 0,
    engine: options.Engine = None,
    workers: options.Workers = None,
    address: options.Address = None,
    verify: options.Verify = True,
    rank_timeout: options.RankTimeout = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Of a folder: where the rates of each shard are kept, from which a run that was "
            "killed goes on; inside the folder if left out.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Acceptance rates of draft schemes and verifiers beside the optimum, averaged over positions.

    Where there is no verifier for a scheme or K, the cell stays empty. Lower bounds are marked.
    """
    if as_json and as_csv:
        raise InvalidInput("--json and --csv both given: choose one")
    if not 0 < confidence < 1:
        raise InvalidInput(f"--confidence is {confidence}: give a number between 0 and 1")
    from mdsd_opt.cli.output import remark, say, show_table
    from mdsd_opt.cli.report import tables
    from mdsd_opt.cli.report.pages import check_page_path
    from mdsd_opt.cli.report.pictures import check_plot_path
    from mdsd_opt.cli.report.rates_page import save_rates_page
    from mdsd_opt.cli.report.rates_plot import save_rates_plot
    from mdsd_opt.cli.verbs.measured_rates import (
        rates_of_files,
        rates_of_folder,
        require_files_only,
    )
    from mdsd_opt.corpora.intervals import interval_note
    from mdsd_opt.corpora.rates import refusals

    if plot is not None:
        check_plot_path(plot)
    if report is not None:
        check_page_path(report)
    combined = (parse_schemes(schemes), parse_verifiers(verifiers), parse_counts(num_drafts))
    options: dict[str, Any] = {
        "confidence": confidence,
        **asdict(sampling),
        "pad": pad,
        "num_threads": threads,
        "progress": sys.stderr.isatty() if progress is None else progress,
        "seed": seed,
    }
    if accepted is not None:
        from mdsd_opt.cli.verbs.rates_of_counts import show_accepted

        if plot is not None or any(
            path.is_dir() or path.suffix == ".jsonl" for path in logits or []
        ):
            raise InvalidInput("--accepted goes with files of logits, and without --plot")
        show_accepted(
            accepted, logits, combined[0], combined[2], as_json=as_json, as_csv=as_csv,
            kind=kind, **options,
        )  # fmt: skip
        return
    if logits and logits[0].suffix == ".jsonl":
        from mdsd_opt.cli.verbs.rates_of_servers import show_intervals

        default = schemes in ("all", _ALL_SCHEMES)
        show_intervals(
            logits,
            ["with_replacement", "without_replacement"] if default else combined[0],
            combined[2], vocab_size, confidence, options["progress"], as_json, as_csv,
            temperature=sampling.temperature != 1, pad=pad, plot=plot, engine=engine, kind=kind,
            out=out,
            **{"draft-temperature": sampling.draft_temperature, "top-k": sampling.top_k,
               "top-p": sampling.top_p, "min-p": sampling.min_p,
               "best-temperature": best_temperature},
        )  # fmt: skip
        return
    if vocab_size is not None:
        raise InvalidInput("--vocab-size is for .jsonl files: arrays have it as their last axis")
    rank = schemes == "all"
    if best_temperature and not rank:
        raise InvalidInput("--best-temperature is for --schemes all")
    if logits and len(logits) == 1 and logits[0].is_dir():
        if best_temperature:
            raise InvalidInput("--best-temperature is for files, not for a folder of shards")
        if kind not in (None, "logits"):
            raise InvalidInput("--kind is for files: the shards of a folder hold logits")
        measured = rates_of_folder(
            logits[0], *combined, engine=engine or "local", out=out, workers=workers,
            address=address, verify=verify, rank_timeout=rank_timeout, **options,
        )  # fmt: skip
        if measured.silent:
            return
    else:
        require_files_only(
            engine=engine, workers=workers, address=address, out=out,
            **{"no-verify": None if verify else True, "rank-timeout": rank_timeout},
        )  # fmt: skip
        measured = rates_of_files(
            logits or [],
            *combined,
            rank=rank,
            best_temperature=best_temperature,
            kind=kind,
            **options,
        )
    rows, unit = measured.rows, measured.interval_over
    refused = refusals(*combined)
    title = (
        f"{measured.name}: {measured.num_positions} positions, V = {measured.vocab_size:,}\n"
        f"temperature {sampling.temperature:g}; "
        f"{interval_note(rows[0].acceptance.num_groups, unit, confidence)}"
    )
    if as_json:
        document = {
            "source": measured.source,
            "metadata": dict(measured.metadata),
            "num_positions": measured.num_positions,
            "vocab_size": measured.vocab_size,
            "temperature": sampling.temperature,
            "confidence": confidence,
            "interval_over": unit,
            "rows": [row.to_dict() for row in rows],
            "refused": refused,
        }
        if measured.comparison is not None:
            document["comparison"] = measured.comparison.to_dict()
        print(tables.as_json(document))
    elif as_csv:
        print(tables.as_csv([row.to_dict() for row in rows]), end="")
    else:
        show_table(tables.rates_table(rows, title), keys=2)
        for name, reason in refused.items():
            say(f"{name}: {reason}")
        if measured.comparison is not None:
            show_table(tables.comparison_table(measured.comparison))
        say(tables.conclusion(rows))
    if plot is not None:
        save_rates_plot(rows, plot, title)
        remark(f"picture saved as {plot}")
    if report is not None:
        save_rates_page(report, rows, title, refused, measured.comparison)
        remark(f"report saved as {report}")


def parse_schemes(text: str) -> list[str]:
    """Draft schemes from names with commas between them, or all."""
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
    from mdsd_opt.drafts.by_name import checked_scheme

    if text == "all":
        return list(SINGLE_MODEL_SCHEMES)
    given = [name.strip() for name in text.split(",")]
    names = [name if ":" in name else name.replace("-", "_") for name in given]
    look_here_for_modules()
    for name in names:
        if ":" not in name and name not in SINGLE_MODEL_SCHEMES:
            raise UnknownName.among("draft scheme", name, ["all", *SINGLE_MODEL_SCHEMES])
        checked_scheme(name)
    return names


def parse_verifiers(text: str) -> list[str]:
    """Verifiers from names with commas between them, or all there are rates of."""
    from mdsd_opt.batch.row_functions import batch_verifiers
    from mdsd_opt.cli.output import look_here_for_modules
    from mdsd_opt.verifiers import get

    known = batch_verifiers()
    if text == "all":
        return known
    given = [name.strip() for name in text.split(",")]
    names = [name if ":" in name else name.replace("-", "_") for name in given]
    look_here_for_modules()
    for name in names:
        if ":" in name:
            get(name)
        elif name not in known:
            raise UnknownName.among("verifier", name, ["all", *known])
    return list(dict.fromkeys(names))


def parse_counts(text: str) -> list[int]:
    """Numbers from a list of numbers and ranges: "1-3,8" gives 1, 2, 3, 8."""
    counts: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise InvalidInput(
                f"--num-drafts is {text!r:.60}: give numbers and ranges, as 1-8 or 1,2,4"
            )
        first, last = (_number(digits) for digits in (match[1], match[2] or match[1]))
        if not 1 <= first <= last <= MAX_DRAFTS:
            raise InvalidInput(
                f"--num-drafts is {part.strip()!r:.60}: give numbers from 1 up to {MAX_DRAFTS}, "
                "ranges ascending"
            )
        counts.update(range(first, last + 1))
    return sorted(counts)


def _number(digits: str) -> int:
    """As an integer; one with too many digits for int() is beyond all bounds here anyway."""
    return int(digits[:20])
