"""Audits of a server of our own, on loopback: verdicts, failures, logs, and what was asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.fake_server import FakeServer, served
from support.moved_clock import moved_clock  # noqa: F401
from support.toy_engines import WRONG, Chain, Pair, plain
from support.until import until

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, MissingExtra, ServerError, UnknownName
from mdsd_opt.servers.adapter import APIS as REGISTRY
from mdsd_opt.servers.connection import Connection, Crew
from mdsd_opt.servers.llamacpp import LlamaCpp

APIS = ("llamacpp", "openai-completions", "openai-chat")
OF_API = dict(zip(APIS, ("llamacpp", "completions", "chat"), strict=True))


@pytest.fixture(autouse=True)
def _no_time_passes(clock):
    """Tokens are counted: no limit of seconds ends an audit of this process."""


def draft_server():
    """A server of the draft model."""
    pair = Pair()
    pair.p, pair.p_sums = pair.q, pair.q_sums
    return FakeServer(plain, pair, seed=2)


def audited(server, with_draft=False, **options):
    """Audit a fake server, for some tokens at most."""
    beside = [draft_server()] if with_draft else []
    options = {"max_tokens": 200, "timeout": 5.0, **options}
    with served(server, *beside) as (url, *draft):
        return mo.audit_server(url, draft=draft[0] if draft else None, **options)


@pytest.mark.parametrize("api", APIS)
def test_a_right_server_shows_no_deviation(api):
    of_chat = {"drafted": 100} if api == "openai-chat" else {}  # it counts none
    report = audited(FakeServer(Chain(), seed=1, apis=(OF_API[api],)), **of_chat)
    assert report.verdict_class == "no deviation"
    assert report.tokens >= 200
    assert report.first.tokens > 0
    assert report.log10_e < 2.0
    assert 0.0 < report.detectable_bias < 0.4
    assert report.answer() == "TOO WEAK"
    if api == "openai-chat":
        assert (report.drafted, report.accepted) == (100, None)
    else:
        assert report.drafted > report.accepted > 0
    if api == "openai-completions":
        assert len(report.accepted_by_position) == 2


@pytest.mark.parametrize("api", APIS)
def test_a_wrong_server_is_lossy_after_a_control(api):
    engine = WRONG["extra token: the likeliest"]
    report = audited(FakeServer(engine, seed=1, apis=(OF_API[api],)), max_tokens=3_000)
    assert (report.verdict_class, report.finding) == ("lossy", "tokens deviate")
    assert report.control.tokens >= 50
    assert report.control.log10_e < 2.0
    assert report.cause
    assert not report.lossless


def test_a_server_that_names_tokens_by_their_text_is_asked_for_no_other_text():
    engine = WRONG["extra token: the likeliest"]
    server = FakeServer(engine, seed=1, apis=("completions",), faults=("no ids",))
    report = audited(server, max_tokens=3_000)
    assert report.verdict_class == "lossy"


@pytest.mark.parametrize("api", ["llamacpp", "openai-completions"])
def test_the_drafts_law_decides_what_hides_else(api):
    server = FakeServer(WRONG["match, then the residual"], seed=3, apis=(OF_API[api],))
    report = audited(server, with_draft=True, max_tokens=1_000)
    assert report.verdict_class == "lossy"
    assert "q" in report.cause or "draft" in report.cause


@pytest.mark.parametrize(
    ("api", "fault", "finding"),
    [
        *((api, "swapped ids", "law misread") for api in APIS),
        ("llamacpp", "no logprobs", "no law"),
        ("llamacpp", "no drafts", "nothing drafted"),
    ],
)
def test_what_tells_nothing_of_drafts_is_not_judged(api, fault, finding):
    engine = plain if fault == "no drafts" else Chain()
    report = audited(FakeServer(engine, seed=1, apis=(OF_API[api],), faults=(fault,)))
    assert (report.verdict_class, report.finding) == ("not judged", finding)


def test_drafts_that_nobody_counts_are_not_judged(run_cli):
    with served(FakeServer(Chain(), seed=1, apis=("chat",))) as (url,):
        given = ("audit", "--server", url, "--max-tokens", 100, "--detect", 1)
        done = run_cli(*given)
        assert done.returncode == 3
        assert "NOT JUDGED, drafts not seen" in " ".join(done.stdout.split())
        assert run_cli(*given, "--drafted", 50).returncode == 0


def test_the_metrics_of_a_server_count_the_drafts_of_chats_as_well():
    report = audited(FakeServer(Chain(), seed=1, apis=("completions", "chat")), api="openai-chat")
    assert report.drafted > report.accepted > 0
    assert report.verdict_class == "no deviation"


@pytest.mark.parametrize(("api", "tokens"), [("llamacpp", 6), ("openai-chat", 24)])
def test_a_fault_has_one_example_that_anybody_can_ask_for(api, tokens):
    """The shell gets prompts with quotes, spaces and letters beyond ASCII through to the server."""
    prompts = ['it\'s "a"\n$HOME é', "b c d"]
    server = FakeServer(WRONG["extra token: the likeliest"], seed=1, apis=(OF_API[api],))
    with served(server) as (url,):
        report = mo.audit_server(url, prompts=prompts, max_tokens=3_000, timeout=5.0)
        assert report.answer() == "FAIL"
        example = report.example
        line = example.repeat.replace("curl -sS", f"{sys.executable} {CURL}")
        told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    if api == "llamacpp":
        assert len(answer["tokens"]) == tokens
    else:
        assert len(answer["choices"][0]["logprobs"]["content"]) == tokens
    assert example.calls >= 2  # more, or so many: that depends on which answers came first
    assert abs(example.counted - example.stated) > 0.1
    assert example.said in str(report)
    assert report.to_dict()["example"]["repeat"] == example.repeat


#: What curl does with these options, for machines without it.
CURL = Path(__file__).parents[1] / "support" / "posted.py"


def test_a_key_is_no_part_of_the_line_to_repeat_nor_of_the_log(tmp_path):
    server = FakeServer(WRONG["extra token: the likeliest"], seed=1, faults=("needs a key",))
    report = audited(server, key="secret", max_tokens=3_000, log=tmp_path / "run.jsonl")
    assert report.answer() == "FAIL"
    assert '-H "Authorization: Bearer $KEY"' in report.example.repeat
    assert "secret" not in json.dumps(report.to_dict())
    assert "secret" not in (tmp_path / "run.jsonl").read_text()


def test_evidence_at_the_limit_is_not_settled():
    """So many tokens that the bets have won some hundreds, and no million."""
    server = FakeServer(WRONG["extra token: the likeliest"], seed=1)
    reports = [audited(server, max_tokens=n) for n in (20, 40, 60, 80)]
    report = next(one for one in reports if one.verdict_class == "not settled")
    assert report.answer(1.0) == "NOT SETTLED"
    assert report.verdict.startswith("NOT SETTLED: e = ")
    assert "which points to tokens that deviate (e = " in report.verdict
    assert report.example is not None


class Biased(FakeServer):
    """A server that adds a bias to the logits of some tokens, and states the laws before it."""

    bias = np.where(np.arange(40) % 3 == 1, 2.0, 0.0)

    def __post_init__(self):
        super().__post_init__()
        self.raw = self.pair.p
        weights = self.raw * np.exp(self.bias)
        self.pair.p = weights / weights.sum(axis=1, keepdims=True)
        self.pair.p_sums = self.pair.p.cumsum(axis=1)

    def law(self, state):
        return self.raw[state % self.pair.size]


def test_laws_before_the_sampler_are_held_against_a_promise():
    def promise(text, logits):
        weights = np.exp(logits + Biased.bias[: logits.size])
        return weights / weights.sum()

    def server(api="completions"):
        return Biased(Chain(), seed=1, apis=(api,))

    kept = audited(server(), promise=promise, top=30)
    assert kept.verdict_class == "no deviation"
    assert audited(server()).finding == "law misread"
    for api in ("llamacpp", "chat"):
        with pytest.raises(InvalidInput, match="eave the promise out"):
            audited(server(api), promise=promise)


def test_greedy_texts_follow_the_likeliest_token():
    server = FakeServer(Chain(), seed=1, greedy=True)
    report = audited(server, sampling=mo.Sampling(temperature=0.0))
    assert report.finding == "nothing drafted"
    assert report.later.impossible == 0
    sampled = audited(FakeServer(Chain(), seed=1), sampling=mo.Sampling(temperature=0.0))
    assert sampled.finding == "law misread"  # tokens without speculation are no likeliest ones


class TestAgainst:
    def test_the_plain_server_gives_laws_and_the_control(self):
        engine = WRONG["extra token: the likeliest"]
        with served(FakeServer(engine, seed=1), FakeServer(plain, seed=2)) as (url, plain_url):
            report = mo.audit_server(url, plain_url, max_tokens=3_000)
        assert report.verdict_class == "lossy"
        assert report.num_laws > 0
        assert report.law_distance == pytest.approx(0.0, abs=1e-9)

    @pytest.mark.parametrize("api", ["llamacpp", "openai-completions"])
    def test_another_law_than_the_plain_servers_is_lossy(self, api):
        """Tokens follow the law that is stated, and that is not the right one."""
        other = FakeServer(Chain(), Pair(seed=1), seed=1, apis=(OF_API[api],))
        right = FakeServer(plain, Pair(seed=0), seed=2, apis=(OF_API[api],))
        with served(other, right) as (url, plain_url):
            report = mo.audit_server(url, plain_url, max_tokens=100)
        assert (report.verdict_class, report.finding) == ("lossy", "another law")
        assert report.law_distance > 0.3


class Boastful(FakeServer):
    """The tokens are plain, and counts say that every draft was accepted."""

    def text(self, state, count):
        tokens, _, _ = super().text(state, count)
        return tokens, int(count == 3), int(count == 3)


class TestAcceptance:
    def test_of_the_right_rule_it_is_the_optimum(self):
        report = audited(FakeServer(Chain(), seed=1), with_draft=True, length=3, max_tokens=200)
        assert report.known_drafts >= 30
        assert report.known_acceptance == pytest.approx(report.optimal_acceptance, abs=0.2)
        assert report.acceptance_log10_e < 2.0

    def test_exact_match_leaves_speed_on_the_table(self):
        engine = Chain(accepts=lambda p, q, x, u, r: u < p[x], residual=lambda p, q, x, b: p)
        report = audited(FakeServer(engine, seed=1), with_draft=True, length=3, max_tokens=200)
        assert report.left_on_the_table > 0.1

    def test_more_than_the_optimum_is_a_finding(self):
        report = audited(Boastful(seed=1), with_draft=True, length=3, max_tokens=200)
        found = (report.verdict_class, report.finding)
        assert found == ("not judged", "acceptance above the optimum")


class TestFailures:
    @pytest.mark.parametrize("api", APIS)
    def test_a_key(self, api):
        server = FakeServer(Chain(), seed=1, apis=(OF_API[api],), faults=("needs a key",))
        with served(server) as (url,):
            with pytest.raises(ServerError, match="wants a key"):
                mo.audit_server(url)
            report = mo.audit_server(url, max_tokens=20, key="secret")
        assert report.tokens >= 20

    @pytest.mark.parametrize(
        ("api", "fault", "options", "told"),
        [
            ("completions", "no logprobs", {}, "needs log-probabilities"),
            ("chat", "no logprobs", {}, "needs log-probabilities"),
            ("completions", "always cuts", {}, "answers JSON that is cut"),
            ("none", "", {}, "its API is none of llamacpp, openai"),
            ("chat", "", {"api": "openai-completion"}, "openai-completions"),
        ],
    )
    def test_what_cannot_be_asked(self, api, fault, options, told):
        with pytest.raises(UnknownName if options else ServerError, match=told):
            audited(FakeServer(Chain(), seed=1, apis=(api,), faults=(fault,)), **options)

    def test_a_server_that_hangs(self):
        server = FakeServer(Chain(), faults=("hangs",))
        with pytest.raises(ServerError, match="did not answer in time"):
            audited(server, timeout=0.3)
        assert server.requests == 1

    def test_a_busy_server_is_asked_again(self):
        report = audited(
            FakeServer(Chain(), seed=1, faults=("busy",)), max_tokens=10, concurrency=2
        )
        assert report.tokens >= 10

    @pytest.mark.parametrize("api", ["llamacpp", "completions", "chat"])
    def test_a_cut_answer_is_a_failed_request(self, api):
        server = FakeServer(Chain(), seed=1, apis=(api,), faults=("cuts",), counts=False)
        report = audited(server, max_tokens=10)
        assert report.tokens >= 10
        assert not any("ended early" in note for note in report.notes)

    def test_a_server_that_goes_away_leaves_the_verdict_so_far(self, monkeypatch):
        monkeypatch.setattr("support.fake_server.MOST_REQUESTS", 120)
        report = audited(FakeServer(Chain(), seed=1, apis=("completions",)), max_tokens=10_000)
        assert report.tokens > 0
        assert any(note.startswith("ended early") for note in report.notes)
        assert (report.verdict_class, report.finding) == ("not judged", "ended early")

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({}, "no server answers at"),
            ({"url": "127.0.0.1"}, "no address"),
            ({"seconds": 0}, "seconds"),
            ({"length": 1}, "length"),
            ({"concurrency": 65}, "64"),
            ({"top": 0}, "top"),
            ({"prompts": []}, "0 prompts"),
            ({"prompts": [[1.5]]}, "no prompt"),
            ({"logprobs": "x"}, "raw or processed"),
        ],
    )
    def test_bad_options(self, options, told):
        with pytest.raises(InvalidInput if options else ServerError, match=told):
            mo.audit_server(**{"url": "http://127.0.0.1:9", **options})

    def test_without_httpx(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "httpx", None)
        with pytest.raises(MissingExtra, match="httpx"):
            mo.audit_server("http://127.0.0.1:9")


class TestLog:
    @pytest.mark.parametrize("api", ["llamacpp", "openai-completions"])
    def test_a_run_that_was_killed_goes_on(self, api, tmp_path):
        log = tmp_path / "run.jsonl"
        server = FakeServer(Chain(), seed=1, apis=(OF_API[api],))
        with served(server, draft_server()) as (url, draft):
            ask = partial(mo.audit_server, url, draft=draft, log=log)
            first = ask(max_tokens=80)
            again = mo.audit_tokens(log)
            assert (again.tokens, again.first.tokens) == (first.tokens, first.first.tokens)
            assert again.log10_e == pytest.approx(first.log10_e)
            assert again.drafted == first.drafted
            with log.open("ab") as file:  # killed within a line
                file.write(b'{"kind":"text","contr')
            second = ask(max_tokens=500)
            assert second.tokens >= 500
            assert second.requests > first.requests
            assert second.drafted > first.drafted
            assert any("goes on" in note for note in second.notes)
            still = ask(max_tokens=500)  # enough, but for finding out what the server is
            assert 0 <= still.requests - second.requests < first.requests
            third = mo.audit_tokens(log)
            assert third.log10_e == pytest.approx(second.log10_e)
            with pytest.raises(InvalidInput, match=r"another audit \(sampling differ\)"):
                ask(sampling=mo.Sampling(top_k=3), draft_sampling=mo.Sampling())
        for line in log.read_text().splitlines():
            json.loads(line)


def test_noise_is_measured_and_raises_the_tolerance():
    report = audited(FakeServer(Chain(), seed=1, noise=0.05, apis=("llamacpp",)))
    assert report.tolerance == report.law_noise > 0.01
    assert report.verdict_class == "no deviation"


def test_every_adapter_is_found_and_one_of_ones_own_is_taken():
    assert list(REGISTRY.names()) == list(APIS)
    report = audited(FakeServer(Chain(), seed=1), api=f"{__name__}:Mine", max_tokens=20)
    assert report.tokens >= 20


class Mine(LlamaCpp):
    """An adapter beside those of the package."""

    name = "mine"


def test_prompts_of_a_file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("abcd\n\nefgh\n")
    report = audited(FakeServer(Chain(), seed=1), prompts=path, max_tokens=20)
    assert report.tokens >= 20


def test_a_crew_raises_the_first_error_at_once():
    crew, begun, ended, later = Crew(2), [], [], threading.Event()

    def work(n):
        begun.append(n)
        if n == 1:
            raise ValueError("no")
        later.wait(60.0)
        ended.append(n)

    assert crew.map(lambda n: n * n, range(5)) == [0, 1, 4, 9, 16]
    with pytest.raises(ValueError, match="no"):
        crew.map(work, range(200))
    assert ended == []  # what goes on is not waited for
    later.set()
    crew.dismiss()
    assert {*begun} <= {0, 1, 2}


def test_requests_are_counted():
    with served(FakeServer(Chain(), seed=1)) as (url,):
        connection = Connection(url)
        assert connection.get("/props")["total_slots"] == 4
        assert connection.requests == 1
        connection.close()


# --- the command line


class TestCommandLine:
    def test_exit_codes_and_json(self, run_cli):
        likeliest = FakeServer(WRONG["extra token: the likeliest"], seed=1)
        with served(FakeServer(Chain(), seed=1), likeliest, FakeServer(plain)) as urls:
            codes = []
            for url in urls:
                given = ("--max-tokens", 200, "--detect", 0.5, "--json")
                done = run_cli("audit", "--server", url, *given)
                codes.append((done.returncode, json.loads(done.stdout)["verdict_class"]))
        assert codes == [(0, "no deviation"), (1, "lossy"), (3, "not judged")]

    def test_a_table_and_a_log_read_again(self, run_cli, tmp_path):
        log = tmp_path / "run.jsonl"
        with served(FakeServer(Chain(), seed=1)) as (url,):
            done = run_cli("audit", "--server", url, "--max-tokens", 100, "--log", log)
        assert done.returncode == 3
        assert "TOO WEAK: a bias of 0.34" in done.stdout
        assert "later tokens" in done.stdout
        done = run_cli("audit", "--recorded", log, "--detect", 0.5)
        assert done.returncode == 0

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("--against", "x"), "or the kind first"),
            (("--server", "x", "--recorded", "y"), "--server, --recorded alone"),
            (("--server", "x", "--verifier", "rrs"), "alone"),
            (("--server", "x", "--key-variable", "NOT_SET_ANYWHERE"), "is not set"),
            (("--server", "http://127.0.0.1:9"), "no server answers"),
            (("--recorded", "none.jsonl"), "does not exist"),
        ],
    )
    def test_bad_input_is_one_line(self, run_cli, arguments, told):
        done = run_cli("audit", *arguments)
        assert done.returncode == 2
        assert told in done.stderr
        assert done.stderr.count("\n") == 1

    def test_ctrl_c(self):
        server = FakeServer(Chain(), seed=1)
        with served(server) as (url,):
            command = [sys.executable, "-m", "mdsd_opt", "audit", "--server", url]
            process = subprocess.Popen(
                [*command, "--seconds", "60"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "COLUMNS": "200"},
            )
            until(lambda: server.requests >= 200)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
        assert "interrupted: the verdict so far" in out
        assert process.returncode in (0, 3)
