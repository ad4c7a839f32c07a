"""Every wrong verifier of the gallery is caught at its stated sample size; the right one passes."""

from __future__ import annotations

import numpy as np
import pytest
import wrong_verifiers
from wrong_verifiers import WrongVerifier, faultless, gallery, main

import mdsd_opt as mo

GALLERY = {wrong.name: wrong for wrong in gallery()}

#: Entries whose law the audit can find exactly by driving them.
DRIVABLE = [
    name
    for name, wrong in GALLERY.items()
    if not wrong.batched and wrong.sample is None and name != "races_in_half_precision"
]


def test_the_gallery_holds_the_known_mistakes() -> None:
    assert len(GALLERY) == len(gallery()) >= 13
    assert all(wrong.description.endswith(".") for wrong in GALLERY.values())


@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_caught_at_the_stated_sample_size(name: str, seed: int) -> None:
    report = GALLERY[name].audit(seed)
    assert not report.clean
    assert report.num_trials == GALLERY[name].num_trials


@pytest.mark.parametrize("name", GALLERY)
def test_its_faultless_twin_passes_at_the_same_size(name: str) -> None:
    wrong: WrongVerifier = GALLERY[name]
    if wrong.sample is not None:
        report = mo.audit_drafts(wrong.problem.drafts, wrong.problem.drafts, 0, wrong.num_trials)
    elif isinstance(wrong.problem.drafts, mo.TopKDrafts):
        report = mo.audit("naive_target", wrong.problem, 0, wrong.num_trials, method="sampling")
    else:
        report = mo.audit(faultless, wrong.problem, 0, wrong.num_trials)
    assert report.clean, report.verdict


@pytest.mark.parametrize("name", DRIVABLE)
def test_its_bias_is_what_it_says(name: str) -> None:
    wrong = GALLERY[name]
    report = mo.audit(wrong.verify, wrong.problem, 0, 100, method="driven", driven_checks=10)
    assert wrong.total_variation is not None
    assert report.total_variation == pytest.approx(wrong.total_variation, abs=1e-9)
    # accepts_at_zero is off by no more than 2**-53, on a token that must never come
    assert report.clean == (wrong.total_variation == 0 and name != "accepts_at_zero")


def test_the_bias_of_the_race_in_half_precision() -> None:
    """Exactly: token i comes at e_m / p_i for one of 2048 equally likely e_m = -log(m / 2048)."""
    p = GALLERY["races_in_half_precision"].problem.target
    with np.errstate(divide="ignore"):
        times = np.sort(-np.log(np.arange(2048) / 2048))
        later = np.log(np.arange(2048, -1, -1) / 2048)  # that a clock comes after so many times
    token = np.repeat(np.arange(p.size), 2048)
    order = np.lexsort((token, (times / p[:, None]).ravel()))  # ties go to the lower token
    place = order % 2048
    all_later = np.concatenate([[0.0], np.cumsum(np.diff(later)[place])[:-1]])
    law = np.bincount(token[order], np.exp(all_later - later[place])) / 2048
    bias = 0.5 * np.abs(law - p).sum()
    assert bias == pytest.approx(GALLERY["races_in_half_precision"].total_variation, abs=1e-6)


def test_its_drafts_are_off_by_two_per_cent() -> None:
    wrong = GALLERY["draft_law_off_by_two_per_cent"]
    assert wrong.sample is not None
    tuples = wrong.sample(np.random.default_rng(0), 200_000)
    law = np.bincount(tuples.ravel(), minlength=6) / tuples.size
    distance = 0.5 * np.abs(law - wrong.problem.drafts.q).sum()
    assert distance == pytest.approx(wrong.total_variation, abs=0.003)


def test_the_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["wrong_verifiers.py"])
    main()
    shown = capsys.readouterr().out
    assert shown.count("NOT LOSSLESS") == len(GALLERY) - 2
    assert shown.count("EDGE ONLY") == 1
    assert shown.count("NOT FROM THIS LAW") == 1
    few = [GALLERY[name] for name in ("resamples_the_target", "shares_its_uniforms")]
    monkeypatch.setattr(wrong_verifiers, "gallery", lambda: few)
    monkeypatch.setattr("sys.argv", ["wrong_verifiers.py", "--power", "1"])
    main()
    assert capsys.readouterr().out.count("caught in 1 of 1 audits") == 2
