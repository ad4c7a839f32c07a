"""mdsd-opt decode with models that are noise: comparisons that do not die, text without notices."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from types import SimpleNamespace

import pytest
from support import fake_models

from mdsd_opt.cli import main
from mdsd_opt.decoding import ComparedRule, Metrics, compare_rules, generate, generation
from mdsd_opt.errors import SolverError
from mdsd_opt.trees import rules
from mdsd_opt.trees.rules.by_level import LevelSequential

MODELS = ("decode", "--target", "x", "--draft", "y", "--tokens", "6", "--tree", "2x2")
COMPARE = (*MODELS, "--compare", "--prompt", "one")


@pytest.fixture
def run(run_cli, monkeypatch):
    fake_models.install(monkeypatch)
    return run_cli


def test_the_default_list_holds_only_rules_that_can_decode_there(run, monkeypatch):
    few = {row["rule"] for row in json.loads(run(*COMPARE, "--json").stdout)["rows"]}
    fake_models.install(monkeypatch, vocab_size=4)
    done = run(*COMPARE, "--json")
    assert {row["rule"] for row in json.loads(done.stdout)["rows"]} == few | {"gumbel"}
    assert {"optimal", "rrs", "level_sequential"} <= few
    assert "lp" not in few


def test_a_rule_that_cannot_decode_there_is_a_row_that_says_why(run):
    shown = run.shown(*COMPARE, "--verifier", "gumbel,optimal,block_verification")
    assert "too many terms" in " ".join(shown.replace("│", " ").split())
    rows = json.loads(run(*COMPARE, "--json", "--verifier", "gumbel,optimal").stdout)["rows"]
    assert "too many terms" in rows[0]["refused"]
    assert "total" not in rows[0]
    assert rows[1]["total"]["num_tokens"] == 6
    assert "refused" not in rows[1]


class Fragile(LevelSequential):
    """Works in the warm-up, and for some steps after it."""

    def __init__(self, error, calls):
        self.error, self.calls = error, calls

    def verify(self, root, rng):
        self.calls[0] -= 1
        if self.calls[0] < 0:
            if isinstance(self.error, signal.Signals):
                signal.raise_signal(self.error)
            raise self.error
        return super().verify(root, rng)


def break_rule(monkeypatch, error, calls):
    calls = [calls]
    monkeypatch.setitem(rules.MULTI_STEP, "traversal", Fragile(error, calls))


WARM_UP = 17  # eight steps of two trees, and one of the models


@pytest.mark.parametrize("error", [SolverError("no luck"), AssertionError("no luck")])
def test_a_rule_that_fails_on_the_way_does_not_take_the_others_along(run, monkeypatch, error):
    break_rule(monkeypatch, error, WARM_UP + 1)
    broken, whole = run.document(*COMPARE, "--verifier", "traversal,rrs")["rows"]
    assert broken["refused"] == "no luck"
    assert broken["total"]["num_steps"] == 1
    assert whole["total"]["num_tokens"] == 6


def test_after_ctrl_c_what_is_done_is_shown(run, monkeypatch):
    break_rule(monkeypatch, signal.SIGINT, WARM_UP + 1)
    done = run(*COMPARE, "--verifier", "traversal,rrs")
    assert done.returncode == 130
    assert "interrupted in prompt 1" in done.stdout
    assert "rrs" in done.stdout
    assert "Traceback" not in done.stderr
    assert "interrupted" in done.stderr


def test_intervals_are_promised_only_where_there_are_some(run):
    one = run(*COMPARE, "--verifier", "rrs").stdout
    assert "no intervals" in one
    assert "95%" not in one
    assert "±" not in one
    two = run(*COMPARE, "--prompt", "two words", "--verifier", "rrs").stdout
    assert "95% intervals over 2 prompts" in two
    assert "±" in two


def test_one_prompt_is_no_verdict(run):
    """Rules that accept the same are named together: on chains of one draft these two are one."""
    same = ("--tree", "chain1", "--verifier", "rrs,single_draft,naive_target")
    told = run(*COMPARE, *same).stdout.splitlines()[-1]
    assert re.fullmatch(
        r"most tokens a step: rrs, single_draft, \d\.\d\d; one prompt tells no rules apart: "
        "give several",
        told,
    )
    assert "one prompt" not in run(*COMPARE, *same, "--prompt", "two words").stdout
    assert "one prompt" not in run(*COMPARE, "--verifier", "rrs").stdout


def test_comparing_gives_each_rule_what_it_would_decode_alone(run):
    names = ["rrs", "level_sequential", "optimal"]
    rows = json.loads(run(*COMPARE, "--json", "--verifier", ",".join(names)).stdout)["rows"]
    big, small = fake_models.FakeModel(60, 1), fake_models.FakeModel(60, 2)
    for name, row in zip(names, rows, strict=True):
        alone = generate(big, small, [3], tree="2x2", rule=name, max_new_tokens=6, rng=0)
        for count in ("num_steps", "num_tokens", "num_accepted", "num_drafted"):
            assert row["total"][count] == getattr(alone.metrics, count)


def test_every_rule_is_the_first_of_a_round_equally_often():
    order = []

    def begin(rule, n):
        for step in range(6):
            order.append(rule)
            yield (0,), Metrics(num_steps=step + 1)

    rows = [ComparedRule(name) for name in "abc"]
    compare_rules(rows, 2, begin)
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert rounds == ["abc", "bca", "cab"] * 2 + ["bca", "cab", "abc"] * 2
    assert [len(row.prompts) for row in rows] == [2, 2, 2]
    assert all(row.total.num_steps == 12 for row in rows)


@pytest.mark.parametrize("terminal", [False, True])
def test_no_notice_comes_into_the_text(monkeypatch, terminal):
    """Both streams on one screen, as in a terminal."""

    class Screen(io.StringIO):
        def isatty(self):
            return terminal

    screen = Screen()
    calls = [0]

    def notice():
        calls[0] += 1
        print(f"notice {calls[0]}", file=sys.stderr)

    fake_models.install(monkeypatch, on_call=notice)
    monkeypatch.setattr(sys, "argv", ["mdsd-opt", *MODELS, "--prompt", "Once upon"])
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", screen)
        streams.setattr(sys, "stderr", screen)
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code
    shown = screen.getvalue()
    begin = shown.index("Once upon")
    stop = shown.index("\n", shown.rindex("Once upon"))
    assert shown[:begin].count("notice") == 2  # of the rates measured, and of the warm-up
    assert "notice" not in shown[begin:stop]
    assert shown[stop:].count("notice") == calls[0] - 2 > 0
    assert shown.rindex("notice") < shown.index("accept length")  # then the summary


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_tokenizers_that_drop_the_first_space(run, monkeypatch, extra):
    whole = fake_models.FakeTokenizer.decode
    monkeypatch.setattr(
        fake_models.FakeTokenizer, "decode", lambda *args, **how: whole(*args, **how)[1:]
    )
    out = run(*MODELS, "--prompt", "one", *extra).stdout
    text = "one" + json.loads(out)["outputs"][0]["text"] if extra else out
    assert re.fullmatch(r"one( t\d+)+", text.rstrip())


def test_a_letter_that_is_half_written_at_the_end_is_shown(run, monkeypatch):
    whole = fake_models.FakeTokenizer.decode

    def half(tokenizer, tokens, **how):
        return whole(tokenizer, tokens) + "\ufffd" * (len(tokens) > 1)  # the prompt is whole

    monkeypatch.setattr(fake_models.FakeTokenizer, "decode", half)
    assert re.fullmatch(r"one( t\d+){6}\ufffd\n", run(*MODELS, "--prompt", "one").stdout)


def test_the_clock_starts_after_the_warm_up(run, monkeypatch):
    """What takes long the first time only is in no time that is shown."""
    pending, now = [True], [0.0]
    monkeypatch.setattr(generation, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow_at_first(root, rng, verify=LevelSequential.verify):
        if pending.pop() if pending else False:
            now[0] += 0.4
        return verify(LevelSequential(), root, rng)

    class Slow(LevelSequential):
        def verify(self, root, rng):
            return slow_at_first(root, rng)

    monkeypatch.setitem(rules.MULTI_STEP, "traversal", Slow())
    for extra in (("--verifier", "traversal"), ("--verifier", "traversal,rrs", "--compare")):
        pending[:] = [True]
        done = run(*MODELS, "--prompt", "one", *extra, "--json")
        document = json.loads(done.stdout)
        metrics = document["outputs"][0] if "outputs" in document else document["rows"][0]["total"]
        assert not pending
        assert metrics["verify_seconds"] == 0.0


def test_the_default_tree_is_planned_and_its_forecast_is_told(run):
    models = ("decode", "--target", "x", "--draft", "y", "--tokens", "200", "--prompt", "one two")
    document = json.loads(run(*models, "--json").stdout)
    assert document["tree"] == "planned16"
    assert 0.0 < document["forecast_accepted"] < 6.0
    output = document["outputs"][0]
    observed = output["num_passed"] / output["num_steps"]
    assert document["observed_accepted"] == pytest.approx(observed)
    assert output["num_drafted"] <= 16 * output["num_steps"]
    told = run(*models).stderr
    assert f"forecast {document['forecast_accepted']:.2f}, observed {observed:.2f}" in told


def test_filters_are_those_of_generate(run):
    big, small = fake_models.FakeModel(60, 1), fake_models.FakeModel(60, 2)
    for option, value in (("--top-k", 3), ("--top-p", 0.5), ("--min-p", 0.3)):
        done = run(*MODELS, "--prompt", "one", option, str(value), "--json")
        name = option[2:].replace("-", "_")
        alone = generate(big, small, [3], tree="2x2", max_new_tokens=6, rng=0, **{name: value})
        text = big.tokenizer.decode(alone.tokens)
        assert json.loads(done.stdout)["outputs"][0]["text"] == text
        plain = generate(big, small, [3], tree="2x2", max_new_tokens=6, rng=0)
        assert plain.tokens != alone.tokens


@pytest.mark.parametrize("tree", ["chain3", "sparse", "sparse9", "dynamic8", "planned5"])
def test_trees_by_name(run, tree):
    document = json.loads(run(*MODELS, "--prompt", "one", "--tree", tree, "--json").stdout)
    assert document["tree"] == tree
    assert (document["forecast_accepted"] is None) == (tree == "dynamic8")
    compared = json.loads(run(*COMPARE, "--tree", tree, "--verifier", "traversal", "--json").stdout)
    assert compared["forecast_accepted"] == document["forecast_accepted"]


def _ends(done):
    """Of each prompt in the table: its number, and what ended its text."""
    return re.findall(r"│ (\d+) +│ (\w+) ", done.stderr)


class TestSeveralPrompts:
    PROMPTS = ("--prompt", "one", "--prompt", "one two", "--prompt", "one two three")

    def test_each_is_continued_as_alone(self, run, tmp_path):
        document = json.loads(run(*MODELS, *self.PROMPTS, "--json").stdout)
        assert not document["interrupted"]
        file = tmp_path / "prompts.txt"
        file.write_text("one\none two\none two three\n")
        read = json.loads(run(*MODELS, "--prompts", str(file), "--json").stdout)
        assert [output["prompt"] for output in read["outputs"]] == list(self.PROMPTS[1::2])
        for n, output in enumerate(document["outputs"]):
            alone = run(*MODELS, *self.PROMPTS[2 * n : 2 * n + 2], "--seed", str(n), "--json")
            (one,) = json.loads(alone.stdout)["outputs"]
            assert output["text"] == one["text"]
            assert output["num_steps"] == one["num_steps"]
            assert output["ended_by"] == "length"
            assert output["text"] == read["outputs"][n]["text"]

    def test_a_table_has_a_line_for_each(self, run):
        done = run(*MODELS, *self.PROMPTS)
        begun = [re.split(r" t\d", line)[0] for line in done.stdout.splitlines()]
        assert begun == list(self.PROMPTS[1::2])
        assert _ends(done) == [("1", "length"), ("2", "length"), ("3", "length")]
        assert "18 tokens in" in done.stderr
        assert "ended by" not in run(*MODELS, "--prompt", "one").stderr

    @pytest.mark.parametrize("extra", [(), ("--json",)])
    def test_after_ctrl_c_what_is_done_is_told(self, run, monkeypatch, extra):
        break_rule(monkeypatch, signal.SIGINT, WARM_UP + 9)
        chosen = (*MODELS, *self.PROMPTS, "--verifier", "traversal", *extra)
        done = run(*chosen)
        assert done.returncode == 130
        assert "interrupted" in done.stderr
        if extra:
            document = json.loads(done.stdout)
            assert document["interrupted"]
            ends = [output["ended_by"] for output in document["outputs"]]
            assert ends == ["length", "length", "interrupted"]
            last = document["outputs"][-1]
            assert 0 < last["num_tokens"] < document["outputs"][0]["num_tokens"]
            assert last["num_tokens"] == len(last["text"].split())
        else:
            assert _ends(done) == [("1", "length"), ("2", "length"), ("3", "interrupted")]

    def test_an_unfit_one_is_told_before_any_text(self, run, monkeypatch):
        monkeypatch.setattr(fake_models.FakeModel, "context_length", 2, raising=False)
        assert "prompt 2 of 3 has 2 tokens, and the models read 2" in run.refusal(
            *MODELS, *self.PROMPTS
        )

    def test_a_text_that_ends_with_the_context_says_so(self, run, monkeypatch):
        monkeypatch.setattr(fake_models.FakeModel, "context_length", 7, raising=False)
        done = run(*MODELS, "--prompt", "one", "--prompt", "one two three four five")
        assert done.returncode == 0, done.stderr
        assert _ends(done) == [("1", "length"), ("2", "context")]
        assert "fills the models' context" in done.stderr


class TestRelaxed:
    def test_the_summary_and_the_document_tell_the_distance(self, run):
        arguments = (*MODELS, "--prompt", "one", "--verifier", "optimal", "--relax", "kl=0.05")
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert "not lossless: KL" in done.stderr
        document = json.loads(run(*arguments, "--json").stdout)
        assert document["relax"] == {"kl": 0.05}
        assert document["forecast_accepted"] is None
        (output,) = document["outputs"]
        assert 0.0 < output["kl_per_token"] <= 0.05
        assert "not lossless" not in run(*MODELS, "--prompt", "one").stderr

    def test_compared_rules_tell_it_too(self, run):
        done = run(*COMPARE, "--verifier", "rrs,traversal", "--relax", "tv=0.1")
        assert "KL, nats" in done.stdout
        assert "KL, nats" not in run(*COMPARE, "--verifier", "rrs").stdout
