"""Every planted chain, batch and text, wrong and right, is put to its default audit."""

from __future__ import annotations

import pytest
from support.planted_chains import (
    BY_LAW,
    IN_TEXTS,
    Parts,
    as_batch,
    as_text,
    right_ones,
    wrong_batches,
    wrong_ones,
)

import mdsd_opt as mo

WRONG = wrong_ones()


@pytest.fixture(autouse=True)
def _some_of_them(request: pytest.FixtureRequest) -> None:
    """A share of all kinds where that was asked for: the same ones each time."""
    scale = request.config.getoption("scale")
    number = sum(map(ord, request.node.name))
    if number % 1000 >= 1000 * scale:
        pytest.skip("left out by --scale")


@pytest.mark.parametrize("kind", WRONG)
def test_no_wrong_chain_is_lossless(kind: str) -> None:
    report = mo.audit_chain(WRONG[kind](), rng=0, seconds=600.0)
    assert report.verdict_class == "lossy", report.verdict


@pytest.mark.parametrize("kind", right_ones())
def test_no_right_chain_is_accused(kind: str) -> None:
    verify, options = right_ones()[kind]
    if options["library"] == "torch":
        pytest.importorskip("torch").set_num_threads(1)
    report = mo.audit_chain(verify, rng=0, seconds=600.0, **options)
    rounds = kind.endswith("32")  # inside, where the audit does not see it
    assert report.verdict_class in ("no deviation", "edge")[: 1 + rounds], report.verdict


@pytest.mark.parametrize("kind", wrong_batches())
def test_no_wrong_batch_is_lossless(kind: str) -> None:
    report = mo.audit_chain(wrong_batches()[kind], batch=3)
    assert report.verdict_class == "lossy", report.verdict


@pytest.mark.parametrize("rows", range(2, 22))
def test_no_right_batch_is_accused(rows: int) -> None:
    verify = as_batch(Parts().made())
    report = mo.audit_chain(verify, rng=rows, batch=rows, num_drafts=1 + rows % 3, num_trials=2_000)
    assert report.verdict_class == "no deviation", report.verdict


@pytest.mark.parametrize("kind", IN_TEXTS)
def test_no_wrong_text_is_lossless(kind: str) -> None:
    report = mo.audit_text(as_text(BY_LAW[kind].made()), rng=0, seconds=600.0)
    assert report.verdict_class == "lossy", report.verdict


@pytest.mark.parametrize("seed", range(20))
def test_no_right_text_is_accused(seed: int) -> None:
    verify, _ = list(right_ones().values())[seed % 15]  # those of NumPy
    report = mo.audit_text(as_text(verify, 1 + seed % 3), rng=seed, num_texts=4_000, seconds=600.0)
    assert report.verdict_class == "no deviation", report.verdict
