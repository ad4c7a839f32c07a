"""Views of an advice on logits, models or counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mdsd_opt.base.frames import Column, Table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.planning import Advice, scheme_title, speedup_cell
from mdsd_opt.plots import advice_figure, chains_figure

if TYPE_CHECKING:
    from mdsd_opt.planning import CountAdvice, ModelAdvice


#: Intervals that are narrower would read as none.
_LEAST_WIDTH = 0.005


def advice_view(advice: Advice, title: str, **known: Any) -> View:
    """View of an advice: the compared options, the assumptions and the decision."""
    tables: list[Section | Table] = [_options_table(advice, title)]
    told = [(advice.tree.name, advice.best.in_words), ("costs", advice.costs.told)]
    tables.append(Section("The tree, and what it costs", values=told))
    if advice.batches:
        tables.append(_batches_table(advice))
    tables += [_assumed(advice), *_flags(advice)]
    conclusion = [advice.sentence]
    if advice.batches:
        conclusion.append(_crossing(advice))
    return View(
        f"Do drafts pay?\n{title}",
        tables,
        conclusion,
        {**known, **advice.to_dict()},
        Drawing(
            partial(advice_figure, advice),
            "Speed-up over plain decoding at the same costs, with intervals over texts; above one "
            "is faster.",
            title,
        ),
        rows=[row.to_dict() for row in advice.rows],
    )


def model_advice_view(advice: ModelAdvice, title: str, **known: Any) -> View:
    """View of an advice for measured models, with the forecast beside what was observed."""
    view = advice_view(advice.advice, title, **known)
    tried = Table(
        "a step: forecast by the measured costs, and observed",
        [
            Column("name", " ", is_text=True),
            Column("forecast", shown="{0:.2f}"),
            Column("observed", shown="{0:.2f}"),
        ],
        advice.terms,
        heading="Tried out",
    )
    return replace(
        view,
        tables=[*view.tables, tried],
        conclusion=[*view.conclusion, advice.sentence],
        document={**known, **advice.to_dict()},
    )


def count_advice_view(
    by_batch: Sequence[CountAdvice], source: str, batches: Sequence[int] = ()
) -> View:
    """Chains beside each other, what is assumed, flags of engines, and the decision.

    Of several batches the first has the chains, and each its line and its sentence.
    """
    advice = by_batch[0]
    title = source if advice.costs is None else f"{source}; {advice.costs.told}"
    first = advice.contradiction and f"{advice.contradiction}.\n"
    tables: list[Section | Table] = [_chains_table(advice, first + title)]
    tables += [_assumed(advice), *_flags(advice)]
    conclusion = advice.conclusion
    document: dict[str, Any] = {"source": source, **advice.to_dict()}
    if len(by_batch) > 1:
        each = [*zip(batches, by_batch, strict=True)]
        conclusion = [*(f"Batch {n}: {x.sentence}" for n, x in each), *conclusion[1:]]
        document["batches"] = [{"batch": n, **x.to_dict()} for n, x in each]
    return View(
        f"Do drafts pay?\n{first}{title}",
        tables,
        conclusion,
        document,
        Drawing(
            partial(chains_figure, advice),
            "Speed-up over plain decoding by the drafts of a step; full points were counted, open "
            "ones are forecasts; bars span chance and all assumptions.",
            title,
        ),
        rows=[row.to_dict() for row in advice.rows],
    )


def _assumed(advice: Advice | CountAdvice) -> Section:
    notes = [(f"note {n}", note) for n, note in enumerate(advice.notes, start=1)]
    return Section("What is assumed", values=notes)


def _flags(advice: Advice | CountAdvice) -> list[Section]:
    return [Section("Flags", values=[*advice.flags.items()])] if advice.flags else []


def _chains_table(advice: CountAdvice, title: str) -> Table:
    known = advice.costs is not None
    of_costs = ("ms a\nstep", "tokens\n/ s") if known else ()
    above = "speed-up over plain decoding" if known else "without costs: the most it can be"
    return Table.of(
        f"{title}\n{above}",
        ("drafts", "known by", "accepted", "tokens\na step", *of_costs, "speed-up"),
        (
            (
                row.name, "count" if advice.is_counted(row) else "forecast",
                f"{row.accepted.mean:.3f}", f"{row.tokens:.2f}", *(row.numbers if known else ()),
                speedup_cell(row.speedup),
            )
            for row in advice.rows
        ),
        words=("drafts", "known by"), heading="Chains of drafts",
    )  # fmt: skip


def _options_table(advice: Advice, title: str) -> Table:
    return Table.of(
        f"tokens a second, by the rates of these logits; higher is better\n{title}",
        ("drafts", "tree", "accepted", "ms a\nstep", "tokens\n/ s", "speed-up"),
        ((*row.cells, *row.numbers, _speedup(row.speedup)) for row in advice.rows),
        words=("drafts", "tree"),
        heading="Options",
        keys=2,
    )


def _speedup(speedup: MeanInterval) -> str:
    width = speedup.half_width
    return f"{speedup.mean:.2f}" + (f" ± {width:.2f}" if width >= _LEAST_WIDTH else "")


def _batches_table(advice: Advice) -> Table:
    return Table.of(
        "speed-up over plain decoding by the texts that are decoded together",
        ("batch", "single\ndrafts", "best tree", "tree", "drafts"),
        (
            (
                str(x.batch_size), f"{x.chain:.2f}", f"{x.tree:.2f}", x.tree_name,
                scheme_title(x.scheme),
            )
            for x in advice.batches
        ),
        words=("tree", "drafts"), heading="Batches",
    )  # fmt: skip


def _crossing(advice: Advice) -> str:
    last = advice.batches[-1].batch_size
    if advice.crossover is None:
        return f"drafts are the faster way up to a batch of {last}, the largest looked at"
    if advice.crossover == advice.batches[0].batch_size:
        return "plain decoding is faster at every batch looked at"
    return f"from a batch of {advice.crossover} on, plain decoding is faster"
