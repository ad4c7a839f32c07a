"""What engines really ship: the verdict of each, and mistakes made in its own source."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import engines
from mdsd_opt.auditing.engines import adapters
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Topology
from mdsd_opt.errors import MissingExtra

torch = pytest.importorskip("torch")
ORDINARY = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))
WITH_ZEROS = mo.TransportProblem([0.5, 0.5, 0.0, 0.0], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

#: Mass of tokens that must not come on WITH_ZEROS: .7 of the drafts, at u = 0.
ZEROS = {
    "transformers": 0.7 * 2.0**-24,
    "lmdeploy": 0.7 * 2.0**-53,
    "vllm": 0.7 * 2.0**-53,
    "sglang": 0.0,
}


def installed(name: str) -> engines.Engine:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that are imported
            return engines.get(name)
    except MissingExtra as error:
        pytest.skip(str(error))


#: An interpreted kernel takes its time, the more so beside other work.
LIMIT = {"seconds": 1800.0}
DRIVEN: dict[str, Any] = {"method": "driven", **LIMIT}


def of_tables(
    engine: engines.Engine,
    tree: str | Topology | None = None,
    size: int = 3,
    seeds: tuple[int, int] = (6, 7),
    checks: int = 20,
    draft: Any = None,
) -> Any:
    """Texts of its own tree or another one, on random laws of a target and a draft."""
    target, other = (TableModel(size, seed) for seed in seeds)
    return mo.audit_tree(
        engine.verify, target, draft or other, tree or engine.drafted.tree, 0,
        scheme=engine.drafted.scheme, driven_checks=checks, **DRIVEN,
    )  # fmt: skip


#: One draft of each text, on other laws.
of_one_draft = partial(of_tables, tree="chain1", seeds=(0, 1))
#: Two drafts at the root, and nothing below.
of_children = partial(of_tables, tree=Topology({(): 2}, "2x1"))


@pytest.mark.parametrize("name", ["transformers", "lmdeploy", "sglang"])
def test_the_default_audit_of_one_token(name: str) -> None:
    engine = installed(name)
    trials = 500 if name == "sglang" else 3_000
    report = mo.audit(engine, ORDINARY, 0, trials, edge_probes=64, **LIMIT)
    assert report.clean, report.verdict
    assert report.num_edge_probes > 0
    report = mo.audit(engine, WITH_ZEROS, 0, trials, edge_probes=64, **LIMIT)
    assert report.clean == (ZEROS[name] == 0), report.verdict
    if ZEROS[name]:
        assert (report.verdict_class, report.method) == ("edge", "driven")
        rarity = round(np.log2(0.7 / ZEROS[name]))
        assert f"equal to 0, once in 2**{rarity} draws" in report.verdict


@pytest.mark.parametrize("name", ["transformers", "lmdeploy"])
def test_an_accepted_zero_has_its_mass(name: str) -> None:
    report = mo.audit(installed(name), WITH_ZEROS, 0, 100, edge_probes=0, **DRIVEN)
    assert report.impossible_mass == pytest.approx(ZEROS[name], rel=1e-3)
    assert report.violations[0].kind == "impossible token"


@pytest.mark.parametrize("name", ["transformers", "lmdeploy", "sglang_dspark"])
def test_whole_texts_of_shipped_functions(name: str) -> None:
    report = of_tables(installed(name))
    assert report.method == "driven"
    assert report.clean, report.verdict
    assert report.total_variation < 1e-6


INTERPRETED = ("sglang", "sglang_block", "sglang_dspark_kernel", "vllm", "vllm_v2", "vllm_v2_block")


@pytest.mark.parametrize("name", INTERPRETED)
def test_texts_of_two_tokens_of_an_interpreted_kernel(name: str) -> None:
    report = of_one_draft(installed(name), size=2)
    assert report.clean, report.verdict
    assert report.total_variation < 1e-6


def test_three_tokens_and_zeros_of_vllm() -> None:
    report = of_one_draft(installed("vllm"), checks=5)
    assert report.clean, report.verdict
    assert report.total_variation < 1e-6
    report = mo.audit(
        installed("vllm"), WITH_ZEROS, 0, 50, driven_checks=20, edge_probes=0, **DRIVEN
    )
    assert report.impossible_mass == pytest.approx(ZEROS["vllm"], rel=1e-3)


def test_two_children_of_eagle() -> None:
    """Coins of Python, 53 bits, beside arithmetic in float32."""
    report = of_children(installed("eagle"))
    assert report.tolerance == 1e-6
    assert report.clean, report.verdict
    assert report.total_variation < 1e-6


def test_eagle_at_another_temperature() -> None:
    """The token after accepted drafts is drawn from logits that no processor has seen."""
    rule = adapters.eagle(engines.ADAPTERS["eagle"], temperature=0.5)
    half = replace(installed("eagle"), rule=rule)
    report = of_children(half)
    assert not report.clean
    assert report.first_token_variation < 1e-6
    assert report.total_variation == pytest.approx(0.138889, rel=1e-4)


@pytest.mark.parametrize("name", ["transformers", "lmdeploy", "vllm", "sglang"])
def test_drafts_of_a_filtered_law_with_the_raw_one_passed_on(name: str) -> None:
    """Top-k on the draft side only, and q before the filter: tv .2, exactly."""
    engine = installed(name)
    raw = np.array([0.35, 0.25, 0.2, 0.1, 0.1])
    filtered = np.array([0.35, 0.25, 0.2, 0.0, 0.0]) / 0.8
    problem = mo.TransportProblem([0.3, 0.3, 0.2, 0.1, 0.1], mo.WithReplacement(filtered, 1))
    report = mo.audit(
        lambda p, q, drafts, rng: engine(p, raw, drafts, rng), problem, 0, 100,
        driven_checks=5, **DRIVEN,
    )  # fmt: skip
    assert not report.clean
    assert report.total_variation == pytest.approx(0.2, abs=1e-6)


TRANSFORMERS = {
    "p and q swapped": ("probability_ratio = p_i / q_i\n", "probability_ratio = q_i / p_i\n"),
    "target resampled": ("torch.clamp((p_n_plus_1 - q_n_plus_1), min=0)", "p_n_plus_1.clone()"),
    "accepted after a rejection": (
        "n_matches = ((~is_accepted).cumsum(dim=-1) < 1).sum()", "n_matches = is_accepted.sum()",
    ),
    "wrong row": ("p[:, n_matches, :]", "p[:, max(int(n_matches) - 1, 0), :]"),
}  # fmt: skip
LMDEPLOY = {
    "p and q swapped": (
        "target_draft_probs / draft_token_probs >=", "draft_token_probs / target_draft_probs >=",
    ),
    "target resampled": ("(target_probs - draft_probs).clamp_min_(0)", "target_probs.clone()"),
    "wrong row": ("(target_probs - draft_probs)", "(target_probs.roll(1, dims=1) - draft_probs)"),
}  # fmt: skip
EAGLE = {
    "p and q swapped": ("acp = px / qx\n", "acp = qx / px\n"),
    "row one late": ("gt_logits = logits[fi, i - 1][None]", "gt_logits = logits[fi, i][None]"),
    "row of the first path": (
        "gt_logits = logits[best_candidate, accept_length - 1]", "gt_logits = logits[0, 1]",
    ),
    "children not removed": ("q[mask] = 0\n", "pass\n"),
    "not renormalised": ("gtp = gtp / gtp.sum()\n", "pass\n"),
}  # fmt: skip
DSPARK = {
    "p and q swapped": (
        "lp > torch.log(coins.clamp_min(4.6566127342e-10)) + lq",
        "lq > torch.log(coins) + lp",
    ),
    "accepted after a rejection": ("torch.cumprod(ok.int(), dim=-1).sum(-1)", "ok.int().sum(-1)"),
    "wrong row": ("log_p[rows, raw.long()]", "log_p[rows, 0 * raw.long()]"),
    "residual not subtracted": ("torch.log1p(-torch.exp(lq_rej - lp_rej))", "0.0"),
}
VLLM = {
    "p and q swapped": ("target_prob / draft_prob >=", "draft_prob / target_prob >="),
    "target resampled": (
        "prob = tl.maximum(target_prob - draft_prob, 0.0)", "prob = target_prob",
    ),
    "wrong row": (
        "prob = tl.maximum(target_prob - draft_prob, 0.0)",
        "prob = tl.maximum(tl.load(target_probs_ptr + start_idx * vocab_size + vocab_offset, "
        "mask=vocab_mask, other=0.0) - draft_prob, 0.0)",
    ),
}  # fmt: skip
SGLANG = {
    "p and q swapped": ("coin * q < p", "coin * p < q"),
    "not renormalised": ("target_u = coin_final * norm_sum\n", "target_u = coin_final\n"),
    "residual not scaled": ("residual_scale = prefix_prob\n", "residual_scale = 1.0\n"),
    "ratio for h": ("if coin < accept_prob:", "if coin < prefix_prob:"),
    "ratio not capped": ("tl.minimum(prefix_prob * p / q, 1.0)", "prefix_prob * p / q"),
    "wrong row": ("(pid * stride_tp_b) + (cur_prob_row * stride_tp_s)", "(pid * stride_tp_b)"),
}
#: Mistakes in what is done for blocks alone.
SGLANG_BLOCKS = ("residual not scaled", "ratio for h", "ratio not capped")
MISTAKES = {
    "transformers": TRANSFORMERS, "lmdeploy": LMDEPLOY, "eagle": EAGLE, "sglang_dspark": DSPARK,
    "vllm": VLLM, "sglang": SGLANG,
}  # fmt: skip

#: The first token shows nothing of these.
HIDDEN = ("residual not scaled", "ratio not capped", "wrong row", "row of the first path")


def mutated(name: str, mistake: tuple[str, str], tmp_path: Path) -> engines.Engine:
    """An engine whose adapter loads a copy of its file with a mistake in it."""
    right, wrong = mistake
    installed(name)
    adapter = engines.ADAPTERS[name]
    file = Path(str(metadata.distribution(adapter.package).locate_file(adapter.path)))
    source = file.read_text()
    assert source.count(right) == 1
    copy = tmp_path / file.name
    copy.write_text(source.replace(right, wrong))
    return replace(adapter, path=str(copy)).engine(name)


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, each) for name, all_ in MISTAKES.items() for each in all_]
)
def test_mistakes_in_its_own_source(name: str, mistake: str, tmp_path: Path) -> None:
    in_blocks = name == "sglang" and mistake in SGLANG_BLOCKS
    engine = mutated(name + "_block" * in_blocks, MISTAKES[name][mistake], tmp_path)
    report = audited(name, mistake, engine)
    assert not report.clean
    assert report.total_variation > (1e-4 if name == "sglang_dspark" else 1e-3)
    if name in ("eagle", "sglang"):
        assert (report.first_token_variation < 1e-6) == (mistake in HIDDEN)


def audited(name: str, mistake: str, engine: engines.Engine) -> Any:
    """The least that shows a mistake: an interpreted kernel takes its time."""
    match name, mistake:
        case "eagle", _:
            # of three tokens, two rejected ones leave one: its share can't be wrong, of four it can
            return of_children(engine, size=4 if mistake == "children not removed" else 3)
        case "sglang_dspark", "accepted after a rejection":  # takes two drafts
            return of_tables(engine, checks=5)
        case "sglang_dspark", _:
            return of_one_draft(engine, checks=5)
        case "vllm", _:  # a wrong row is one of another draft: it takes two
            tree = "chain2" if mistake == "wrong row" else "chain1"
            return of_tables(engine, tree, 2, (0, 1), checks=1)
        case "sglang", "p and q swapped" | "not renormalised":
            return of_one_draft(engine, checks=1)
        case "sglang", _:  # a ratio that is not capped grows past one and falls again
            draft = None if mistake == "ratio not capped" else of_two
            return of_tables(engine, "chain2", checks=1, draft=draft)
    return of_tables(engine)


def of_two(text: Any) -> Any:
    """Drafts of two tokens after each text, of three: four chains, which take less time."""
    law = TableModel(3, 7)(text)
    return np.where(law > law.min(), law, 0) / (1 - law.min())


def test_triton_that_was_imported_before_is_told() -> None:
    script = """
import os
os.environ.pop("TRITON_INTERPRET", None)
import triton
os.environ["TRITON_INTERPRET"] = "1"  # too late for triton's own functions
from mdsd_opt import MdsdError, engines
try:
    engines.get("vllm")
except MdsdError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "set TRITON_INTERPRET=1 before it is" in done.stdout


def test_adapters_are_pinned_to_what_is_installed() -> None:
    for name in engines.names():
        engine = installed(name)
        assert engine.version.partition("+")[0] in engines.ADAPTERS[name].tested
