"""mdsd-opt reproduce: the papers' experiments on the logits at hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mdsd_opt import corpora, plots
from mdsd_opt.base.frames import Table
from mdsd_opt.cli import options
from mdsd_opt.cli.output import show_rows
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.verbs.rates import FolderForm
from mdsd_opt.cli.view import Drawing, Section, View, present
from mdsd_opt.corpora import Reproduction
from mdsd_opt.corpora import reproduce as experiments


def reproduce(
    name: Annotated[str | None, "hu2025, khisti2025 or spechub; listed if left out."] = None,
    logits: Annotated[
        Path | None, "File of logits or folder of shards; the bundled real logits if left out."
    ] = None,
    *,
    form: FolderForm,
    asked: Given = given("corpora:corpus_rates", "verify workers num_threads=threads confidence"),
    progress: options.Progress = None,
) -> None:
    """A paper's experiment on your logits, beside what the paper states.

    Of a folder, --out FOLDER is where the rates of each shard are kept; inside it if left out.
    """
    from mdsd_opt.data import sample_logits_path

    if name is None:
        forms = ("as_json", "as_csv", "as_latex", "words", "out", "plot")
        options.refuse("{name} goes with the name of an experiment", *forms)
        show_rows(list(experiments.EXPERIMENTS.items()))
        return
    source = sample_logits_path() if logits is None else corpora.check_source(logits)
    settings = experiments.CapturedLogits(source, form.folder, progress=bool(progress), **asked)
    present(_view(experiments.reproduce(name, settings)), form)


def _view(result: Reproduction) -> View:
    title = f"{result.name}: {result.source}"
    meaning = "acceptance rates: higher is better; empty: the verifier is not made for such drafts"
    tables: list[Section | Table] = [
        Section(text=title),
        Section("Logits", f"{result.models}; {result.sample}"),
        Section(text=meaning),
    ]
    tables += [*result.tables(), Section(text="beside the published results:")]
    for item in result.published:
        cells = zip(corpora.PUBLISHED_COLUMNS, corpora.published_row(item), strict=True)
        tables.append(Section("Beside the published results", "", values=list(cells)))
    tables.append(Section(text=""))
    tables += [Section("", f"- {difference}") for difference in result.differences]
    counts = [(sum(x.outcome == y for x in result.published), y) for y in corpora.Agreement]
    outcomes = ", ".join(f"{count} {outcome}" for count, outcome in counts if count)
    conclusion = f"of {len(result.published)} published statements: {outcomes}"
    drawing = Drawing(
        partial(plots.reproduction_figure, result), meaning, experiments.EXPERIMENTS[result.name]
    )
    return View(title, tables, [conclusion], result, drawing)
