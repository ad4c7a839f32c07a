"""Theorems, corollaries and propositions: numbered once, in order, listed with their claims."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mdsd_opt.cddlib_checks import conjectures

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "theory" / "index.md"
LABEL = re.compile(r"^\*\*(Theorem|Lemma|Corollary|Proposition)( \d+)?\b[^*]*\*\*", re.MULTILINE)


def pages() -> list[Path]:
    """Pages in the order of their numbers: those of the theory, then others with proofs."""
    listed = re.search(r"^```\{toctree\}\n(.*?)^```$", INDEX.read_text(), re.M | re.S)
    assert listed
    names = [x for x in listed[1].splitlines() if x and not x.startswith(":")]
    theory = [INDEX.parent / f"{name}.md" for name in names]
    return [*theory, DOCS / "different-drafts.md", DOCS / "published-rules.md"]


def sections(text: str) -> list[tuple[str, str]]:
    """Anchors of a page with what stands below each heading."""
    parts = re.split(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M)
    anchors = [re.sub(r"[^\w\- ]", "", x.lower()).replace(" ", "-") for x in parts[1::2]]
    return list(zip(anchors, parts[2::2], strict=True))


def labels_of(text: str) -> list[tuple[str, str]]:
    """Anchor and label of all that is stated on a page."""
    return [
        (anchor, f"{kind}{number}")
        for anchor, body in sections(text)
        for kind, number in LABEL.findall(body)
    ]


def listed() -> list[tuple[str, Path, str, list[str]]]:
    """Rows of the list: label, page, anchor, claims."""
    rows = re.findall(
        r"^\| (\w+ \d+) \|.*\]\(([\w./-]+)#([\w-]+)\) \|(.*)\|$", INDEX.read_text(), re.MULTILINE
    )
    return [
        (label, (INDEX.parent / page).resolve(), anchor, re.findall(r"`(\w+)`", claims))
        for label, page, anchor, claims in rows
    ]


def misnumbered(labels: list[str]) -> list[str]:
    """Labels without a number, twice, or out of the order of the pages."""
    counts: Counter[str] = Counter()
    wrong = []
    for label in labels:
        kind, _, number = label.partition(" ")
        counts[kind] += 1
        if number != str(counts[kind]):
            wrong.append(label)
    return wrong


def test_numbers_follow_the_order_of_the_pages() -> None:
    found = [label for page in pages() for _, label in labels_of(page.read_text())]
    assert len(found) > 50
    assert not misnumbered(found)


def test_no_theorem_stands_on_another_page() -> None:
    others = {x for x in DOCS.rglob("*.md") if not {"_build", "measured"} & {*x.parts}}
    assert not [x for x in others.difference(pages()) if labels_of(x.read_text())]


@pytest.mark.parametrize(
    "labels",
    [["Theorem 1", "Theorem 1"], ["Theorem 2"], ["Lemma"], ["Theorem 1", "Lemma 1", "Theorem 3"]],
)
def test_a_wrong_number_is_noticed(labels: list[str]) -> None:
    assert misnumbered(labels)


def test_the_list_has_every_theorem_where_it_stands() -> None:
    stated = [
        (label, page, anchor)
        for page in pages()
        for anchor, label in labels_of(page.read_text())
        if not label.startswith("Lemma")
    ]
    assert [row[:3] for row in listed()] == stated


def test_what_is_referred_to_exists() -> None:
    known = {label for page in pages() for _, label in labels_of(page.read_text())}
    for page in DOCS.rglob("*.md"):
        if {"_build", "measured"} & {*page.parts}:
            continue
        text = re.sub(r"\[Khisti25\][^.]*\(Theorem 2\)", "", page.read_text())
        for kind, number in re.findall(r"\b(Theorem|Lemma|Corollary|Proposition)\s+(\d+)", text):
            assert f"{kind} {number}" in known, f"{page.name}: {kind} {number}"


def test_claims_of_the_list_are_proved_where_it_says() -> None:
    claims = {x.name: x for x in conjectures().values() if x.status == "theorem"}
    rows = listed()
    for label, page, _, named in rows:
        for name in named:
            assert claims[name].proof.partition("#")[0] == str(page.relative_to(DOCS.parent)), label
    for name, known in claims.items():
        assert known.proof, f"say where {name} is proved in mdsd_opt/cddlib_checks/claims.py"
        path, _, anchor = known.proof.partition("#")
        labels = {
            label
            for place, label in labels_of((DOCS.parent / path).read_text())
            if anchor in ("", place) and not label.startswith("Lemma")
        }
        of = {label for label, _, _, named in rows if name in named}
        where = f"in docs/theory/index.md beside one of {sorted(labels)}"
        assert not labels or labels & of, f"list {name} {where}"
