"""llama.cpp's server in five modes, with tiny random models: what each of them comes out as.

On loopback, some seconds and some thousand requests each. `test_exact_probabilities` says what the
one that is lossy does, by counting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.formats import read_counts
from mdsd_opt.servers.adapter import Request
from mdsd_opt.servers.connection import Connection, Crew
from mdsd_opt.servers.llamacpp import LlamaCpp

pytest.importorskip("xllamacpp", reason="make test-servers installs it")
HERE = Path(__file__).parent

#: The draft is near enough to the target to be accepted often.
NOISE, TEMPERATURE, KEPT = 0.05, 0.6, 10

#: Drafts are cleared after they were drawn if they are shorter than that.
CLEARED = ("--probabilistic", "--n-min", "2", "--p-min", "0.35")

#: Random prompts, and those of 250 after which such clearing changes the second token most.
PROMPTS = np.random.default_rng(42).integers(3, 300, (6, 6)).tolist()
DIRECTED = HERE / "directed.txt"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    from tiny_gguf import write_pair

    return write_pair(tmp_path_factory.mktemp("models"), NOISE)


@contextmanager
def serving(*arguments):
    """Address of a server in a process of its own."""
    command = [sys.executable, str(HERE / "llamacpp_server.py"), *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def draft(models):
    with serving(models[1]) as url:
        yield url


def audited(models, draft, *modes, temperature=TEMPERATURE, prompts=PROMPTS, **options):
    """Audit a fresh server; with no modes, one without drafts."""
    files = models if modes else models[:1]
    with serving(*files, *(mode for mode in modes if mode != "greedy")) as url:
        return mo.audit_server(
            url,
            draft=draft,
            prompts=prompts,
            sampling=mo.Sampling(temperature),
            draft_sampling=mo.Sampling(temperature, KEPT),
            length=4,
            **{"seconds": 30, "max_tokens": 4_000, **options},
        )


def test_plain(models, draft):
    report = audited(models, draft)
    assert (report.verdict_class, report.finding) == ("not judged", "nothing drafted")
    assert report.log10_e < 3.0


def test_greedy_drafts_are_clean_and_leave_speed_on_the_table(models, draft):
    report = audited(models, draft, "greedy")
    assert report.verdict_class == "no deviation"
    assert report.left_on_the_table > 0.05


def test_probabilistic_drafts_are_clean_and_near_the_optimum(models, draft):
    report = audited(models, draft, "--probabilistic")
    assert report.verdict_class == "no deviation"
    assert report.known_acceptance == pytest.approx(report.optimal_acceptance, abs=0.08)
    assert report.acceptance_log10_e < 3.0


@pytest.mark.parametrize("server", range(2))
def test_drafts_that_are_cleared_for_their_length_are_lossy(models, draft, server):
    report = audited(
        models, draft, *CLEARED, prompts=DIRECTED, seconds=60, max_tokens=12_000, rng=server
    )
    assert (report.verdict_class, report.finding) == ("lossy", "tokens deviate")


def test_at_temperature_zero_texts_are_the_likeliest(models, draft):
    report = audited(models, draft, "--probabilistic", temperature=0.0)
    assert (report.verdict_class, report.finding) == ("not judged", "no choice")
    assert report.tokens >= 4_000
    assert report.later.impossible == 0


def test_exact_probabilities(models, draft):
    """A draft of one token stays if a second follows it that the draft model is sure enough of.

    Whether the first is verified thus depends on which token it is. The law of the token after the
    first follows from both laws: it is what is counted, and not the target's.
    """
    with serving(*models, *CLEARED) as url:
        connections = Connection(url), Connection(draft)
        samplings = mo.Sampling(TEMPERATURE), mo.Sampling(TEMPERATURE, KEPT)
        target, drafts = (
            LlamaCpp(connection, Request(sampling=sampling))
            for connection, sampling in zip(connections, samplings, strict=True)
        )
        prompt = json.loads(DIRECTED.read_text().splitlines()[2])
        first = int(target.law(prompt).ids[0])
        text = [*prompt, first]
        p, q = _dense(target.law(text)), _dense(drafts.law(text))
        stays = np.zeros(p.size)
        for x in np.flatnonzero(q):
            follows = drafts.law([*text, int(x)])
            stays[x] = q.max() >= 0.35 and follows.p[0] >= 0.35
        crew = Crew(4)
        answers = crew.map(lambda _: target.sample(prompt, 6), range(2_500))
        crew.dismiss()
        for connection in connections:
            connection.close()
    seconds = Counter(one.tokens[1] for one in answers if one.tokens[0] == first)
    total = sum(seconds.values())
    seen = np.array([seconds[n] / total for n in range(p.size)])
    residual = np.maximum(p - q, 0.0)
    accepted = np.minimum(p, q) * stays
    refused = (q * stays).sum() - accepted.sum()
    predicted = accepted + refused * residual / residual.sum() + (1 - (q * stays).sum()) * p
    errors = np.sqrt(np.maximum(predicted * (1 - predicted), 1e-6) / total)
    assert np.abs(predicted - p).sum() / 2 > 0.15
    assert (np.abs(seen - predicted) < 5 * errors + 0.002).all()
    assert np.abs(seen - p).max() > 8 * errors.max()


def _dense(law):
    dense = np.zeros(300)
    dense[law.ids] = law.p[: law.ids.size]
    return dense


def test_counts_of_metrics_and_of_answers_agree(models, tmp_path):
    """What the server counts in all is what its answers say one by one, and gives advice."""
    answers, scrape = tmp_path / "answers.jsonl", tmp_path / "metrics.txt"
    with serving(*models) as url:
        connection = Connection(url)
        body = {"n_predict": 40, "temperature": 0.6, "ignore_eos": True, "cache_prompt": False}
        found = [
            connection.post("/completion", {**body, "prompt": prompt, "seed": seed})
            for seed, prompt in enumerate(PROMPTS)
        ]
        scrape.write_text(connection.get("/metrics"))
        connection.close()
    answers.write_text("\n".join(map(json.dumps, found)))
    one_by_one, whole = read_counts(answers, 4).to_dict(), read_counts(scrape).to_dict()
    assert one_by_one["groups"] == len(PROMPTS)
    assert whole["depth"] == 4
    for name in ("accepted", "drafted"):
        assert whole[name] == one_by_one[name] > 0
    # the last step of a text may have had no room for a draft
    assert 0 <= one_by_one["steps"] - whole["steps"] <= len(PROMPTS)
    advice = mo.advise_from_counts(scrape, target_ms=20.0, draft_ms=1.0, rows_ms={1: 20, 9: 21})
    assert advice.best.speedup.low <= advice.best.speedup.mean
