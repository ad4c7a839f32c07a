"""Captures that keep rates instead of logits: the same numbers, and nothing lost by a kill."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from support.captures import DRAFT, SMALL, TARGET, Failing, Interrupted, content, ended_by
from support.corpora import flip_a_byte
from support.markov import MarkovModel, prompts

from mdsd_opt import errors
from mdsd_opt.base import long_runs
from mdsd_opt.base.files.arrays import read_safetensors
from mdsd_opt.corpora import RatesConfig, corpus_rates, open_corpus
from mdsd_opt.corpora.capture import CaptureSettings, capture
from mdsd_opt.corpora.shards import load_rates

CONFIG = RatesConfig(
    ("with_replacement", "without_replacement", "top_k"), ("optimal", "rrs", "kseq"), (1, 2, 4)
)


def stored(folder, config=CONFIG):
    """Rates of every position by way of logits in files."""
    corpus_rates(folder, config)
    found = [
        load_rates(
            shard, folder / f"rates-{config.digest}" / f"{shard.name}.rates.safetensors", config
        )
        for shard in open_corpus(folder).shards
    ]
    return np.concatenate([np.array(shard.rates) for shard in found])


def captured(folder):
    return [read_safetensors(shard)[0] for shard in open_corpus(folder).shards]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("vocab_size", [1, 12, 5000])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_k": 3, "min_p": 0.05}])
def test_the_rates_are_those_of_stored_logits_bit_for_bit(tmp_path, dtype, vocab_size, options):
    texts = prompts(4, vocab_size)
    models = MarkovModel(vocab_size, 0), MarkovModel(vocab_size, 1)
    settings = CaptureSettings(6, dtype=dtype, shard_bytes=2 * 12 * vocab_size * 4)
    config = RatesConfig.of(CONFIG.schemes, CONFIG.verifiers, CONFIG.num_drafts, **options)
    capture(texts, *models, tmp_path / "logits", settings)
    capture(texts, *models, tmp_path / "rates", settings, rates=config)
    parts = captured(tmp_path / "rates")
    rates = np.concatenate([part["rates"] for part in parts])
    assert rates.shape == (24, len(config.columns))
    np.testing.assert_array_equal(rates, stored(tmp_path / "logits", config))
    for other, part in zip(captured(tmp_path / "logits"), parts, strict=True):
        assert sorted(part) == ["position", "rates", "sequence", "tokens"]
        for name in ("position", "sequence", "tokens"):
            np.testing.assert_array_equal(part[name], other[name])


def test_padded_models_have_the_rates_of_stored_logits(tmp_path):
    draft = MarkovModel(vocab_size=9, seed=5)
    settings = CaptureSettings(num_tokens=4, pad=True, temperature=0.0)
    capture([[0]], TARGET, draft, tmp_path / "logits", settings)
    capture([[0]], TARGET, draft, tmp_path / "rates", settings, rates=CONFIG)
    (part,) = captured(tmp_path / "rates")
    np.testing.assert_array_equal(part["rates"], stored(tmp_path / "logits"))


def by_name(summary):
    return {(row.scheme, row.verifier, row.num_drafts): row for row in summary.rows}


def test_a_summary_needs_no_logits(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path / "logits", SMALL)
    capture(prompts(), TARGET, DRAFT, tmp_path / "rates", SMALL, rates=CONFIG)
    fewer = RatesConfig(("top_k", "with_replacement"), ("rrs", "optimal"), (2,))
    for config in (CONFIG, fewer):
        expected = corpus_rates(tmp_path / "logits", config)
        found = corpus_rates(tmp_path / "rates", config, workers=1)
        assert by_name(found) == by_name(expected)
        assert (found.num_positions, found.vocab_size) == (35, 12)
        assert found.interval_over == expected.interval_over == "sequences"
    assert not list((tmp_path / "rates").glob("rates-*"))


@pytest.mark.parametrize("last_call", [0, 13, 41])
def test_an_interrupted_capture_goes_on_to_the_same_bytes(tmp_path, last_call):
    capture(prompts(), TARGET, DRAFT, tmp_path / "whole", SMALL, rates=CONFIG)
    with pytest.raises(Interrupted):
        capture(prompts(), Failing(last_call), DRAFT, tmp_path / "parts", SMALL, rates=CONFIG)
    model = MarkovModel(seed=0)
    done = []
    capture(
        prompts(), model, DRAFT, tmp_path / "parts", SMALL, rates=CONFIG,
        progress=lambda *counts: done.append(counts),
    )  # fmt: skip
    kept = last_call // 12
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert model.calls == 42 - 12 * kept
    assert np.sum(done, axis=0).tolist() == [7, 35 - 10 * kept]
    assert all(tokens == 0 for _, tokens in done[:4])  # what was there before comes first


def test_a_kill_in_the_middle(tmp_path):
    folder = tmp_path / "parts"
    rates = "RatesConfig(num_drafts=(1, 3))"
    assert ended_by(signal.SIGKILL, folder, rates) == -signal.SIGKILL
    assert len(list(folder.glob("shard-*"))) in (1, 2)
    config = RatesConfig(num_drafts=(1, 3))
    capture(prompts(), TARGET, DRAFT, folder, SMALL, rates=config)
    capture(prompts(), TARGET, DRAFT, tmp_path / "whole", SMALL, rates=config)
    left = {name: c for name, c in content(folder).items() if not name.endswith(".tmp")}
    assert left == content(tmp_path / "whole")


def test_logits_and_rates_do_not_mix(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    with pytest.raises(errors.InvalidInput, match="rates: null there"):
        capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=CONFIG)
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=CONFIG, force=True)
    with pytest.raises(errors.InvalidInput, match="other settings"):
        capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=RatesConfig())
    assert corpus_rates(tmp_path, CONFIG).num_positions == 35


def test_logits_that_are_no_distribution_are_named(tmp_path):
    broken = MarkovModel(seed=0)
    broken.table[2, 3] = np.nan
    settings = CaptureSettings(num_tokens=0)
    with pytest.raises(errors.InvalidDistribution, match="prompt 2: "):
        capture([[0, 1], [2, 3]], TARGET, broken, tmp_path, settings, rates=CONFIG)
    assert not list(tmp_path.glob("shard-*"))


def test_what_is_not_stored_is_an_error(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=CONFIG)
    for config, said in (
        (RatesConfig(("top_k",), num_drafts=(1, 8)), "not those of 1 of the columns"),
        (RatesConfig(("greedy",)), "none of the schemes asked for"),
        (RatesConfig(temperature=0.5), "temperature is 0.5, and the rates were stored with"),
    ):
        with pytest.raises(errors.InvalidInput, match=said):
            corpus_rates(tmp_path, config)
    flip_a_byte(tmp_path / "shard-00001.safetensors")
    with pytest.raises(errors.UnreadableFile, match="not as it was captured"):
        corpus_rates(tmp_path, CONFIG)
    assert corpus_rates(tmp_path, CONFIG, verify=False).num_positions == 35


@pytest.mark.parametrize("change", [{"rates": 5}, {"rates": {"temperatur": 1}}])
def test_a_manifest_of_other_rates_is_an_error(tmp_path, change):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=CONFIG)
    document = json.loads((tmp_path / "manifest.json").read_text())
    document["settings"] |= change
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(errors.UnreadableFile, match="rates of this version"):
        corpus_rates(tmp_path, CONFIG)


def test_the_command_shows_what_is_there_and_says_what_is_not(tmp_path, run_cli):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, rates=CONFIG)
    shown = run_cli("rates", tmp_path, "--json")
    rows = json.loads(shown.stdout)["rows"]
    assert {row["num_drafts"] for row in rows} == {1, 2, 4}
    assert len(rows) == len(CONFIG.columns)
    (line,) = shown.stderr.splitlines()
    assert "holds rates instead of logits, and lacks" in line


def test_progress_tells_tokens_a_second_of_this_run_alone(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(long_runs.time, "monotonic", lambda: clock[0])
    with long_runs.progress_bar("prompts", 8, wanted=True) as advance:
        clock[0] = 3.0
        advance(4, 0)  # an earlier run's
        clock[0] = 5.0
        advance(1, 60)
        advance(1, 40)
    shown = capsys.readouterr().err
    assert "6/8" in shown
    assert "50.0 tokens/s" in shown
