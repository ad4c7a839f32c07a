"""Counts of logs: sums over all of a run, told apart by content; what is wrong is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import engine_logs as logs

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.formats import read_counts, read_run

RUN = logs.a_run()

#: By name: the log, whether positions are in it, and how many groups.
LOGS = {
    "vLLM's log": (logs.vllm_log(RUN), True, 12),
    "a scrape of vLLM": (logs.scrape(RUN), True, 1),
    "a scrape of llama.cpp": (logs.scrape(RUN, "llamacpp"), True, 1),
    "llama.cpp's log": (logs.llamacpp_log(RUN), False, 24),
    "vLLM's answers": (logs.vllm_answers(RUN), True, 24),
    "AIPerf's records": (logs.aiperf_records(RUN), True, 24),
    "SGLang's answers": (logs.sglang_answers(RUN), True, 24),
    "SGLang's older answers": (logs.sglang_answers(RUN, new=False), False, 24),
    "TensorRT-LLM's iterations": (logs.trtllm_stats(RUN), False, None),
    "llama.cpp's answers": (logs.llamacpp_answers(RUN), False, 24),
    "steps": (logs.steps_of_requests(RUN), True, 24),
}


#: Logs that tell how many drafts a step has at most: llama.cpp's have neither K nor positions.
TELL_DEPTH = LOGS.keys() - {"llama.cpp's log", "llama.cpp's answers"}


def advised(path, name, **costs):
    depth = None if name in TELL_DEPTH else RUN.depth
    return mo.advise_from_counts(path, depth=depth, target_ms=20, draft_ms=1, **costs)


def written(tmp_path, text, name="run.log"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", LOGS)
def test_sums_are_those_of_the_run(tmp_path, name):
    text, by_position, groups = LOGS[name]
    found = read_counts(written(tmp_path, text)).to_dict()
    assert found["depth"] == (RUN.depth if name in TELL_DEPTH else None)
    assert found["steps"] == pytest.approx(RUN.steps, rel=1e-9)
    assert found["accepted"] == pytest.approx(RUN.accepted, rel=1e-9)
    assert found["drafted"] == pytest.approx(RUN.steps * RUN.depth, rel=1e-9)
    if by_position:  # rounded to three places in vLLM's log
        assert found["by_position"] == pytest.approx(RUN.by_position, abs=0.0005 * RUN.steps)
    else:
        assert found["by_position"] is None
    assert groups is None or found["groups"] == groups


@pytest.mark.parametrize("name", LOGS)
def test_a_single_request_is_enough(tmp_path, name):
    """Its steps are then what intervals are over, where their outcomes are known."""
    writers = {
        "vLLM's log": logs.vllm_log,
        "llama.cpp's log": logs.llamacpp_log,
        "vLLM's answers": logs.vllm_answers,
        "AIPerf's records": logs.aiperf_records,
        "SGLang's answers": logs.sglang_answers,
        "steps": logs.steps_of_requests,
    }
    one = logs.Run(3, RUN.requests[:1])
    path = written(tmp_path, writers.get(name, logs.scrape)(one))
    advice = advised(path, name, rows_ms={1: 20, 17: 21})
    measured = next(row for row in advice.rows if row.depth == 3)
    assert measured.accepted.low < one.accepted / one.steps < measured.accepted.high


@pytest.mark.parametrize("name", LOGS)
def test_every_log_gives_advice(tmp_path, name):
    path = written(tmp_path, LOGS[name][0])
    advice = advised(path, name, rows_ms={1: 20, 17: 21})
    assert advice.worth_it, advice.sentence
    measured = next(row for row in advice.rows if row.depth == RUN.depth)
    assert measured.accepted.mean == pytest.approx(RUN.accepted / RUN.steps, rel=1e-3)
    assert measured.accepted.low < measured.accepted.mean < measured.accepted.high


def test_lines_of_sglang_weigh_as_much_as_requests_ran(tmp_path):
    running = 1 + np.arange(len(RUN.requests)) % 4
    means = np.array([round(float(steps.mean()) + 1, 2) - 1 for steps in RUN.requests])
    whole = running @ means / running.sum()
    assert abs(whole - means.mean()) > 0.005  # a mean of means is something else
    for text, given in ((logs.sglang_log(RUN), None), (logs.sglang_log(RUN, False), 3)):
        counts = read_counts(written(tmp_path, text), given)
        assert counts.depth == 3
        assert counts.sum("accepted") / counts.sum("steps") == pytest.approx(whole)
    with pytest.raises(InvalidInput, match="does not say how many drafts"):
        read_counts(written(tmp_path, logs.sglang_log(RUN, False))).complete()
    trees = logs.sglang_log(RUN).replace("'EAGLE'", "'EAGLE', speculative_eagle_topk=4")
    with pytest.raises(UnreadableFile, match="is of trees"):
        read_counts(written(tmp_path, trees))


def test_scrapes_count_what_they_add(tmp_path):
    early = logs.a_run(requests=10, seed=3)
    both = logs.Run(3, (*early.requests, *RUN.requests))
    text = logs.scrape(early) + logs.scrape(both)
    counts = read_counts(written(tmp_path, text))
    assert counts.steps.tolist() == [early.steps, RUN.steps]
    assert counts.sum("accepted") == both.accepted
    anew = logs.scrape(both) + logs.scrape(early, created=1.8e9)  # it was started again
    assert read_counts(written(tmp_path, anew)).steps.tolist() == [both.steps, early.steps]
    engines = logs.scrape(early) + logs.scrape(RUN, engine=1)
    assert read_counts(written(tmp_path, engines)).to_dict()["accepted"] == both.accepted


def test_steps_that_drafted_nothing_are_no_steps_with_a_draft(tmp_path):
    """What llama.cpp prints with p-min: the mean length is over steps that drafted alone."""
    line = "slot print_timing: id  3 | task 0 | "
    text = (
        f"{line}       eval time =      33.05 ms /    80 tokens (    0.42 ms per token)\n"
        f"{line}draft acceptance = 0.63830 (   30 accepted /    47 generated), mean len =  2.30\n"
    )
    counts = read_counts(written(tmp_path, text), 5)
    assert counts.steps[0] == 23  # the only whole number with 1 + 30 / n near 2.30
    assert counts.undrafted[0] == 49 - 23
    advice = mo.advise_from_counts(counts, target_ms=20, draft_ms=2, rows_ms={1: 20, 8: 22})
    as_run = next(row for row in advice.rows if row.kind == "as run")
    assert 1 + as_run.accepted.mean == pytest.approx(79 / 49, rel=0.01)
    assert as_run.depth == pytest.approx(47 / 49, rel=0.01)


def test_totals_of_the_llama_program(tmp_path):
    text = (
        "n_draft   = 8\nn_predict = 1500\nn_drafted = 1717\nn_accept  = 1093\naccept    = 63.658%\n"
    )
    found = read_counts(written(tmp_path, text)).to_dict()
    assert (found["depth"], found["accepted"], found["drafted"]) == (8, 1093, 1717)
    assert found["steps"] == 1500 - 1093


def test_the_result_of_vllm_bench(tmp_path):
    steps = RUN.steps
    document = {
        "spec_decode_num_drafts": steps,
        "spec_decode_draft_tokens": 3 * steps,
        "spec_decode_accepted_tokens": RUN.accepted,
        "spec_decode_per_position_acceptance_rates": [x / steps for x in RUN.by_position],
    }
    found = read_counts(written(tmp_path, json.dumps(document))).to_dict()
    assert found["by_position"] == pytest.approx(RUN.by_position)


def test_arrays_of_steps(tmp_path):
    path = tmp_path / "steps.npz"
    texts = np.repeat(np.arange(24), [len(x) for x in RUN.requests])
    np.savez(path, accepted=np.concatenate(RUN.requests), depth=3, sequence=texts)
    counts = read_counts(path)
    assert counts.num_groups == 24
    assert (counts.times @ counts.reached).tolist() == RUN.by_position


def test_predictions_in_openais_style(tmp_path):
    counts = {"accepted_prediction_tokens": 30, "rejected_prediction_tokens": 15}
    metrics = {f"usage_{name}": {"value": x, "unit": "tokens"} for name, x in counts.items()}
    for record in ({"usage": {"completion_tokens_details": counts}}, {"metrics": metrics}):
        path = written(tmp_path, json.dumps(record))
        assert read_counts(path, 3).complete().to_dict()["steps"] == 15
        with pytest.raises(InvalidInput, match="does not say how many drafts"):
            read_counts(path).complete()


VLLM, LLAMA = logs.vllm_log(RUN), logs.llamacpp_log(RUN)
STARTED = (
    "server_args=ServerArgs(speculative_num_steps=3, speculative_eagle_topk=1, "
    "decode_log_interval=40)\n"
)


def test_logs_of_two_engines_are_no_run(tmp_path):
    paths = [tmp_path / name for name in ("a.log", "b.log", "c.log")]
    for path, text in zip(paths, (VLLM, LLAMA, VLLM), strict=True):
        path.write_text(text)
    with pytest.raises(UnreadableFile, match=r"mixes what llama.cpp's log and vLLM's log write"):
        read_counts(paths[:2])
    assert read_counts(paths[::2]).to_dict()["accepted"] == 2 * read_counts(paths[0]).sum(
        "accepted"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("nothing of the kind\n", "no counts of accepted drafts in a known form. Known: AIPerf"),
        ('{"text": "hello"}', "no counts of accepted drafts in a known form"),
        (VLLM + LLAMA, "mixes what llama.cpp's log and vLLM's log write"),
        (logs.vllm_answers(RUN) + logs.llamacpp_answers(RUN), "mixes what vLLM's answers"),
        (VLLM[: VLLM.rindex("Per-position") + 35], "line 13 of .* cut or changed"),
        (LLAMA[: LLAMA.rindex("generated")], "line 73 of .* is cut or changed"),
        (logs.scrape(RUN)[:-30], "is cut: its last line has no end"),
        (logs.scrape(RUN)[:-30] + "\n", r"line \d+ of .* is cut or changed"),
        (
            "\n".join(logs.scrape(RUN).splitlines()[:6]) + "\n",
            "is cut: vllm:spec_decode_num_accepted_tokens is missing",
        ),
        (logs.sglang_log(RUN).rsplit(", accept rate", 1)[0], "is cut or changed"),
        *(
            (
                f"{STARTED}{logs.sglang_log(RUN)}{STARTED.replace(*change)}{logs.sglang_log(RUN)}",
                told,
            )
            for change, told in (
                (("steps=3", "steps=7"), "num_steps is 3, but .*_num_steps of another start is 7"),
                (("topk=1", "topk=4"), "topk is 1, but speculative_eagle_topk of another start is"),
                (("interval=40", "interval=1"), "interval is 40, but .* of another start is 1"),
            )
        ),
        (
            f"INFO speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=1)\n{VLLM}",
            "the number of Per-position acceptance rate is 3, but num_speculative_tokens is 1",
        ),
        (logs.vllm_answers(RUN)[:-9], "line 24 of .* is not JSON"),
        (logs.trtllm_stats(RUN)[:-9], "is not JSON"),
        ('{"timings": {"draft_n": "many"}}', "draft_n is 'many', not a count"),
        ('{"meta_info": {"spec_verify_ct": 0}}', "no step with a draft"),
        (
            '{"acceptance_histogram": [3, 1], "num_draft_tokens": 4, "num_spec_steps": 9}',
            "the sum of acceptance_histogram is 4, but num_spec_steps is 9",
        ),
        ('{"acceptance_histogram": [3, 1]}', "num_draft_tokens is None"),
        ('{"accepted": 1, "num_drafts": 4, "depth": 1}', "4 drafts compete for one token"),
        (
            '{"timings": {"draft_n": 5, "draft_n_accepted": 9, "predicted_n": 30}}',
            "draft_n_accepted is 9, but draft_n is 5",
        ),
    ],
)
def test_what_is_wrong_with_a_log_is_one_clear_error(tmp_path, text, told):
    with pytest.raises((UnreadableFile, InvalidInput), match=told) as caught:
        read_counts(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", ["Decode batch ", "(running/waiting) "])
def test_a_line_that_begins_again_and_again_is_looked_at_once(tmp_path, words):
    path = written(tmp_path, VLLM + words * 300_000 + "\n")
    assert read_counts(path).num_groups == 12  # as many looks as letters by words took hours


def test_a_log_of_the_shell_of_windows(tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(VLLM.replace("\n", "\r\n").encode("utf-16"))
    assert read_counts(path).sum("accepted") == read_counts(written(tmp_path, VLLM)).sum("accepted")


def test_a_log_as_docker_keeps_it_and_cut(tmp_path):
    row = {"stream": "stderr", "time": "2026-11-20T10:00:00.123456789Z"}
    parts = [part for line in VLLM.splitlines(True) for part in (line[:40], line[40:])]
    lines = [json.dumps({"log": f"\x1b[32m{part}", **row}, separators=(",", ":")) for part in parts]
    path = written(tmp_path, "\n".join(lines) + '\n{"log":"(EngineCore')
    assert read_counts(path).sum("accepted") == read_counts(written(tmp_path, VLLM)).sum("accepted")


@pytest.mark.parametrize("text", ['{"log": {"a": 1}}', '{"log":"\\x","stream":"stderr"}\n'])
def test_what_only_begins_as_docker_writes_is_refused_as_json(tmp_path, text):
    with pytest.raises(UnreadableFile) as caught:
        read_counts(written(tmp_path, text))
    assert "is empty" not in str(caught.value)


def test_llamacpp_that_went_back_to_checkpoints_may_count_too_many(tmp_path):
    start = "0.01.042.457 W srv    load_model: speculative decoding will use checkpoints\n"
    (note,) = read_counts(written(tmp_path, start + LLAMA)).notes
    assert "too many may be counted" in note
    assert not read_counts(written(tmp_path, LLAMA)).notes


def test_arguments_of_sglang_are_told_from_longer_names(tmp_path):
    most = STARTED.replace("eagle_topk=1", "eagle_topk=1, max_speculative_num_draft_tokens=8")
    row = (
        "Decode batch, #running-req: 1, accept len: 2.50, accept rate: 0.50, "
        "gen throughput (token/s): 9.00\n"
    )
    assert read_counts(written(tmp_path, most + row)).depth == 3
    adaptive = f"speculative_adaptive=True\n{STARTED}{STARTED.replace('steps=3', 'steps=5')}{row}"
    assert read_counts(written(tmp_path, adaptive)).depth is None


def test_drafts_that_no_request_counts_are_told(tmp_path):
    """A log that others published: all drafts are accepted, and half of those that were made."""
    log = (
        "       eval time =    3165.00 ms /   200 tokens (   15.83 ms per token)\n"
        "draft acceptance rate = 1.00000 (  115 accepted /   115 generated)\n"
        "statistics draft: #calls(b,g,a) = 1 82 33, #gen drafts = 81, #acc drafts = 33, "
        "#gen tokens = 214, #acc tokens = 115, dur(b,g,a) = 0.001, 999.634, 0.005 ms\n"
    )
    assert "99 drafts are in the statistics" in read_counts(written(tmp_path, log)).notes[-1]
    log = log.replace("214", "115").replace("81", "33")
    assert not any("statistics" in x for x in read_counts(written(tmp_path, log)).notes)


def test_the_first_token_of_an_answer_is_the_prompts(tmp_path):
    drafted = written(tmp_path, logs.llamacpp_log(RUN), "drafted.log")
    line = "       eval time =    2000.00 ms /   {} tokens (   20.00 ms per token)\n"
    plain = written(tmp_path, line.format(101) + line.format(1), "plain.log")
    assert [(x.tokens, x.seconds) for x in read_run([drafted, plain]).plain] == [(100.0, 2.0)]


def test_rounds_of_an_answer_are_its_steps(tmp_path):
    timings = {"predicted_n": 111, "draft_n": 90, "draft_n_accepted": 81}
    for more, steps in ({}, 29), ({"draft_rounds": 30}, 30):
        counts = read_counts(written(tmp_path, json.dumps({"timings": timings | more})))
        assert counts.sum("steps") == counts.measured.rounds == steps
        assert bool(counts.notes) == (not more)


def test_statistics_of_llamacpp_once_had_no_durations(tmp_path):
    old = "#calls = 15, #gen drafts = 5, #acc drafts = 5, #gen tokens = 187, #acc tokens = 73\n"
    counts = read_counts(written(tmp_path, f"statistics ngram_simple: {old}"))
    assert [counts.sum(x) for x in ("steps", "drafted", "accepted")] == [5, 187, 73]
    with pytest.raises(UnreadableFile, match="is cut"):  # newer ones have them
        read_counts(written(tmp_path, f"statistics draft: {old.replace('calls', 'calls(b,g,a)')}"))


def test_a_file_that_is_not_there():
    with pytest.raises(UnreadableFile, match="does not exist"):
        read_counts("/nowhere/run.log")
