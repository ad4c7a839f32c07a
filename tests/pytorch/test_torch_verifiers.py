"""examples/torch_verifiers.py: laws are exact, acceptance is next to optimal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_verifiers
from support.paste_file_laws import SCHEMES, output_law, verdicts

import mdsd_opt as mo


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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_so_it_has_in_all_bins(scheme):
    (p,), (q,) = rows(np.random.default_rng(6), "plain", 1, 4)
    law, accepted = output_law("optimal", scheme, p, q, 2)
    np.testing.assert_allclose(law, p, rtol=0.0, atol=2e-9)
    assert accepted == pytest.approx(best(scheme, p, q, 2), abs=1e-9)


def best(scheme, p, q, num_drafts):
    problem = mo.TransportProblem(p, SCHEMES[scheme](q, num_drafts))
    return mo.solve(problem, "subset_selection").acceptance_rate


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_law_of_other_drafts_is_seen(name, scheme):
    p, q, other = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.25, 0.3, 0.45]])
    law, _ = output_law(name, scheme, p, q, 2, believed=other)
    assert np.abs(law - p).max() > 1e-3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("num_rows", "vocab_size"), [(24, 9), (8, 3000)])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 1, 3])
@pytest.mark.parametrize("num_drafts", [1, 2, 4, 8])
def test_acceptance_is_next_to_optimal(scheme, num_rows, vocab_size, noise, num_drafts):
    """What is left of p is what is not accepted; most is lost where p is all but q."""
    rng = np.random.default_rng(3)
    target = 2.5 * rng.standard_normal((num_rows, vocab_size))
    p, q = mo.softmax(target), mo.softmax(target + noise * rng.standard_normal(target.shape))
    replacement = scheme == "with_replacement" or num_drafts == 1
    given = (torch.as_tensor(law) for law in (p, q))
    drafts = torch.multinomial(torch.as_tensor(q), num_drafts, replacement)
    levels = torch.zeros(num_rows, dtype=torch.float64)
    decision = torch_verifiers._hull_rule(*given, drafts, levels, replacement)
    p_left = torch_verifiers._excess(
        torch.as_tensor(p), torch.as_tensor(q), decision.ratio, decision.bins
    )
    drafts_of = scheme if num_drafts > 1 else "with_replacement"
    optimum = mo.acceptance_rates(np.log(p), np.log(q), num_drafts, drafts=drafts_of)
    lost = np.ravel(optimum) - (1.0 - p_left.sum(1).numpy())
    assert lost.min() > -1e-9
    assert lost.max() < (6e-4 if replacement else 2e-3)
    if noise >= 1 and vocab_size > 1000:
        assert lost.max() < (3e-5 if replacement else 3e-4)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_edges_of_hulls_found_in_a_bracket_are_the_same(bins, scheme, monkeypatch):
    rng = np.random.default_rng(4)
    p, q = rows(rng, "plain", 300, 40)
    drafts = np.stack([SCHEMES[scheme](law, 3).sample(rng) for law in q])
    uniforms = rng.random((300, 4))
    expected = verdicts("optimal", scheme, p, q, drafts, uniforms)
    monkeypatch.setattr(torch_verifiers, "_NEWTON_STEPS", 1)
    monkeypatch.setattr(torch_verifiers, "_BRACKET_STEPS", 60)
    found = verdicts("optimal", scheme, p, q, drafts, uniforms)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 5000])
def test_tokens_are_drawn_by_the_inverse_of_the_cumulative_law(size):
    rng = np.random.default_rng(size)
    law = rng.random((400, size)) * (rng.random((400, size)) < 0.3)
    law[law.sum(1) == 0.0, 0] = 1.0
    uniforms = rng.random(400)
    uniforms[:2] = 0.0, np.nextafter(1.0, 0.0)
    # A level of zero leaves all of it; of two drafts a known amount more is left.
    drafts = torch.as_tensor(np.stack([rng.permutation(max(size, 2))[:2] % size for _ in law]))
    extra = torch.as_tensor(rng.random((400, 2)))
    p = torch.as_tensor(law)
    decision = torch_verifiers._Decision(extra, torch.zeros(400, 1), extra, None)
    tokens = torch_verifiers._drawn(p, p, drafts, decision, torch.as_tensor(uniforms)).numpy()
    law = p.scatter_add(1, drafts, extra).numpy()
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
    uniforms = np.full((500, 4), uniform)
    tokens, accepted, _ = (x.numpy() for x in verdicts(name, scheme, p, q, drafts, uniforms))
    assert (p[np.arange(500), tokens] > 0.0).all()
    np.testing.assert_array_equal(accepted, (drafts == tokens[:, None]).any(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_dtypes_decide_as_the_same_numbers_in_float64(dtype):
    rng = np.random.default_rng(3)
    p, q = (torch.as_tensor(law).to(dtype) for law in rows(rng, "plain", 200, 12))
    drafts = torch.multinomial(q.double(), 3, True)
    uniforms = torch.as_tensor(rng.random((200, 3)))
    narrow = torch_verifiers.optimal(p, q, drafts, uniforms)
    wide = torch_verifiers.optimal(p.double(), q.double(), drafts, uniforms)
    assert torch.equal(narrow.tokens, wide.tokens)


def test_other_uniforms_are_refused(name):
    p = torch.full((2, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"uniforms are \[2, 4\]: give \[N, 3\]"):
        getattr(torch_verifiers, name)(p, p, torch.zeros(2, 1, dtype=torch.int64), torch.rand(2, 4))
