"""mdsd-opt rates and advise of a target and several drafts: which of them?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.options import VERIFIERS, Asked
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cli.view import View
    from mdsd_opt.planning import DraftComparison


def takes(asked: Asked) -> bool:
    """Whether the files are those of a target and of several drafts."""
    return len(asked.paths) > 2 and asked.accepted is None


def view(asked: Asked) -> View:
    """View of the rates of all drafts, with those of two together."""
    if asked.verifiers not in (VERIFIERS.split(","), ["optimal"]):
        raise InvalidInput("several drafts are compared by their optimum: leave --verifiers out")
    names = ("best-filter", "best-temperature", "mask", "lift", "no-mask-draft", "vocab-size")
    asked.refuse(names, "{name} goes with one draft")
    scheme = "with_replacement" if asked.usual_schemes else asked.schemes[0]
    if not asked.usual_schemes and len(asked.schemes) > 1:
        raise InvalidInput("several drafts are compared by one scheme: give one in --schemes")
    options = {name: x for name, x in asked.of_rows.items() if name != "seed"}
    found = compared(
        asked.paths, asked.num_drafts, scheme, confidence=asked.confidence, kind=asked.kind,
        num_threads=asked.threads, progress=asked.progress, **options,
    )  # fmt: skip
    return drafts_view(found, f"{asked.paths[0].name}, {scheme.replace('_', ' ')}")


def compared(
    paths: Sequence[Path], num_drafts: Sequence[int], scheme: str, **options: Any
) -> DraftComparison:
    """Comparison of the drafts in all files but the first, which is the target's."""
    from mdsd_opt.base.files.logits import load_logits
    from mdsd_opt.planning import compare_drafts

    target, *drafts = paths
    names = [x.stem for x in drafts]
    if len({*names}) < len(names):
        names = [str(x) for x in drafts]
    if len({*names}) < len(names):
        raise InvalidInput("a file of a draft is given twice")
    samples = [load_logits([target, x]) for x in drafts]
    texts = next((x.texts for x in samples if x.texts is not None), None)
    if any(x.draft_token_ids is not None for x in samples):
        raise InvalidInput("drafts with a part of the tokens are compared one by one")
    given = dict(zip(names, (x.draft for x in samples), strict=True))
    if options.get("draft_ms"):
        own = options["draft_ms"] * (len(names) if len(options["draft_ms"]) == 1 else 1)
        options["draft_ms"] = dict(zip(names, own, strict=True))
    return compare_drafts(samples[0].target, given, num_drafts, scheme, sequence=texts, **options)


def drafts_view(found: DraftComparison, title: str, **known: Any) -> View:
    """View of a comparison of drafts: rates by K, and what each brings at its costs."""
    from mdsd_opt.cli.output import make_table
    from mdsd_opt.cli.view import Drawing, Section, View
    from mdsd_opt.planning import speedup_cell
    from mdsd_opt.plots import drafts_figure

    rates = make_table(
        f"{title}\noptimal acceptance of K drafts, and what is missing to the best single one\n"
        "a | b draws every token from one of two, by a coin; both have to run",
        ("draft", "K", "acceptance", "behind the best"),
        (
            (row.draft, str(row.num_drafts), row.acceptance.shown, row.behind.shown)
            for row in sorted(found.rates, key=lambda x: (x.num_drafts, -x.acceptance.mean))
        ),
        words=("draft",),
    )
    tables = [Section("Rates of all drafts", table=rates)]
    if found.advice:
        speeds = make_table(
            "the best of each draft at its costs",
            ("draft", "costs", "drafts of a step", "accepted", "speed-up"),
            (
                (
                    name, advice.costs.told, best.in_words, f"{best.accepted:.3f}",
                    speedup_cell(best.speedup),
                )
                for name, advice in found.advice.items()
                for best in advice.rows[:1]
            ),
            words=("draft", "costs", "drafts of a step"),
        )  # fmt: skip
        tables.append(Section("Speed", table=speeds))
        if batches := found.by_batch:
            told = [(f"batch {batch}", name) for batch, name in batches.items()]
            tables.append(Section("Fastest by batch", values=told))
    return View(
        f"Which draft?\n{title}",
        tables,
        found.sentences,
        {**known, **found.to_dict()},
        Drawing(
            partial(drafts_figure, found),
            "Optimal acceptance by the number of drafts, with intervals over texts; dashed are two "
            "drafts together.",
            title,
        ),
        rows=[row.to_dict() for row in found.rates],
    )
