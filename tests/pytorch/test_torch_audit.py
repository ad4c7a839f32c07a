"""Audits of rules that draw from PyTorch: every draw served, exact laws, the edges of each type."""

from __future__ import annotations

import random
import re
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from support.reused_states import verifier
from support.torch_reused_states import CASES

import mdsd_opt as mo
from mdsd_opt.auditing import served
from mdsd_opt.auditing.randomness.sources import EdgeSource

P, Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
PROBLEM = mo.TransportProblem(P, mo.WithReplacement(Q, 1))
WITH_ZERO = mo.TransportProblem([0.5, 0.5, 0.0, 0.0], mo.WithReplacement(Q, 1))
OWN = torch.Generator().manual_seed(5)


def plain(x: torch.Tensor):
    return torch.rand_like(x)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it is deprecated; engines still hold such functions
    scripted = torch.jit.script(plain)


WEIGHTS = torch.tensor([[0.2, 0.3, 0.5]])
DRAWS = {
    "rand": lambda: torch.rand(3),
    "rand of a generator": lambda: torch.rand(2, 3, generator=OWN),
    "rand of a type": lambda: torch.rand((3,), dtype=torch.float64),
    "rand out": lambda: torch.rand(3, out=torch.empty(3)),
    "rand_like": lambda: torch.rand_like(WEIGHTS),
    "rand_like of a type": lambda: torch.rand_like(WEIGHTS, dtype=torch.bfloat16),
    "uniform_": lambda: torch.empty(3).uniform_(2.0, 3.0),
    "uniform_ of a view": lambda: torch.zeros(3)[1:].uniform_(generator=OWN),
    "exponential_": lambda: torch.empty(2, 3).exponential_(generator=OWN),
    "exponential_ of a rate": lambda: torch.empty(3).exponential_(2.0),
    "multinomial": lambda: torch.multinomial(WEIGHTS, 1),
    "multinomial method": lambda: WEIGHTS[0].multinomial(2, generator=OWN),
    "multinomial with none left": lambda: torch.multinomial(torch.tensor([0.0, 1.0, 0.0]), 3),
    "multinomial again": lambda: torch.multinomial(WEIGHTS, 5, replacement=True),
    "bernoulli": lambda: torch.bernoulli(WEIGHTS, generator=OWN),
    "bernoulli of a number": lambda: torch.bernoulli(torch.empty(3), p=0.3),
    "bernoulli_": lambda: torch.empty(3).bernoulli_(0.3),
    "bernoulli_ of a half": lambda: torch.empty(3).bernoulli_(),
    "bernoulli_ of a tensor": lambda: torch.empty(3).bernoulli_(torch.tensor([0.1, 0.2, 0.3])),
    "operator": lambda: torch.ops.aten.rand.default([3]),
    "TorchScript": lambda: scripted(WEIGHTS),
    "vmap": lambda: torch.func.vmap(torch.rand_like, randomness="different")(WEIGHTS),
    "categorical": lambda: torch.distributions.Categorical(WEIGHTS).sample(),
    "dropout": lambda: torch.nn.functional.dropout(WEIGHTS),
    "generator made inside": lambda: torch.rand(3, generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_is_served_in_its_type(name: str) -> None:
    plain = DRAWS[name]()
    states = torch.get_rng_state(), OWN.get_state()
    with served(0, [OWN]):
        first = DRAWS[name]()
    with served(0, [OWN]):
        again = DRAWS[name]()
    assert first.dtype == plain.dtype
    assert first.shape == plain.shape
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(OWN.get_state(), states[1])


def test_served_numbers_follow_their_laws() -> None:
    n = 20_000
    with served(1):
        uniform, clocks = torch.rand(n), torch.empty(n).exponential_(2.0)
        drawn = torch.multinomial(torch.tensor([0.0, 0.3, 0.7]), n, replacement=True)
        without = torch.multinomial(torch.tensor([[0.5, 0.0, 0.5]]).expand(n, 3), 2)
        heads = torch.empty(n).bernoulli_(0.25)
        between = torch.empty(n).uniform_(2.0, 3.0)
    assert abs(float(uniform.mean()) - 0.5) < 0.02
    assert abs(float(clocks.mean()) - 0.5) < 0.03
    assert np.allclose(np.bincount(drawn, minlength=3) / n, [0, 0.3, 0.7], atol=0.02)
    assert (without.sort(dim=1).values == torch.tensor([0, 2])).all()
    assert abs(float(heads.mean()) - 0.25) < 0.02
    assert 2 <= float(between.min()) < float(between.max()) < 3


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.multinomial(torch.zeros(1, 3), 1),
        lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1),
        lambda: torch.empty(2).bernoulli_(1.5),
        lambda: torch.empty(2).exponential_(-1.0),
    ],
)
def test_what_torch_refuses_is_refused(draw: Any) -> None:
    with pytest.raises(RuntimeError):
        draw()
    with served(0), pytest.raises(RuntimeError):
        draw()


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("aten.randn", lambda: torch.randn(2)),
        ("aten.randint", lambda: torch.randint(0, 9, (1,))),
        ("aten.randperm", lambda: torch.randperm(4)),
        ("aten.normal_", lambda: torch.empty(2).normal_()),
    ],
)
def test_other_random_operators_draw_by_themselves_and_the_note_has_the_line(
    name: str, draw: Any
) -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        draw()
        return int(np.searchsorted(np.cumsum(p)[:-1], float(torch.rand(())), side="right"))

    report = mo.audit(verify, PROBLEM, 0, 200)
    assert (report.verdict_class, report.method) == ("no deviation", "sampling")
    told = f"it draws from the operator {name}.*, which is not served, at test_torch_audit.py"
    assert re.search(told, report.notes[0])


def in_a_thread() -> float:
    drawn: list[float] = []
    thread = threading.Thread(target=lambda: drawn.append(float(torch.rand(()))))
    thread.start()
    thread.join()
    return drawn[0]


def test_a_draw_that_no_source_answers_is_sampled() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        return int(np.searchsorted(np.cumsum(p)[:-1], in_a_thread(), side="right"))

    reports = [mo.audit(verify, PROBLEM, 3, 500) for _ in range(2)]
    assert numbers(reports[0]) == numbers(reports[1])
    assert (reports[0].verdict_class, reports[0].method) == ("no deviation", "sampling")


QUICK = ("get_rng_state", "get_rng_state kept", "get_rng_state at other sizes", "fork_rng")
OTHERS = ("Generator at the end", "Generator cloned", "Generators of one seed")


@pytest.mark.parametrize("name", [*QUICK, *OTHERS])
def test_a_state_that_comes_back_brings_its_numbers_back(name: str) -> None:
    """All kinds are in the folder `stress`."""
    few = {"num_trials": 2_000, "edge_probes": 16, "driven_checks": 30}
    wrong, right = (mo.audit(verifier(CASES[name](x)), PROBLEM, 0, **few) for x in (True, False))
    assert wrong.verdict_class == "lossy", wrong.verdict
    expected = "lossless" if right.method == "driven" else "no deviation"
    assert right.verdict_class == expected, right.verdict


def test_a_default_generator_that_is_seeded_in_every_call_is_named() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        torch.manual_seed(3)
        return int(np.searchsorted(np.cumsum(p)[:-1], float(torch.rand(())), side="right"))

    report = mo.audit(verify, PROBLEM, 0, 300)
    assert report.verdict_class == "lossy"
    assert "torch.manual_seed(3) begins anew in every call" in report.verdict


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_edges_are_numbers_of_the_type(dtype: Any) -> None:
    """Chosen so that torch's own grid holds them: 1 - 2**-24 in float32, not 1 - 2**-53."""
    digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[dtype]
    source = EdgeSource(np.random.default_rng(0))
    for upper, end in ((False, 0.0), (True, 1 - 2.0**-digits)):
        source.restart(2, upper)
        with served(source):
            drawn = torch.rand(2, 2, dtype=dtype)
        assert drawn.dtype == dtype
        assert float(drawn[1, 0]) == end
        assert float(drawn[0, 0]) != end


def rule(
    draw: Any = lambda: torch.rand(1),
    accept: Any = torch.lt,
    pick: Any = lambda w: torch.multinomial(w, 1),
    dtype: Any = torch.float32,
) -> Any:
    """Single-draft rejection in torch."""

    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        p, q = (torch.tensor(law, dtype=dtype) for law in (target, draft))
        x = int(drafts[0])
        if accept(draw().to(dtype) * q[x], p[x]):
            return x
        return int(pick((p - q).clamp(min=0)))

    return verify


def race(w: Any) -> Any:
    return (w / torch.empty_like(w).exponential_()).argmax()


def gumbel(w: Any) -> Any:
    return (w.log() - (-torch.rand_like(w).log()).log()).argmax()


@pytest.mark.parametrize("pick", [lambda w: torch.multinomial(w, 1), race, gumbel])
def test_the_exact_law_of_a_float32_rule(pick: Any) -> None:
    report = mo.audit(rule(pick=pick), PROBLEM, 0, 200, method="driven", edge_probes=0)
    assert report.clean, report.verdict
    assert report.tolerance == 1e-6
    assert report.total_variation < 3e-7
    assert report.acceptance_rate == pytest.approx(np.minimum(P, Q).sum(), abs=1e-6)


@pytest.mark.parametrize("pick", [race, gumbel])
def test_a_race_with_wrong_weights_is_found_exactly(pick: Any) -> None:
    wrong = rule(pick=lambda w: pick(w.sqrt()))
    report = mo.audit(wrong, PROBLEM, 0, 100, method="driven", edge_probes=0)
    left = np.maximum(P - Q, 0)
    root = np.sqrt(left) / np.sqrt(left).sum()
    law = np.minimum(P, Q) + left.sum() * root
    assert not report.clean
    assert report.total_variation == pytest.approx(0.5 * np.abs(law - P).sum(), abs=3e-7)


def test_exponentials_that_are_no_race_are_sampled_and_the_reason_is_said() -> None:
    edges = torch.tensor(special.gammaincinv(2, np.cumsum(P)[:-1]))  # quantiles of sums of two

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        return int(torch.searchsorted(edges, torch.empty(2).exponential_().sum().double()))

    report = mo.audit(verify, PROBLEM, 0, 2_000, method="driven", edge_probes=0)
    assert (report.verdict_class, report.method) == ("no deviation", "sampling"), report.verdict
    assert any(re.search(r"not driven.*(race|argmax)", note) for note in report.notes)


def test_float32_arithmetic_is_not_a_finding_but_more_is() -> None:
    """At 1e-6, what float32 rounds away passes; a bias of 1e-5 does not."""

    def biased(w: Any) -> Any:
        return torch.multinomial(w + 4e-5 * w.sum() * torch.tensor([0.0, 0.0, 1.0, 0.0]), 1)

    report = mo.audit(rule(pick=biased), PROBLEM, 0, 100, method="driven", edge_probes=0)
    assert not report.clean
    assert report.total_variation == pytest.approx(0.4 * 4e-5, rel=1e-3)


def test_coins_of_python_beside_float32_arithmetic_are_no_finding() -> None:
    """The coins have 53 bits, the residual that the last token is drawn by has 24."""

    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        p, q = torch.tensor(target).float(), torch.tensor(draft).float()
        x = int(drafts[0])
        if random.random() < float(p[x] / q[x]):
            return x
        left = (p - q).clamp(min=0)
        return int(torch.multinomial(left / left.sum(), 1))

    report = mo.audit(verify, PROBLEM, 0, 100, method="driven", edge_probes=0)
    assert report.tolerance == 1e-6
    assert 1e-9 < report.total_variation < 1e-6
    assert report.clean, report.verdict


def test_float32_arithmetic_beside_draws_of_float64() -> None:
    """Nothing drawn shows that q is rounded: the tensors do."""
    problem = mo.TransportProblem([0.7, 0.3], mo.WithReplacement([0.45, 0.55], 1))

    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        p, q, x = torch.tensor(target), torch.tensor(draft).float(), int(drafts[0])
        u = torch.rand(1, dtype=torch.float64)
        return x if bool(u < p[x] / q[x]) else int((p - q).argmax())

    report = mo.audit(verify, problem, 0, 100, method="driven", edge_probes=0)
    assert report.tolerance == 1e-6
    assert 1e-9 < report.total_variation < 1e-6
    assert report.clean, report.verdict


def test_attention_without_dropout_draws_nothing() -> None:
    """As in any call of a language model."""
    attend = torch.nn.functional.scaled_dot_product_attention
    x = torch.rand(1, 1, 2, 8)
    expected = attend(x, x, x)
    with served(0):
        assert torch.equal(attend(x, x, x), expected)


def test_compiled_functions_are_served() -> None:
    """By a mode with torch's guard, without which what it does would be compiled as well."""

    def rule(p: Any, q: Any, x: Any) -> Any:
        left = (p - q).clamp(min=0)
        recovered = (left / torch.empty_like(left).exponential_()).argmax()
        return torch.where(torch.rand(()) * q[x] < p[x], x, recovered)

    p = torch.tensor([0.4, 0.3, 0.2, 0.1])
    given = p, p.flip(0), torch.tensor(2)
    compiled = torch.compile(rule, backend="eager")
    tokens = []
    for called in (compiled, rule):
        with served(0):
            tokens.append([int(called(*given)) for _ in range(30)])
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0])) > 1


def test_a_correct_rule_is_never_accused() -> None:
    """The upper edge of float32 is below one: 1 - 2**-53 would round to it."""
    for seed in range(300):
        report = mo.audit(rule(), WITH_ZERO, seed, 40, method="sampling", edge_probes=64)
        assert report.clean, report.verdict
        assert 0 < report.num_edge_probes <= 64


@pytest.mark.parametrize(
    ("dtype", "rarity", "mass"),
    [
        (torch.float64, 53, 0.7 * 2.0**-53),
        (torch.float32, 24, 0.7 * 2.0**-24),
        (torch.float16, 12, 0.7 * (2.0**-12 + 2.0**-24)),
        (torch.bfloat16, 9, 0.7 * (2.0**-9 + 2.0**-24)),
    ],
)
def test_accepting_at_zero_has_its_probability(dtype: Any, rarity: int, mass: float) -> None:
    """In half precision that is no curiosity."""
    verify = rule(lambda: torch.rand(1, dtype=dtype), torch.le, dtype=torch.float64)
    sampled = mo.audit(verify, WITH_ZERO, 0, 60, method="sampling")
    assert not sampled.clean
    if not sampled.num_violations:
        edge = f"draw 0 (uniform) equal to 0, once in 2**{rarity} draws, gave token"
        assert edge in sampled.verdict
    driven = mo.audit(verify, WITH_ZERO, 0, 60, method="driven", edge_probes=0)
    assert not driven.clean
    assert driven.impossible_mass == pytest.approx(mass, rel=1e-3)
    assert "impossible tokens" in dict(driven.rows())


def test_torch_imported_by_the_first_call_is_served() -> None:
    import subprocess
    import sys

    code = """if True:
        import mdsd_opt as mo, sys
        def verify(p, q, drafts, rng):
            import torch
            return int(torch.multinomial(torch.tensor(p), 1))
        problem = mo.TransportProblem([.5, .3, .2], mo.WithReplacement([.2, .3, .5], 1))
        assert "torch" not in sys.modules
        a, b = (mo.audit(verify, problem, 0, 200, edge_probes=0) for _ in range(2))
        assert a.clean and b.clean
        report = mo.audit(verify, problem, 0, 100, method="driven")
        assert report.total_variation < 1e-12, report
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def drawn_by_torch(rng: Any, size: int) -> Any:
    """Drafts of a draft model whose sampler is torch's."""
    return torch.multinomial(torch.tensor(Q).expand(size, 4), 1).numpy()


class Simulated:
    """What draws its own drafts, from torch."""

    def simulate(self, problem: Any, rng: Any, size: int) -> Any:
        drafts = drawn_by_torch(rng, size)
        p, q = torch.tensor(P), torch.tensor(Q)
        x = torch.from_numpy(drafts[:, 0])
        left = torch.multinomial((p - q).clamp(min=0).expand(size, 4), 1)[:, 0]
        return drafts, torch.where(torch.rand(size) < (p / q)[x], x, left)


def numbers(report: Any) -> list[Any]:
    return [report.p_value, report.total_variation, *(check.p_value for check in report.checks)]


def test_samplers_of_drafts_are_served() -> None:
    """The seed of the audit alone decides, and torch's own generator stays where it was."""
    seen = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        drafts = mo.audit_drafts(drawn_by_torch, mo.WithReplacement(Q, 1), 0, 2_000)
        whole = mo.audit(Simulated(), PROBLEM, 0, 2_000)
        assert torch.equal(before, torch.get_rng_state())
        assert drafts.clean
        assert whole.clean, whole.verdict
        seen.append([numbers(drafts), numbers(whole)])
    assert seen[0] == seen[1]


def test_tensors_of_logits_follow_a_promise_that_depends_on_the_text() -> None:
    def penalised(text: Any, logits: Any) -> Any:
        return torch.softmax(torch.as_tensor(logits) - 1.5 * counts(text, len(logits)), -1)

    def counts(text: Any, size: int) -> torch.Tensor:
        return torch.bincount(torch.tensor(text, dtype=torch.int64), minlength=size)

    def verify(p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, seen: int = 9) -> Any:
        q, kept = torch.softmax(q, -1), drafts.tolist()
        for n, x in enumerate(kept):
            law = penalised(kept[: min(n, seen)], p[n])
            if torch.rand(()) * q[n, x] >= law[x]:
                left = torch.clamp(law - q[n], min=0)
                return [*kept[:n], torch.multinomial(left if left.sum() > 0 else law, 1)]
        return [*kept, torch.multinomial(penalised(kept[:seen], p[-1]), 1)]

    laws = tuple(np.random.default_rng(2).normal(size=(2, 3, 6)))
    options: Any = {"takes": "logits", "library": "torch", "num_trials": 600, "laws": laws}
    right = mo.audit_chain(verify, promise=penalised, **options)
    assert right.verdict_class == "no deviation"
    wrong = mo.audit_chain(lambda p, q, d: verify(p, q, d, 0), promise=penalised, **options)
    assert wrong.verdict_class == "lossy"


def accepted_and_last(p, q, drafts):
    """A chain that returns the accepted drafts and the last token, as tensors."""
    for n, x in enumerate(drafts[0].tolist()):
        if torch.rand(()) * q[0, n, x] >= p[0, n, x]:
            left = (p[0, n] - q[0, n]).clamp(min=0)
            return drafts[0, :n], torch.multinomial(left, 1)[0]
    return drafts[0], torch.multinomial(p[0, -1], 1)[0]


@mo.parametrize_with_checks(
    [accepted_and_last], library="torch", batch=True, num_trials=400, detect=1.0
)
def test_a_chain_of_tensors_passes_all_checks(subject, check):
    check(subject)


def test_a_chain_that_writes_to_tensors_is_told():
    def in_place(p, q, drafts):
        answer = accepted_and_last(p, q, drafts)
        p[0, 0] -= q[0, 0]
        return answer

    cases = mo.parametrize_with_checks([in_place], library="torch", batch=True).mark.args[1]
    (check,) = [x.values[1] for x in cases if repr(x.values[1]) == "inputs_kept"]
    with pytest.raises(AssertionError, match="a call writes to what it is given"):
        check(in_place)
