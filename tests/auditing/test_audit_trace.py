"""Recorded steps: tokens against targets that differ from step to step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_verifiers import faultless, gallery

import mdsd_opt as mo
from mdsd_opt.auditing import load_trace
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName, UnreadableFile

WRONG = {wrong.name: wrong.verify for wrong in gallery()}
STEPS, VOCAB_SIZE, NUM_DRAFTS = 1_000, 120, 2


def samples_target(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    return int(rng.choice(p.size, p=p))


def record(verify: Any, seed: int = 0, steps: int = STEPS, scheme: Any = mo.WithReplacement) -> Any:
    """Logits of both models, drafts, and what a verifier made of them."""
    rng = np.random.default_rng(seed)
    target = 2 * rng.normal(size=(steps, VOCAB_SIZE))
    draft = target + rng.normal(size=target.shape)
    p, q = mo.softmax(target), mo.softmax(draft)
    drafts = np.stack([scheme(q[n], NUM_DRAFTS).sample(rng) for n in range(steps)])
    tokens = np.array([verify(p[n], q[n], drafts[n], rng) for n in range(steps)])
    return target, draft, drafts, tokens


@pytest.fixture(scope="module")
def trace() -> Any:
    return record(faultless)


@pytest.fixture(scope="module")
def report(trace: Any) -> Any:
    return mo.audit_trace(*trace, logits=True)


def test_a_lossless_engine_passes(trace: Any, report: Any) -> None:
    assert report.faultless, report.verdict
    assert report.subject == "trace"
    assert report.num_trials == STEPS
    assert report.drafts_follow_law
    target, draft, drafts, _ = trace
    optima = mo.acceptance_rates(target, draft, num_drafts=NUM_DRAFTS)
    assert report.optimal_acceptance_rate == pytest.approx(optima.mean(), abs=1e-9)
    assert report.acceptance_rate is not None
    assert report.acceptance_rate < report.optimal_acceptance_rate
    assert 0.1 < report.detectable_bias < 0.2
    json.dumps(report.to_dict(), allow_nan=False)
    assert drafts.shape[1] == NUM_DRAFTS


def test_probabilities_and_logits_give_the_same_report(trace: Any, report: Any) -> None:
    target, draft, drafts, tokens = trace
    by_law = mo.audit_trace(mo.softmax(target), mo.softmax(draft), drafts, tokens)
    schemes = [mo.WithReplacement(q, NUM_DRAFTS) for q in mo.softmax(draft)]
    by_scheme = mo.audit_trace(mo.softmax(target), schemes, drafts, tokens)
    for other in (by_law, by_scheme):
        assert other.p_value == pytest.approx(report.p_value)
        assert other.drafts_p_value == pytest.approx(report.drafts_p_value)


@pytest.mark.parametrize("name", ["tests_independently", "zeroes_the_token"])
def test_a_lossy_engine_is_found(name: str) -> None:
    report = mo.audit_trace(*record(WRONG[name]), logits=True)
    assert not report.clean
    assert report.drafts_follow_law
    assert report.total_variation_interval.low > 0.0


def test_the_first_draft_as_output_is_found_and_accepts_too_often() -> None:
    report = mo.audit_trace(*record(lambda p, q, x, rng: x[0], steps=600), logits=True)
    assert not report.clean
    assert report.acceptance_rate == 1.0
    acceptance = next(check for check in report.checks if check.name == "acceptance")
    assert acceptance.p_value < 1e-12


@pytest.mark.parametrize("given", [{"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 20}])
def test_other_sampling_parameters_than_promised_are_found(
    trace: Any, given: dict[str, Any]
) -> None:
    assert not mo.audit_trace(*trace, logits=True, **given).clean


def test_drafts_of_another_temperature_are_found_and_the_tokens_acquitted(trace: Any) -> None:
    report = mo.audit_trace(*trace, logits=True, draft_temperature=1.3)
    assert report.clean
    assert not report.drafts_follow_law
    assert not report.faultless
    assert "DRAFTS DO NOT FOLLOW" in report.verdict


def test_drafts_of_another_scheme_are_found(trace: Any) -> None:
    report = mo.audit_trace(*trace, logits=True, scheme="without_replacement")
    assert not report.drafts_follow_law
    assert report.violations[0].kind == "impossible drafts"
    assert report.violations[0].message.startswith("step ")
    without = record(samples_target, scheme=mo.WithoutReplacement, steps=500)
    assert mo.audit_trace(*without, logits=True, scheme="without_replacement").faultless


def test_without_draft_law_or_drafts_the_tokens_are_still_tested(trace: Any) -> None:
    target, _, drafts, tokens = trace
    report = mo.audit_trace(target, None, drafts, tokens, logits=True)
    assert report.clean
    assert report.drafts_follow_law is None
    assert report.optimal_acceptance_rate is None
    assert report.acceptance_rate is not None
    report = mo.audit_trace(target, None, np.empty((STEPS, 0), int), tokens, logits=True)
    assert report.clean
    assert report.acceptance_rate is None
    likeliest = target.argmax(axis=1)
    assert not mo.audit_trace(target, None, drafts, likeliest, logits=True).clean


def test_an_impossible_token_is_enough() -> None:
    target = np.tile([0.5, 0.5, 0.0], (40, 1))
    tokens = np.random.default_rng(0).integers(2, size=40)
    drafts = np.zeros((40, 1), int)
    assert mo.audit_trace(target, None, drafts, tokens).clean is True
    tokens[7] = 2
    report = mo.audit_trace(target, None, drafts, tokens)
    assert not report.clean
    assert report.p_value == 0.0
    assert report.violations[0].message.startswith("step 7: token 2")


def test_a_rare_token_too_often_is_found() -> None:
    target, draft, drafts, tokens = record(samples_target)
    p = mo.softmax(target)
    rare = int(p.sum(axis=0).argmin())
    tokens[::30] = rare
    report = mo.audit_trace(target, draft, drafts, tokens, logits=True)
    assert not report.clean
    assert report.tokens[0].token == rare


def test_tokens_that_repeat_with_the_right_law_are_found() -> None:
    """Each token follows its target; every second one reuses the uniform of the one before."""
    rng = np.random.default_rng(0)
    p = mo.softmax(2 * rng.normal(size=(STEPS, VOCAB_SIZE)))
    p = -np.sort(-p, axis=1)
    uniforms = np.repeat(rng.random(STEPS // 2), 2)
    tokens = (np.cumsum(p, axis=1) < uniforms[:, None]).sum(axis=1)
    report = mo.audit_trace(p, None, np.zeros((STEPS, 0), int), tokens)
    assert not report.clean
    found = {check.name: check.p_value for check in report.checks}
    assert found["after the last place"] < 1e-50
    assert found["succession"] < 1e-30


def test_the_tail_of_a_wide_law_is_seen() -> None:
    """All but 1,024 of the tokens are bet on in groups: there alone mass is moved towards q."""
    rng = np.random.default_rng(0)
    p = np.exp(rng.normal(size=(300, 6_000)))
    q = p * np.exp(rng.normal(size=p.shape))
    p, q = (law / law.sum(axis=1, keepdims=True) for law in (p, q))
    tail = p <= np.partition(p, -1_024, axis=1)[:, -1_024, None]
    moved = q * tail
    moved *= (p * tail).sum(axis=1, keepdims=True) / moved.sum(axis=1, keepdims=True)
    shown = np.where(tail, moved, p)
    right, wrong, drafts = (
        (np.cumsum(law, axis=1) < rng.random((300, 1))).sum(axis=1) for law in (p, shown, q)
    )
    report = mo.audit_trace(p, q, drafts[:, None], right)
    assert report.faultless, report.verdict
    assert mo.audit_trace(p, q, drafts[:, None], wrong).verdict_class == "lossy"


def test_false_alarms_come_as_rarely_as_stated() -> None:
    alarms = 0
    for seed in range(100):
        steps = record(faultless, seed=seed, steps=30)
        report = mo.audit_trace(*steps, logits=True, false_alarm=0.05, rng=seed)
        alarms += not report.faultless
    assert alarms <= 15  # Pr(more | 5 %) < 1e-4


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"target": np.zeros(3)}, InvalidInput, r"target has shape \(3,\)"),
        ({"target": np.ones((4, 3))}, InvalidDistribution, "target row 0 sums to 3"),
        ({"draft_law": np.ones((4, 2))}, InvalidInput, r"draft_law has shape \(4, 2\)"),
        ({"draft_law": np.ones((4, 3))}, InvalidDistribution, "draft row 0"),
        ({"draft_law": [mo.TopKDrafts([0.2, 0.3, 0.5], 1)]}, InvalidInput, "1 draft schemes given"),
        ({"draft_law": [mo.TopKDrafts([0.5, 0.5], 1)] * 4}, InvalidInput, "step 0: TopKDrafts"),
        ({"drafts": np.zeros(4, int)}, InvalidInput, r"drafts has shape \(4,\)"),
        ({"drafts": np.zeros((4, 1))}, InvalidInput, "dtype float64"),
        ({"drafts": np.full((4, 1), 3)}, InvalidInput, r"step 0: draft 3 lies outside 0\.\.2"),
        ({"tokens": np.zeros(3, int)}, InvalidInput, r"tokens has shape \(3,\)"),
        ({"tokens": np.array([0, 1, -1, 0])}, InvalidInput, "step 2: token -1 lies outside"),
        ({"scheme": "nucleus"}, UnknownName, "unknown draft scheme 'nucleus'"),
        ({"temperature": 0.5}, InvalidInput, "pass logits=True"),
        ({"temperature": -1, "logits": True}, InvalidInput, "temperature is -1"),
        ({"rng": "now"}, InvalidInput, "the seed is 'now'"),
        ({"power": 2}, InvalidInput, "power is 2"),
    ],
)
def test_arguments_are_validated(changed: dict[str, Any], error: Any, message: str) -> None:
    law = np.full((4, 3), 1 / 3)
    given = {
        "target": law,
        "draft_law": law,
        "drafts": np.zeros((4, 1), int),
        "tokens": np.zeros(4, int),
    }
    with pytest.raises(error, match=message):
        mo.audit_trace(**(given | changed))


def save(path: Path, trace: Any, metadata: dict[str, Any] | None = None) -> Path:
    arrays = dict(zip(("target", "draft", "drafts", "tokens"), trace, strict=True))
    text = json.dumps(metadata) if metadata is not None else None
    if path.suffix == ".npz":
        extra = {"metadata": np.array(text)} if text is not None else {}
        np.savez(path, **arrays, **extra)
    else:
        from safetensors.numpy import save_file

        save_file(
            {k: np.ascontiguousarray(v) for k, v in arrays.items()},
            path,
            None if text is None else {"metadata": text},
        )
    return path


@pytest.mark.parametrize("name", ["steps.npz", "steps.safetensors"])
def test_traces_from_files(tmp_path: Path, trace: Any, name: str) -> None:
    metadata = {"scheme": "with_replacement", "logits": True, "engine": "ours"}
    loaded = load_trace(save(tmp_path / name, trace, metadata))
    assert loaded.metadata == metadata
    assert loaded.holds_logits
    for given, got in zip(
        trace, (loaded.target, loaded.draft, loaded.drafts, loaded.tokens), strict=True
    ):
        np.testing.assert_array_equal(given, got)
    assert loaded.options == {"scheme": "with_replacement", "logits": True}
    report = mo.audit_trace(
        loaded.target, loaded.draft, loaded.drafts, loaded.tokens, **loaded.options
    )
    assert report.faultless


def test_a_file_without_metadata_tells_logits_from_probabilities(
    tmp_path: Path, trace: Any
) -> None:
    assert load_trace(save(tmp_path / "a.npz", trace)).holds_logits
    target, draft, drafts, tokens = trace
    law = (mo.softmax(target), mo.softmax(draft), drafts, tokens)
    assert not load_trace(save(tmp_path / "b.npz", law)).holds_logits


def test_a_file_may_lack_drafts_and_draft_law(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", target=np.full((3, 2), 0.5), tokens=np.array([0, 1, 0]))
    loaded = load_trace(tmp_path / "t.npz")
    assert loaded.draft is None
    assert loaded.drafts.shape == (3, 0)
    assert mo.audit_trace(loaded.target, None, loaded.drafts, loaded.tokens).clean


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"target": np.ones((3, 2))}, "has no array 'tokens'"),
        ({"tokens": np.zeros(3, int)}, "has no array 'target'"),
        ({"target": np.ones(3), "tokens": np.zeros(3, int)}, r"target has shape \(3,\)"),
        ({"target": np.ones((0, 3)), "tokens": np.zeros(0, int)}, "at least one of each"),
        ({"target": np.ones((3, 2)), "tokens": np.zeros(2, int)}, r"tokens has shape \(2,\)"),
        ({"target": np.ones((3, 2)), "tokens": np.zeros(3)}, "tokens has .* dtype float64"),
        (
            {"target": np.ones((3, 2)), "tokens": np.zeros(3, int), "draft": np.ones((3, 4))},
            r"draft has shape \(3, 4\)",
        ),
        (
            {"target": np.ones((3, 2)), "tokens": np.zeros(3, int), "drafts": np.zeros(3, int)},
            r"integers of shape \(3, K\)",
        ),
        (
            {"target": np.ones((3, 2)), "tokens": np.zeros(3, int), "metadata": np.array("[1]")},
            "not a JSON object",
        ),
    ],
)
def test_broken_files_are_described(tmp_path: Path, arrays: Any, message: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(UnreadableFile, match=message):
        load_trace(tmp_path / "t.npz")


def test_missing_files_and_unknown_suffixes(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="does not exist"):
        load_trace(tmp_path / "none.npz")
    with pytest.raises(UnreadableFile, match=r"suffix '\.csv'"):
        load_trace(tmp_path / "t.csv")
