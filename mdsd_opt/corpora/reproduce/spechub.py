"""SpecHub against recursive rejection with two drafts, after [SpecHub], arXiv 2411.05289."""

from __future__ import annotations

from collections.abc import Sequence

from mdsd_opt.corpora.reproduce import (
    CapturedLogits,
    Published,
    Reproduction,
    ResultTable,
    Row,
    compared,
    measured_range,
)
from mdsd_opt.corpora.shards import RatesConfig
from mdsd_opt.evidence import MeanInterval

_SPECHUB = ("greedy", "spechub", 2)
_RRS = ("with_replacement", "rrs", 2)
_RRS_WITHOUT = ("without_replacement", "rrs", 2)

#: Ranges that the abstract states of the tokens gained against each.
_STATED = {"with replacement, rrs": (0.05, 0.27), "without replacement, rrs": (0.02, 0.16)}
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
        for other, gains in ranges.items():
            gains.append(scored.gain(_SPECHUB, other))
        rows.append((t, *(scored.mean(*x) for x in (_SPECHUB, _RRS, _RRS_WITHOUT, *_BEST))))
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
                "Acceptance rate of two drafts",
                (
                    "temperature",
                    "greedy, spechub",
                    "with replacement, rrs",
                    "without replacement, rrs",
                    "with replacement, optimal",
                    "without replacement, optimal",
                ),
                tuple(rows),
                panel="two drafts",
            ),
            ResultTable(
                "Tokens that spechub gains a step",
                ("temperature", *_STATED),
                tuple(
                    (t, *gains) for t, *gains in zip(temperatures, *ranges.values(), strict=True)
                ),
                panel="gain of spechub",
                quantity="tokens a step",
                ranges=_STATED,
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
            for which, gains, stated in zip(
                ("against RRS", "against RRS without replacement"),
                ranges.values(),
                _STATED.values(),
                strict=True,
            )
        ),
        (
            "Other models, and one level of two drafts: the paper counts tokens of trees with "
            "several levels, where the gain of each level adds up.",
            "Every temperature is applied to the same texts, those of the capture.",
        ),
    )
