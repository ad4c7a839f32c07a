"""Captures: what the shards hold, and that nothing is lost or overwritten."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support.captures import (
    DRAFT,
    SMALL,
    TARGET,
    WITH_SUPPORT,
    Failing,
    Interrupted,
    content,
    ended_by,
)  # fmt: skip
from support.chi_square import p_value
from support.corpora import flip_a_byte
from support.markov import MarkovModel, prompts

from mdsd_opt import errors, softmax
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.corpora import RatesConfig, corpus_rates, open_corpus, read_prompts
from mdsd_opt.corpora.capture import CaptureSettings, capture, read_text, windows
from mdsd_opt.corpora.shards import load_manifest


def load_all(folder):
    return [load_logits(shard) for shard in open_corpus(folder).shards]


def test_shards_hold_the_logits_that_predict_each_new_token(tmp_path):
    texts = prompts()
    manifest = capture(texts, TARGET, DRAFT, tmp_path, SMALL)
    assert manifest.is_complete
    assert [shard.num_sequences for shard in manifest.shards] == [2, 2, 2, 1]
    seen = []
    for shard in load_all(tmp_path):
        for i, number in enumerate(shard.sequence.tolist()):
            seen.append((number, int(shard.position[i])))
            same = shard.sequence == number
            text = texts[number] + shard.tokens[same].tolist()
            assert text[shard.position[i]] == shard.tokens[i]
            before = text[shard.position[i] - 1]
            np.testing.assert_array_equal(shard.target[i], TARGET.table[before].astype(np.float32))
            np.testing.assert_array_equal(shard.draft[i], DRAFT.table[before].astype(np.float32))
    assert seen == [(n, len(text) + j) for n, text in enumerate(texts) for j in range(5)]


def test_tokens_are_drawn_from_the_target_at_the_temperature(tmp_path):
    """Chi-square of 20,000 tokens after a common one; false alarm 1e-6."""
    settings = CaptureSettings(num_tokens=20, temperature=0.6, shard_bytes=10**9)
    model = MarkovModel(vocab_size=4, seed=3)
    capture([[0]] * 1000, model, model, tmp_path, settings)
    (shard,) = load_all(tmp_path)
    tokens = shard.tokens.reshape(1000, 20)
    after_one = tokens[:, 1:][tokens[:, :-1] == 1]
    assert after_one.size > 1000
    for temperature, is_right in ((0.6, True), (1.0, False)):
        law = dict(enumerate(softmax(model.table[1], temperature)))
        assert (p_value(after_one.tolist(), law) > 1e-6) == is_right


def test_greedy_sampling_and_fewer_positions(tmp_path):
    settings = CaptureSettings(num_tokens=5, temperature=0.0, num_positions=3)
    capture([[2]], TARGET, DRAFT, tmp_path, settings)
    (shard,) = load_all(tmp_path)
    text = [2]
    for _ in range(5):
        text.append(int(TARGET.table[text[-1]].argmax()))
    assert shard.position.tolist() == [1, 3, 5]
    assert shard.tokens.tolist() == [text[1], text[3], text[5]]


def test_without_sampling_the_texts_own_tokens_are_read(tmp_path):
    texts = [[1, 2, 3], [4, 5]]
    capture(texts, TARGET, DRAFT, tmp_path, CaptureSettings(num_tokens=0, dtype="float32"))
    (shard,) = load_all(tmp_path)
    assert shard.tokens.tolist() == [2, 3, 5]
    assert shard.position.tolist() == [1, 2, 1]
    np.testing.assert_array_equal(shard.target, TARGET.table[[1, 2, 4]].astype(np.float32))


def test_bfloat16_and_padding(tmp_path):
    small = MarkovModel(vocab_size=9, seed=5)
    with pytest.raises(errors.InvalidInput, match=r"12 logits and the draft 9.*--pad"):
        capture([[0]], TARGET, small, tmp_path, CaptureSettings(num_tokens=1))
    settings = CaptureSettings(num_tokens=1, pad=True)
    capture([[0]], TARGET, small, tmp_path, settings)
    (shard,) = load_all(tmp_path)
    assert shard.draft.dtype == ml_dtypes.bfloat16
    assert shard.draft.shape == (1, 12)
    assert (shard.draft[:, 9:] == -np.inf).all()
    expected = small.table[0].astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(shard.draft[0, :9], expected)


def test_a_narrow_draft_reads_its_last_token_for_those_that_it_lacks(tmp_path):
    small = MarkovModel(vocab_size=9, seed=5)
    settings = CaptureSettings(num_tokens=0, pad=True, dtype="float32")
    capture([[8, 11, 3]], TARGET, small, tmp_path, settings)
    (shard,) = load_all(tmp_path)
    np.testing.assert_array_equal(shard.draft[:, :9], small.table[[8, 8]].astype(np.float32))
    np.testing.assert_array_equal(shard.target, TARGET.table[[8, 11]].astype(np.float32))


def test_logits_that_are_nan_are_not_kept(tmp_path):
    broken = MarkovModel(seed=1)
    broken.table[5, 3] = np.nan
    settings = CaptureSettings(num_tokens=0)
    with pytest.raises(errors.InvalidDistribution, match="prompt 2: the draft gives logits that"):
        capture([[1, 2, 3], [4, 5, 6]], TARGET, broken, tmp_path, settings)
    assert not [*tmp_path.glob("shard-*")]


def test_a_captured_corpus_has_rates_by_prompt(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    summary = corpus_rates(tmp_path, RatesConfig(num_drafts=(2,)))
    assert summary.num_positions == 35
    assert summary.rows[0].acceptance.num_groups == 7


def test_the_manifest_says_what_was_done(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL, {"target": {"model": "markov"}})
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert document["complete"] is True
    assert document["settings"]["target"] == {"model": "markov"}
    assert document["settings"]["temperature"] == 1.0
    assert document["settings"]["vocab_size"] == 12
    metadata = dict(load_all(tmp_path)[0].metadata)
    assert len(metadata.pop("settings")) == 64
    assert metadata == document["settings"]


@pytest.mark.parametrize("last_call", [0, 1, 11, 12, 13, 24, 30, 41])
def test_an_interrupted_capture_goes_on_to_the_same_bytes(tmp_path, last_call):
    capture(prompts(), TARGET, DRAFT, tmp_path / "whole", SMALL)
    with pytest.raises(Interrupted):
        capture(prompts(), Failing(last_call), DRAFT, tmp_path / "parts", SMALL)
    kept = {name: c for name, c in content(tmp_path / "parts").items() if "shard" in name}
    assert len(kept) == last_call // 12
    model = MarkovModel(seed=0)
    capture(prompts(), model, DRAFT, tmp_path / "parts", SMALL)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert model.calls == 42 - 12 * len(kept)


def test_a_kill_between_a_shard_and_the_manifest_loses_nothing(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    whole = content(tmp_path)
    document = json.loads(whole["manifest.json"])
    document["shards"].pop()
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    model = MarkovModel(seed=0)
    capture(prompts(), model, DRAFT, tmp_path, SMALL)
    assert model.calls == 0
    assert content(tmp_path) == whole


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def fill_with_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def make_empty(path):
    path.write_bytes(b"")


def swap_with_the_first(path):
    shutil.copy(path.with_name("shard-00000.safetensors"), path)


DAMAGES = (Path.unlink, truncate, flip_a_byte, fill_with_zeros, make_empty, swap_with_the_first)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("numbers", [[1], [3], [1, 3]])
def test_what_is_wrong_is_captured_again_and_nothing_else(tmp_path, damage, numbers):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    whole = content(tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    for number in numbers:
        damage(tmp_path / f"shard-{number:05d}.safetensors")
    model, told, done = MarkovModel(seed=0), [], []

    def progress(count, tokens):
        done.append(count)

    manifest = capture(
        prompts(), model, DRAFT, tmp_path, SMALL, progress=progress, tell=told.append
    )
    assert content(tmp_path) == whole
    assert manifest == load_manifest(tmp_path)
    assert model.calls == sum({1: 12, 3: 6}[number] for number in numbers)
    assert sum(done) == 7
    assert len(told) == len(numbers)
    for line, number in zip(told, numbers, strict=True):
        assert f"shard-{number:05d}.safetensors" in line
        assert line.endswith(": this shard is captured again")
    untouched = {path for path in kept if path.name not in "".join(told)}
    assert {path: path.stat().st_mtime_ns for path in untouched} == {
        path: kept[path] for path in untouched
    }


def test_all_that_is_wrong_is_told_before_the_work(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    for number in (0, 2):
        flip_a_byte(tmp_path / f"shard-{number:05d}.safetensors")
    told = []
    with pytest.raises(Interrupted):
        capture(prompts(), Failing(0), DRAFT, tmp_path, SMALL, tell=told.append)
    assert len(told) == 2


def test_a_repair_that_is_interrupted_goes_on(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    whole = content(tmp_path)
    for number in (0, 2):
        flip_a_byte(tmp_path / f"shard-{number:05d}.safetensors")
    with pytest.raises(Interrupted):
        capture(prompts(), Failing(13), DRAFT, tmp_path, SMALL)
    model = MarkovModel(seed=0)
    capture(prompts(), model, DRAFT, tmp_path, SMALL)
    assert model.calls == 12
    assert content(tmp_path) == whole


def test_a_complete_capture_is_told_nothing_of(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    model, told = MarkovModel(seed=0), []
    capture(prompts(), model, DRAFT, tmp_path, SMALL, tell=told.append)
    assert (model.calls, told) == (0, [])


def test_a_repair_with_other_bytes_has_its_sum_in_the_manifest(tmp_path):
    """A model that rounds differently stands in for another machine."""
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    (tmp_path / "shard-00001.safetensors").unlink()
    other = MarkovModel(seed=1)
    other.table = np.nextafter(other.table.astype(np.float32), np.float32(np.inf))
    told = []
    manifest = capture(prompts(), TARGET, other, tmp_path, SMALL, tell=told.append)
    assert len(told) == 2
    assert "other bytes than before" in told[1]
    assert manifest == load_manifest(tmp_path)
    assert corpus_rates(tmp_path, RatesConfig(("top_k",), ("optimal",), (1,))).num_positions == 35


def test_sums_that_are_not_there_are_noted(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    whole = content(tmp_path)
    document = json.loads(whole["manifest.json"])
    del document["shards"][1]["sha256"], document["shards"][2]["sha256"]
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    truncate(tmp_path / "shard-00002.safetensors")
    model, told = MarkovModel(seed=0), []
    capture(prompts(), model, DRAFT, tmp_path, SMALL, tell=told.append)
    assert content(tmp_path) == whole
    assert model.calls == 12
    assert len(told) == 1


def test_nothing_is_overwritten_without_force(tmp_path):
    capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    whole = content(tmp_path)
    other = CaptureSettings(**{**as_options(SMALL), "temperature": 0.5})
    with pytest.raises(errors.InvalidInput, match=r"temperature: 1\.0 there, 0\.5 now"):
        capture(prompts(), TARGET, DRAFT, tmp_path, other)
    with pytest.raises(errors.InvalidInput, match="prompts_sha256"):
        capture(prompts(seed=2), TARGET, DRAFT, tmp_path, SMALL)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(errors.InvalidInput, match="4 shards and no manifest"):
        capture(prompts(), TARGET, DRAFT, tmp_path, SMALL)
    assert {**whole, **content(tmp_path)} == whole
    (tmp_path / "notes.txt").write_text("mine")
    capture(prompts(3), TARGET, DRAFT, tmp_path, other, force=True)
    manifest = load_manifest(tmp_path)
    assert manifest is not None
    assert manifest.settings["temperature"] == 0.5
    assert sorted(content(tmp_path)) == [
        "manifest.json",
        "notes.txt",
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    ]


def as_options(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_ctrl_c_and_a_kill_in_the_middle(tmp_path):
    folder = tmp_path / "parts"
    for number in (signal.SIGINT, signal.SIGKILL):
        assert ended_by(number, folder) != 0
    assert len(list(folder.glob("shard-*"))) in (2, 3)
    capture(prompts(), TARGET, DRAFT, folder, SMALL)
    capture(prompts(), TARGET, DRAFT, tmp_path / "whole", SMALL)
    left = {name: c for name, c in content(folder).items() if not name.endswith(".tmp")}
    assert left == content(tmp_path / "whole")


def test_a_full_disk_keeps_finished_shards(tmp_path):
    code = (
        "import resource, sys; from support.markov import *;"
        "from mdsd_opt.corpora.capture import *;"
        "texts = prompts(6) + [[0] * 2000];"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "settings = CaptureSettings(num_tokens=0, dtype='float32', shard_bytes=1);"
        "texts = [t + [1] for t in texts];"
        "capture(texts, MarkovModel(), MarkovModel(seed=1), sys.argv[1], settings)"
    )
    folder = tmp_path / "corpus"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=WITH_SUPPORT
    )
    assert "Make room and run it again" in done.stderr.splitlines()[-1]
    assert len(list(folder.glob("shard-*.safetensors"))) == 6
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*.tmp"))
    manifest = load_manifest(folder)
    assert manifest is not None
    assert not manifest.is_complete
    texts = [[*text, 1] for text in [*prompts(6), [0] * 2000]]
    settings = CaptureSettings(num_tokens=0, dtype="float32", shard_bytes=1)
    assert capture(texts, TARGET, DRAFT, folder, settings).is_complete


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": "float16"}, "unknown dtype"),
        ({"temperature": -1.0}, "temperature"),
        ({"num_tokens": -1}, "num_tokens is -1"),
        ({"num_positions": 0}, "num_positions"),
    ],
)
def test_bad_settings(change, said):
    with pytest.raises(errors.InvalidInput, match=said):
        CaptureSettings(**change)


def test_prompts_that_are_empty(tmp_path):
    with pytest.raises(errors.InvalidInput, match="no prompt"):
        capture([], TARGET, DRAFT, tmp_path / "x")
    with pytest.raises(errors.InvalidInput, match="prompt 2 has 0 tokens"):
        capture([[1], []], TARGET, DRAFT, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.txt", "one\n\nthree\n", "line 2 of .* is an empty prompt"),
        ("p.txt", " \n\n", "is empty"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ""}', "line 2 of .* empty prompt"),
        ("p.jsonl", '{"prompt": "a"}\n{"question": "b"}', 'line 2 .* "prompt" or "text"'),
        ("p.jsonl", '{"prompt"', "line 1 of .* is not JSON"),
    ],
)
def test_prompt_files_that_are_no_good(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(errors.MdsdError, match=said):
        read_prompts(path)


def test_prompt_files(tmp_path):
    lines = tmp_path / "p.txt"
    lines.write_bytes("ein Löwe\r\n two \n\n".encode())
    assert read_prompts(lines) == ["ein Löwe", " two "]
    objects = tmp_path / "p.jsonl"
    objects.write_text('{"prompt": "a\\nb"}\n{"text": "c"}\n')
    assert read_prompts(objects) == ["a\nb", "c"]
    with pytest.raises(errors.UnreadableFile, match="does not exist"):
        read_text(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.UnreadableFile, match="not UTF-8"):
        read_text(tmp_path / "binary")


def test_windows():
    assert windows(range(7), 3) == [[0, 1, 2], [3, 4, 5]]
    assert windows(range(2), 3) == [[0, 1]]
    with pytest.raises(errors.InvalidInput, match="at least 1"):
        windows([1], 0)
