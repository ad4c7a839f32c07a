"""Counters `spec_decode_num_drafts` and their like, as text for Prometheus.

vLLM, llama.cpp's server (--metrics) and LMDeploy have the same names after a prefix of their own.
Counters grow from the start of a server: of several scrapes in a file each counts what it adds, and
one that is smaller than the last begins anew.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, merged, of_totals, one
from mdsd_opt.planning.engine_logs.reader import Reader, needs_length

_SAMPLE = re.compile(
    r"^[a-z_]+:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"(?:_total)?(\{.*\})? (\S+)(?: \d+)?$"
)
_BEGINS = re.compile(r"^[a-z_]+:spec_decode_num_", re.MULTILINE)
_CREATED = re.compile(r"^[a-z_:]+_created\b")
_POSITION = re.compile(r'position="(\d+)"')

_NAMES = ("drafts", "draft_tokens", "accepted_tokens")

_Scrape = dict[str, float]


def of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    """Counts with a group for what each scrape adds, or for each step of a single scrape."""
    scrapes = [_sums(scrape, path) for scrape in _scrapes(text, path)]
    positions = {place for scrape in scrapes for place in scrape if place.isdigit()}
    k = max(map(int, positions)) + 1 if positions else num_drafts
    if k is None:
        raise needs_length(path, "")
    source = f"{path} (metrics)"
    parts, before = [], dict.fromkeys(scrapes[0], 0.0)
    for scrape in scrapes:
        began = any(scrape[name] < before.get(name, 0.0) for name in scrape)
        added = {name: x - (0.0 if began else before.get(name, 0.0)) for name, x in scrape.items()}
        before = scrape
        if added["drafts"]:
            parts.append(_counts(added, k, bool(positions)))
    whole = merged(parts, source) if parts else of_totals(0, 0, k, source=source)
    if not whole.has_one_length:
        whole = replace(whole, notes=(*whole.notes, "steps without a draft are not counted by it"))
    return whole


def _scrapes(text: str, path: str) -> list[_Scrape]:
    """Samples of each scrape: a sample that comes again begins the next."""
    found: list[_Scrape] = [{}]
    for number, line in enumerate(text.splitlines(), start=1):
        if not _BEGINS.match(line) or _CREATED.match(line):
            continue
        match = _SAMPLE.match(line.strip())
        try:
            value = float(match[3]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            raise UnreadableFile(f"line {number} of {path} is cut or changed: {line!r:.80}")
        name = f"{match[1]}{match[2] or ''}"
        if name in found[-1]:
            found.append({})
        found[-1][name] = value
    return found


def _sums(scrape: _Scrape, path: str) -> _Scrape:
    """Over all engines of a server, by name and position."""
    sums: _Scrape = {}
    for name, value in scrape.items():
        bare, _, labels = name.partition("{")
        if bare.endswith("_per_pos"):
            place = _POSITION.search(labels)
            if place is None:
                raise UnreadableFile(f"{path}: {name:.80} has no label 'position'")
            bare = place[1]
        sums[bare] = sums.get(bare, 0.0) + value
    missing = [name for name in _NAMES if name not in sums]
    if missing:
        raise UnreadableFile(
            f"{path} is cut: of spec_decode_num_drafts, _draft_tokens and _accepted_tokens, "
            f"{', '.join(missing)} is missing from a scrape"
        )
    return sums


def _counts(added: _Scrape, k: int, by_position: bool) -> AcceptedCounts:
    drafts, drafted, accepted = (added[name] for name in _NAMES)
    reached = None
    if by_position:
        reached = np.array([added.get(str(place), 0.0) for place in range(k)])
        accepted = float(reached.sum())
    unit = "scrapes" if by_position else "runs"
    return one(accepted, drafted, drafts, k, reached=reached, unit=unit)


READERS = (
    Reader(
        "metrics",
        "samples such as 'vllm:spec_decode_num_drafts_total', as of GET /metrics",
        marker=_BEGINS,
        of_text=of_text,
    ),
)
