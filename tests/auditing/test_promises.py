"""Promises that depend on the text: engines with penalties, grammars, biases, and their faults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import by_rows
from support.planted_chains import right_residual as residual
from support.text_sessions import TOKENS, pick, softmax

import mdsd_opt as mo
from mdsd_opt.auditing import audit_portfolio
from mdsd_opt.auditing.laws import PlaceLaws
from mdsd_opt.auditing.seen_texts import ByText
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import TextSoFar
from mdsd_opt.formats import Answer
from mdsd_opt.servers import Law, audit_tokens
from mdsd_opt.servers.adapter import Request, laws_of

Text = tuple[int, ...]
Promise = Callable[[Text, Any], Any]


def penalties(text: Text, logits: Any) -> Any:
    """Repetition, presence and frequency."""
    logits = logits.copy()
    for token in set(text):
        logits[token] *= 1.2 if logits[token] < 0 else 1 / 1.2
        logits[token] -= 0.5 + 0.4 * text.count(token)
    return softmax(logits)


def grammar(text: Text, logits: Any) -> Any:
    """Even tokens and odd ones in turn."""
    wrong = np.arange(logits.size) % 2 != len(text) % 2
    if text and text[-1] == 1:
        wrong = ~wrong & (np.arange(logits.size) != 0)  # a state that a token leads to
    return softmax(np.where(wrong, -np.inf, logits))


def least_length_of(least: int) -> Promise:
    """No token 0 among the first ones."""

    def least_length(text: Text, logits: Any) -> Any:
        ruled_out = (np.arange(logits.size) == 0) & (len(text) < least)
        return softmax(np.where(ruled_out, -np.inf, logits))

    return least_length


least_length = least_length_of(3)


def biased(text: Text, logits: Any) -> Any:
    return softmax(logits + np.where(np.arange(logits.size) == 1, 1.5, 0.0))


def never_twice(text: Text, logits: Any) -> Any:
    return softmax(np.where(np.isin(np.arange(logits.size), text), -np.inf, logits))


def as_it_is(text: Text, logits: Any) -> Any:
    return softmax(logits)


PROMISES = {f.__name__: f for f in (penalties, grammar, least_length, biased, never_twice)}


def step(
    accepts: Promise,
    corrects: Promise | None = None,
    ends: Promise | None = None,
    draft: Promise = as_it_is,
) -> Any:
    """Verify a chain under a promise for acceptance, and perhaps others after a refusal, or all.

    It takes the logits of both sides, drafts, a generator, and the text before them.
    """
    after, last = corrects or accepts, ends or corrects or accepts

    def verify(p: Any, q: Any, drafts: Any, rng: Any, before: Text = ()) -> list[int]:
        text = (*before, *map(int, drafts))
        for n, x in enumerate(text[len(before) :]):
            so_far = text[: len(before) + n]
            q_n = draft(so_far, q[n])
            if rng.random() * q_n[x] >= accepts(so_far, p[n])[x]:
                return [*drafts[:n], pick(residual(after(so_far, p[n]), q_n), rng.random())]
        return [*drafts, pick(last(text, p[-1]), rng.random())]

    return verify


def chain(*promises: Any, **others: Any) -> Any:
    """The same from probabilities."""
    verify = step(*promises, **others)

    def of_laws(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
        with np.errstate(divide="ignore"):
            return verify(np.log(p), np.log(q), list(map(int, drafts)), rng)

    return of_laws


def on_tree(verify: Any) -> Any:
    """Rule for trees that are chains."""

    def rule(root: Any, rng: Any) -> Any:
        nodes = [root]
        while nodes[-1].drafts is not None:
            nodes.append(nodes[-1].children[int(nodes[-1].draws[0])])
        rows = np.stack([node.target for node in nodes])
        drafted = np.stack([node.drafts.q for node in nodes[:-1]])
        return verify(rows, drafted, nodes[-1].tokens, rng)

    return rule


def audited(verify: Any, promise: Any, size: int = 4, **options: Any) -> Any:
    models = TableModel(size, 6), TableModel(size, 7)
    return mo.audit_tree(
        on_tree(verify), *models, "chain2", 0, promise=promise, driven_checks=5, **options
    )


@pytest.mark.parametrize("name", PROMISES)
def test_what_keeps_its_promise_is_lossless(name: str) -> None:
    promise = PROMISES[name]
    report = audited(chain(promise), promise)
    assert report.verdict_class == "lossless"
    assert 1 < report.accept_length < report.optimal_accept_length


def without_step(promise: Promise) -> Promise:
    return lambda text, logits: promise((), logits)


def one_behind(promise: Promise) -> Promise:
    return lambda text, logits: promise(text[:-1], logits)


WRONG: dict[str, tuple[Promise, Any]] = {
    "acceptance by the model's own law": (penalties, chain(as_it_is, penalties)),
    "penalties but for this step's tokens": (penalties, chain(without_step(penalties))),
    "penalties one token late": (penalties, chain(one_behind(penalties))),
    "penalties not on the last token": (penalties, chain(penalties, ends=as_it_is)),
    "penalties not after a refusal": (penalties, chain(penalties, as_it_is, penalties)),
    "grammar that stays at the step's start": (grammar, chain(without_step(grammar))),
    "grammar on the last token one late": (grammar, chain(grammar, ends=one_behind(grammar))),
    "grammar not on the draft tested": (grammar, chain(as_it_is, grammar)),
    "least length not on the last token": (least_length, chain(least_length, ends=as_it_is)),
    "bias on the residual alone": (biased, chain(as_it_is, biased, as_it_is)),
    "bias on the draft, too, which has none": (biased, chain(biased, draft=biased)),
    "a token twice in a step": (never_twice, chain(without_step(never_twice))),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_its_promise_is_lossy(name: str) -> None:
    promise, verify = WRONG[name]
    report = audited(verify, promise, 3 if promise is penalties else 4)
    assert report.verdict_class == "lossy"
    assert report.total_variation > 0.01


def test_a_draft_has_a_promise_of_its_own() -> None:
    both = {"promise": penalties, "draft_promise": biased}
    assert audited(chain(penalties, draft=biased), **both).verdict_class == "lossless"
    assert audited(chain(penalties), **both).verdict_class == "lossy"
    own = {"promise": mo.Sampling(0.5), "draft_promise": mo.Sampling(2.0)}
    cold, hot = (lambda _, logits, t=t: softmax(logits / t) for t in (0.5, 2.0))
    assert audited(chain(cold, draft=hot), **own).verdict_class == "lossless"
    assert audited(chain(cold, draft=cold), **own).verdict_class == "lossy"


@pytest.mark.parametrize("joint", [True, False])
def test_the_order_of_filters_is_the_one_that_was_promised(joint: bool) -> None:
    def filtered(order: bool) -> Promise:
        sampling = mo.Sampling(2.0, top_k=3, top_p=0.6, joint=order)
        return lambda text, logits: mo.softmax(logits, sampling=sampling)

    promise = mo.Sampling(2.0, top_k=3, top_p=0.6, joint=joint)
    right, other = (chain(filtered(x), draft=filtered(x)) for x in (joint, not joint))
    assert audited(right, promise, 5, max_trees=200).verdict_class == "lossless"
    assert audited(other, promise, 5, max_trees=200).verdict_class == "lossy"


quick = partial(mo.audit_chain, rng=0, num_trials=400, driven_checks=5)


def test_a_chain_is_audited_on_all_laws_on_which_tokens_are_left() -> None:
    report = quick(chain(least_length), promise=least_length)
    assert report.verdict_class == "no deviation"
    told = {one.law: one.refusal for one in report.tried if one.report is None}
    assert "leaves no token" in told["certain target"]
    assert {"random", "zeros", "wide", "long tail"} < {
        one.law for one in report.tried if one.report
    }


def test_the_side_whose_promise_is_not_kept_is_named() -> None:
    report = quick(chain(as_it_is), promise=penalties)
    assert report.verdict_class == "lossy"
    assert report.cause.startswith("the target is not changed as was promised")


def rows(*verifies: Any) -> Any:
    def of_rows(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
        return by_rows(*(partial(verify, rng=rng) for verify in verifies))(p, q, drafts)

    return of_rows


def test_wide_laws_and_rows_of_batches_see_promises_as_well() -> None:
    logits = 2 * np.random.default_rng(1).normal(size=(2, 3, 40))
    wide = partial(mo.audit_chain, rng=0, laws=tuple(logits), num_trials=2_000)

    def bans(text: Text, logits: Any) -> Any:  # nothing that is close to the last tokens
        near = np.abs(np.arange(logits.size)[:, None] - np.array([*text, -99])) < 3
        return softmax(np.where(near.any(axis=1), -np.inf, logits))

    assert wide(chain(bans), promise=bans).verdict_class == "no deviation"
    assert wide(chain(bans, ends=one_behind(bans)), promise=bans).verdict_class == "lossy"

    batch = partial(mo.audit_chain, rng=0, batch=2, promise=bans, num_trials=1_000)
    assert batch(rows(chain(bans))).verdict_class == "no deviation"
    assert batch(rows(chain(bans, ends=as_it_is))).verdict_class == "lossy"


def test_each_row_keeps_a_promise_of_its_own() -> None:
    greedy, sampled = mo.Sampling(temperature=0), mo.Sampling(temperature=0.7, top_k=5)
    promises = [sampled, greedy, sampled]
    kept = [lambda _, logits, x=x: x.law(logits) for x in (sampled, greedy)]
    of_each = [chain(law, draft=law) for law in kept]
    audit = partial(mo.audit_chain, rng=0, batch=3, num_trials=600)
    right = audit(rows(*of_each), promise=promises)
    assert right.clean, right.verdict
    wrong = audit(rows(of_each[0], *of_each), promise=promises)
    assert [one.verdict_class for one in wrong.tried][1:] == ["lossy", "lossy"]
    assert wrong.tried[0].report.clean
    with pytest.raises(InvalidInput, match="2 promises and 3 rows"):
        audit(rows(*of_each), promise=promises[:2])
    with pytest.raises(InvalidInput, match="goes with batch=B"):
        mo.audit_chain(rows(*of_each), promise=promises)


def test_tokens_are_carried_to_the_laws_of_their_places() -> None:
    rows = np.random.default_rng(3).dirichlet(np.ones(12), (2, 3))
    target = PlaceLaws(lambda text: rows[0, len(text)], 3, never_twice)
    draft = PlaceLaws(lambda text: rows[1, len(text)], 2)
    right, wrong = ByText(target, draft), ByText(target, draft)
    rng = np.random.default_rng(4)
    for _ in range(3_000):
        first = int(rng.choice(12, p=target(())))
        second = int(rng.choice(12, p=target((first,))))
        assert right.add((first, second), rng)
        law = residual(target((first,)), 0.5 * draft((first,)))  # more of what the draft has less
        assert wrong.add((first, int(rng.choice(12, p=law))), rng)
    assert min(check.p_value for check in right.examined(rng, 0.99).checks) > 1e-3
    assert min(check.p_value for check in wrong.examined(rng, 0.99).checks) < 1e-9
    assert not right.add((5, 5), rng)  # ruled out


def test_a_token_that_comes_again_too_rarely_is_seen_whatever_it_is() -> None:
    p, q = np.random.default_rng(7).dirichlet(np.ones(40), 2)
    seen = ByText(PlaceLaws(lambda _: p, 2, penalties), PlaceLaws(lambda _: q, 1))
    rng = np.random.default_rng(8)
    for _ in range(4_000):
        first = int(rng.choice(40, p=p))
        seen.add((first, int(rng.choice(40, p=never_twice((first,), np.log(p))))), rng)
    *others, again = seen.examined(rng, 0.99).checks
    assert min(check.p_value for check in others) > 1e-4
    assert again.p_value < 1e-6


def begun(promise: Promise, length: int = TOKENS) -> Callable[..., list[int]]:
    """Go on with a text by so many tokens, in steps of two drafts or as many as there is room."""

    def generate(target: Any, draft: Any, text: list[int]) -> list[int]:
        rng, begin, text = np.random.default_rng(), len(text), list(text)
        while len(text) < begin + length:
            ids, q = list(text), list[Any]()
            for _ in range(min(2, begin + length - len(text) - 1)):
                q.append(np.asarray(draft(ids)[-1]))
                ids.append(pick(softmax(q[-1]), rng.random()))
            p, drafts = np.asarray(target(ids))[len(text) :], ids[len(text) :]
            text += step(promise)(p, q, drafts, rng, tuple(text))
        return text[begin:]

    return generate


def session(promise: Promise, length: int = 6) -> Callable[[Any, Any], list[int]]:
    generate = begun(promise, length)
    return lambda target, draft: generate(target, draft, [])


def test_texts_follow_their_promise() -> None:
    laws = tuple(np.random.default_rng(5).normal(size=(2, 3, 3)))
    text = partial(mo.audit_text, rng=0, laws=laws, method="sampling", num_texts=600)
    assert text(session(penalties), promise=penalties).verdict_class == "no deviation"
    assert text(session(one_behind(penalties)), promise=penalties).verdict_class == "lossy"
    unkept = text(session(as_it_is), promise=penalties)
    assert unkept.verdict_class == "lossy"
    assert "the target is not changed as was promised" in unkept.verdict


def test_beginnings_show_promises_that_change_late() -> None:
    promise = least_length_of(8)
    few: dict[str, Any] = {"method": "sampling", "num_texts": 400, "vocab_sizes": [8]}
    right = mo.audit_text(begun(promise), 0, promise=promise, **few)
    assert right.clean, right.verdict
    behind = [one.models for one in right.tried if "behind" in one.models]
    assert len(behind) == 4
    most = max(int(one.split("behind ")[1].split()[0]) for one in behind) + TOKENS
    assert f"The promise was tried on texts of up to {most} tokens." in right.verdict
    wrong = mo.audit_text(begun(one_behind(promise)), 0, promise=promise, **few)
    assert wrong.verdict_class == "lossy"


def test_without_beginnings_the_longest_text_is_named() -> None:
    generate = session(as_it_is, TOKENS)
    few: dict[str, Any] = {"method": "sampling", "num_texts": 500, "vocab_sizes": [64]}
    report = mo.audit_text(generate, 0, promise=as_it_is, **few)
    assert "The promise was tried on texts of up to 5 tokens." in report.verdict
    assert "texts of up to" not in mo.audit_text(generate, 0, **few).verdict


def test_tables_on_which_no_token_is_left_are_named_and_left_out() -> None:
    report = mo.audit_text(
        session(never_twice, length=3), promise=never_twice, method="driven", driven_checks=5
    )
    assert report.verdict_class == "lossless"
    assert {trial.vocab_size for trial in report.tried} == {4}
    left_out = [note for note in report.notes if note.startswith("left out (V = 2")]
    assert "the promise after (0, 1) leaves no token" in left_out[0]


@pytest.mark.parametrize(
    ("promise", "told"),
    [
        (
            lambda text, logits: softmax(logits)[:-1],
            r"after \(\) has shape \(\d+,\): give \(\d+,\)",
        ),
        (lambda text, logits: 0.9 * softmax(logits), r"after \(\) sums to 0\.9"),
        (lambda text, logits: logits, r"after \(\)\[0\] is -.*, negative"),
        (lambda text, logits: logits * np.nan, r"after \(\) leaves no token"),
        (lambda text, logits: mo.softmax(logits - np.inf), r"after \(\) leaves no token: .*-inf"),
        (
            lambda text, logits: np.where(
                (np.arange(logits.size) > 0) | (text != (2, 0)), softmax(logits), np.nan
            ),
            r"after \(2, 0\)\[0\] is nan",
        ),
        (lambda text, logits: {}[text], r"after \(\) failed with KeyError: \(\)"),
        (lambda text: softmax(text), r"after \(\) failed with TypeError"),
        ("penalties", r"promise is 'penalties': give mdsd_opt\.Sampling"),
        ({"top_k": 2}, r"promise is \{.*a function \(text, logits\)"),
    ],
)
def test_a_promise_that_gives_no_law_is_refused(promise: Any, told: str) -> None:
    for audit in (partial(audited, as_it_is), partial(mo.audit_chain, chain(as_it_is))):
        with pytest.raises(InvalidInput, match=told):
            audit(promise=promise)


def test_a_promise_for_single_tokens_is_refused() -> None:
    with pytest.raises(InvalidInput, match="promise goes with tree"):
        audit_portfolio("rrs", promise=penalties)


class TestLawsOfServers:
    """A promise is held against the likeliest tokens' raw log-probabilities."""

    raw = softmax(np.random.default_rng(8).normal(size=30) * 2)
    few = np.argsort(-raw)[:12]

    def law(self, promise: Promise, listed: Any = None, **options: Any) -> Law | None:
        request = Request(sampling=mo.Sampling(), promise=promise, **options)
        few = dict(zip(self.few.tolist(), np.log(self.raw[self.few]), strict=True))
        written = Answer(
            [3, 5, 3], [None, None, few if listed is None else listed], [False] * 3, True
        )
        return laws_of(written, request, (7, 7))[-1]

    def test_it_is_that_of_a_token_given_that_it_is_listed(self) -> None:
        def counts(text: TextSoFar, logits: Any) -> Any:
            assert (text, text.prompt) == ((3, 5), (7, 7))
            seen = np.bincount([*text, *text.prompt], minlength=logits.size)
            return softmax(logits / 0.7 - 0.6 * seen)

        law, wanted = self.law(counts), counts(self.so_far(), np.log(self.raw))[self.few]
        assert law is not None
        assert law.is_open
        exact = dict(zip(self.few.tolist(), wanted / wanted.sum(), strict=True))
        assert dict(zip(law.ids.tolist(), law.p, strict=True)) == pytest.approx(exact)
        whole = self.law(counts, dict(enumerate(np.log(self.raw))), top=None)
        assert whole is not None
        assert not whole.is_open

    def so_far(self) -> TextSoFar:
        text = TextSoFar((3, 5))
        text.prompt = (7, 7)
        return text

    def test_what_cannot_be_told_from_the_likeliest_is_refused(self) -> None:
        def divides(text: Text, logits: Any) -> Any:
            return penalties((*text, int(logits.argmax())), logits)

        def top_p(text: Text, logits: Any) -> Any:
            return mo.softmax(logits, top_p=0.8)

        for promise in (divides, top_p):
            with pytest.raises(InvalidInput, match="level of the logits"):
                self.law(promise)
        with pytest.raises(InvalidInput, match="before the sampler"):
            self.law(biased, logprobs="processed")
        with pytest.raises(InvalidInput, match="temperature above 0"):
            Request(sampling=mo.Sampling(0.0), promise=biased)
        with pytest.raises(InvalidInput, match="give a function"):
            Request(sampling=mo.Sampling(), promise=mo.Sampling(0.5))

    def test_a_position_where_no_token_is_left_is_passed_over(self) -> None:
        def forced(text: Text, logits: Any) -> Any:  # a token that is not listed
            return softmax(np.where(np.arange(logits.size) == self.few.min() - 1, logits, -np.inf))

        assert self.law(forced) is None

    def test_files_are_audited_under_a_promise(self, tmp_path: Any) -> None:
        rng, lines, size = np.random.default_rng(9), [], 6
        rows = rng.dirichlet(np.ones(size), size)

        def presence(text: Text, logits: Any) -> Any:
            return softmax(logits - 1.5 * np.isin(np.arange(logits.size), text))

        for _ in range(250):
            text: list[int] = []
            for n in range(6):
                law = presence(tuple(text), np.log(rows[text[-1] if n else 0]))
                text.append(int(rng.choice(size, p=law)))
            shown = [rows[0], *rows[text[:-1]]]
            listed = [[[math.log(x), i, None] for i, x in enumerate(row)] for row in shown]
            own = [[math.log(row[x]), x, None] for row, x in zip(shown, text, strict=True)]
            lines.append(
                {
                    "meta_info": {
                        "output_top_logprobs": listed,
                        "output_token_logprobs": own,
                        "spec_draft_token_num": 9,
                    }
                }
            )
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        assert audit_tokens(path, promise=presence).verdict_class == "no deviation"
        assert audit_tokens(path).finding == "no control"
