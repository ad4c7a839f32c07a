"""examples/torch_verifiers.py in the hard cases: rare tails, one-hot rows, little support."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_verifiers
from support.paste_file_laws import SCHEMES, output_law, verdicts

import mdsd_opt as mo
from mdsd_opt.verifiers import Uniforms

ROWS = 40


def normalised(rows):
    return rows / rows.sum(1, keepdims=True)


def one_hot(rng, size):
    return np.eye(size)[rng.integers(0, size, ROWS)]


def spread(rng, size):
    return rng.dirichlet(np.full(size, 0.5), ROWS)


def rare(rng, size, mass):
    """Probability one beside a tail of `mass`, somewhere among the tokens."""
    return normalised(np.maximum(one_hot(rng, size), mass * rng.uniform(0.5, 1.5, (ROWS, size))))


def scales(rng, size):
    """Every token many orders of magnitude from the others."""
    return normalised(10.0 ** -rng.integers(0, 40, (ROWS, size)))


def from_logits(rng, size):
    """Half of the logits are -inf."""
    logits = np.where(rng.random((ROWS, size)) < 0.5, -np.inf, 20 * rng.normal(size=(ROWS, size)))
    logits[np.isinf(logits).all(1), 0] = 0.0
    return torch.as_tensor(logits).softmax(1).numpy()


def twice(rows):
    return rows, rows


CASES = {
    "rare tail in the draft, 1e-14": lambda rng, v: (spread(rng, v), rare(rng, v, 1e-14)),
    "rare tail in the draft, 1e-20": lambda rng, v: (spread(rng, v), rare(rng, v, 1e-20)),
    "rare tail in the draft, 1e-40": lambda rng, v: (spread(rng, v), rare(rng, v, 1e-40)),
    "rare tail in the target": lambda rng, v: (rare(rng, v, 1e-20), spread(rng, v)),
    "rare tails in both": lambda rng, v: (rare(rng, v, 1e-20), rare(rng, v, 1e-20)),
    "the same rare tail": lambda rng, v: twice(rare(rng, v, 1e-20)),
    "many scales": lambda rng, v: (scales(rng, v), scales(rng, v)),
    "one-hot draft": lambda rng, v: (spread(rng, v), one_hot(rng, v)),
    "one-hot target": lambda rng, v: (one_hot(rng, v), spread(rng, v)),
    "one-hot both": lambda rng, v: (one_hot(rng, v), one_hot(rng, v)),
    "logits of -inf": lambda rng, v: (from_logits(rng, v), from_logits(rng, v)),
    "equal": lambda rng, v: twice(spread(rng, v)),
    "uniform": lambda rng, v: twice(np.full((ROWS, v), 1.0 / v)),
}


def as_package_sees(rows):
    return normalised(rows.double().numpy())


def may_differ(problem, drafts, uniforms):
    """A tie that a hair decides, or a residual token, whose order is nobody's promise."""
    shifts = [np.clip(uniforms + e, 0.0, np.nextafter(1.0, 0.0)) for e in (-1e-7, 1e-7)]
    other = np.linspace(0.0, 0.999, 200)
    residuals = [np.array([*uniforms[:3], r]) for r in other]
    verifier = mo.verifiers.get("rrs")
    hair = {verifier.verify(problem, drafts, Uniforms(*u.tolist())).token for u in shifts}
    drawn = {verifier.verify(problem, drafts, Uniforms(*u.tolist())).token for u in residuals}
    return len(hair) > 1 or len(drawn) > 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_decisions_are_those_of_the_package_or_at_least_possible(name, scheme, case, dtype):
    for vocab_size, num_drafts in [(1, 2), (3, 4), (6, 1), (6, 2), (6, 4)]:
        rng = np.random.default_rng(num_drafts)
        p, q = (torch.as_tensor(rows).to(dtype) for rows in CASES[case](rng, vocab_size))
        wide_p, wide_q = as_package_sees(p), as_package_sees(q)
        drafts = np.stack([SCHEMES[scheme](law, num_drafts).sample(rng) for law in wide_q])
        uniforms = rng.random((ROWS, 4))
        found = verdicts(name, scheme, p, q, drafts, uniforms)
        tokens = found.tokens.numpy()
        assert (wide_p[np.arange(ROWS), tokens] > 0.0).all()
        if name == "optimal":  # bins decide otherwise: the law is what is asked of them
            continue
        expected = mo.verifiers.get(name).verify_batch(wide_p, wide_q, drafts, uniforms, scheme)
        differs = np.flatnonzero(tokens != expected.tokens)
        assert differs.size <= 6
        for n in differs:
            problem = mo.TransportProblem(wide_p[n], SCHEMES[scheme](wide_q[n], num_drafts))
            assert may_differ(problem, drafts[n], uniforms[n])
        same = tokens == expected.tokens
        for column in ("accepted", "draft_index"):
            told = getattr(found, column).numpy()
            np.testing.assert_array_equal(told[same], getattr(expected, column)[same])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", CASES)
def test_the_output_has_the_law_of_the_target(name, scheme, case):
    for vocab_size, num_drafts in [(1, 2), (4, 1), (4, 2), (4, 3), (3, 4)]:
        p, q = (rows[0] for rows in CASES[case](np.random.default_rng(7), vocab_size))
        law, accepted = output_law(name, scheme, p, q, num_drafts)
        np.testing.assert_allclose(law, p, rtol=0.0, atol=2e-9)
        problem = mo.TransportProblem(p, SCHEMES[scheme](q, num_drafts))
        assert accepted <= mo.solve(problem, "subset_selection").acceptance_rate + 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounded_numbers_have_exact_laws_too(name, scheme, dtype):
    p, q = (torch.as_tensor(spread(np.random.default_rng(s), 4))[0].to(dtype) for s in (1, 2))
    law, _ = output_law(name, scheme, p, as_package_sees(q[None])[0], 3, believed=q)
    np.testing.assert_allclose(law, as_package_sees(p[None])[0], rtol=0.0, atol=2e-9)


@pytest.mark.parametrize("num_drafts", [2, 3, 4, 5])
@pytest.mark.parametrize("mass", [0.3, 1e-8, 1e-14, 1e-20, 1e-60])
def test_containment_without_replacement_keeps_every_digit(bins, mass, num_drafts):
    q = rare(np.random.default_rng(0), 6, mass)
    same_containment(q * np.arange(1, 7), q, num_drafts)


@pytest.mark.parametrize("num_drafts", [2, 3, 4, 6])
@pytest.mark.parametrize("scale", [0.1, 3.0, 12.0])
def test_containment_with_thousands_of_light_tokens(bins, num_drafts, scale):
    rng = np.random.default_rng(num_drafts)
    q = mo.softmax(scale * rng.standard_normal((2, 3000)))
    same_containment(q * np.exp(rng.standard_normal(q.shape)), q, num_drafts)


def same_containment(p, q, num_drafts):
    """Chance that all drafts are in the first bins, as the package says it of their tokens."""
    p, q = (torch.as_tensor(normalised(x)) for x in (p, q))
    plan = torch_verifiers._plan(p, q, num_drafts, False)
    for n, bins in enumerate(plan.bins.numpy()):
        order = np.argsort(bins, kind="stable")
        curve = mo.WithoutReplacement(q[n].numpy(), num_drafts).prefix_containment(order)
        ends = np.searchsorted(bins[order], np.arange(plan.contained.shape[1]))
        np.testing.assert_allclose(plan.contained[n], curve[ends], rtol=0.0, atol=3e-13)


def test_a_generator_gives_the_uniforms(name):
    p = torch.rand(50, 8, generator=torch.Generator().manual_seed(1))
    q = torch.rand(50, 8, generator=torch.Generator().manual_seed(2))
    drafts = torch.multinomial(q, 3, True, generator=torch.Generator().manual_seed(3))
    uniforms = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    function = getattr(torch_verifiers, name)
    drawn = function(p, q, drafts, generator=torch.Generator().manual_seed(4))
    assert torch.equal(drawn.tokens, function(p, q, drafts, uniforms).tokens)


def test_token_ids_may_be_int32(name):
    p, q = torch.rand(20, 6), torch.rand(20, 6)
    drafts, uniforms = torch.multinomial(q, 2), torch.rand(20, 3)
    function = getattr(torch_verifiers, name)
    narrow = function(p, q, drafts.int(), uniforms, replacement=False)
    wide = function(p, q, drafts, uniforms, replacement=False)
    assert torch.equal(narrow.tokens, wide.tokens)
    assert narrow.tokens.dtype == torch.int64
