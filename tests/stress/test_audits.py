"""Correct verifiers of chains, of every kind: none is accused, whatever the random numbers."""

from __future__ import annotations

import pytest
from support.chain_verifiers import CORRECT

import mdsd_opt as mo

#: Audits of each kind at scale 1.
AUDITS = 24


@pytest.mark.parametrize("kind", CORRECT)
def test_no_correct_verifier_is_accused(kind: str, request: pytest.FixtureRequest) -> None:
    for seed in range(max(1, round(AUDITS * request.config.getoption("scale")))):
        report = mo.audit_chain(
            CORRECT[kind],
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
        assert seed or kind == "gumbel" or len(driven) == 7, f"{kind}: {len(driven)} were driven"
