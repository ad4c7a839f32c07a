"""Draft schemes and verification algorithms against the optimum, after [Hu25], arXiv 2502.18779.

The paper's setting: temperature 0.7 and three drafts, then sweeps over the temperature and over the
number of drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mdsd_opt.corpora.reproduce import (
    CapturedLogits,
    Cell,
    Published,
    Reproduction,
    ResultTable,
    Row,
    Scored,
    compared,
    measured_range,
)
from mdsd_opt.corpora.shards import RatesConfig
from mdsd_opt.drafts import title_of

_SCHEMES = ("with_replacement", "without_replacement", "greedy")
_VERIFIERS = ("optimal", "rrs", "kseq", "greedy")
_CURVES = (
    ("with_replacement", "optimal"),
    ("with_replacement", "rrs"),
    ("with_replacement", "kseq"),
    ("without_replacement", "optimal"),
    ("without_replacement", "rrs"),
    ("greedy", "optimal"),
)


def run(
    logits: CapturedLogits,
    temperature: float = 0.7,
    num_drafts: int = 3,
    temperatures: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    numbers: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
) -> Reproduction:
    """Run the experiment; `temperature` and `num_drafts` are those of the main table."""
    counts = tuple(sorted({*numbers, num_drafts}))
    main = logits.score(RatesConfig(_SCHEMES, _VERIFIERS, counts, temperature=temperature))
    swept = {
        t: logits.score(RatesConfig(_SCHEMES, _VERIFIERS, (num_drafts,), temperature=t))
        for t in temperatures
    }
    overview = ResultTable(
        f"Acceptance rate at temperature {temperature:g}, {num_drafts} drafts",
        ("drafts", "optimal", "rrs", "kseq", "greedy", "optimal - rrs"),
        tuple(_overview_row(main, scheme, num_drafts) for scheme in _SCHEMES),
        is_drawn=False,
    )
    by_temperature = ResultTable(
        f"Acceptance rate against temperature, {num_drafts} drafts",
        ("temperature", *map(_curve_title, _CURVES)),
        tuple((t, *_curves(scored, num_drafts)) for t, scored in swept.items()),
        panel=f"{num_drafts} drafts",
    )
    by_number = ResultTable(
        f"Acceptance rate against the number of drafts, temperature {temperature:g}",
        ("drafts", *map(_curve_title, _CURVES)),
        tuple((str(k), *_curves(main, k)) for k in counts),
        panel=f"temperature {temperature:g}",
    )
    first = next(iter(main.columns.values()))
    return Reproduction(
        "hu2025",
        "Hu et al., Towards Optimal Multi-draft Speculative Decoding, ICLR 2025, arXiv 2502.18779",
        logits.models(),
        first.size,
        main.of(first).num_groups,
        (overview, by_temperature, by_number),
        _published(main, swept, num_drafts, counts),
        (
            "No printed value of the paper is quoted, only sentences of its abstract: those of its "
            "tables belong to its own pairs of models.",
            "Every temperature is applied to the same texts, those of the capture; the paper "
            "decodes anew at each temperature.",
        ),
    )


def _published(
    main: Scored, swept: dict[float, Scored], num_drafts: int, counts: tuple[int, ...]
) -> tuple[Published, ...]:
    # One draft, and greedy decoding, are the same with and without replacement.
    settings = [(main, k) for k in counts if k > 1]
    settings += [(scored, num_drafts) for t, scored in swept.items() if t > 0 and num_drafts > 1]
    gains = [
        scored.gain(("without_replacement", "optimal", k), ("with_replacement", "optimal", k))
        for scored, k in settings
    ]
    k = num_drafts
    gaps = {
        name: main.gain((scheme, "optimal", k), (scheme, verifier, k))
        for name, scheme, verifier in (
            ("rrs without replacement", "without_replacement", "rrs"),
            ("rrs with replacement", "with_replacement", "rrs"),
            ("kseq", "with_replacement", "kseq"),
        )
    }
    return (
        Published(
            "sampling without replacement outperforming sampling with replacement",
            "abstract",
            "a gain",
            f"optimum without minus with replacement: {measured_range(gains)} over "
            f"{len(gains)} settings that differ",
            compared(gains),
        ),
        Published(
            "existing verification algorithms do not reach the theoretical upper bound for both "
            "without replacement and with replacement sampling",
            "abstract",
            "a gap",
            "gap to the optimum: " + ", ".join(f"{x.shown} ({who})" for who, x in gaps.items()),
            compared(list(gaps.values())),
        ),
    )


def _overview_row(scored: Scored, scheme: str, k: int) -> Row:
    from mdsd_opt.verifiers import get

    cells: list[Cell] = [
        scored.mean(scheme, verifier, k) if get(verifier).has_batch_rates(scheme, k) else ""
        for verifier in _VERIFIERS
    ]
    gap: Cell = scored.gain((scheme, "optimal", k), (scheme, "rrs", k)) if cells[1] else ""
    return (title_of(scheme), *cells, gap)


def _curves(scored: Scored, k: int) -> Row:
    return tuple(scored.mean(scheme, verifier, k) for scheme, verifier in _CURVES)


def _curve_title(curve: tuple[str, str]) -> str:
    return f"{title_of(curve[0])}, {curve[1]}"
