"""Promises that depend on the text: engines with penalties, grammars, biases, and their faults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

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


def law_of(logits: Any) -> Any:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def penalties(text: Text, logits: Any) -> Any:
    """Repetition, presence and frequency."""
    logits = logits.copy()
    for token in set(text):
        logits[token] *= 1.2 if logits[token] < 0 else 1 / 1.2
        logits[token] -= 0.5 + 0.4 * text.count(token)
    return law_of(logits)


def grammar(text: Text, logits: Any) -> Any:
    """Even tokens and odd ones in turn."""
    wrong = np.arange(logits.size) % 2 != len(text) % 2
    if text and text[-1] == 1:
        wrong = ~wrong & (np.arange(logits.size) != 0)  # a state that a token leads to
    return law_of(np.where(wrong, -np.inf, logits))


def least_length(text: Text, logits: Any) -> Any:
    """No token 0 among the first three."""
    return law_of(np.where((np.arange(logits.size) == 0) & (len(text) < 3), -np.inf, logits))


def biased(text: Text, logits: Any) -> Any:
    return law_of(logits + np.where(np.arange(logits.size) == 1, 1.5, 0.0))


def never_twice(text: Text, logits: Any) -> Any:
    return law_of(np.where(np.isin(np.arange(logits.size), text), -np.inf, logits))


def as_it_is(text: Text, logits: Any) -> Any:
    return law_of(logits)


PROMISES = {f.__name__: f for f in (penalties, grammar, least_length, biased, never_twice)}


def residual(p: Any, q: Any) -> Any:
    left = np.maximum(p - q, 0)
    return left / left.sum() if left.sum() > 0 else p


def chain(
    accepts: Promise,
    corrects: Promise | None = None,
    ends: Promise | None = None,
    draft: Promise = as_it_is,
) -> Any:
    """Verify a chain under a promise for acceptance, and perhaps others after a refusal, or all."""
    after, last = corrects or accepts, ends or corrects or accepts

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
        with np.errstate(divide="ignore"):
            p, q = np.log(p), np.log(q)
        text = tuple(int(x) for x in drafts)
        for n, x in enumerate(text):
            q_n = draft(text[:n], q[n])
            if rng.random() * q_n[x] >= accepts(text[:n], p[n])[x]:
                law = residual(after(text[:n], p[n]), q_n)
                return [*text[:n], int(rng.choice(law.size, p=law))]
        law = last(text, p[-1])
        return [*text, int(rng.choice(law.size, p=law))]

    return verify


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
    cold, hot = (lambda _, logits, t=t: law_of(logits / t) for t in (0.5, 2.0))
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


def test_wide_laws_and_rows_of_batches_see_promises_as_well() -> None:
    logits = 2 * np.random.default_rng(1).normal(size=(2, 3, 40))
    wide = partial(mo.audit_chain, rng=0, laws=tuple(logits), num_trials=2_000)

    def bans(text: Text, logits: Any) -> Any:  # nothing that is close to the last tokens
        near = np.abs(np.arange(logits.size)[:, None] - np.array([*text, -99])) < 3
        return law_of(np.where(near.any(axis=1), -np.inf, logits))

    assert wide(chain(bans), promise=bans).verdict_class == "no deviation"
    assert wide(chain(bans, ends=one_behind(bans)), promise=bans).verdict_class == "lossy"

    def rows(verify: Any) -> Any:
        def of_rows(p: Any, q: Any, drafts: Any, rng: Any) -> Any:
            sizes = (drafts >= 0).sum(axis=1).tolist()
            answers = [
                verify(p[b, : n + 1], q[b, :n], drafts[b, :n], rng) for b, n in enumerate(sizes)
            ]
            return [x + [-1] * (drafts.shape[1] + 1 - len(x)) for x in answers]

        return of_rows

    batch = partial(mo.audit_chain, rng=0, batch=2, promise=bans, num_trials=1_000)
    assert batch(rows(chain(bans))).verdict_class == "no deviation"
    assert batch(rows(chain(bans, ends=as_it_is))).verdict_class == "lossy"


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


def session(promise: Promise, ends: Promise | None = None, length: int = 6) -> Any:
    """Write a text in steps of two drafts."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        rng = np.random.default_rng()
        while len(text) < length:
            start, drafts = len(text), text[:0]
            for _ in range(2):
                q = law_of(draft([*text, *drafts])[-1])
                drafts.append(int(rng.choice(q.size, p=q)))
            p, q = (model([*text, *drafts])[start:] for model in (target, draft))
            for n in range(3):
                if len(text) == length:
                    break
                p_n = (promise if n < 2 or ends is None else ends)(tuple(text), p[n])
                if n == 2:
                    text.append(int(rng.choice(p_n.size, p=p_n)))
                elif rng.random() * law_of(q[n])[drafts[n]] < p_n[drafts[n]]:
                    text.append(drafts[n])
                else:
                    text.append(int(rng.choice(p_n.size, p=residual(p_n, law_of(q[n])))))
                    break
        return text

    return generate


def test_texts_follow_their_promise() -> None:
    laws = tuple(np.random.default_rng(5).normal(size=(2, 3, 3)))
    text = partial(mo.audit_text, rng=0, laws=laws, method="sampling", num_texts=600)
    assert text(session(penalties), promise=penalties).verdict_class == "no deviation"
    assert text(session(one_behind(penalties)), promise=penalties).verdict_class == "lossy"
    unkept = text(session(as_it_is), promise=penalties)
    assert unkept.verdict_class == "lossy"
    assert "the target is not changed as was promised" in unkept.verdict


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
        (lambda text, logits: law_of(logits)[:-1], r"after \(\) has shape \(\d+,\): give \(\d+,\)"),
        (lambda text, logits: 0.9 * law_of(logits), r"after \(\) sums to 0\.9"),
        (lambda text, logits: logits, r"after \(\)\[0\] is -.*, negative"),
        (lambda text, logits: logits * np.nan, r"after \(\) leaves no token"),
        (lambda text, logits: mo.softmax(logits - np.inf), r"after \(\) leaves no token: .*-inf"),
        (
            lambda text, logits: np.where(
                (np.arange(logits.size) > 0) | (text != (2, 0)), law_of(logits), np.nan
            ),
            r"after \(2, 0\)\[0\] is nan",
        ),
        (lambda text, logits: {}[text], r"after \(\) failed with KeyError: \(\)"),
        (lambda text: law_of(text), r"after \(\) failed with TypeError"),
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

    raw = law_of(np.random.default_rng(8).normal(size=30) * 2)
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
            return law_of(logits / 0.7 - 0.6 * seen)

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
            return law_of(np.where(np.arange(logits.size) == self.few.min() - 1, logits, -np.inf))

        assert self.law(forced) is None

    def test_files_are_audited_under_a_promise(self, tmp_path: Any) -> None:
        rng, lines, size = np.random.default_rng(9), [], 6
        rows = rng.dirichlet(np.ones(size), size)

        def presence(text: Text, logits: Any) -> Any:
            return law_of(logits - 1.5 * np.isin(np.arange(logits.size), text))

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
