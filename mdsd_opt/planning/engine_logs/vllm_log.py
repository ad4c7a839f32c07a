"""Lines "SpecDecoding metrics" of vLLM's log (V1), and of LMDeploy's: sums of an interval of time.

Steps are not printed: every one of them drafts K tokens, K the number of positions, or their number
follows from the accepted tokens and the rates by position, which are rounded to three places.
"""

from __future__ import annotations

import re

import numpy as np

from mdsd_opt.planning.counts import AcceptedCounts, merged, one
from mdsd_opt.planning.engine_logs.reader import Reader, cut

_LINE = re.compile(r"SpecDecoding metrics:(.*)")
_LENGTH = re.compile(r"Mean acceptance length: (\d+\.\d\d)\b")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens\b")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens\b")
_RATES = re.compile(r"Per-position acceptance rate: (\d\.\d{3}(?:, \d\.\d{3})*)(?=$|\s|,)")

#: What rounding to two and to three places hides.
_LESS, _HIDDEN = 0.0051, 0.00051


def of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    """One group for each line."""
    parts = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.search(line)
        if not match:
            continue
        patterns = (_LENGTH, _ACCEPTED, _DRAFTED, _RATES)
        found = [x[1] for x in (pattern.search(match[1]) for pattern in patterns) if x]
        rates = [float(x) for x in found[-1].split(", ")] if len(found) == len(patterns) else []
        if not rates or abs(1.0 + sum(rates) - float(found[0])) > _LESS + _HIDDEN * len(rates):
            raise cut(f"line {number} of {path}", "vLLM's SpecDecoding metrics")
        parts.append(_counts(int(found[1]), int(found[2]), rates))
    return merged([x for x in parts if x is not None], f"{path} (vLLM's log)")


def _counts(accepted: int, drafted: int, rates: list[float]) -> AcceptedCounts | None:
    k, whole = len(rates), sum(rates)
    if not drafted:
        return None
    steps = drafted / k
    if drafted % k or abs(whole * steps - accepted) > _HIDDEN * k * steps + 0.5:
        steps = max(accepted / whole, drafted / k) if whole else drafted / k
    reached = np.minimum.accumulate(np.minimum(np.array(rates), 1.0)) * steps
    if accepted and whole:
        reached = np.minimum(reached * (accepted / reached.sum()), steps)
    return one(reached.sum(), drafted, steps, k, reached=reached, unit="lines of the log")


READER = Reader(
    "vLLM's log",
    "lines with 'SpecDecoding metrics:'",
    marker=re.compile("SpecDecoding metrics:"),
    of_text=of_text,
)
