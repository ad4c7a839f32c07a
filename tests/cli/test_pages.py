"""Reports as HTML: whole in one file, with the numbers of the tables, and refused in time."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.bench import BenchReport, Record
from mdsd_opt.cli.audits import audit_view
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.verbs.rates import rates_view
from mdsd_opt.cli.view import as_text, check_page_path, save_page
from mdsd_opt.corpora import RateRow
from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.evidence import Bar, MeanInterval

VOID = {"meta", "link", "br", "img"}


class Outline(HTMLParser):
    """Tags that are open, what is fetched, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        names = ("src", "href", "xlink:href", "data", "srcset")
        self.fetched += [value or "" for name, value in attrs if name in names]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(path: Path) -> str:
    """The text of a page that is well formed and fetches nothing."""
    page = path.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(page)
    assert not outline.open
    assert all(link.startswith("#") for link in outline.fetched)  # places in the page itself
    assert "<script" not in page
    assert "@import" not in page
    assert all(place.startswith("#") for place in re.findall(r"url\(['\"]?([^)]*)", page))
    assert not [path for path in path.parent.iterdir() if path.suffix != ".html"]
    return " ".join("".join(outline.text).split())


def test_rates(tmp_path: Path) -> None:
    rows = [
        RateRow(scheme, k, "optimal", MeanInterval(0.5 + k / 100, 0.4 + k / 100, 0.6 + k / 100, 9))
        for scheme in ("with_replacement", "top_k")
        for k in (1, 2)
    ]
    path = tmp_path / "rates.html"
    save_page(
        path, rates_view(rows, "<b>mine</b>.npz: 9 positions", {"kseq": "no rates for top_k"})
    )
    text = read(path)
    assert "Acceptance rates of <b>mine</b>.npz: 9 positions" in text
    assert "take K = " in text
    assert "no rates for top_k" in text
    for row in rows:
        assert f"{row.acceptance.mean:.4f} ± 0.1000" in text


def test_audits(tmp_path: Path) -> None:
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    faultless = mo.audit("rrs", problem, rng=0, num_trials=500)
    wrong = mo.audit(lambda p, q, drafts, rng: int(drafts[0]), problem, rng=0, num_trials=2_000)
    for report, stamp, tone in ((faultless, "TOO WEAK", "open"), (wrong, "FAIL", "bad")):
        path = tmp_path / "audit.html"
        save_page(path, audit_view(report, "a subject", Bar()))
        text, page = read(path), path.read_text()
        assert f'<div class="findings {tone}">' in page
        assert f'<span class="stamp">{stamp}</span>' in page
        for label, value in report.rows():
            assert value in text
            assert label == "verdict" or label in text
    assert "NOT LOSSLESS" in text
    assert "token 0" in text
    weak = audit_view(faultless, "a subject", Bar(detect=1.0))
    assert as_text(weak, ".csv").startswith("fact,value\nanswer,PASS\nverdict,")


def test_benchmarks(tmp_path: Path) -> None:
    record = Record(
        "solvers", "full_lp", "some_problem", 10, 2, "float64", 1, 0, 3, 1.5, 2.5, gap=1e-9
    )
    save_page(tmp_path / "bench.html", bench_view(BenchReport((record,), {"cpus": 2})))
    text = read(tmp_path / "bench.html")
    assert "solvers: at V = 10, full_lp takes 1.5 ms" in text
    assert "cpus 2" in text


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch) -> None:
    check_page_path(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="name that ends in"):
        check_page_path(tmp_path / "page.pdf")
    with pytest.raises(InvalidInput, match="cannot write"):
        check_page_path(tmp_path / "nowhere" / "page.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match="pip install"):
        check_page_path(tmp_path / "page.html")


def test_the_command_line_saves_pages(run_cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "mine.npz", target=rng.normal(size=(4, 20)), draft=rng.normal(size=(4, 20)))
    folder = tmp_path / "pages"
    folder.mkdir()
    done = run_cli("rates", tmp_path / "mine.npz", "-k", "2", "--out", folder / "page.html")
    assert done.returncode == 0, done.stderr
    assert "saved as" in done.stderr
    assert "mine.npz: 4 positions" in read(folder / "page.html")
    done = run_cli("audit", "--verifier", "rrs", "--trials", "300", "--detect", "1", "--json",
                   "--out", folder / "page.html")  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = read(folder / "page.html")
    assert "rrs: K = 3, with_replacement drafts" in text
    assert "certain target, V = 6" in text


def test_rates_of_counts_and_of_servers_have_pages_too(run_cli, tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.array([1, 0, 1, 1]))
    lists = {"prompt_logprobs": [None, {"3": -0.4, "4": -1.2}, {"5": -0.1}],
             "prompt_token_ids": [3, 3, 5]}  # fmt: skip
    for name in ("target.jsonl", "draft.jsonl"):
        (tmp_path / name).write_text(json.dumps(lists) + "\n")
    counted = ("--accepted", tmp_path / "counts.npy")
    served = (tmp_path / "target.jsonl", tmp_path / "draft.jsonl")
    (tmp_path / "pages").mkdir()
    path = tmp_path / "pages" / "page.html"
    for given, number in ((counted, "0.7500 ["), (served, "2 positions in 1 texts")):
        done = run_cli("rates", *given, "-k", "2", "--out", path)
        assert done.returncode == 0, done.stderr
        assert number in read(path)
        path.unlink()
