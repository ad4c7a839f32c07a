"""Sample files of every engine against what is true of them: read right, or refused with reasons.

`samples/truth.json` has of each file what it is, and what it says (`read`, with relative
tolerances where the file is rounded) or why it has to be refused, and the two fields that the
message names. A null is what the file does not tell.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, MdsdError, UnreadableFile
from mdsd_opt.formats import formats, read_counts, summary

SAMPLES = Path(__file__).parent / "samples"
TRUTH: dict[str, dict[str, Any]] = json.loads((SAMPLES / "truth.json").read_text("utf-8"))
READ = [name for name, entry in TRUTH.items() if "read" in entry]
REFUSED = [name for name, entry in TRUTH.items() if "refuse" in entry]

#: Names of truths whose absence cannot be told from a number that was assumed.
WEIGHTS = ("steps", "drafted", "accepted")


def fits(found: Any, true: Any, tolerance: float) -> bool:
    if isinstance(true, (list, tuple)):
        return len(found) == len(true) and all(
            fits(x, y, tolerance) for x, y in zip(found, true, strict=True)
        )
    if isinstance(true, str):
        return found == true
    return abs(found - true) <= tolerance * abs(true) + 1e-6 * max(1.0, abs(true)) + 5e-5


@pytest.mark.parametrize("name", READ)
def test_a_sample_is_read_as_it_is(name: str) -> None:
    true, tolerances = TRUTH[name]["read"], TRUTH[name].get("tol", {})
    found = summary(SAMPLES / name)
    for field, value in true.items():
        if field == "logprobs":
            assert found[field].keys() == value.keys()
            assert all(fits(found[field][x], value[x], 0.0) for x in value), (found, value)
        elif value is None:
            told = found[field] is not None
            assert not told or (found["assumed"] and field in WEIGHTS), field
        else:
            assert fits(found[field], value, tolerances.get(field, 0.0)), (field, found[field])


@pytest.mark.parametrize("name", REFUSED)
def test_a_sample_that_contradicts_itself_is_refused_by_both_names(name: str) -> None:
    with pytest.raises(MdsdError) as caught:
        summary(SAMPLES / name)
    told = str(caught.value).lower()
    assert "known form" not in told  # it is known, and wrong
    assert "\n" not in told
    for field in TRUTH[name]["fields"]:
        assert all(word in told for word in re.findall(r"[a-z_]{3,}", field.lower())), told


def test_every_format_has_a_sample() -> None:
    """A format is met where its reader is the one that knows a sample's text or record."""
    met = set()
    for name in TRUTH:
        try:
            met.add(read_counts(SAMPLES / name).source.rpartition("(")[2].rstrip(")"))
        except MdsdError:
            continue
    silent = {"trtllm-bench", "guidellm"}
    missing = {x.name for x in formats() if x.of_text or x.of_record} - met - silent
    assert not missing, f"put samples of {missing} and their truth into tests/formats/samples"


# --- ways in ---


def test_a_file_may_be_compressed_and_come_from_standard_input(monkeypatch: Any) -> None:
    plain = (SAMPLES / "vllm-bench-02.json").read_bytes()
    for content in (plain, gzip.compress(plain)):
        stdin = io.TextIOWrapper(io.BytesIO(content))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert summary("-")["accepted"] == 13271
    lists = (SAMPLES / "tgi-answer-01.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lists)))
    assert summary("-")["logprobs"]["texts"] == 2
    contradicts = (SAMPLES / "vllm-log-01.log").read_bytes().replace(b"length: 2", b"length: 3")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(contradicts)))
    with pytest.raises(mo.MdsdError, match=r"line \d+ of standard input contradicts itself"):
        read_counts("-")


def test_a_compressed_file_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes((SAMPLES / "vllm-log-06.log.gz").read_bytes()[:-20])
    with pytest.raises(UnreadableFile, match="gzip, and cut"):
        read_counts(path)


def test_several_files_are_one_run() -> None:
    one, two = SAMPLES / "vllm-log-01.log", SAMPLES / "vllm-log-05.log"
    both = read_counts([one, two])
    assert both.sum("accepted") == 12050 + 400
    with pytest.raises(InvalidInput, match="depth is 5, but"):
        read_counts([one, two], 5)


def test_means_of_several_runs_are_no_mean(tmp_path: Path) -> None:
    text = (SAMPLES / "sglang-bench-01.txt").read_text()
    other = tmp_path / "other.txt"
    other.write_text(text.replace("2.47", "3.10"))
    assert other.read_text() != text
    with pytest.raises(InvalidInput, match="several means without their steps: give one"):
        read_counts([SAMPLES / "sglang-bench-01.txt", other])
    other.write_text(text + other.read_text())
    with pytest.raises(InvalidInput, match="several means without their steps: give one"):
        read_counts(other)


def test_scrapes_of_one_server_in_two_files(tmp_path: Path) -> None:
    text = (SAMPLES / "vllm-metrics-01.prom").read_text()
    half = text.index("# TYPE vllm:spec_decode_num_drafts_total counter", len(text) // 2 - 99)
    paths = [tmp_path / "before.prom", tmp_path / "after.prom"]
    for path, part in zip(paths, (text[:half], text[half:]), strict=True):
        path.write_text(part)
    assert read_counts(paths).sum("steps") == 4100


def test_an_address_counts_what_comes_between_two_scrapes(monkeypatch: Any) -> None:
    httpx = pytest.importorskip("httpx")
    text = (SAMPLES / "lmdeploy-metrics-02.prom").read_text()
    texts = [text, text.replace("1500.0", "2500.0").replace("4500.0", "7500.0")
             .replace("2642.0", "4642.0").replace("1219.0", "2219.0")
             .replace("859.0", "1559.0").replace("564.0", "864.0")]  # fmt: skip

    def get(address: str, **_: Any) -> Any:
        request = httpx.Request("GET", address)
        return httpx.Response(200, text=texts.pop(0) if len(texts) > 1 else texts[0],
                              request=request)  # fmt: skip

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr("time.sleep", lambda _: None)
    counts = read_counts("http://127.0.0.1:1/metrics")
    assert (counts.sum("steps"), counts.sum("accepted")) == (1000, 2000)
    with pytest.raises(UnreadableFile, match="no drafts between two scrapes"):
        read_counts("http://127.0.0.1:1/metrics")


def test_an_address_that_refuses_is_told_in_a_line(monkeypatch: Any) -> None:
    httpx = pytest.importorskip("httpx")
    answer = httpx.Response(404, request=httpx.Request("GET", "http://m"))
    monkeypatch.setattr(httpx, "get", lambda *_, **__: answer)
    with pytest.raises(UnreadableFile, match=r"404 Not Found.*give the address") as caught:
        read_counts("http://m")
    assert "\n" not in str(caught.value)


# --- K is never guessed, and shares are not counts ---


def test_counts_of_a_thousand_steps_are_no_shares() -> None:
    advice = mo.advise_from_counts(by_position=([1, 0, 0], 1000))
    assert advice.best.accepted.mean == pytest.approx(0.001)
    shares = mo.advise_from_counts(by_position=([0.5, 0.25, 0.0], 1000))
    assert shares.best.accepted.mean == pytest.approx(0.75)


def test_a_length_that_a_file_does_not_tell_is_asked_for(tmp_path: Path) -> None:
    path = SAMPLES / "llamacpp-log-03.log"
    with pytest.raises(InvalidInput, match=r"does not say how many drafts .* give depth"):
        mo.advise_from_counts(path)
    told = mo.advise_from_counts(path, depth=6)
    chain = next(x for x in told.rows if x.kind == "chain" and x.depth == 3)
    assert chain.accepted.low <= 2.009 <= 6


def test_a_rate_of_two_readings_is_settled_by_a_length() -> None:
    path = SAMPLES / "sglang-log-03.log"
    for depth in (2, 3):
        assert read_counts(path, depth).depth == depth
    with pytest.raises(UnreadableFile, match=r"accept rate 0\.50, which \w+ = 5 does not"):
        read_counts(path, 5)


def test_every_sample_gives_advice_or_asks_for_a_length() -> None:
    for name in READ:
        if "steps" not in TRUTH[name]["read"] and "mean_accepted" not in TRUTH[name]["read"]:
            continue
        depth = TRUTH[name]["read"].get("depth") or 6
        advice = mo.advise_from_counts(SAMPLES / name, depth=depth, target_ms=20, draft_ms=1)
        assert advice.best.accepted.mean <= 16
        if TRUTH[name]["read"].get("depth") is None:
            with pytest.raises(InvalidInput, match="give depth"):
                mo.advise_from_counts(SAMPLES / name)


def test_totals_leave_steep_decay_open() -> None:
    """1.44 of 3 drafts accepted a step: the first draft may be accepted .48 to 1 of the time."""
    advice = mo.advise_from_counts(1440, 3000, depth=3)
    first = next(x for x in advice.rows if x.depth == 1).accepted
    assert first.low <= 0.48 + 1e-9
    assert first.high == 1.0


def test_positions_of_llamacpp_decide() -> None:
    """.9, .3, .25 by position: the mean alone would give the first draft .673."""
    found = read_counts(SAMPLES / "llamacpp-log-01.log").complete()
    assert found.reached is not None
    assert found.reached.sum(axis=0)[0] / found.sum("steps") == pytest.approx(0.904, abs=0.001)


def test_the_old_word_for_depth_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is depth"):
        advice = mo.advise_from_counts(1093, 1717, num_drafts=5)
    assert advice.depth == 5


def test_sequence_in_lines_is_the_group_of_a_step(tmp_path: Path) -> None:
    steps = [(3, 0), (1, 0), (0, 1), (2, 1)]
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps({"accepted": a, "depth": 3, "sequence": s}) + "\n"
                            for a, s in steps))  # fmt: skip
    counts = read_counts(path)
    assert (counts.unit, counts.steps.tolist()) == ("requests", [2, 2])  # type: ignore[union-attr]


def test_times_and_batches_stand_in_the_advice() -> None:
    advice = mo.advise_from_counts(SAMPLES / "vllm-log-01.log")
    assert any("8 requests together, 22.2 ms a pass" in note for note in advice.notes)
    assert advice.to_dict()["counts"]["passes"] == [{"running": 8.0, "ms": pytest.approx(200 / 9)}]


# --- acceptance that was forced, and times that contradict those that were given ---

FORCED = {
    "vllm-log-01.log": "args: {'speculative_config': {'rejection_sample_method': 'synthetic'}}",
    "sglang-log-06.log": "server_args=ServerArgs(simulate_acc_len=3)",
    "sglang-log-01.log": "SGLANG_SIMULATE_ACC_LEN=2.5",
    "llamacpp-log-01.log": "srv: using simulated acceptance, 0.70",
}


@pytest.mark.parametrize("name", FORCED)
def test_forced_acceptance_never_pays(name: str, tmp_path: Path) -> None:
    costs: dict[str, Any] = {"target_ms": 1000, "draft_ms": 0.001, "rows_ms": {1: 1000, 40: 1000}}
    path, text = tmp_path / "run.log", (SAMPLES / name).read_text()
    path.write_text(f"simulate_acc_len=0\n{text}")
    assert "was forced" not in mo.advise_from_counts(path, **costs).notes[0]
    path.write_text(f"{FORCED[name]}\n{text}")
    advice = mo.advise_from_counts(path, **costs)
    assert advice.worth_it is None
    assert advice.notes[0].startswith("acceptance was forced")
    assert advice.sentences == [advice.sentence]
    assert "acceptance was forced" in advice.sentence
    forced = advice.to_dict()["counts"]["forced"]
    assert forced in FORCED[name]
    assert forced.count("'") % 2 == 0


def test_a_time_of_a_log_that_contradicts_the_one_given_comes_first() -> None:
    path = SAMPLES / "vllm-log-01.log"  # 22.2 ms a pass at batch 8
    for target_ms, contradicts in ((1.0, True), (20.0, False)):
        advice = mo.advise_from_counts(path, target_ms=target_ms, draft_ms=0.5)
        told = advice.to_dict()["contradiction"]
        assert bool(told) == contradicts
        assert ("22.2 ms a pass at batch 8" in advice.sentences[0]) == contradicts


def test_a_number_is_compared_at_the_digits_it_shows(tmp_path: Path) -> None:
    text = (SAMPLES / "sglang-bench-04.jsonl").read_text()
    path = tmp_path / "run.jsonl"
    for shown, fits in (("823.3333333333334", True), ("823.3", True), ("826.34", False)):
        path.write_text(text.replace("823.33", shown))
        if fits:
            assert summary(path)["tokens"] == 24700
        else:
            with pytest.raises(UnreadableFile, match=r"output_throughput is 826\.34"):
                summary(path)
