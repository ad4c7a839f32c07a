"""A verifier of one's own: one file, and every door takes it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.base.registry import files_that_declare
from mdsd_opt.batch import verify_batch
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput, UnknownName, UnsupportedScheme
from mdsd_opt.trees import TopDown, get_rule, rule_names
from mdsd_opt.verifiers import BatchRates, Decision, Verifier
from mdsd_opt.verifiers import base as registry

#: A verifier as a user writes it: the first draft alone is tested against the target.
SOURCE = """
from mdsd_opt import WithReplacement
from mdsd_opt.verifiers import Decision, Verifier
from mdsd_opt.verifiers.base import target_of
from mdsd_opt.verifiers.rejection import accepted, draft_of, nothing_accepted, residual_law
from mdsd_opt.verifiers.single_draft import single_draft_rates


class FirstOnly(Verifier):
    name = "first_only"
    schemes = (WithReplacement,)

    def decide(self, problem, drafts, exact=False):
        p, q = target_of(problem, exact), draft_of(problem, exact)
        accept = nothing_accepted(drafts, p)
        accept[0] = accepted(p[drafts[0]], q[drafts[0]])
        return Decision(accept, residual_law(p, q))

    def acceptance_rate(self, problem):
        self.check(problem)
        return single_draft_rates(problem.target, problem.drafts.q, [problem.num_drafts])[0]


VERIFIER = FirstOnly()
"""

#: As the verifier of the package that it repeats.
TWIN = "single_draft"


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry.VERIFIERS, "registered", {})
    files_that_declare.cache_clear()
    yield
    files_that_declare.cache_clear()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """``module:attribute`` of the verifier, in a file where the user stands."""
    (tmp_path / "my_rules.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rules", raising=False)
    return "my_rules:VERIFIER"


def logits(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape) * 2


def logits_file(folder: Path) -> Path:
    path = folder / "mine.npz"
    np.savez(path, target=logits(0, 6, 12), draft=logits(1, 6, 12))
    return path


def check_batches(given: Any) -> None:
    """Rates and decisions are those of its twin."""
    target, draft = logits(0, 2, 3, 12), logits(1, 2, 3, 12)
    for options in ({}, {"temperature": 0.7, "top_k": 5}):
        found = mo.acceptance_rates(target, draft, [1, 3], verifier=given, **options)
        expected = mo.acceptance_rates(target, draft, [1, 3], verifier=TWIN, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    drafts = np.argsort(-draft)[..., :3]
    drafts[0, 1, 1:] = -1
    decided, twin = (
        verify_batch(target, draft, drafts, verifier=v, with_rates=True) for v in (given, TWIN)
    )
    np.testing.assert_array_equal(decided.tokens, twin.tokens)
    np.testing.assert_array_equal(decided.draft_index, twin.draft_index)
    np.testing.assert_allclose(decided.acceptance_rate, twin.acceptance_rate, rtol=0, atol=1e-14)
    np.testing.assert_allclose(decided.gap, twin.gap, rtol=0, atol=1e-14)
    for scheme in ("without_replacement", "greedy", "top_k"):
        with pytest.raises(UnsupportedScheme, match="no batched rates of verifier 'first_only'"):
            mo.acceptance_rates(target, draft, 2, scheme, given)
        with pytest.raises(UnsupportedScheme, match="not lossless"):
            verify_batch(target, draft, drafts[..., :1], scheme=scheme, verifier=given)


def check_audits(given: Any) -> None:
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    report = mo.audit(given, problem, rng=0, num_trials=2000)
    assert report.clean
    assert report.acceptance_rate == pytest.approx(
        verifiers.get(TWIN).acceptance_rate(problem), abs=1e-12
    )


class TestOneFile:
    def test_registered(self, spec: str, run_cli: Any, tmp_path: Path) -> None:
        mine = verifiers.get(spec)
        before = verifiers.names()
        verifiers.register(mine)
        assert verifiers.names() == (*before, "first_only")
        assert verifiers.get("first_only") is mine
        assert registry.batch_verifiers()[-1] == "first_only"
        assert verifiers.get("first_only").has_batch_rates("with_replacement", 3)
        assert not verifiers.get("first_only").has_batch_rates("greedy", 3)
        check_batches("first_only")
        check_audits("first_only")
        assert "first_only" in rule_names()
        assert isinstance(get_rule("first_only"), TopDown)
        asked = ("rates", logits_file(tmp_path), "--verifiers", "all", "-k", "2")
        rows = run_cli.document(*asked)["rows"]
        rates = {x["verifier"]: x["mean"] for x in rows if x["scheme"] == "with_replacement"}
        assert rates["first_only"] == pytest.approx(rates[TWIN], abs=1e-14)
        run_cli.shown("audit", "--verifier", "first_only", "--trials", "2000", "--detect", "1")
        assert "first_only" in run_cli.refusal("rates", "--verifiers", "first")

    def test_by_module_and_attribute(self, spec: str, run_cli: Any, tmp_path: Path) -> None:
        check_batches(spec)
        check_audits(spec)
        assert isinstance(get_rule(spec), TopDown)
        assert "first_only" not in verifiers.names()
        asked = ("rates", logits_file(tmp_path), "--verifiers", f"optimal,{spec}", "--csv")
        assert f"with_replacement,2,{spec}," in run_cli.shown(*asked)
        run_cli.shown("audit", "--verifier", spec, "--trials", "2000", "--detect", "1")

    def test_as_an_object(self, spec: str) -> None:
        check_batches(verifiers.get(spec))
        check_audits(verifiers.get(spec))

    def test_in_the_folder_of_the_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing but the file says that it is there."""
        (tmp_path / "first_only.py").write_text(SOURCE, encoding="utf-8")
        (tmp_path / "helper.py").write_text('"""No VERIFIER = here."""\n', encoding="utf-8")
        before = {*verifiers.names()}
        files_that_declare.cache_clear()
        monkeypatch.setattr(verifiers, "__path__", [*verifiers.__path__, str(tmp_path)])
        try:
            assert {*verifiers.names()} == {*before, "first_only"}
            check_batches("first_only")
            check_audits("first_only")
        finally:
            sys.modules.pop("mdsd_opt.verifiers.first_only", None)


def test_a_new_process_finds_a_file_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "my_rules.py").write_text(SOURCE, encoding="utf-8")
    path = logits_file(tmp_path)
    command = [sys.executable, "-m", "mdsd_opt", "rates", str(path), "--csv", "-k", "2"]
    done = subprocess.run(
        [*command, "--verifiers", "my_rules:VERIFIER"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "my_rules:VERIFIER" in done.stdout


def test_built_in_ones_come_in_a_fixed_order_without_numba() -> None:
    code = """if True:
        import sys
        from mdsd_opt import verifiers
        print(*verifiers.names())
        print({"numba", "scipy", "highspy"} & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, imported = done.stdout.splitlines()
    first = [
        "optimal",
        "naive_target",
        "single_draft",
        "rrs",
        "kseq",
        "spechub",
        "greedy",
        "importance_sampling",
        "ratio_hull",
        "gumbel",
        "race",
        "lp",
    ]
    assert names.split()[: len(first)] == first
    assert names.split()[len(first) :] == sorted(names.split()[len(first) :])
    assert imported == "set()"


def test_what_is_declared_is_there_and_lossless() -> None:
    from mdsd_opt.gpu.rates import BY_NAME

    for name in verifiers.names():
        verifier = verifiers.get(name)
        for scheme, declared in verifier.batch_rates.items():
            assert issubclass(SINGLE_MODEL_SCHEMES[scheme], verifier.schemes)
            assert callable(declared.formula) != callable(declared.kernel)
            assert not declared.device or callable(BY_NAME[declared.device])


class Custom(Verifier):
    name: ClassVar[str] = "custom"
    schemes = (mo.WithReplacement,)

    def __init__(self, rate: Any = 0.5) -> None:
        self.rate = rate

    def decide(self, problem: Any, drafts: Any, exact: bool = False) -> Any:
        return verifiers.get("naive_target").decide(problem, drafts, exact)

    def acceptance_rate(self, problem: Any) -> Any:
        if isinstance(self.rate, Exception):
            raise self.rate
        return self.rate


class Nameless(Custom):
    name = "my rule"


class Everything(Custom):
    name = "all"


class NoSchemes(Custom):
    schemes = ()


class Taken(Custom):
    name = "rrs"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda target, draft, drafts, rng: 0, "an object of function: give an object of a class"),
        (Custom, "the class Custom: give an object"),
        ("kseq", "an object of str"),
        (Nameless(), "the name 'my rule': give it one of letters"),
        (Everything(), "other than 'all'"),
        (NoSchemes(), "for which drafts it is lossless"),
        (Taken(), "'rrs' already: give this one another name"),
    ],
)
def test_what_cannot_be_registered(given: Any, message: str) -> None:
    before = verifiers.names()
    with pytest.raises(InvalidInput, match=message):
        verifiers.register(given)
    assert verifiers.names() == before


def test_a_name_is_given_once() -> None:
    verifiers.register(Custom())
    with pytest.raises(InvalidInput, match="'custom' already"):
        verifiers.register(Custom())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("custom", UnknownName, "Known: .*kseq"),
        ("no_such_module:VERIFIER", InvalidInput, "cannot load 'no_such_module:VERIFIER': Mod"),
        ("json:dumps", InvalidInput, "'json:dumps' is an object of function"),
        ("json:no_such", InvalidInput, "cannot load 'json:no_such': AttributeError"),
        (None, UnknownName, "unknown verifier None"),
    ],
)
def test_what_is_no_verifier(given: Any, error: type[Exception], message: str) -> None:
    rows = logits(0, 2, 5)
    with pytest.raises(error, match=message):
        verifiers.get(given)
    with pytest.raises(error, match=message):
        mo.acceptance_rates(rows, rows, verifier=given)
    with pytest.raises(error, match=message):
        verify_batch(rows, rows, np.zeros((2, 1), int), verifier=given)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (float("nan"), "row 0: .*'custom' gives the acceptance rate nan at K = 3"),
        (1.5, "row 0: .*rate 1.5"),
        (ZeroDivisionError("none"), "row 0: .*cannot tell .*ZeroDivisionError: none"),
        (InvalidInput("too hard"), "row 0: too hard"),
    ],
)
def test_a_rate_that_is_none(rate: Any, message: str) -> None:
    rows = logits(0, 2, 5)
    with pytest.raises(InvalidInput, match=message):
        mo.acceptance_rates(rows, rows, verifier=Custom(rate))


def test_positions_advance_the_bar_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    opened = importlib.import_module("mdsd_opt.batch.acceptance")

    steps: list[int] = []

    @contextmanager
    def bar(title: str, total: int, wanted: bool) -> Iterator[Any]:
        assert (total, wanted) == (4, True)
        yield steps.append

    monkeypatch.setattr(opened, "progress_bar", bar)
    rows = logits(0, 4, 5)
    found = mo.acceptance_rates(rows, rows, 2, verifier=Custom(), progress=True)
    assert found.tolist() == [0.5] * 4
    assert steps == [1] * 4


def test_what_an_object_declares_counts() -> None:
    class Declared(Custom):
        @property
        def batch_rates(self) -> dict[str, BatchRates]:
            formula = BatchRates(lambda p, q, counts, seed: [k / 10 for k in counts])
            return {"with_replacement": formula}

    rows = logits(0, 2, 5)
    found = mo.acceptance_rates(rows, rows, [1, 4], verifier=Declared(ZeroDivisionError()))
    assert found.tolist() == [[0.1, 0.4]] * 2


def test_options_of_an_object_count() -> None:
    """Importance sampling with another size, and the optimal rule on buckets."""
    target, draft = logits(0, 3, 40), logits(1, 3, 40)
    for verifier in (
        verifiers.get("importance_sampling", size=20),
        verifiers.get("optimal", binned=True),
    ):
        usual = mo.acceptance_rates(target, draft, 2, verifier=verifier.name)
        found = mo.acceptance_rates(target, draft, 2, verifier=verifier)
        for row in range(3):
            problem = mo.TransportProblem.from_logits(target[row], draft[row], 2)
            rate = getattr(verifier, "acceptance_bound", verifier.acceptance_rate)(problem)
            assert found[row] == pytest.approx(rate, abs=1e-12)
        assert (found != usual).any()


def test_positions_taken_one_by_one_show_how_far_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mo.acceptance_rates(*(logits(n, 3, 5) for n in (0, 1)), 2, verifier=Custom(), progress=True)
    assert "3/3" in capsys.readouterr().err


class Decides(Custom):
    """Decides whatever it is given."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision

    def decide(self, problem: Any, drafts: Any, exact: bool = False) -> Any:
        return self.decision


TENTHS, P = np.array([0.1, 0.1]), np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    "decision",
    [
        None,
        (TENTHS, P),
        Decision([0.1, 0.1], P),
        Decision(np.array([0.1, np.nan]), P),
        Decision(np.array([0.9, 0.9]), P),
        Decision(np.array([-0.1, 0.1]), P),
        Decision(np.array([0.1]), P),
        Decision(TENTHS, None),  # and what of the rest?
        Decision(TENTHS, np.array([0.5, 0.5])),
        Decision(TENTHS, np.array([0.5, 0.5, 0.5])),
        Decision(TENTHS, np.array([-0.5, 0.5, 1.0])),
        Decision(TENTHS, np.full(3, np.nan)),
    ],
)
def test_decisions_that_are_no_laws_are_refused(decision: Any) -> None:
    problem, own = mo.TransportProblem(P, mo.WithReplacement([0.2, 0.3, 0.5], 2)), Decides(decision)
    rng = np.random.default_rng(0)
    for ask in (
        lambda: own.verify(problem, [0, 2], rng),
        lambda: own.conditional_law(problem, [0, 2]),
        lambda: own.output_law(problem),
        lambda: own.verify_batch([P], [problem.drafts.q], [[0, 2]], rng),
        lambda: mo.audit(own, problem, num_trials=10),
    ):
        with pytest.raises(InvalidInput, match=r"'custom' decides .* return a Decision, with"):
            ask()


def test_decisions_in_single_precision_are_taken() -> None:
    accept, left = np.float32([1 / 3, 2 / 3 + 1e-7]), np.float32([0.2, 0.3, 0.5])
    problem = mo.TransportProblem(P, mo.WithReplacement([0.2, 0.3, 0.5], 2))
    for residual in (None, left):
        law = Decides(Decision(accept, residual)).conditional_law(problem, [0, 2])
        assert law == pytest.approx([1 / 3, 0.0, 2 / 3], abs=1e-6)
