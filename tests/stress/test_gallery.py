"""Every function of the galleries, wrong and right, is put to the audit of its kind of subject.

One table names them all: those whose laws are planted, those of kinds that no audit was made for,
and those that use the numbers of a generator twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import planted_anew
import pytest
from support import chain_verifiers, planted_chains, reused_states

import mdsd_opt as mo
from mdsd_opt.auditing import audit_portfolio
from mdsd_opt.auditing.laws import standard_laws
from mdsd_opt.evidence import Bar

CASES, PARTS = dict(reused_states.CASES), dict(reused_states.PARTS)
try:
    import torch
except ImportError:
    pass
else:
    from support import torch_reused_states

    torch.set_num_threads(1)
    CASES |= torch_reused_states.CASES
    PARTS |= torch_reused_states.PARTS

PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

#: Name, how the subject is audited, and which of `VERDICTS` it gets.
Audit = Callable[[], Any]
Entry = tuple[str, Audit, str]


def of_texts(steps: Any) -> tuple[Any, Any]:
    """Laws and tokens of steps as those of texts of eight."""
    count = len(steps.tokens) // 8
    return steps.p[: 8 * count].reshape(count, 8, -1), steps.tokens[: 8 * count].reshape(count, 8)


def audited(kind: str, make: Callable[[], Any], **options: Any) -> Any:
    """Report of the audit that is meant for such a function, as it is by default."""
    made = make()
    if kind in ("trace", "tokens"):
        if kind == "trace":
            return mo.audit_trace(made.p, made.q, made.drafts, made.tokens)
        control = of_texts(planted_anew.recorded(lambda p, q: p, seed=99))
        return mo.audit_tokens(*of_texts(made), control=control, num_first=0)
    options = {"rng": 0, "seconds": 3_600.0, **options}
    if kind.endswith("text"):
        if "num_trials" in options:
            options["num_texts"] = options.pop("num_trials")
        return mo.audit_text(made, library="torch" if "torch" in kind else "numpy", **options)
    if kind in ("chain", "batch"):
        return mo.audit_chain(made, **({"batch": 3} if kind == "batch" else {}), **options)
    shape = {"num_drafts": 3} if kind == "single" else {"tree": "2x2"}
    return audit_portfolio(made, **shape, **options)


def planted() -> Iterator[Entry]:
    """Functions that are wrong in their laws, or in what they keep, and right ones."""
    for kind, make in planted_chains.wrong_ones().items():
        yield f"chain: {kind}", partial(audited, "chain", make), "wrong"
    for kind, (verify, options) in planted_chains.right_ones().items():
        rounds = kind.endswith("32")  # inside, where the audit does not see it
        audit = partial(audited, "chain", lambda f=verify: f, **options)
        yield f"chain: {kind}", audit, "rounds" if rounds else "right"
    for kind, rows in planted_chains.wrong_batches().items():
        yield f"batch: {kind}", partial(audited, "batch", lambda f=rows: f), "wrong"
    right = planted_chains.as_batch(planted_chains.Parts().made())
    for n in range(2, 22):
        options = {"rng": n, "batch": n, "num_drafts": 1 + n % 3, "num_trials": 2_000}
        yield f"batch: {n} rows", partial(audited, "chain", lambda: right, **options), "right"
    for kind in planted_chains.IN_TEXTS:
        session = planted_chains.as_text(planted_chains.BY_LAW[kind].made())
        yield f"text: {kind}", partial(audited, "text", lambda f=session: f), "wrong"
    for seed in range(20):
        verify, _ = list(planted_chains.right_ones().values())[seed % 15]  # those of NumPy
        session = planted_chains.as_text(verify, 1 + seed % 3)
        options = {"rng": seed, "num_texts": 4_000}
        yield f"text: {seed}", partial(audited, "text", lambda f=session: f, **options), "right"


def anew() -> Iterator[Entry]:
    for (kind, name), make in planted_anew.WRONG.items():
        yield f"anew, {kind}: {name}", partial(audited, kind, make), "off"
    for (kind, name), make in planted_anew.RIGHT.items():
        yield f"anew, {kind}: {name}", partial(audited, kind, make, num_trials=4_000), "not lossy"


def reused() -> Iterator[Entry]:
    """States of generators that are put back, copied, jumped and seeded."""
    for name, case in CASES.items():
        for method in ("auto", "sampling"):
            audit = partial(mo.audit, problem=PROBLEM, method=method)
            told, wrong = f"states, {method}: {name}", reused_states.verifier(case(True))
            yield told, partial(audit, wrong, rng=0, num_trials=10_000), "wrong"
            for seed in range(4):
                harmless = reused_states.verifier(case(False))
                once = partial(audit, harmless, rng=seed, num_trials=4_000)
                yield f"{told}, seed {seed}", once, "right"
    for name, parts in PARTS.items():
        for is_wrong in (True, False):
            verdict = "wrong" if is_wrong else "right"
            chain = reused_states.chain_of(parts, is_wrong)
            yield f"states, chain: {name}", partial(audited, "chain", lambda f=chain: f), verdict
            if name != "rng":
                text = reused_states.text_of(parts, is_wrong)
                yield f"states, text: {name}", partial(audited, "text", lambda f=text: f), verdict


GALLERY = [*planted(), *anew(), *reused()]

#: Classes of verdicts that an entry may have.
VERDICTS = {
    "wrong": {"lossy"},
    "right": {"lossless", "no deviation"},
    "rounds": {"no deviation", "edge"},
    "off": {"lossy", "edge", "no deviation", "not settled", "not judged"},
    "not lossy": {"lossless", "edge", "no deviation", "not settled", "not judged"},
}


@pytest.mark.parametrize(
    ("audit", "expected"),
    [pytest.param(audit, told, id=f"{name}, {told}") for name, audit, told in GALLERY],
)
def test_nothing_wrong_passes_and_nothing_right_is_accused(
    audit: Audit, expected: str, request: pytest.FixtureRequest
) -> None:
    """A share of all entries where that was asked for: the same ones each time."""
    if sum(map(ord, request.node.name)) % 1000 >= 1000 * request.config.getoption("scale"):
        pytest.skip("left out by --scale")
    with np.errstate(all="ignore"):
        report = audit()
    assert report.verdict_class in VERDICTS[expected], report.verdict
    assert expected != "off" or Bar().answer(report) != "PASS", report.verdict


#: Audits of each form of a right chain at scale 1.
AUDITS = 24


@pytest.mark.parametrize("kind", chain_verifiers.CORRECT)
def test_no_seed_accuses_a_right_form(kind: str, request: pytest.FixtureRequest) -> None:
    for seed in range(max(1, round(AUDITS * request.config.getoption("scale")))):
        report = mo.audit_chain(
            chain_verifiers.CORRECT[kind],
            rng=seed,
            num_drafts=1 + seed % 3,
            num_trials=500,
            method="sampling" if seed else "auto",
            driven_checks=10,
            seconds=600.0,
        )
        assert report.verdict_class == "no deviation", f"{kind}, seed {seed}: {report.verdict}"
        driven = [one for one in report.tried if one.report.method == "driven"]
        assert all(one.verdict_class == "lossless" for one in driven)
        all_driven = len(driven) == len(standard_laws(1))
        assert seed or kind == "gumbel" or all_driven, f"{kind}: {len(driven)} were driven"
