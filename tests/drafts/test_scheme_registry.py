"""A way of drafting of one's own: a law of the next draft, and every door takes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt import drafts
from mdsd_opt.batch import verify_batch
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, scheme_maker
from mdsd_opt.errors import InvalidDistribution, InvalidInput, ProblemTooLarge, UnknownName

#: As a user writes it: without replacement, once more.
SOURCE = """
def again(q, earlier):
    law = q.copy()
    law[earlier] = 0.0
    total = law.sum()
    return law / total if total else law
"""
TWIN = "without_replacement"

Array = NDArray[Any]


def again(q: Array, earlier: Array) -> Array:
    law = q.copy()
    law[earlier] = 0.0
    total = law.sum()
    return law / total if total else law


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, scheme in [*SINGLE_MODEL_SCHEMES.items()]:  # an item that is set is put back
        monkeypatch.setitem(SINGLE_MODEL_SCHEMES, name, scheme)
    for name in ("again", "my_drafts:again"):
        monkeypatch.setitem(SINGLE_MODEL_SCHEMES, name, mo.WithReplacement)
        del SINGLE_MODEL_SCHEMES[name]


@pytest.fixture(params=["again", "my_drafts:again"])
def scheme(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_drafts.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_drafts", raising=False)
    if request.param == "again":
        drafts.register("again", again)
    name: str = request.param
    return name


def logits(*shape: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=shape) * 2, rng.normal(size=shape) * 2


def test_batches_have_the_numbers_of_the_twin(scheme: str) -> None:
    target, draft = logits(2, 3, 7)
    for options in ({}, {"temperature": 0.7, "top_k": 5}):
        found = mo.acceptance_rates(target, draft, [1, 2, 3], scheme, **options)
        expected = mo.acceptance_rates(target, draft, [1, 2, 3], TWIN, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    tokens = np.argsort(-draft)[..., :2]
    decided = verify_batch(target, draft, tokens, scheme=scheme, verifier="naive_target")
    twin = verify_batch(target, draft, tokens, scheme=TWIN, verifier="naive_target")
    np.testing.assert_array_equal(decided.tokens, twin.tokens)


def test_what_distances_buy_is_that_of_the_twin(scheme: str) -> None:
    target, draft = logits(2, 7)
    found, expected = (mo.relaxed_rates(target, draft, 2, x, kl=0.02) for x in (scheme, TWIN))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert (found > mo.acceptance_rates(target, draft, 2, scheme) + 1e-3).all()


def test_comparison_command_line_and_decoding(scheme: str, run_cli: Any, tmp_path: Path) -> None:
    target, draft = logits(5, 7)
    compared = mo.compare_draft_schemes(target, draft, 2, schemes=[TWIN, scheme])
    assert {x.scheme for x in compared.rates} == {TWIN, scheme}
    means = [x.acceptance.mean for x in compared.rates]
    assert means[0] == pytest.approx(means[1], abs=1e-6)
    np.savez(tmp_path / "mine.npz", target=target, draft=draft)
    found = run_cli.document("rates", tmp_path / "mine.npz", "--schemes", f"{TWIN},{scheme}",
                             "-k", "2", "--verifiers", "optimal")  # fmt: skip
    rows = {row["scheme"]: row["mean"] for row in found["rows"]}
    assert rows[scheme] == pytest.approx(rows[TWIN], abs=1e-6)
    run_cli.shown("audit", "--verifier", "optimal", "--scheme", scheme,
                  "--vocab-size", "8", "--trials", "2000", "--detect", "0.5")  # fmt: skip
    assert scheme_maker(scheme)(np.array([0.5, 0.5]), 1).num_drafts == 1


def test_the_scheme_itself(scheme: str) -> None:
    q = np.array([0.4, 0.3, 0.2, 0.1])
    problem = mo.TransportProblem.from_logits(np.zeros(4), np.log(q), 2, drafts=scheme)
    ours, twin = problem.drafts, mo.WithoutReplacement(q, 2)
    subset = np.array([True, True, False, True])
    assert ours.containment(subset) == pytest.approx(twin.containment(subset))
    np.testing.assert_allclose(ours.next_law(np.array([1])), twin.next_law(np.array([1])))
    assert ours.next_law(np.array([1, 0])).sum() == 0
    assert ours.is_possible(np.array([1, 0]))
    assert not ours.is_possible(np.array([1, 1]))
    report = mo.audit_drafts(twin.sample, ours, rng=0, num_trials=4000)
    assert report.p_value > 1e-4
    drawn = ours.sample(np.random.default_rng(0), 4000)
    assert drawn.shape == (4000, 2)
    first = np.bincount(drawn[:, 0], minlength=4) / 4000
    np.testing.assert_allclose(first, q, atol=0.05)  # six standard errors


def test_it_is_solved_beyond_a_handful_of_tokens(scheme: str) -> None:
    p, q = np.random.default_rng(5).dirichlet(np.ones(12), size=2)
    problem = mo.TransportProblem(p, scheme_maker(scheme)(q, 2))
    solution = mo.solve(problem)
    assert mo.certify(problem, solution).valid
    expected = mo.solve(mo.TransportProblem(p, mo.WithoutReplacement(q, 2))).acceptance_rate
    assert solution.acceptance_rate == pytest.approx(expected, abs=1e-6)


def test_drafting_may_end_early() -> None:
    drafts.register("again", lambda q, earlier: q * (1.0 if earlier.size == 0 else 0.5))
    law = SINGLE_MODEL_SCHEMES["again"]([0.5, 0.5], 2)
    tuples, masses = law.tuple_law()
    ended = masses[tuples[:, 1] == -1].sum()
    assert ended == pytest.approx(0.5)
    assert masses.sum() == pytest.approx(1.0)
    problem = mo.TransportProblem([0.9, 0.1], law)
    assert mo.solve(problem).acceptance_rate == pytest.approx(
        mo.solve(problem, "full_lp").acceptance_rate, abs=1e-6
    )


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (lambda q, earlier: q[:-1], "shape"),
        (lambda q, earlier: q * 2, "at most one"),
        (lambda q, earlier: -q, "not negative"),
        (lambda q, earlier: q * np.nan, "not negative"),
        (lambda q, earlier: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_laws_that_are_none(law: Any, said: str) -> None:
    drafts.register("again", law)
    with pytest.raises(InvalidDistribution, match=said):
        SINGLE_MODEL_SCHEMES["again"]([0.5, 0.5], 2)


def test_what_is_refused(run_cli: Any) -> None:
    for name, law in (("my law", again), ("all", again), ("top_k", again), ("again", 3)):
        with pytest.raises(InvalidInput):
            drafts.register(name, law)  # type: ignore[arg-type]
    drafts.register("again", again)
    with pytest.raises(InvalidInput, match="already"):
        drafts.register("again", again)
    with pytest.raises(ProblemTooLarge, match="200,000 tuples"):
        SINGLE_MODEL_SCHEMES["again"](np.full(100, 0.01), 3)
    with pytest.raises(UnknownName, match="again"):
        mo.acceptance_rates(np.zeros(3), np.zeros(3), 2, drafts="agian")
    with pytest.raises(InvalidInput, match="cannot load"):
        mo.acceptance_rates(np.zeros(3), np.zeros(3), 2, drafts="no_module:law")
    assert run_cli("rates", "--schemes", "no_module:law").returncode == 2


#: What a new scheme is asked, in a package with the files of the schemes once more.
ASKED = """
import numpy as np
import mdsd_opt as mo
from mdsd_opt import drafts
from mdsd_opt.batch import verify_batch
from mdsd_opt.decoding import generate
from mdsd_opt.drafts.by_name import title_of
from mdsd_opt.solvers.frontier import relaxed_rows
from mdsd_opt.verifiers.optimal.grouped_plan import plan_of

relaxed_rows.token_by_token = None  # only chains of groups are quick
rng = np.random.default_rng(0)
target, draft = rng.normal(size=(2, 4, 50)) * 2
p, q = mo.softmax(target[0]), mo.softmax(draft[0])
tokens = np.argsort(-draft)[..., :3]

def of_logits(rows):
    return lambda ids: rows[len(ids) % len(rows)]

def answers(scheme):
    yield mo.acceptance_rates(target, draft, [1, 3], scheme).tolist()
    yield mo.verifiers.get("optimal").batch_rates_for(scheme)
    yield mo.relaxed_rates(target, draft, [1, 3], scheme, kl=0.01).tolist()
    yield verify_batch(target, draft, tokens, scheme=scheme, seed=1).tokens.tolist()
    drawn = drafts.SINGLE_MODEL_SCHEMES[scheme](q, 3)
    problem = mo.TransportProblem(p, drawn)
    solution = mo.solve(problem)
    yield solution.message.replace("_twin", ""), solution.acceptance_rate
    yield mo.certify(problem, solution)
    yield type(plan_of(problem))
    mo.save_problem(problem, "problem.json")
    yield mo.load_problem("problem.json").drafts.scheme.removesuffix("_twin")
    yield mo.solve(mo.TransportProblem(p, drafts.FixedPlusDrafts([1], drawn))).message
    yield title_of(scheme)
    yield mo.compare_draft_schemes(target, draft, 3, schemes=[scheme]).rates[0].acceptance
    yield mo.audit("optimal", problem, rng=0, num_trials=500).p_value
    for rule in ("traversal_hull", "level_sequential"):
        yield generate(of_logits(target), of_logits(draft), [0], tree="2x2", scheme=scheme,
                       rule=rule, max_new_tokens=3, rng=0).tokens
    try:
        yield mo.acceptance_interval({5: -0.5, 7: -1.6}, {5: -0.7, 2: -1.2}, 2, scheme)
    except mo.errors.UnsupportedScheme:
        yield None

for scheme in ("with_replacement", "without_replacement", "greedy", "top_k"):
    pairs = zip(answers(scheme), answers(scheme + "_twin"), strict=True)
    for number, (known, new) in enumerate(pairs):
        assert known == new, (scheme, number, known, new)
print("the same")
"""


def test_one_file_is_all_that_a_scheme_takes(tmp_path: Path) -> None:
    """As quick, and known wherever schemes are: by what its class declares."""
    package = tmp_path / "mdsd_opt"
    shutil.copytree(Path(mo.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("with_replacement", "without_replacement", "fixed_set"):
        source = (package / "drafts" / f"{name}.py").read_text(encoding="utf-8")
        source = re.sub(r'(scheme: ClassVar\[str\] = "\w+)"', r'\1_twin"', source)
        (package / "drafts" / f"{name}_twin.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "the same\n", done.stderr
