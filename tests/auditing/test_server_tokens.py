"""Recorded texts: arrays, mappings, and what servers write."""

from __future__ import annotations

import gzip
import json
import math
import os
import resource

import numpy as np
import pytest
from support.fake_server import FakeServer
from support.few_lines import few_lines
from support.toy_engines import Chain, Pair

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.formats import answers_of
from mdsd_opt.formats.answer import named as the_id
from mdsd_opt.servers import Law
from mdsd_opt.servers.adapter import id_of, ids_of, listed_tokens, read_texts

RNG = np.random.default_rng(0)
LAW = RNG.dirichlet(np.ones(6))


def test_one_text_and_several_and_mappings_are_the_same():
    text = RNG.choice(6, size=300, p=LAW)
    rows = np.broadcast_to(LAW, (300, 6))
    one = mo.audit_tokens(rows, text)
    many = mo.audit_tokens([rows], [text.tolist()])
    mapped = mo.audit_tokens([[dict(enumerate(LAW))] * 300], [text])
    held = mo.audit_tokens([[Law.of(LAW)] * 300], [text])
    assert one.log10_e == many.log10_e == held.log10_e
    assert mapped.log10_e == pytest.approx(one.log10_e)
    assert one.tokens == 299
    assert one.first.tokens == 1


def test_texts_of_other_laws_are_accused_and_a_control_tells_lossy_from_misread():
    wrong = np.roll(LAW, 1)
    texts = RNG.choice(6, size=(150, 8), p=wrong)
    texts[:, 0] = RNG.choice(6, size=150, p=LAW)
    laws = np.broadcast_to(LAW, (150, 8, 6))
    right = RNG.choice(6, size=(150, 8), p=LAW)
    assert mo.audit_tokens(laws, texts).finding == "no control"
    lossy = mo.audit_tokens(laws, texts, control=(laws, right))
    assert (lossy.verdict_class, lossy.clean) == ("lossy", False)
    misread = mo.audit_tokens(laws, texts, control=(laws, texts))
    assert (misread.verdict_class, misread.finding) == ("not judged", "law misread")
    assert misread.verdict.startswith("LAW MISREAD")
    few = mo.audit_tokens(laws, texts, control=(laws[:2], right[:2]))
    assert few.finding == "no control"


def recorded(draw, num_texts=60, length=12):
    """Texts along `Pair`, each token from `draw(law, law before)`, and the laws after each."""
    pair, rng = Pair(size=9), np.random.default_rng(0)
    texts, laws = np.empty((num_texts, length), int), np.empty((num_texts, length, 9))
    for text, rows in zip(texts, laws, strict=True):
        state = 0
        for n in range(length):
            rows[n] = pair.p[state]
            state = text[n] = rng.choice(9, p=draw(rows[n], rows[n - 1]) if n else rows[0])
    return texts, laws


def moved(laws, by):
    """The laws of other positions; a text's ends keep their own."""
    at = np.clip(np.arange(laws.shape[1]) + by, 0, laws.shape[1] - 1)
    return laws[:, at]


BEFORE = "the probabilities stated are those of the position before"


def test_laws_of_the_position_before_are_named():
    texts, laws = recorded(lambda law, before: law)
    wrong, plain = moved(laws, -1), (laws, texts)
    alone = mo.audit_tokens(wrong, texts)
    controlled = mo.audit_tokens(wrong, texts, control=(wrong, texts))
    drafted_alone = mo.audit_tokens(wrong, texts, control=plain)  # the plain server states its own
    for report in (alone, controlled, drafted_alone):
        assert (report.verdict_class, report.finding) == ("not judged", "law misread")
        assert report.cause == BEFORE
        assert report.verdict.startswith(
            f"LAW MISREAD, nothing is said of drafts: {BEFORE}: moved by one, they fit (e = 10^"
        )
    assert mo.audit_tokens(laws, texts, drafted=100).cause == ""


def test_laws_of_the_position_after_may_be_tokens_of_the_law_before():
    texts, laws = recorded(lambda law, before: law)
    stated = mo.audit_tokens(moved(laws, 1), texts)
    late, right = recorded(lambda law, before: before)
    drawn = mo.audit_tokens(right, late, control=(laws, texts))
    assert (stated.verdict_class, drawn.verdict_class) == ("not judged", "lossy")
    for report in (stated, drawn):
        assert report.cause == (
            "possibly the probabilities stated are those of the position after, or tokens are "
            "drawn from the law of the position before"
        )
        assert "moved by one, they fit" in report.verdict


def test_laws_that_take_turns_leave_both_possible():
    rows = np.stack([LAW, LAW[::-1]] * 6)
    texts = np.stack([RNG.choice(6, size=60, p=law) for law in rows], axis=1)
    cause = mo.audit_tokens(np.broadcast_to(rows[::-1], (60, 12, 6)), texts).cause
    assert cause.startswith(f"possibly {BEFORE} or the probabilities stated are those of the")


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_a_temperature_is_no_position(power):
    texts, laws = recorded(lambda law, before: law**power / (law**power).sum(), 200)
    right = recorded(lambda law, before: law, 200)[::-1]
    report = mo.audit_tokens(laws, texts, control=right)
    assert report.verdict_class == "lossy"
    assert report.cause == report.later.bets[0][0]


def test_a_token_without_a_law_is_passed_over():
    report = mo.audit_tokens([[None, LAW, None, LAW]], [[0, 1, 2, 3]])
    assert (report.first.tokens, report.tokens) == (0, 2)


def test_unlisted_tokens_of_an_open_law_are_counted():
    law = Law([0, 1], [0.5, 0.5], None)
    report = mo.audit_tokens([[law] * 4], [[0, 1, 5, 0]])
    assert report.tokens == 2
    assert any("not among those listed" in note for note in report.notes)


@pytest.mark.parametrize(
    ("laws", "tokens", "told"),
    [
        ([LAW], [0, 1], "2 tokens, and 1 laws"),
        ([[LAW]], [[0], [1]], "laws of another number"),
        ([LAW], None, "tokens are missing"),
        ([[]], [[]], "no tokens"),
        ([[LAW]], [[0.5]], "no sequence of token ids"),
        ([[[0.5, 0.1]]], [[0]], "sum to"),
    ],
)
def test_what_does_not_fit(laws, tokens, told):
    with pytest.raises(InvalidInput, match=told):
        mo.audit_tokens(laws, tokens)


# --- what servers write


def answers(api, count, faults=(), length=8, **body):
    """Answers of the fake server to the same requests as a client's."""
    server = FakeServer(Chain(), Pair(), seed=1, faults=faults)
    for n in range(count):
        asked = {"prompt": [n % 8], "max_tokens": length, "n_predict": length, **body}
        asked["messages"] = [{"role": "user", "content": chr(n % 8)}]
        yield getattr(server, api)(asked)[1]


def llamacpp_lines(count):
    server, pair = FakeServer(Chain(), Pair(), seed=1), Pair()
    for n in range(count):
        tokens, drafted, accepted = server.text(n % 8, 8)
        rows = []
        for before, token in zip((n % 8, *tokens), tokens, strict=False):
            listed = [{"id": i, "prob": float(p)} for i, p in enumerate(pair.p[before])]
            rows.append({"id": token, "top_probs": listed})
        timings = {"draft_n": drafted, "draft_n_accepted": accepted}
        yield {"completion_probabilities": rows, "timings": timings}


def sglang_lines(count):
    for answer in answers("completions", count, logprobs=40):
        told = answer["choices"][0]["logprobs"]
        ids = [the_id(name) for name in told["tokens"]]
        yield {
            "text": "",
            "meta_info": {
                "output_token_logprobs": [
                    [x, i, None] for x, i in zip(told["token_logprobs"], ids, strict=True)
                ],
                "output_top_logprobs": [
                    [[x, the_id(name), None] for name, x in row.items()]
                    for row in told["top_logprobs"]
                ],
            },
        }


def vllm_lines(count):
    for answer in answers("completions", count, logprobs=20):
        told = answer["choices"][0]["logprobs"]
        yield {
            "prompt_token_ids": [1],
            "outputs": [
                {
                    "token_ids": [the_id(name) for name in told["tokens"]],
                    "logprobs": [
                        {str(the_id(name)): {"logprob": x, "rank": None} for name, x in row.items()}
                        for row in told["top_logprobs"]
                    ],
                }
            ],
        }


FORMS = {
    "OpenAI completions": lambda n: answers("completions", n, logprobs=20),
    "OpenAI chat": lambda n: answers("chat", n, logprobs=True, top_logprobs=20),
    "llama.cpp": llamacpp_lines,
    "SGLang": sglang_lines,
    "vLLM": vllm_lines,
}


def written(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_one_token_after_one_prompt_is_the_example():
    rng = np.random.default_rng(0)
    right, wrong = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.3, 0.35, 0.1])
    first, later = rng.choice(4, (2, 400), p=right)
    texts = np.stack([first, rng.choice(4, 400, p=wrong)], axis=1)
    laws = np.broadcast_to(right, (400, 2, 4))
    control = (laws, np.stack([first, later], axis=1))
    report = mo.audit_tokens(laws, texts, prompts=[[7, 8]] * 400, control=control)
    example = report.example
    assert report.answer() == "FAIL"
    ((token,), before) = example.tokens, example.where.removeprefix("after the prompt [7, 8] and ")
    after = texts[texts[:, 0] == int(before.strip("[]")), 1]
    assert example.calls == after.size
    assert (example.stated, example.counted) == (
        pytest.approx(right[token]),
        np.mean(after == token),
    )
    assert token in (0, 2)
    assert example.repeat == ""
    unnamed = mo.audit_tokens(laws, texts, control=control).example
    assert unnamed.where == f"after {before}"


def test_recorded_tokens_that_point_to_a_fault_are_not_settled():
    """At e = 300 or so nothing more can be asked for."""
    rng = np.random.default_rng(0)
    right, wrong = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.3, 0.35, 0.1])
    texts = rng.choice(4, (1, 300), p=wrong)
    few, more, all_of_them = (
        mo.audit_tokens([np.tile(right, (n, 1))], texts[:, :n], drafted=n) for n in (20, 80, 300)
    )
    assert few.verdict_class == "no deviation"
    assert (more.verdict_class, more.answer(1.0)) == ("not settled", "NOT SETTLED")
    assert max(won for _, won in more.later.bets) >= 2.0
    assert all_of_them.finding == "no control"


@pytest.mark.parametrize("form", FORMS)
def test_what_servers_write_is_read(form, tmp_path):
    path = written(tmp_path / "texts.jsonl", FORMS[form](60))
    report = mo.audit_tokens(path)
    assert (report.tokens, report.first.tokens) == (420, 60)
    if report.drafted is None:  # nobody counts them: there may be none
        assert (report.verdict_class, report.finding) == ("not judged", "drafts not seen")
        report = mo.audit_tokens(path, drafted=100)
    assert report.drafted > 0
    assert report.verdict_class == "no deviation"


@pytest.mark.parametrize("form", ["OpenAI completions", "OpenAI chat"])
def test_a_law_of_other_tokens_is_a_misread_one(form, tmp_path):
    api, body = ("completions", {"logprobs": 20})
    if form == "OpenAI chat":
        api, body = "chat", {"logprobs": True, "top_logprobs": 20}
    path = written(tmp_path / "texts.jsonl", answers(api, 60, ("swapped ids",), **body))
    report = mo.audit_tokens(path, control=path)
    assert (report.verdict_class, report.finding) == ("not judged", "law misread")


def test_lists_with_the_token_that_came_are_cut_to_what_was_asked_for(tmp_path):
    path = written(tmp_path / "texts.jsonl", answers("completions", 40, logprobs=5))
    texts = [*read_texts(path)]
    assert {len(row) for text in texts for row in text.lists} == {5}
    assert {more for text in texts for more in text.extra} == {False, True}
    assert listed_tokens(path) == 5
    assert mo.audit_tokens(path, drafted=100).verdict_class == "no deviation"


def test_ids_of_texts_are_the_same_in_every_process():
    assert id_of(17) == 17
    assert id_of("a") == id_of(b"a") == 15306291493187
    assert id_of("a") != id_of("b")


def test_an_id_beside_a_token_of_a_chat_is_not_taken():
    (text,) = answers_of(next(answers("chat", 1, logprobs=True, top_logprobs=5)))
    assert len({*ids_of(text)}) > 1  # all have the id 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "is not JSON: line 2"),
        ("[1]", "no lists of log-probabilities"),
        ('{"choices": [{"text": "a"}]}', "no lists of log-probabilities"),
        ('{"meta_info": {"output_top_logprobs": [[[0]]]}}', "not known"),
        (
            '{"choices": [{"logprobs": {"tokens": ["a", "b"], "top_logprobs": [{"a": 0}]}}]}',
            "2 tok",
        ),
    ],
)
def test_broken_lines_are_named(line, told, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UnreadableFile, match=told):
        mo.audit_tokens(path)


@pytest.mark.parametrize(
    "num_tokens",
    [
        2_000,
        pytest.param(
            100_000,
            marks=pytest.mark.skipif(
                "SERVER_TABLES" not in os.environ, reason="some minutes: make test-servers"
            ),
        ),
    ],
)
def test_large_vocabularies_take_little_work_and_memory(num_tokens):
    """Tokens of V = 152,000 with the 20 likeliest: a few hundred lines each, however many."""
    assert megabytes_of(num_tokens) < 500


def megabytes_of(num_tokens):
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(2, 22)
    p = 0.95 * weights / weights.sum()
    ids = np.array([rng.choice(15400, size=20, replace=False) for _ in range(1_000)])
    texts = num_tokens // 100
    drawn = rng.choice(21, size=(texts, 100), p=[*p, 0.05])
    rows = rng.integers(1_000, size=(texts, 100))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    laws = ([Law(ids[row], p) for row in line] for line in rows)
    tokens = [
        [int(ids[row][k]) if k < 20 else 151_999 for row, k in zip(*line, strict=True)]
        for line in zip(rows, drawn, strict=True)
    ]
    with few_lines(400 * num_tokens):
        report = mo.audit_tokens(laws, tokens)
    assert report.tokens == 99 * texts
    assert not math.isnan(report.log10_e)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) / 1024


def test_a_stream_and_a_compressed_file_are_read_as_they_are(tmp_path):
    answer = json.dumps(next(answers("completions", 1, logprobs=20)))
    path = tmp_path / "texts.jsonl.gz"
    path.write_bytes(gzip.compress(f"{answer}\n".encode() * 40))
    assert mo.audit_tokens(path).tokens == 280
    path = tmp_path / "stream.txt"
    path.write_text(f"data: {answer}\n\ndata: [DONE]\n")
    assert mo.audit_tokens(path).tokens == 7
    path.write_text("INFO SpecDecoding metrics: Mean acceptance length: 2.00\n")
    with pytest.raises(UnreadableFile, match="no lists of log-probabilities"):
        mo.audit_tokens(path)
