"""Every door that takes the name of a draft scheme takes a registered one, or refuses that name."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import fake_models
from support.commands import commands
from support.faces import public
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


def functions_and_methods() -> Iterator[Any]:
    """What is public, and the methods of classes that are."""
    for found in public().values():
        for x in vars(found).values() if inspect.isclass(found) else [found]:
            inner = getattr(x, "__func__", x)
            if inspect.isfunction(inner) and not inner.__name__.startswith("_"):
                yield inner


def names_a_scheme(function: Any) -> bool:
    parameters = inspect.signature(function).parameters
    return any(
        name in ("drafts", "scheme", "schemes") and "str" in str(parameter.annotation)
        for name, parameter in parameters.items()
    )


def test_every_public_function_that_takes_a_scheme_is_asked() -> None:
    taking = {x.__qualname__ for x in functions_and_methods() if names_a_scheme(x)}
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


def rates_of(found: Any) -> list[float]:
    return [row["mean"] for row in found["rows"] if row["verifier"] == "optimal"]


def accepted_of(found: Any, scheme: str) -> list[float]:
    return [max(row["accepted"] for row in found["rows"] if row["scheme"] == scheme)]


def arcs_of(found: Any) -> list[float]:
    """Of the network, of which drafts that are certain have few."""
    return [float(re.findall(r"size (\d+)", record["note"])[0]) for record in found["records"]]


OPTIMAL = "--schemes SCHEME --verifiers optimal -k 1,2"

#: What each verb is asked for, and what it says of a scheme.
VERBS: dict[str, tuple[str, Callable[..., Any]]] = {
    "advise": ("few.npz --schemes SCHEME --max-drafts 3", accepted_of),
    "audit": (
        "--verifier naive_target --scheme SCHEME --vocab-size 4 -k 2 --trials 2000 --detect 0.5",
        lambda found: [found["optimal_acceptance_rate"]],
    ),
    "bench": ("solvers --methods max_flow --scheme SCHEME -V 5 -k 2 --rounds 1", arcs_of),
    "capture": (
        f"--target x --draft y --prompts texts --tokens 8 --out SCHEME --rates-only {OPTIMAL}",
        lambda found: found,
    ),
    "check": ("condition --scheme SCHEME --inequality 'p0 >= 1/36'", lambda found: [found]),
    "condition": ("'p0 >= 1/36' --scheme SCHEME", lambda found: [found]),
    "decode": (
        "--target x --draft y --prompt one --tree 2x1 --tokens 800 --verifier naive_target "
        "--scheme SCHEME --temperature 0.5",
        lambda found: [found["outputs"][0]["acceptance_rate"]],
    ),
    "plan": ("few.npz --scheme SCHEME --nodes 6", lambda found: [found["expected_accepted"]]),
    "rates": (f"mine.npz {OPTIMAL}", rates_of),
    "relax": (
        "mine.npz --scheme SCHEME -k 1,2",
        lambda found: [x[name] for x in found["frontier"] for name in ("acceptance_rate", "kl")],
    ),
}


def test_every_verb_that_takes_a_scheme_is_asked() -> None:
    taking = {
        words.split()[0]
        for words, command in commands().items()
        if {"scheme", "schemes"} & {parameter.name for parameter in command.params}
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

    monkeypatch.chdir(tmp_path)
    for name, size in {"mine": SIZE, "few": 3}.items():
        np.savez(f"{name}.npz", target=TARGET[:, :size], draft=DRAFT[:, :size])
    Path("texts").write_text("a bc\ndef g\n", encoding="utf-8")
    words, of = VERBS[verb]

    def answer(scheme: str) -> Array:
        done = run_cli(verb, *shlex.split(words.replace("SCHEME", scheme)), "--json")
        if done.returncode == 2:
            raise MdsdError(done.stderr)
        found = json.loads(done.stdout)
        if verb == "capture":
            asked = OPTIMAL.replace("SCHEME", scheme).split()
            found = rates_of(run_cli.document("rates", scheme, *asked))
        return np.array(of(found, scheme) if of is accepted_of else of(found))

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
