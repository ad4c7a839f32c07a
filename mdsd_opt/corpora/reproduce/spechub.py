"""SpecHub against recursive rejection with two drafts, after [SpecHub], arXiv 2411.05289."""

from __future__ import annotations

from collections.abc import Sequence

from mdsd_opt.corpora.corpus import RatesConfig
from mdsd_opt.corpora.reproduce.experiment import (
    CapturedLogits,
    Published,
    Reproduction,
    ResultTable,
    Row,
    compared,
    measured_range,
)
from mdsd_opt.evidence import MeanInterval

_SPECHUB = ("greedy", "spechub", 2)
_RRS = ("with_replacement", "rrs", 2)
_RRS_WITHOUT = ("without_replacement", "rrs", 2)
_BEST = (("with_replacement", "optimal", 2), ("without_replacement", "optimal", 2))


def run(logits: CapturedLogits, temperatures: Sequence[float] = (0.3, 0.6, 1.0)) -> Reproduction:
    """Run the experiment: one step with two drafts, at several temperatures."""
    schemes = ("with_replacement", "without_replacement", "greedy")
    rows: list[Row] = []
    ranges: dict[tuple[str, str, int], list[MeanInterval]] = {_RRS: [], _RRS_WITHOUT: []}
    for t in temperatures:
        scored = logits.score(
            RatesConfig(schemes, ("optimal", "rrs", "spechub"), (2,), temperature=t)
        )
        gains = {other: scored.gain(_SPECHUB, other) for other in ranges}
        for other, gain in gains.items():
            ranges[other].append(gain)
        shown = [scored.mean(*column) for column in (_SPECHUB, _RRS, _RRS_WITHOUT, *_BEST)]
        rows.append((t, *shown, *gains.values()))
    first = next(iter(scored.columns.values()))
    return Reproduction(
        "spechub",
        "Sun et al., SpecHub: Provable Acceleration to Multi-Draft Speculative Decoding, EMNLP "
        "2024, arXiv 2411.05289",
        logits.models(),
        first.size,
        scored.of(first).num_groups,
        (
            ResultTable(
                "Acceptance rate of two drafts; the last two columns are tokens gained a step",
                (
                    "temperature",
                    "spechub",
                    "rrs, with replacement",
                    "rrs, without replacement",
                    "optimal, with replacement",
                    "optimal, without replacement",
                    "spechub - rrs with",
                    "spechub - rrs without",
                ),
                tuple(rows),
            ),
        ),
        tuple(
            Published(
                "Spechub consistently generates 0.05-0.27 and 0.02-0.16 more tokens per step than "
                "RRS and RRS without replacement",
                f"abstract, {which}",
                f"{stated[0]:+g} to {stated[1]:+g} tokens",
                f"{measured_range(gains)} tokens, one level of drafts",
                compared(gains, stated),
            )
            for which, gains, stated in (
                ("against RRS", ranges[_RRS], (0.05, 0.27)),
                ("against RRS without replacement", ranges[_RRS_WITHOUT], (0.02, 0.16)),
            )
        ),
        (
            "Other models, and one level of two drafts: the paper counts tokens of trees with "
            "several levels, where the gain of each level adds up.",
            "Every temperature is applied to the same texts, those of the capture.",
        ),
    )
