"""Functions of kinds that no audit was made for: no wrong one passes, no right one is accused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planted_anew import RIGHT, WRONG, measured, recorded

import mdsd_opt as mo
from mdsd_opt.auditing import audit_portfolio
from mdsd_opt.evidence import Bar


@pytest.fixture(autouse=True)
def _some_of_them(request: pytest.FixtureRequest) -> None:
    """A share of all kinds where that was asked for: the same ones each time."""
    number = sum(map(ord, request.node.name))
    if number % 1000 >= 1000 * request.config.getoption("scale"):
        pytest.skip("left out by --scale")


def of_texts(steps: Any) -> tuple[Any, Any]:
    """Laws and tokens of steps as those of texts of eight."""
    count = len(steps.tokens) // 8
    return steps.p[: 8 * count].reshape(count, 8, -1), steps.tokens[: 8 * count].reshape(count, 8)


def audited(kind: str, made: Any, **options: Any) -> Any:
    """Report of the audit that is meant for such a function, as it is by default."""
    if "torch" in kind:
        pytest.importorskip("torch").set_num_threads(1)
    if kind == "single":
        return audit_portfolio(made, rng=0, seconds=600.0, num_drafts=3, **options)
    if kind == "tree":
        return audit_portfolio(made, rng=0, seconds=600.0, tree="2x2", **options)
    if kind == "batch":
        return mo.audit_chain(made, rng=0, seconds=600.0, batch=3, **options)
    if kind.endswith("text"):
        given = {"num_texts": options["num_trials"]} if options else {}
        library = "torch" if "torch" in kind else "numpy"
        return mo.audit_text(made, 0, library=library, seconds=600.0, **given)
    if kind == "chain":
        return mo.audit_chain(made, rng=0, seconds=600.0, **options)
    steps = made()
    if kind == "trace":
        return mo.audit_trace(steps.p, steps.q, steps.drafts, steps.tokens)
    control = of_texts(recorded(lambda p, q: p, seed=99))
    return mo.audit_tokens(*of_texts(steps), control=control, num_first=0)


def named(found: dict[tuple[str, str], Any]) -> Any:
    return pytest.mark.parametrize(
        ("kind", "name"), [pytest.param(*key, id=": ".join(key)) for key in found]
    )


def test_there_are_sixty_of_each() -> None:
    assert (len(WRONG), len(RIGHT)) == (60, 60)


@named(WRONG)
def test_what_is_called_wrong_is_off(kind: str, name: str) -> None:
    with np.errstate(all="ignore"):
        assert max(measured(kind, name, seed) for seed in (1, 2)) > 0.02


@named(RIGHT)
def test_what_is_called_right_is_not(kind: str, name: str) -> None:
    assert min(measured(kind, name, seed) for seed in (1, 2)) < 0.02


@named(WRONG)
def test_nothing_wrong_passes(kind: str, name: str) -> None:
    report = audited(kind, WRONG[kind, name]())
    assert report.verdict_class != "lossless", report.verdict
    assert Bar().answer(report) != "PASS", report.verdict


@named(RIGHT)
def test_nothing_right_is_accused(kind: str, name: str) -> None:
    report = audited(kind, RIGHT[kind, name](), num_trials=4_000)
    assert report.verdict_class != "lossy", report.verdict
