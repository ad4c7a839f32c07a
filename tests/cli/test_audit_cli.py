"""mdsd-opt audit: what a verdict leaves open, as exit codes; laws and promises from the shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from support.recorded_reports import RecordedChains

RULES = """
import random
import numpy as np

def right(target, draft, drafts, rng):
    return int(rng.choice(len(target), p=target))

def wrong(target, draft, drafts, rng):
    return int(drafts[0])

def fails_at_one(target, draft, drafts, rng):
    if drafts[0] == 1:
        raise KeyError("draft")
    return int(rng.choice(len(target), p=target))

def accepts(target, draft, drafts, u, rng):
    x = int(drafts[0])
    if u * draft[x] <= target[x]:
        return x
    left = np.maximum(target - draft, 0)
    return int(rng.choice(len(target), p=left / left.sum()))

def at_zero(target, draft, drafts, rng):
    return accepts(target, draft, drafts, rng.random(), rng)

def at_zero_of_24_bits(target, draft, drafts, rng):
    return accepts(target, draft, drafts, int(rng.random() * 2**24) / 2**24, rng)

def chain(p, q, drafts):
    tokens = []
    for row in p:
        tokens.append(random.choices(range(len(row)), row)[0])
        if len(tokens) > len(drafts) or tokens[-1] != drafts[len(tokens) - 1]:
            return tokens

def cut(p, q, drafts):
    kept = [np.where(row >= np.sort(row)[-min(50, row.size)], row, 0.0) for row in p]
    return chain([row / row.sum() for row in kept], q, drafts)

def biased(text, logits):
    weights = np.exp(logits) * np.where(np.arange(logits.size) % 3 == len(text), 8.0, 1.0)
    return weights / weights.sum()

def biased_chain(p, q, drafts):
    with np.errstate(divide="ignore"):
        rows = [biased(tuple(drafts[:n]), np.log(row)) for n, row in enumerate(p)]
    return chain(rows, q, drafts)

def all_of_them(p, q, drafts):
    return [*drafts, 0]

def broken(p, q, drafts):
    return chain(p, q, drafts) if drafts[0] else undefined

def rows(p, q, drafts):
    counts = (drafts >= 0).sum(axis=1)
    return [chain(p[n, : m + 1], q[n, :m], drafts[n, :m]) for n, m in enumerate(counts)]

def text(target, draft):
    draft([])
    weights = np.exp(target([])[0])
    return [int(np.random.choice(weights.size, p=weights / weights.sum()))]

def text_of_the_draft(target, draft):
    return text(draft, target)

def broken_text(target, draft):
    return undefined
"""

WITH_ZERO = {
    "target": ["3/5", "2/5", "0"],
    "drafts": {"scheme": "with_replacement", "q": ["1/5", "3/10", "1/2"], "num_drafts": 1},
}


@pytest.fixture
def audited(run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `mdsd-opt audit` in a folder with these rules and this problem."""
    (tmp_path / "rules_to_audit.py").write_text(RULES)
    (tmp_path / "with_zero.json").write_text(json.dumps(WITH_ZERO))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("rules_to_audit", None)  # no test finds what another one has loaded

    def run(*arguments: str) -> tuple[int, Any]:
        done = run_cli("audit", *arguments, "--json")
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    return run


SAMPLED = ("--vocab-size", "4", "--num-drafts", "1", "--trials", "500")


@pytest.mark.parametrize(
    ("rule", "options", "answer", "kind"),
    [
        ("right", (), "TOO WEAK", "no deviation"),
        ("right", ("--detect", "0.5"), "PASS", "no deviation"),
        ("right", ("--detect", "0.05"), "TOO WEAK", "no deviation"),
        ("right", ("--trials", "20000"), "PASS", "no deviation"),
        ("right", ("--detect", "0.01", "--method", "driven"), "PASS", "lossless"),
        ("right", ("--detect", "0.5", "--trials", "5"), "TOO WEAK", "no deviation"),
        ("wrong", (), "FAIL", "lossy"),
        ("wrong", ("--detect", "0.01"), "FAIL", "lossy"),
        ("wrong", ("--tolerate-edge", "1"), "FAIL", "lossy"),
        ("fails_at_one", (), "NOT JUDGED", "not judged"),
        ("fails_at_one", ("--detect", "1", "--tolerate-edge", "1"), "NOT JUDGED", "not judged"),
    ],
)
def test_one_word_answers_everywhere(
    audited: Any, tmp_path: Path, rule: str, options: tuple[str, ...], answer: str, kind: str
) -> None:
    """The exit code, JSON, the page and JUnit's file say the same."""
    files = ("--out", "page.html", "--junit", "junit.xml")
    code, report = audited(
        "--verifier", f"rules_to_audit:{rule}", *SAMPLED, "--method", "sampling", *options, *files
    )
    assert (report["verdict_class"], report["answer"]) == (kind, answer)
    assert code == {"PASS": 0, "FAIL": 1}.get(answer, 3)
    assert report["told"].startswith(answer)
    page = (tmp_path / "page.html").read_text()
    tone = {"PASS": "good", "FAIL": "bad"}.get(answer, "open")
    assert f'<div class="findings {tone}">\n<p><span class="stamp">{answer}</span></p>' in page
    (case,) = ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testcase")
    kinds = {"PASS": [], "FAIL": ["failure"]}.get(answer, ["error"])
    found = [part for part in case if part.tag != "system-out"]
    assert [part.tag for part in found] == kinds
    assert all(part.attrib["message"] == report["told"] for part in found)
    assert report["lossless"] is (answer == "PASS" and report["detectable_bias"] <= 0.05)


def test_a_terminal_ends_with_the_answer(audited: Any, run_cli: Any) -> None:
    done = run_cli("audit", "--verifier", "rules_to_audit:right", *SAMPLED, "--method", "sampling")
    told = " ".join(done.stdout.split())
    assert "TOO WEAK: a bias of 0.18" in told
    assert "hidden, where 0.05 is allowed (detect): it takes 1" in told  # (.18 / .05)^2 times


@pytest.mark.parametrize(
    ("rule", "method", "options", "code"),
    [
        ("at_zero", "driven", (), 0),
        ("at_zero", "sampling", ("--detect", "1"), 0),
        ("at_zero", "driven", ("--tolerate-edge", "0"), 1),
        ("at_zero", "sampling", ("--tolerate-edge", "0"), 1),
        ("at_zero", "driven", ("--tolerate-edge", "1e-17"), 1),
        ("at_zero_of_24_bits", "driven", (), 1),
        ("at_zero_of_24_bits", "driven", ("--tolerate-edge", "1e-6"), 0),
    ],
)
def test_an_edge_is_tolerated_up_to_its_probability(
    audited: Any, rule: str, method: str, options: tuple[str, ...], code: int
) -> None:
    given = ("--problem", "with_zero.json", "--trials", "300", "--method", method)
    found, report = audited("--verifier", f"rules_to_audit:{rule}", *given, *options)
    assert report["verdict_class"] == "edge"
    assert (found, report["answer"]) == (code, "FAIL" if code else "EDGE")
    bits = 53 if rule == "at_zero" else 24
    assert 0.3 * 2.0**-bits < report["edge_mass"] <= 2.0**-bits
    assert report["lossless"] is False


def test_an_edge_that_is_tolerated_may_hide_no_more_than_another_verdict(audited: Any) -> None:
    given = ("--problem", "with_zero.json", "--trials", "300", "--detect", "0.01")
    rule = ("--verifier", "rules_to_audit:at_zero")
    assert audited(*rule, *given, "--method", "sampling")[0] == 3
    assert audited(*rule, *given, "--method", "driven")[0] == 0


def test_chains_are_put_to_laws_of_ones_own(audited: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(0, 2, (6, 400))
    draft = target + rng.normal(0, 1, target.shape)
    np.savez(tmp_path / "logits.npz", target=target, draft=draft)
    given = ("--trials", "600", "--logits", "logits.npz", "--detect", "1")
    code, report = audited("--chain", "rules_to_audit:chain", *given)
    assert code == 0
    assert [one["law"] for one in report["tried"]] == [f"given, row {n}" for n in (0, 1, 3)]
    assert {one["vocab_size"] for one in report["tried"]} == {400}
    assert report["verdict_class"] == "no deviation"
    code, report = audited("--chain", "rules_to_audit:cut", *given)
    assert (code, report["verdict_class"]) == (1, "lossy")
    code, report = audited("--text", "rules_to_audit:text", *given)
    assert code == 0
    assert {one["vocab_size"] for one in report["tried"]} == {2, 3, 4, 400}


@pytest.mark.parametrize(
    ("subject", "code", "kind"),
    [
        (("--chain", "rules_to_audit:all_of_them"), 1, "lossy"),
        (("--chain", "rules_to_audit:broken"), 3, "not judged"),
        (("--text", "rules_to_audit:text_of_the_draft"), 1, "lossy"),
        (("--text", "rules_to_audit:broken_text"), 3, "not judged"),
    ],
)
def test_the_exit_code_is_that_of_the_class(
    audited: Any, subject: tuple[str, ...], code: int, kind: str
) -> None:
    given = ("--trials", "300", "--method", "sampling", "--detect", "1")
    found, report = audited(*subject, *given)
    assert (found, report["verdict_class"]) == (code, kind)


def test_chains_are_put_to_vocabularies_of_these_sizes(
    audited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = RecordedChains()
    monkeypatch.setattr("mdsd_opt.auditing.audit_chain", audit)
    given = ("--vocab-sizes", "100,300", "--trials", "300", "--detect", "1", "--seed", "4")
    code, report = audited("--chain", "rules_to_audit:chain", *given)
    assert (code, report["answer"]) == (0, "PASS")
    (call,) = audit.calls
    assert (call["vocab_sizes"], call["rng"]) == ([100, 300], 4)
    assert call["num_trials"] == 300


def test_batches_of_chains_are_read_row_by_row(audited: Any) -> None:
    given = ("--batch", "3", "--trials", "300", "--detect", "1")
    code, report = audited("--chain", "rules_to_audit:rows", *given)
    assert code == 0
    assert [one["law"] for one in report["tried"]] == ["row 1", "row 2", "row 3"]


def test_a_promise_that_is_not_kept_is_found(audited: Any) -> None:
    given = ("--chain", "rules_to_audit:chain", "--trials", "400")
    code, report = audited(*given, "--top-k", "2")
    assert (code, report["verdict_class"]) == (1, "lossy")
    assert "the target is not filtered as was promised" in report["cause"]


def test_a_promise_may_be_a_function_of_the_text(audited: Any) -> None:
    given = ("--trials", "400", "--logits", "logits.npz", "--detect", "1")
    rng = np.random.default_rng(0)
    np.savez("logits.npz", target=rng.normal(0, 2, (3, 30)), draft=rng.normal(0, 2, (3, 30)))
    promised = ("--promise", "rules_to_audit:biased")
    code, report = audited("--chain", "rules_to_audit:biased_chain", *promised, *given)
    assert (code, report["verdict_class"]) == (0, "no deviation")
    code, report = audited("--chain", "rules_to_audit:chain", *promised, *given)
    assert (code, report["verdict_class"]) == (1, "lossy")
    assert report["cause"].startswith("the target is not changed as was promised")
    drafted = (*promised, "--draft-promise", "rules_to_audit:biased", *given)
    code, report = audited("--chain", "rules_to_audit:biased_chain", *drafted)
    assert report["verdict_class"] == "no deviation"  # it tests no draft by q


def test_a_report_is_saved_as_tables(run_cli: Any, tmp_path: Path) -> None:
    files = [tmp_path / f"report.{end}" for end in ("csv", "tex", "md")]
    out = [word for path in files for word in ("--out", path)]
    done = run_cli(
        "audit", "verifier", "rrs", "--vocab-size", "3", "--trials", "200", "--csv", *out
    )
    assert done.returncode in (0, 3)
    assert done.stdout == files[0].read_text()
    for path in files:
        assert "check: succession" in path.read_text()
