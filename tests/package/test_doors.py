"""Doors: what takes laws or logits gives the right value, or one clear error, whatever comes in."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.commands import commands
from support.faces import public_functions
from support.few_lines import few_lines

import mdsd_opt as mo
from mdsd_opt.base.files import parse_json
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.batch import verify_batch
from mdsd_opt.corpora import rate_intervals, rate_rows
from mdsd_opt.corpora.engine_output import paired_positions
from mdsd_opt.decoding import place_rates, value_bound
from mdsd_opt.errors import InvalidDistribution, InvalidInput, MdsdError, UnreadableFile
from mdsd_opt.formats import read_answers

V, K = 9, 2
RNG = np.random.default_rng(0)
P, Q = (softmaxed / softmaxed.sum(-1, keepdims=True)
        for softmaxed in np.exp(2 * RNG.standard_normal((2, 3, V))))  # fmt: skip
LOGITS = np.log(P) + 1.0, np.log(Q) - 0.5
DRAFTS = np.array([[0, 5], [7, 7], [3, 8]])

#: What a door answers to two arrays [N, V] and to drafts [N, K], as numbers.
Door = Callable[..., Any]


def of_problems(target: Any, draft: Any, drafts: Any, **options: Any) -> list[float]:
    rows = zip(target, draft, strict=True)
    problems = [mo.TransportProblem.from_logits(p, q, K, **options) for p, q in rows]
    return [mo.solve(problem).acceptance_rate for problem in problems]


def of_advice(target: Any, draft: Any, drafts: Any, **options: Any) -> list[float]:
    advice = mo.advise(target, draft, max_drafts=3, **options)
    return [advice.single_acceptance, advice.speedup, advice.tokens_per_step]


def of_comparison(target: Any, draft: Any, drafts: Any, **options: Any) -> dict[str, float]:
    schemes = ["with_replacement", "greedy", "half with, half without replacement"]
    found = mo.compare_draft_schemes(target, draft, K, schemes=schemes, **options)
    return {row.scheme: row.acceptance.mean for row in found.rates}


def of_drafts(target: Any, draft: Any, drafts: Any, **options: Any) -> list[float]:
    both = {"a": draft, "b": draft}
    found = mo.compare_drafts(target, both, K, mixtures=False, **options)
    return [row.acceptance.mean for row in found.rates]


def of_decisions(target: Any, draft: Any, drafts: Any, **options: Any) -> Any:
    return verify_batch(target, draft, drafts, with_rates=True, **options).acceptance_rate


#: Every public function with arguments of logits and a kind.
OF_LOGITS: dict[str, Door] = {
    "acceptance_rates": lambda p, q, _, **o: mo.acceptance_rates(p, q, (1, K), **o),
    "relaxed_rates": lambda p, q, _, **o: mo.relaxed_rates(p, q, K, "greedy", kl=0.01, **o),
    "verify_batch": of_decisions,
    "advise": of_advice,
    "compare_draft_schemes": of_comparison,
    "compare_drafts": of_drafts,
    "place_rates": lambda p, q, _, **o: place_rates(p, q, K, **o),
    "TransportProblem.from_logits": of_problems,
    "best_draft_temperature": lambda p, q, _, **o: [
        mo.best_draft_temperature(*rows, K, **o).acceptance_rate for rows in zip(p, q, strict=True)
    ],
    "best_draft_filter": lambda p, q, _, **o: [
        mo.best_draft_filter(p, q, K, filters=[], temperatures=[], **o).acceptance.mean
    ],
}

#: Doors of logits that have no filters and no tokens of the draft's own.
WITHOUT_FILTERS = {"best_draft_temperature"}

#: Those without a kind, and of laws.
OF_ROWS: dict[str, Door] = {
    "softmax": lambda p, q, _: np.sort(mo.softmax(p)),
}


def of_scheme(make: Callable[[Any], Any]) -> Door:
    def rates(target: Any, draft: Any, _: Any) -> list[float]:
        rows = zip(target, draft, strict=True)
        return [mo.solve(mo.TransportProblem(p, make(q))).acceptance_rate for p, q in rows]

    return rates


OF_LAWS: dict[str, Door] = {
    "WithReplacement": of_scheme(lambda q: mo.WithReplacement(q, K)),
    "WithoutReplacement": of_scheme(lambda q: mo.WithoutReplacement(q, K)),
    "GreedyDrafts": of_scheme(lambda q: mo.GreedyDrafts(q, K)),
    "TopKDrafts": of_scheme(lambda q: mo.TopKDrafts(q, K)),
    "IndependentDrafts": of_scheme(lambda q: mo.IndependentDrafts([q, q])),
    "MixtureDrafts": of_scheme(
        lambda q: mo.MixtureDrafts([(0.5, mo.WithReplacement(q, K)), (0.5, mo.GreedyDrafts(q, K))])
    ),
    "relax": lambda p, q, _: [
        mo.relax(mo.TransportProblem(x, mo.WithReplacement(y, K)), kl=0.01).acceptance_rate
        for x, y in zip(p, q, strict=True)
    ],
    "inclusion_bound": lambda p, q, _: [
        mo.inclusion_bound(mo.TransportProblem(x, mo.WithoutReplacement(y, K)))
        for x, y in zip(p, q, strict=True)
    ],
    "value_bound": lambda p, q, _: [
        value_bound(x, y, [2.0, 1.0]).optimum for x, y in zip(p, q, strict=True)
    ],
    "acceptance_interval": lambda p, q, _: [
        mo.acceptance_interval(
            *({n: float(np.log(x)) for n, x in enumerate(side) if x} for side in rows), K,
            vocab_size=len(rows[0])
        ).lower
        for rows in zip(p, q, strict=True)
    ],
}  # fmt: skip

VERBS: dict[str, tuple[list[str], Callable[[Any], Any]]] = {
    "rates": (["-k", "1-2"], lambda document: [row["mean"] for row in document["rows"]]),
    "advise": (["--max-drafts", "3"], lambda document: document["speedup"]),
    "relax": (["-k", "2"], lambda document: [x["acceptance_rate"] for x in document["frontier"]]),
    "plan": (["--nodes", "3"], lambda document: document["expected_accepted"]),
}

#: Verbs with files of logits that have tests of their own: what is audited, what papers measured.
ELSEWHERE = {"audit", "reproduce"}


def numbers(found: Any) -> Any:
    if isinstance(found, dict):
        found = [found[name] for name in sorted(found)]
    return np.array(found, dtype=np.float64)


def logarithms(law: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(law)


def cut(law: Any) -> Any:
    """The four likeliest tokens alone."""
    least = np.sort(law)[..., -4, None]
    return np.where(law >= least, law, 0.0)


def mask_of_last(rows: Any) -> Any:
    hidden = np.zeros(rows.shape, bool)
    hidden[..., -2:] = True
    return np.ma.masked_array(rows, hidden)


ORDER = np.random.default_rng(1).permutation(V)
PLACES = np.argsort(ORDER)  # where each token has come to

#: By which what was given is changed, where the value must stay the same.
SAME = {
    "as it is": (lambda rows: rows, lambda ids: ids),
    "reordered": (lambda rows: rows[:, ORDER], lambda ids: PLACES[ids]),
    "a list of rows": (list, lambda ids: ids.tolist()),
    "columns in memory": (np.asfortranarray, lambda ids: ids),
    "of another byte order": (lambda rows: rows.astype(">f8"), lambda ids: ids),
}


def padded(by: float) -> Any:
    return lambda rows: np.pad(rows, [(0, 0), (0, 3)], constant_values=by)


#: What must be refused, whatever is asked of it.
BITS = {
    "bfloat16": lambda rows: rows.astype(ml_dtypes.bfloat16).view(np.uint16),
    "float16": lambda rows: rows.astype(np.float16).view(np.int16),
    "float8": lambda rows: rows.astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
    "float32": lambda rows: rows.astype(np.float32).view(np.int32),
    "float64": lambda rows: rows.view(np.uint64),
}


#: What takes models, or callables that give laws.
OF_MODELS = {"generate", "generate_batch", "generate_steps", "measured_rates", "tree_bound",
             "tree_optimum", "compare_rules", "advise_models", "capture"}  # fmt: skip


def test_every_function_of_logits_is_a_door_here() -> None:
    taking = {
        name
        for name, x in public_functions().items()
        if {"target_logits", "logits", "target"} & inspect.signature(x).parameters.keys()
    }
    asked = {*OF_LOGITS, *OF_ROWS, *OF_LAWS}
    assert {x for x in taking if not x.startswith("audit")} - asked - OF_MODELS - ELSEWHERE == set()


def test_every_verb_with_logits_is_a_door_here() -> None:
    taking = {
        words.split()[0]
        for words, command in commands().items()
        if "logits" in {x.name for x in command.params}
    }
    assert taking == {*VERBS, *ELSEWHERE}


@pytest.mark.parametrize("name", [*OF_LOGITS, *OF_ROWS])
def test_logits(name: str) -> None:
    door = (OF_LOGITS | OF_ROWS)[name]
    expected = numbers(door(*LOGITS, DRAFTS))
    for rows, ids in [*SAME.values(), (padded(-np.inf), lambda ids: ids)]:
        found = numbers(door(*map(rows, LOGITS), ids(DRAFTS)))
        np.testing.assert_allclose(found[..., -expected.shape[-1] :], expected, atol=1e-9)
    for change in [*BITS.values(), mask_of_last]:
        with pytest.raises(InvalidInput):
            door(*map(change, LOGITS), DRAFTS)
        with pytest.raises(InvalidInput):
            door(LOGITS[0], change(LOGITS[1]), DRAFTS) if name != "softmax" else door(
                change(LOGITS[1]), None, None
            )


@pytest.mark.parametrize("name", OF_LOGITS)
def test_kinds(name: str) -> None:
    door = OF_LOGITS[name]
    expected = numbers(door(*LOGITS, DRAFTS))
    for kind, sides in (("probs", (P, Q)), ("logprobs", (np.log(P), np.log(Q)))):
        for rows, ids in SAME.values():
            found = numbers(door(*map(rows, sides), ids(DRAFTS), kind=kind))
            np.testing.assert_allclose(found, expected, atol=1e-9)
        for change in (cut, mask_of_last, lambda law: law * 0.99):
            short = [change(side) for side in (P, Q)]
            rows = short if kind == "probs" else [logarithms(side) for side in short]
            with pytest.raises(InvalidInput, match=r"acceptance_interval|masked"):
                door(*rows, DRAFTS, kind=kind)
            with pytest.raises(InvalidInput, match=r"acceptance_interval|masked"):
                door(sides[0], rows[1], DRAFTS, kind=kind)
    with pytest.raises(InvalidInput, match="'probs'"):
        door(P, Q, DRAFTS)
    with pytest.raises(InvalidInput, match="acceptance_interval"):
        door(*(logarithms(cut(side)) for side in (P, Q)), DRAFTS)


@pytest.mark.parametrize("name", OF_LAWS)
def test_laws(name: str) -> None:
    door = OF_LAWS[name]
    expected = numbers(door(P, Q, None))
    for rows, _ in SAME.values():
        np.testing.assert_allclose(numbers(door(rows(P), rows(Q), None)), expected, atol=1e-9)
    np.testing.assert_allclose(numbers(door(*map(padded(0.0), (P, Q)), None)), expected, atol=1e-9)
    if name == "acceptance_interval":  # which takes a part of the tokens
        return
    for change in (cut, mask_of_last, lambda law: law * 0.99, *BITS.values()):
        if name != "value_bound" or change(P).sum() > 3.0:  # which takes a part of p
            with pytest.raises(MdsdError):
                door(change(P), Q, None)
        with pytest.raises(MdsdError):
            door(P, change(Q), None)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs(verb: str, run_cli: Any, tmp_path: Any) -> None:
    options, of_document = VERBS[verb]

    def asked(target: Any, draft: Any, *more: str, **arrays: Any) -> Any:
        path = tmp_path / "logits.npz"
        np.savez(path, target=target, draft=draft, **arrays)
        return run_cli(verb, path, *options, *more, "--json")

    def told(*given: Any, **arrays: Any) -> Any:
        done = asked(*given, **arrays)
        assert done.returncode == 0, done.stderr
        return of_document(json.loads(done.stdout))

    expected = told(*LOGITS)
    for rows in (lambda x: x[:, ORDER], padded(-np.inf)):
        assert told(*map(rows, LOGITS)) == pytest.approx(expected, abs=1e-9)
    assert told(P, Q, "--kind", "probs") == pytest.approx(expected, abs=1e-9)
    assert told(P, Q, "--kind", "logits") != pytest.approx(expected, abs=1e-9)
    own = np.sort(ORDER[:5])
    few = logarithms(Q[:, own] / Q[:, own].sum(-1, keepdims=True))
    spread = np.full_like(Q, -np.inf)
    spread[:, own] = few
    expected = told(LOGITS[0], spread)
    for arrays in ({"draft_token_ids": own}, {"d2t": own - np.arange(5)},
                   {"t2d": np.isin(np.arange(V), own)}):  # fmt: skip
        assert told(LOGITS[0], few, **arrays) == pytest.approx(expected, abs=1e-9)
    refused = [
        *(asked(change(LOGITS[0]), LOGITS[1]) for change in BITS.values()),
        asked(cut(P), cut(Q), "--kind", "probs"),
        asked(logarithms(cut(P)), logarithms(cut(Q)), "--kind", "logprobs"),
        asked(logarithms(cut(P)), logarithms(cut(Q))),
        asked(P, Q),
    ]
    for done in refused:
        assert done.returncode == 2, done.stdout
        assert len(done.stderr.splitlines()) == 1


def test_a_repeated_key_is_an_error_at_once() -> None:
    pairs = ",".join(f'"{n}":1' for n in range(60_000))
    with few_lines(500_000), pytest.raises(UnreadableFile, match="'59999' appears twice"):
        parse_json(f'{{{pairs},"59999":1}}', "x")


def test_every_row_is_looked_at() -> None:
    rows = np.full((2, 20, 2), 0.5)
    rows[1, 17] = 0.5, 0.4
    with pytest.raises(InvalidDistribution, match=r"row 1, 17: .* not sum to one, but to 0\.9"):
        mo.acceptance_rates(np.full((2, 20, 2), 0.5), rows, 1, kind="probs")
    lists = np.log([[0.3, 0.2, 1e-300, 1e-300]]), np.log([[0.5, 0.3, 0.1, 0.1]])
    with pytest.raises(InvalidDistribution, match=r"to 0\.5\..*acceptance_interval"):
        mo.acceptance_rates(*lists, 1, kind="logprobs")


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_rounding_of_logarithms_is_no_cut(dtype: Any) -> None:
    """Of 1,000 tokens in bfloat16 the sum is off by more than 1e-3, and not by a cut."""
    law = np.random.default_rng(0).dirichlet(np.full(1000, 0.1), 50)
    rows = np.log(law).astype(dtype)
    found = mo.acceptance_rates(rows, rows, 1, kind="logprobs")
    np.testing.assert_allclose(found, 1.0, atol=1e-6)
    if dtype is ml_dtypes.bfloat16:
        assert abs(np.exp(rows.astype(float)).sum(-1) - 1).max() > 1e-3
    tail = np.sort(rows.astype(float))[:, -20, None]
    with pytest.raises(InvalidDistribution, match="acceptance_interval"):
        mo.acceptance_rates(*2 * [np.where(rows < tail, -np.inf, rows)], 1, kind="logprobs")


@pytest.mark.parametrize("off", [0, -1])
def test_no_top_k(off: int) -> None:
    assert mo.Sampling(top_k=off) == mo.Sampling()
    np.testing.assert_array_equal(mo.softmax(LOGITS[0], top_k=off), mo.softmax(LOGITS[0]))
    for name, door in OF_LOGITS.items():
        if name in {"best_draft_filter", *WITHOUT_FILTERS}:
            continue
        found = numbers(door(*LOGITS, DRAFTS, top_k=off))
        np.testing.assert_array_equal(found, numbers(door(*LOGITS, DRAFTS)))


def test_the_view_that_was_meant_is_named() -> None:
    for name, change in BITS.items():
        with pytest.raises(InvalidInput, match=rf"array\.view\(\w+\.{name}"):
            mo.softmax(change(LOGITS[0]))
    small = np.array([[3, -2, 0], [30, 1, -30]], np.int8)  # logits that are integers
    np.testing.assert_array_equal(mo.softmax(small), mo.softmax(small.astype(float)))


class Exported:
    """An array that is handed over by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_what_is_handed_over_by_dlpack_alone() -> None:
    expected = mo.acceptance_rates(*LOGITS, K)
    np.testing.assert_array_equal(mo.acceptance_rates(*map(Exported, LOGITS), K), expected)


def test_steps_of_one_text() -> None:
    """Arrays [1, V] for each step are no texts of one token."""
    steps = [[row[None] for row in side] for side in LOGITS]
    rates = mo.acceptance_rates(*map(tuple, steps), K)
    np.testing.assert_array_equal(rates, mo.acceptance_rates(*LOGITS, K)[None])
    advice = mo.advise(*steps)
    assert "no intervals, which take several texts" in advice.notes


def test_tokens_of_a_draft_at_their_places() -> None:
    own = np.array([8, 1, 4, 3])
    few = Q[:, own] / Q[:, own].sum(-1, keepdims=True)
    wide = np.zeros_like(Q)
    wide[:, own] = few
    pairs = (P, few), (np.log(P), np.log(few))
    for name, door in OF_LOGITS.items():
        if name in {"verify_batch", *WITHOUT_FILTERS}:
            continue
        expected = numbers(door(P, wide, None, kind="probs"))
        for sides, kind in zip(pairs, ("probs", "logprobs"), strict=True):
            found = numbers(door(*sides, None, kind=kind, draft_token_ids=own))
            np.testing.assert_allclose(found, expected, atol=1e-9)
        for ids in ([0, 1, 2], [0, 1, 1, 2], [0, 1, 2, V], [-1, 0, 1, 2], [0.0, 1.0, 2.0, 3.0]):
            with pytest.raises(InvalidInput, match="draft_token_ids"):
                door(*pairs[0], None, kind="probs", draft_token_ids=ids)


def test_maps_of_a_file_agree_or_are_refused(tmp_path: Any) -> None:
    own = np.array([1, 3, 4, 8])
    path = tmp_path / "eagle.npz"
    arrays = {"target": LOGITS[0], "draft": LOGITS[1][:, own]}
    np.savez(path, **arrays, d2t=own - np.arange(4), t2d=np.isin(np.arange(V), own))
    sample = load_logits(path)
    assert sample.draft_token_ids.tolist() == own.tolist()
    taken = sample.taken_as("logits")
    np.testing.assert_array_equal(taken.draft[:, own], LOGITS[1][:, own])
    assert np.isneginf(taken.draft).sum() == 3 * (V - 4)
    np.savez(path, **arrays, d2t=own - np.arange(4), t2d=np.arange(V) < 4)
    with pytest.raises(UnreadableFile, match="d2t and t2d name different tokens"):
        load_logits(path)
    np.savez(path, **arrays, d2t=own + 3)
    with pytest.raises(InvalidInput, match=r"'d2t' of .*EAGLE"):
        load_logits(path)


def test_totals_of_a_log_are_no_steps() -> None:
    with pytest.raises(InvalidInput, match=r"totals of a log.* the rate is 0\.6366"):
        mo.accepted_rates([1093], 1, depth=1717)
    with pytest.raises(InvalidInput, match="step 1 accepts 200 of 300"):
        mo.accepted_rates([3, 200], 1, depth=[5, 300])
    rate = mo.accepted_rates(np.repeat([1, 0], [1093, 624]), 1)[0].acceptance
    assert rate.mean == pytest.approx(1093 / 1717)


def test_intervals_of_rates_lie_where_rates_do() -> None:
    certain = np.array([[9.0, -9.0], [9.0, -9.0], [9.0, -9.0]])
    other = np.array([[-9.0, 9.0], [9.0, -9.0], [-9.0, 9.0]])
    row = rate_rows(LogitsSample(certain, other), ["with_replacement"], [1])[0]
    assert (row.acceptance.low, row.acceptance.high) == (0.0, 1.0)
    assert row.acceptance.shown == "0.3333 [0.00, 1.00]"
    compared = mo.compare_draft_schemes(certain, other, 1)
    assert all(0.0 <= x.acceptance.low <= x.acceptance.high <= 1.0 for x in compared.rates)
    assert max(map(len, str(compared).splitlines())) <= 80


@pytest.mark.parametrize("kind", ["kl", "chi2", "tv"])
def test_a_rare_rest_beside_a_certain_draft(kind: str) -> None:
    """One token of three that are as rare: drafted with probability 1/3, and no law gets more."""
    p, q = np.array([0.0, 1.0, 0.0, 0.0]), np.array([1e-17, 1e-17, 1.0, 1e-17])
    budget = {kind: 0.0 if kind == "tv" else 1.0}
    single = mo.relax(mo.TransportProblem(p, mo.GreedyDrafts(q, 2)), **budget)
    batch = mo.relaxed_rates(p, q, 2, "greedy", kind="probs", **budget)
    assert single.acceptance_rate == pytest.approx(1 / 3, abs=1e-12)
    assert batch == pytest.approx(1 / 3, abs=1e-12)
    assert mo.acceptance_rates(p, q, 2, "greedy", kind="probs") == pytest.approx(1 / 3, abs=1e-12)


def chat(lists: list[dict[str, float]], **more: Any) -> dict[str, Any]:
    entries = [
        {"token": max(x, key=lambda name: x[name]), "logprob": max(x.values()),
         "top_logprobs": [{"token": name, "logprob": y} for name, y in x.items()]}
        for x in lists
    ]  # fmt: skip
    return {"choices": [{"logprobs": {"content": entries}}]}


def test_bytes_that_read_the_same_are_not_the_same_token(tmp_path: Any) -> None:
    """Parts of characters: what p lists as U+FFFD need not be what q does."""
    half = "\ufffd"
    with pytest.raises(InvalidInput, match=r"U\+FFFD.*bytes"):
        mo.acceptance_interval({half: np.log(0.9), "a": np.log(0.1)}, {"a": np.log(0.9)}, 1)
    target = {"a": np.log(0.6), half: np.log(0.3), "b": np.log(0.05)}
    draft = {"a": np.log(0.5), half: np.log(0.4), "b": np.log(0.05)}
    found = mo.acceptance_interval(target, draft, 1)
    known = mo.acceptance_interval({"a": np.log(0.6)}, {"a": np.log(0.5)}, 1)
    assert (found.lower, found.upper) == (known.lower, known.upper)
    assert found.lower < 0.5 + 1e-9 < 0.9 < found.upper
    paths = [tmp_path / "p.jsonl", tmp_path / "q.jsonl"]
    for path, side in zip(paths, (target, draft), strict=True):
        path.write_text(json.dumps(chat([side])) + "\n")
    rows = rate_intervals(*paths, ["with_replacement"], [1], None, 0.95, False).rows
    assert rows[0].lower.mean == pytest.approx(found.lower, abs=1e-6)


def test_minus_9999_is_minus_infinity() -> None:
    listed = {1: np.log(0.6), 2: np.log(0.4), 3: -9999.0}
    known = {**listed, 3: -np.inf}
    assert mo.acceptance_interval(listed, listed, 2) == mo.acceptance_interval(known, known, 2)
    with pytest.raises(InvalidDistribution, match="likeliest"):
        mo.acceptance_interval({**listed, 1: np.log(0.5)}, listed, 2)


def test_logs_of_ollama_and_tgi(tmp_path: Any) -> None:
    tokens = [[(5, "a", -0.5), (6, "b", -1.5)], [(7, "c", -0.1), (5, "a", -3.0)]]
    ollama = [
        {"token": x[0][1], "logprob": x[0][2], "bytes": [*x[0][1].encode()],
         "top_logprobs": [{"token": t, "logprob": y, "bytes": [*t.encode()]} for _, t, y in x]}
        for x in tokens
    ]  # fmt: skip
    tgi = {
        "tokens": [{"id": x[0][0], "text": x[0][1], "logprob": x[0][2]} for x in tokens],
        "top_tokens": [[{"id": i, "text": t, "logprob": y} for i, t, y in x] for x in tokens],
    }
    requests = [{"response": "ac", "logprobs": ollama}, {"details": tgi}, [{"details": tgi}]]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, requests)))
    of_ollama, *of_tgi = (text for (text,) in read_answers(path))
    assert of_ollama.lists == [{b"a": -0.5, b"b": -1.5}, {b"c": -0.1, b"a": -3.0}]
    for found in of_tgi:
        assert (found.lists, found.tokens) == ([{5: -0.5, 6: -1.5}, {7: -0.1, 5: -3.0}], [5, 7])
    path.write_text(json.dumps({"details": {"tokens": tgi["tokens"]}}))
    with pytest.raises(UnreadableFile, match="top_n_tokens"):
        list(paired_positions(path, path))


def test_8_bit_floats_in_npz_are_named(tmp_path: Any) -> None:
    path = tmp_path / "small.npz"
    rows = LOGITS[0].astype(ml_dtypes.float8_e4m3fn)
    np.savez(path, target=rows, draft=rows)
    with pytest.raises(UnreadableFile, match=r"8-bit floats.*\.safetensors"):
        load_logits(path)


def test_recorded_steps() -> None:
    """A lossless verifier stays so under other names of tokens; what is no law is refused."""
    rng = np.random.default_rng(2)
    p, q = (np.repeat(side, 100, axis=0) for side in (P, Q))
    drafts = np.array([rng.choice(V, size=K, p=law) for law in q])
    tokens = verify_batch(p, q, drafts, kind="probs", rng=3).tokens
    known = mo.audit_trace(p, q, drafts, tokens)
    moved = mo.audit_trace(p[:, ORDER], q[:, ORDER], PLACES[drafts], PLACES[tokens])
    assert known.verdict_class == moved.verdict_class != "lossy"
    for change in (cut, mask_of_last, lambda law: law * 0.99, *BITS.values()):
        with pytest.raises(MdsdError):
            mo.audit_trace(change(p), q, drafts, tokens)
        with pytest.raises(MdsdError):
            mo.audit_trace(p, change(q), drafts, tokens)
