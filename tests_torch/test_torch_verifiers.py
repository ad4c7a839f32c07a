"""examples/torch_verifiers.py decides as the package does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_verifiers

import mdsd_opt as mo
from mdsd_opt.verifiers import Uniforms

SCHEMES = {"with_replacement": mo.WithReplacement, "without_replacement": mo.WithoutReplacement}
ROWS = 1000


def rows(rng, kind, num_rows, vocab_size):
    """Pairs of rows of positive sum, of one kind."""
    p, q = (rng.dirichlet(np.full(vocab_size, 0.5), num_rows) for _ in "pq")
    if kind == "zeros":
        for law in (p, q):
            law *= rng.random(law.shape) > 0.4
            law[law.sum(1) == 0.0, 0] = 1.0
    elif kind == "ties":
        p, q = (rng.integers(0, 4, p.shape).astype(float) for _ in "pq")
        for law in (p, q):
            law[law.sum(1) == 0.0, 0] = 1.0
    elif kind == "equal":
        q = p.copy()
    elif kind == "peaked":
        p, q = (rng.dirichlet(np.full(vocab_size, 0.05), num_rows) for _ in "pq")
    return p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)


def decided(name, scheme, p, q, drafts, uniforms):
    verify = getattr(torch_verifiers, name)
    given = (torch.as_tensor(x) for x in (p, q, drafts, uniforms))
    verdicts = verify(*given, replacement=scheme == "with_replacement")
    return [column.numpy() for column in verdicts]


def boundary(name, scheme, p, q, drafts, uniforms):
    """Whether moving the uniforms by a hair changes what the package decides."""
    problem = mo.TransportProblem(p, SCHEMES[scheme](q, drafts.size))
    verifier = mo.verifiers.get(name)
    moved = (np.clip(uniforms + shift, 0.0, np.nextafter(1.0, 0.0)) for shift in (-1e-9, 1e-9))
    tokens = {verifier.verify(problem, drafts, Uniforms(*u.tolist())).token for u in moved}
    return len(tokens) > 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["plain", "zeros", "ties", "equal", "peaked"])
@pytest.mark.parametrize("num_drafts", [1, 2, 4])
def test_decisions_are_those_of_the_package(name, scheme, kind, num_drafts):
    rng = np.random.default_rng(num_drafts)
    p, q = rows(rng, kind, ROWS, 9)
    drafts = np.stack([SCHEMES[scheme](law, num_drafts).sample(rng) for law in q])
    uniforms = rng.random((ROWS, 4))
    expected = mo.verifiers.get(name).verify_batch(p, q, drafts, uniforms, scheme)
    found = decided(name, scheme, p, q, drafts, uniforms)
    differs = np.flatnonzero(found[0] != expected.tokens)
    assert differs.size <= 3
    for n in differs:
        # Where the drafts before the last leave less than 1e-7 of q, the package draws the residual
        # in the order of the tokens: after a rejection, another token of the same law.
        scarce = np.delete(q[n], drafts[n, :-1]).sum() < 1e-7
        redrawn = scarce and not found[1][n] and not expected.accepted[n]
        assert redrawn or boundary(name, scheme, p[n], q[n], drafts[n], uniforms[n])
    same = found[0] == expected.tokens
    np.testing.assert_array_equal(found[1][same], expected.accepted[same])
    np.testing.assert_array_equal(found[2][same], expected.draft_index[same])


@pytest.mark.parametrize("name", ["optimal", "rrs"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("noise", "num_drafts"), [(0.0, 2), (1e-3, 4), (0.1, 2), (1, 1), (1, 4), (3, 4)]
)
def test_decisions_on_a_large_vocabulary(name, scheme, noise, num_drafts):
    rng = np.random.default_rng(1)
    target = 2.5 * rng.standard_normal((16, 20_000))
    p, q = mo.softmax(target), mo.softmax(target + noise * rng.standard_normal(target.shape))
    drafts = np.stack([SCHEMES[scheme](law, num_drafts).sample(rng) for law in q])
    uniforms = rng.random((16, 4))
    expected = mo.verifiers.get(name).verify_batch(p, q, drafts, uniforms, scheme)
    np.testing.assert_array_equal(decided(name, scheme, p, q, drafts, uniforms)[0], expected.tokens)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kept", [50, 20_001])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_decisions_on_a_large_vocabulary_of_rounded_and_filtered_weights(scheme, kept, dtype):
    rng = np.random.default_rng(kept)
    target = 2.5 * rng.standard_normal((16, 20_001))
    draft = target + rng.standard_normal(target.shape)
    weights = []
    for logits in (target, draft):
        logits[logits < np.sort(logits, 1)[:, -kept, None]] = -np.inf
        weights.append(torch.as_tensor(3.0 * mo.softmax(logits)).to(dtype))
    p, q = (rounded.double().numpy() for rounded in weights)
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    drafts = np.stack([SCHEMES[scheme](law, 4).sample(rng) for law in q])
    uniforms = rng.random((16, 4))
    uniforms[:8, 2] = 1.0 - 1e-9  # acceptance: some are rejected
    expected = mo.verifiers.get("optimal").verify_batch(p, q, drafts, uniforms, scheme)
    assert not expected.accepted.all()
    found = decided("optimal", scheme, *weights, drafts, uniforms)[0]
    for n in np.flatnonzero(found != expected.tokens):
        assert boundary("optimal", scheme, p[n], q[n], drafts[n], uniforms[n])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_edges_of_hulls_found_in_a_bracket_are_the_same(way, scheme, monkeypatch):
    rng = np.random.default_rng(4)
    p, q = rows(rng, "plain", 300, 40)
    drafts = np.stack([SCHEMES[scheme](law, 3).sample(rng) for law in q])
    uniforms = rng.random((300, 4))
    expected = decided("optimal", scheme, p, q, drafts, uniforms)
    monkeypatch.setattr(torch_verifiers, "_UNGUARDED_STEPS", 1)
    found = decided("optimal", scheme, p, q, drafts, uniforms)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 5000])
def test_tokens_are_drawn_by_the_inverse_of_the_cumulative_law(size):
    rng = np.random.default_rng(size)
    law = rng.random((400, size)) * (rng.random((400, size)) < 0.3)
    law[law.sum(1) == 0.0, 0] = 1.0
    uniforms = rng.random(400)
    uniforms[:2] = 0.0, np.nextafter(1.0, 0.0)
    tokens = torch_verifiers._drawn(torch.as_tensor(law), torch.as_tensor(uniforms)).numpy()
    assert (law[np.arange(400), tokens] > 0.0).all()
    behind = law.cumsum(1)[np.arange(400), tokens]
    before = behind - law[np.arange(400), tokens]
    points = uniforms * law.sum(1)
    slack = 1e-12 * size
    assert ((before <= points + slack) & (points <= behind + slack)).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("uniform", [0.0, float(np.nextafter(1.0, 0.0))])
def test_impossible_tokens_never_come_out(name, scheme, uniform):
    rng = np.random.default_rng(2)
    p, q = rows(rng, "ties", 500, 6)
    drafts = np.stack([SCHEMES[scheme](law, 3).sample(rng) for law in q])
    tokens, accepted, _ = decided(name, scheme, p, q, drafts, np.full((500, 4), uniform))
    assert (p[np.arange(500), tokens] > 0.0).all()
    np.testing.assert_array_equal(accepted, (drafts == tokens[:, None]).any(1))


@pytest.mark.parametrize("name", ["optimal", "rrs"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_audit_finds_them_lossless_and_a_wrong_law_not(name, scheme, wrong):
    problem = mo.TransportProblem(
        [0.4, 0.3, 0.2, 0.1, 0.0], SCHEMES[scheme]([0.1, 0.2, 0.3, 0.3, 0.1], 2)
    )
    other = torch.tensor([[0.2, 0.1, 0.3, 0.3, 0.1]])

    def verify(target, draft, drafts, rng):
        q = other if wrong else torch.tensor(draft)[None]
        uniforms = torch.tensor(rng.random(4))[None]
        given = torch.tensor(target)[None], q, torch.tensor(drafts)[None], uniforms
        replacement = scheme == "with_replacement"
        return int(getattr(torch_verifiers, name)(*given, replacement=replacement).tokens)

    report = mo.audit(verify, problem, rng=0, num_trials=1_500)
    assert report.lossless is not wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_dtypes_decide_as_the_same_numbers_in_float64(dtype):
    rng = np.random.default_rng(3)
    p, q = (torch.as_tensor(law).to(dtype) for law in rows(rng, "plain", 200, 12))
    drafts = torch.multinomial(q.double(), 3, True)
    uniforms = torch.as_tensor(rng.random((200, 4)))
    narrow = torch_verifiers.optimal(p, q, drafts, uniforms)
    wide = torch_verifiers.optimal(p.double(), q.double(), drafts, uniforms)
    assert torch.equal(narrow.tokens, wide.tokens)


def test_one_token_is_always_accepted(name):
    ones = torch.ones(3, 1)
    verify = getattr(torch_verifiers, name)
    verdicts = verify(ones, ones, torch.zeros(3, 2, dtype=torch.int64), torch.rand(3, 4))
    assert verdicts.tokens.tolist() == [0, 0, 0]
    assert verdicts.accepted.all()
