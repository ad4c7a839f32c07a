"""mdsd-opt reproduce: the papers' experiments on the logits at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form

if TYPE_CHECKING:
    from mdsd_opt.cli.view import View
    from mdsd_opt.corpora import Reproduction


@options.gathers_options()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="hu2025, khisti2025 or spechub; listed if left out.")
    ] = None,
    logits: Annotated[
        Path | None,
        typer.Argument(
            help="File of logits or folder of shards; the bundled real logits if left out."
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, "Of a folder: where the rates of each shard are kept; inside it if left out."
    ] = None,
    save: Annotated[Path | None, "Write the tables as Markdown."] = None,
    form: Form,
    verify: options.Verify = True,
    workers: options.Workers = None,
    threads: options.Threads = None,
    confidence: options.Confidence = 0.95,
    progress: options.Progress = None,
) -> None:
    """A paper's experiment on your logits, beside what the paper states."""
    from mdsd_opt.base.files import check_writable, write_text
    from mdsd_opt.cli.output import remark, show_rows
    from mdsd_opt.cli.view import present
    from mdsd_opt.corpora import check_source
    from mdsd_opt.corpora import reproduce as experiments
    from mdsd_opt.data import sample_logits_path

    if name is None:
        show_rows(list(experiments.EXPERIMENTS.items()))
        return
    if save is not None:
        check_writable(save)
    source = sample_logits_path() if logits is None else check_source(logits)
    settings = experiments.CapturedLogits(
        source, out, workers, threads, confidence,
        bool(progress), verify,
    )  # fmt: skip
    result = experiments.reproduce(name, settings)
    present(_view(result), form)
    if save is not None:
        write_text(save, result.to_markdown())
        remark(f"tables saved as {save}")


def _view(result: Reproduction) -> View:
    from functools import partial

    from mdsd_opt.cli.output import make_table
    from mdsd_opt.cli.view import Drawing, Section, View
    from mdsd_opt.corpora import PUBLISHED_COLUMNS, Outcome, published_row, shown
    from mdsd_opt.plots import reproduction_figure

    title = f"{result.name}: {result.source}"
    meaning = "acceptance rates: higher is better; empty: the verifier is not made for such drafts"
    tables = [
        Section(text=title),
        Section("Logits", f"{result.models}; {result.sample}"),
        Section(text=meaning),
    ]
    for content in result.tables:
        headings = [x.replace(", ", ",\n").replace(" - ", "\n- ") for x in content.columns]
        rows = (list(map(shown, row)) for row in content.rows)
        tables.append(Section("", table=make_table(content.title, headings, rows, words=headings)))
    tables.append(Section(text="beside the published results:"))
    for item in result.published:
        cells = list(zip(PUBLISHED_COLUMNS, published_row(item), strict=True))
        tables.append(Section("Beside the published results", "", values=cells))
    tables.append(Section(text=""))
    tables += [Section("", f"- {difference}") for difference in result.differences]
    counts = {outcome: sum(x.outcome == outcome for x in result.published) for outcome in Outcome}
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    conclusion = f"of {len(result.published)} published statements: {outcomes}"
    drawing = Drawing(partial(reproduction_figure, result), meaning, result.name)
    return View(title, tables, [conclusion], result.to_dict(), drawing)
