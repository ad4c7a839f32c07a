"""Every door that takes the name of a draft scheme takes a registered one, or refuses that name."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import fake_models
from support.commands import verbs
from support.fake_models import FakeModel
from support.markov import MarkovModel

import mdsd_opt as mo
import mdsd_opt.cli.verbs.capture
from mdsd_opt import batch, cddlib_checks, corpora, decoding, drafts
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import MdsdError, UnsupportedScheme

#: A law that is known, under a name that is not; and what a name must not be taken for.
NAME, TWIN, OTHER = "plain", "with_replacement", "top_k"

SIZE = 5
_RNG = np.random.default_rng(0)
TARGET, DRAFT = 2 * _RNG.normal(size=(2, 4, SIZE))
P, Q = mo.softmax(TARGET), mo.softmax(DRAFT)
DRAWN = mo.WithReplacement(Q[0], 2).sample(np.random.default_rng(1), 4)

Array = NDArray[Any]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, scheme in [*SINGLE_MODEL_SCHEMES.items()]:  # an item that is set is put back
        monkeypatch.setitem(SINGLE_MODEL_SCHEMES, name, scheme)
    monkeypatch.setitem(SINGLE_MODEL_SCHEMES, NAME, mo.WithReplacement)
    del SINGLE_MODEL_SCHEMES[NAME]
    drafts.register(NAME, lambda q, earlier: q)


def contained(scheme: drafts.DraftScheme) -> list[float]:
    """Q of all subsets, which is all there is to know of its sets."""
    subsets = product([False, True], repeat=scheme.vocab_size)
    return [scheme.containment(np.array(subset)) for subset in subsets]


def trace(scheme: str) -> list[float]:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 4, 200)
    problems = [mo.TransportProblem(P[n], mo.WithReplacement(Q[n], 2)) for n in range(4)]
    drawn = np.stack([problems[n].drafts.sample(rng) for n in rows])
    rule = mo.verifiers.get("optimal")
    tokens = [rule.verify(problems[n], x, rng).token for n, x in zip(rows, drawn, strict=True)]
    report = mo.audit_trace(P[rows], Q[rows], drawn, tokens, scheme=scheme)
    assert report.optimal_acceptance_rate is not None
    return [report.optimal_acceptance_rate, report.acceptance_rate]


def tables() -> tuple[TableModel, TableModel]:
    return TableModel(3, 0), TableModel(3, 1)


def audited(scheme: str) -> list[float]:
    verify = decoding.get_rule("naive_target").verify
    report = mo.audit_tree(verify, *tables(), "2x1", 0, scheme=scheme, driven_checks=5)
    assert report.clean
    assert report.optimal_accept_length is not None
    return [report.accept_length, report.optimal_accept_length]


def on_laws(scheme: str) -> list[float]:
    report = mo.audit_portfolio(
        "naive_target", scheme=scheme, num_drafts=1, num_trials=100, method="sampling"
    )
    assert report.clean
    assert report.optimal_acceptance_rate is not None
    return [report.optimal_acceptance_rate]


def corpus(scheme: str, folder: Path) -> list[float]:
    config = corpora.RatesConfig.of([scheme], ["optimal"], [1, 2])
    np.savez(folder / "shard.npz", target=TARGET, draft=DRAFT)
    return [row.acceptance.mean for row in mo.corpora.corpus_rates(folder, config).rows]


def row_rates(scheme: str) -> Array:
    declared = mo.verifiers.get("optimal").batch_rates_for(scheme)
    assert declared is not None
    rates, scale = np.empty((len(TARGET), 2)), mo.Sampling().scale
    arguments = TARGET, DRAFT, scale, scale, np.array([1, 2]), rates, np.empty((len(TARGET), 2))
    declared.row_function(seed=0)(*arguments)
    return rates


def models() -> tuple[FakeModel, FakeModel]:
    return FakeModel(SIZE, 1), FakeModel(SIZE, 2)


_STEPS: dict[str, Any] = {
    "tree": "2x1", "rule": "naive_target", "max_new_tokens": 800, "rng": 0
}  # fmt: skip


def accepted(scheme: str) -> float:
    metrics = decoding.generate(*models(), [1], scheme=scheme, **_STEPS).metrics
    return metrics.first_token_acceptance_rate


def accepted_by_steps(scheme: str) -> float:
    *_, (_, metrics) = decoding.generate_steps(*models(), [1], scheme=scheme, **_STEPS)
    return metrics.first_token_acceptance_rate


def grown(scheme: str, grow: Callable[..., decoding.Node], tree: Any) -> list[float]:
    """Laws of the drafts, which do not depend on what was drawn."""
    root = grow(lambda texts: Q[:1].repeat(len(texts), 0), tree, scheme, np.random.default_rng(0))
    assert root.drafts is not None
    return contained(root.drafts)


def verified(verdict: Any) -> Array:
    return np.concatenate([verdict.acceptance_rate, verdict.accepted, verdict.tokens])


def bound(scheme: str) -> float:
    return decoding.tree_bound(*tables(), decoding.parse_topology("2x2"), scheme).upper


#: What each public function says of a scheme, by its name in its module.
ANSWERS: dict[str, Callable[..., Any]] = {
    "RatesConfig.of": corpus,
    "TransportProblem.from_logits": lambda scheme: contained(
        mo.TransportProblem.from_logits(TARGET[0], DRAFT[0], 2, scheme).drafts
    ),
    "Verifier.verify_batch": lambda scheme: mo.verifiers.get("naive_target").verify_batch(
        P, Q, DRAWN, np.random.default_rng(0), scheme
    ).tokens,
    "acceptance_interval": lambda scheme: [
        mo.acceptance_interval({0: -0.5, 1: -2}, {1: -0.5, 2: -2}, 2, scheme).upper
    ],
    "Verifier.batch_rates_for": row_rates,
    "acceptance_rates": lambda scheme: mo.acceptance_rates(TARGET, DRAFT, (1, 2, 3), scheme),
    "audit_portfolio": on_laws,
    "audit_trace": trace,
    "audit_tree": audited,
    "check_condition": lambda scheme: [
        cddlib_checks.check_condition(3, 2, ["p0 >= 1/36"], scheme=scheme).verdict
    ],
    "advise": lambda scheme: [
        max(
            row.accepted
            for row in mo.advise(TARGET, DRAFT, schemes=[scheme], max_drafts=3).rows
            if row.scheme == scheme
        )
    ],
    "best_draft_filter": lambda scheme: [
        mo.best_draft_filter(TARGET, DRAFT, 2, scheme, filters=[], temperatures=[]).acceptance.mean
    ],
    "compare_draft_schemes": lambda scheme: [
        rate.acceptance.mean
        for rate in mo.compare_draft_schemes(TARGET, DRAFT, 2, schemes=[scheme]).rates
    ],
    "compare_drafts": lambda scheme: [
        rate.acceptance.mean
        for rate in mo.compare_drafts(
            TARGET, {"a": DRAFT, "b": TARGET}, 2, scheme, mixtures=False
        ).rates
    ],
    "generate": accepted,
    "generate_steps": accepted_by_steps,
    "grow": lambda scheme: grown(scheme, decoding.grow, decoding.parse_topology("2x2")),
    "grow_by_acceptance": lambda scheme: grown(
        scheme, decoding.grow_by_acceptance, decoding.DynamicTree(8, 2, 2)
    ),
    "measured_rates": lambda scheme: decoding.measured_rates(*models(), [[1, 2, 3]], 2, scheme),
    "place_rates": lambda scheme: decoding.place_rates(TARGET, DRAFT, 2, scheme),
    "relaxed_rates": lambda scheme: np.concatenate([
        mo.relaxed_rates(TARGET, DRAFT, (1, 2), scheme, **budget)
        for budget in ({"kl": 0.01}, {"chi2": 1e-4}, {"tv": 0.1}, {"kl": 0.1, "spread": "best"})
    ]),
    "tree_bound": bound,
    "tree_optimum": lambda scheme: decoding.tree_optimum(
        *tables(), decoding.parse_topology("2x1"), scheme
    ),
    "verify_batch": lambda scheme: verified(
        batch.verify_batch(
            TARGET, DRAFT, DRAWN, scheme=scheme, verifier="naive_target", with_rates=True
        )
    ),
    "worst_case": lambda scheme: [mo.worst_case("rrs", 2, scheme).gap],
}  # fmt: skip

#: They say what they are for instead.
REFUSED = {"acceptance_interval", "check_condition", "worst_case"}

#: Asked in tests/models, which have PyTorch, and in tests/verifiers/test_verifier_registry.py.
ELSEWHERE = {"custom_generate", "Verifier.has_batch_rates"}

#: Of means over some hundred steps; all else is exact, or certified to 1e-6.
ROUGH = {"generate": 0.06, "generate_steps": 0.06}


def public_functions() -> Iterator[Any]:
    """Functions, and methods of classes, that a public room has in its `__all__`."""
    rooms = [mo]
    for module in pkgutil.iter_modules(mo.__path__, "mdsd_opt."):
        if not module.name.rpartition(".")[2].startswith("_"):
            rooms.append(importlib.import_module(module.name))
    for room in rooms:
        for name in getattr(room, "__all__", ()):
            found = getattr(room, name)
            if inspect.isclass(found):
                yield from (x for x in map(found.__dict__.get, vars(found)) if _is_method(x))
            elif inspect.isfunction(found):
                yield found


def _is_method(found: Any) -> bool:
    inner = getattr(found, "__func__", found)
    return inspect.isfunction(inner) and not inner.__name__.startswith("_")


def names_a_scheme(function: Any) -> bool:
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters
    return any(
        name in ("drafts", "scheme", "schemes") and "str" in str(parameter.annotation)
        for name, parameter in parameters.items()
    )


def test_every_public_function_that_takes_a_scheme_is_asked() -> None:
    taking = {
        getattr(function, "__func__", function).__qualname__
        for function in public_functions()
        if names_a_scheme(function)
    }
    asked = ANSWERS.keys() | ELSEWHERE
    assert not taking - asked, f"add {sorted(taking - asked)} to ANSWERS, here"
    assert not asked - taking, f"take {sorted(asked - taking)} out of ANSWERS, here"


@pytest.mark.parametrize("name", ANSWERS)
def test_it_takes_a_registered_scheme_for_what_it_is(name: str, tmp_path: Path) -> None:
    def answer(scheme: str) -> Array:
        folder = tmp_path / scheme
        folder.mkdir()
        given = (scheme, folder) if name == "RatesConfig.of" else (scheme,)
        return np.asarray(ANSWERS[name](*given), dtype=np.float64)

    if name in REFUSED:
        with pytest.raises(MdsdError, match=f"'{NAME}'"):
            answer(NAME)
        return
    tolerance = ROUGH.get(name, 2e-6)
    expected = answer(TWIN)
    np.testing.assert_allclose(answer(NAME), expected, rtol=0, atol=tolerance)
    if name != "Verifier.verify_batch":  # what naive_target decides needs no scheme
        assert_told_apart(answer, expected, tolerance)


def assert_told_apart(answer: Callable[[str], Array], expected: Array, tolerance: float) -> None:
    """Another scheme would be seen; some say that the drafts cannot be its."""
    with suppress(MdsdError):
        assert np.abs(answer(OTHER) - expected).max() > 2 * tolerance


# --- the command line -----------------------------------------------------------------------------


def rows_of(run: Any, *arguments: Any) -> Any:
    done = run(*arguments, "--json")
    if done.returncode == 2:
        raise MdsdError(done.stderr)
    return json.loads(done.stdout)


def rates_of(found: Any) -> list[float]:
    return [row["mean"] for row in found["rows"] if row["verifier"] == "optimal"]


def file_of_logits(folder: Path, size: int = SIZE) -> Path:
    np.savez(folder / "mine.npz", target=TARGET[:, :size], draft=DRAFT[:, :size])
    return folder / "mine.npz"


def by_rates(run: Any, folder: Path, scheme: str) -> list[float]:
    arguments = ("rates", file_of_logits(folder), "--schemes", scheme, "-k", "1,2")
    return rates_of(rows_of(run, *arguments, "--verifiers", "optimal"))


def by_audit(run: Any, folder: Path, scheme: str) -> list[float]:
    found = rows_of(run, "audit", "--verifier", "naive_target", "--scheme", scheme,
                    "--vocab-size", "4", "-k", "2", "--trials", "2000",
                    "--detect", "0.5")  # fmt: skip
    return [found["optimal_acceptance_rate"]]


def by_capture(run: Any, folder: Path, scheme: str) -> list[float]:
    (folder / "prompts.txt").write_text("a bc\ndef g\n", encoding="utf-8")
    rows_of(run, "capture", "--target", "x", "--draft", "y", "--prompts", folder / "prompts.txt",
            "--tokens", "8", "--out", folder / "corpus", "--rates-only", "--schemes", scheme,
            "--verifiers", "optimal", "-k", "1,2")  # fmt: skip
    return rates_of(rows_of(run, "rates", folder / "corpus", "--schemes", scheme,
                            "--verifiers", "optimal", "-k", "1,2"))  # fmt: skip


def by_check(run: Any, folder: Path, scheme: str) -> list[float]:
    return [rows_of(run, "check", "condition", "--scheme", scheme, "--inequality", "p0 >= 1/36")]


def by_decode(run: Any, folder: Path, scheme: str) -> list[float]:
    found = rows_of(run, "decode", "--target", "x", "--draft", "y", "--prompt", "one", "--tree",
                    "2x1", "--tokens", "800", "--verifier", "naive_target", "--scheme", scheme,
                    "--temperature", "0.5")  # fmt: skip
    return [found["outputs"][0]["acceptance_rate"]]


def by_advise(run: Any, folder: Path, scheme: str) -> list[float]:
    logits = file_of_logits(folder, 3)
    found = rows_of(run, "advise", logits, "--schemes", scheme, "--max-drafts", "3")
    return [max(row["accepted"] for row in found["rows"] if row["scheme"] == scheme)]


def by_plan(run: Any, folder: Path, scheme: str) -> list[float]:
    found = rows_of(run, "plan", file_of_logits(folder, 3), "--scheme", scheme, "--nodes", "6")
    return [found["expected_accepted"]]


def by_relax(run: Any, folder: Path, scheme: str) -> list[float]:
    found = rows_of(run, "relax", file_of_logits(folder), "--scheme", scheme, "-k", "1,2")
    return [point[name] for point in found["frontier"] for name in ("acceptance_rate", "kl")]


def by_condition(run: Any, folder: Path, scheme: str) -> list[float]:
    return [rows_of(run, "condition", "p0 >= 1/36", "--scheme", scheme)]


def by_bench(run: Any, folder: Path, scheme: str) -> list[float]:
    """Arcs of the network, of which drafts that are certain have few."""
    found = rows_of(run, "bench", "solvers", "--methods", "max_flow", "--scheme", scheme, "-V", "5",
                    "-k", "2", "--rounds", "1")  # fmt: skip
    return [float(re.findall(r"size (\d+)", record["note"])[0]) for record in found["records"]]


#: What each verb says of a scheme.
VERBS: dict[str, Callable[[Any, Path, str], list[float]]] = {
    "advise": by_advise,
    "audit": by_audit,
    "bench": by_bench,
    "capture": by_capture,
    "check": by_check,
    "condition": by_condition,
    "decode": by_decode,
    "plan": by_plan,
    "rates": by_rates,
    "relax": by_relax,
}


def test_every_verb_that_takes_a_scheme_is_asked() -> None:
    taking = {
        verb
        for verb, command in verbs().items()
        if any(
            {"scheme", "schemes"} & {parameter.name for parameter in part.params}
            for part in (command, *getattr(command, "commands", {}).values())
        )
    }
    assert taking == VERBS.keys(), "keep VERBS, here, in step with the command line"


class Readable(MarkovModel):
    """What the command line asks of a model, too."""

    identity: dict[str, str] = {}  # noqa: RUF012
    context_length = None

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


@pytest.mark.parametrize("verb", VERBS)
def test_the_verb_takes_it_for_what_it_is(
    verb: str, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "decode":
        fake_models.install(monkeypatch, SIZE)
    if verb == "capture":
        pair = Readable(SIZE, 0), Readable(SIZE, 1)
        monkeypatch.setattr(mdsd_opt.decoding, "load_pair", lambda *_, **__: pair)
        monkeypatch.setattr(mdsd_opt.cli.verbs.capture, "_description", lambda *_: {})

    def answer(scheme: str) -> Array:
        folder = tmp_path / scheme
        folder.mkdir()
        return np.array(VERBS[verb](run_cli, folder, scheme))

    if verb in ("check", "condition"):
        with pytest.raises(MdsdError, match=f"'{NAME}'"):
            answer(NAME)
        return
    tolerance = 0.06 if verb == "decode" else 2e-6
    expected = answer(TWIN)
    np.testing.assert_allclose(answer(NAME), expected, rtol=0, atol=tolerance)
    assert_told_apart(answer, expected, tolerance)


def test_a_rule_for_whole_trees_names_what_it_does_not_take() -> None:
    with pytest.raises(UnsupportedScheme, match=f"'{NAME}'"):
        decoding.generate(*models(), [1], scheme=NAME, tree="2x1", rng=0)
