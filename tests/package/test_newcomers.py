"""From what people have to a decision: the commands of the tutorials, as they are written there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.base.files.arrays import write_safetensors
from tests.package.test_journeys import commands
from tests.support.engine_logs import Served, a_run, scrape

SAMPLES = Path(__file__).parents[1] / "formats" / "samples"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# --- A: the log of an engine ---


@pytest.fixture
def logs(here: Path) -> Served:
    served = Served()
    (here / "run.log").write_text(served.log(drafts=True))
    (here / "plain.log").write_text(served.log(drafts=False, seed=1))
    return served


def test_a_log_and_a_baseline_are_a_decision(logs: Served, here: Path, run_cli: Any) -> None:
    pytest.importorskip("matplotlib")
    alone, both, by_batch = commands("tutorials/advice.md", "From a log")[:3]
    shown = run_cli.shown(*alone)
    assert "at batch 1 a step of 3 drafts took" in shown
    assert "Would a better verifier help? Of single drafts none" in shown
    quick = run_cli.shown("advise", "run.log", "--target-ms", "99")
    assert "as none, for it is below 0" in quick  # told, not bent
    found = run_cli.document(*both)
    assert found["worth_it"] is True
    costs = found["costs"]
    assert costs["draft_ms"]["1"] == pytest.approx(logs.draft_ms, rel=0.1)
    assert costs["target_ms"]["1"] == pytest.approx(logs.plain_ms(1), rel=0.03)
    (as_run,) = [x for x in found["rows"] if x["name"] == "chain3"]
    assert as_run["speedup"]["mean"] == pytest.approx(logs.speedup(1), rel=0.03)
    measured, speedups = found["measured"], [logs.speedup(b) for b in logs.batches]
    assert min(speedups) * 0.98 < measured["mean"] < max(speedups) * 1.02
    assert measured["low"] < measured["mean"] < measured["high"]
    swapped = json.loads(run_cli("advise", *both[:0:-1], "--json").stdout)
    assert swapped["rows"] == found["rows"]
    done = run_cli(*by_batch, "--plot", "run.svg")
    lines = [x for x in done.stdout.splitlines() if x.startswith("Batch ")]
    assert [x.partition(":")[0] for x in lines] == ["Batch 1", "Batch 8", "Batch 64"]
    assert "the run has steps of 1 to 8 requests together, and none at batch 64" in lines[2]
    assert "forecast" in done.stdout
    assert "count" in done.stdout
    assert (here / "run.svg").exists()


def test_the_same_in_python(logs: Served) -> None:
    advice = mo.advise_from_counts("run.log", baseline="plain.log", batch=8)
    assert advice.worth_it
    assert advice.measured is not None
    assert advice.costs.step(None) == pytest.approx(logs.plain_ms(8), rel=0.03)
    assert advice.is_counted(advice.rows[-1])


def test_no_verifier_beats_the_bound_that_is_told(logs: Served) -> None:
    """A chain of three accepts at most thrice what the first draft does; two drafts, twice that."""
    told = mo.advise_from_counts("run.log").better_verifier
    assert f"2.56 tokens a step. A block rule brings {1 + 3 * 0.72:.2f} at most" in told
    assert "two drafts a place 4.00" in told


def test_llama_cpp_tells_its_costs(run_cli: Any) -> None:
    """The sample's steps take 30 ms, 400 ms in 100 of them for drafting."""
    done = run_cli("advise", SAMPLES / "llamacpp-log-01.log", "--json")
    costs = json.loads(done.stdout)["costs"]
    assert costs["target_ms"] == {"1": pytest.approx(26.0)}
    assert costs["draft_ms"] == {"1": pytest.approx(4.0 / 3)}


@contextmanager
def served(answer: Callable[[Any], str]) -> Iterator[str]:
    """Address of a server that answers what is posted, or None, by a function."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer(body).encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_address_is_watched(run_cli: Any) -> None:
    """Metrics that count a run between the first reading and the second."""
    pytest.importorskip("httpx")
    answers = [scrape(a_run(requests=4)), scrape(a_run(requests=30))]
    with served(lambda _: answers.pop(0)) as address:
        done = run_cli("advise", f"{address}/metrics", "--watch", ".01", "--json")
    assert done.returncode == 0, done.stderr
    assert "twice, 0.01 seconds apart" in done.stderr
    added = a_run(requests=30).steps - a_run(requests=4).steps
    assert json.loads(done.stdout)["counts"]["steps"] == added


# --- C: a rule of one's own, in tests ---


FEW = {"num_trials": 400, "seconds": 20.0, "detect": 1.0}


@pytest.mark.parametrize("subject", ["single_draft", mo.verifiers.get("single_draft")])
def test_verifiers_of_the_package_pass(subject: Any) -> None:
    assert mo.check_verifier(subject, **FEW).clean
    assert mo.assert_lossless(subject, **FEW).clean


def test_tree_rules_have_laws_of_all_kinds() -> None:
    rule = mo.decoding.get_rule("block_verification")
    found = mo.audit_tree(rule, tree="chain2", **{**FEW, "detect": None})
    assert len(found.tried) > 5
    assert mo.check_tree_rule(rule, "chain2", **FEW).clean
    with pytest.raises(mo.MdsdError, match="of neither"):
        mo.audit_tree(rule, lambda text: [0.5, 0.5], None, "chain2", 0)


def test_what_cannot_be_checked_is_told() -> None:
    for wrong in (3, "no_such_rule"):
        with pytest.raises(mo.MdsdError):
            mo.assert_lossless(wrong)
    with pytest.raises(mo.MdsdError, match="tolerate_edge is 2"):
        mo.check_verifier("single_draft", tolerate_edge=2)


# --- D: several drafts of one target ---


@pytest.fixture
def drafts(here: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((6, 8, 60))
    arrays = {"target": target} | {
        name: target + noise * rng.standard_normal(target.shape)
        for name, noise in (("a", 1.0), ("b", 1.2), ("c", 2.0))
    }
    arrays = {name: x.astype(ml_dtypes.bfloat16) for name, x in arrays.items()}
    for name, array in arrays.items():
        write_safetensors(here / f"{name}.safetensors", {"logits": array})
    return arrays


def test_drafts_are_compared_on_the_same_texts(drafts: Any, run_cli: Any) -> None:
    two, rates, advise = commands("tutorials/advice.md", "Which draft?")
    done = run_cli(*two, "--json")
    assert done.returncode == 0, done.stderr
    found = run_cli.document(*rates)
    whole = {name: x.astype(np.float64) for name, x in drafts.items()}
    for row in found["rates"]:
        if row["num_drafts"] == 1 and " | " not in row["name"]:
            p, q = (mo.softmax(whole[x]) for x in ("target", row["name"]))
            overlap = np.minimum(p, q).sum(axis=-1).mean()
            assert row["mean"] == pytest.approx(overlap, abs=1e-6)
        if row["num_drafts"] == 1 and row["name"] == "a | b":
            p, a, b = (mo.softmax(whole[x]) for x in ("target", "a", "b"))
            mixed = np.minimum(p, (a + b) / 2).sum(axis=-1).mean()
            assert row["mean"] == pytest.approx(mixed, abs=1e-6)
    assert found["best"] == {"1": "a", "3": "a"}
    found = run_cli.document(*advise, "--out", "page.html", "--plot", "drafts.svg")
    speeds = {name: x["speedup"] for name, x in found["advice"].items()}
    assert found["fastest"] == max(speeds, key=speeds.__getitem__)
    one = mo.advise(
        drafts["target"], drafts["b"], target_ms=20, draft_ms=1, schemes=["with_replacement"],
        rows_ms={1: 20, 64: 40},
    )  # fmt: skip
    assert speeds["b"] == pytest.approx(one.speedup)
    page = Path("page.html").read_text()
    assert "one after another" in page or "levels" in page
    assert "target 20 ms" in page


# --- B: a server ---


def as_llama_cpp(body: Any) -> str:
    """The answer of llama.cpp with drafts, which tokenizes by "content"."""
    if body is None:
        return json.dumps({"data": [{"id": "m"}]})
    usage = {"completion_tokens": body.get("max_tokens", 1)}
    timings = {"draft_n": 12, "draft_n_accepted": 9}
    return json.dumps({"tokens": [], "usage": usage, "timings": timings})


def test_an_address_needs_no_scheme_and_llama_cpp_is_told() -> None:
    pytest.importorskip("httpx")
    from mdsd_opt.servers.connection import Connection
    from mdsd_opt.servers.openai_completions import OpenAICompletions

    with served(as_llama_cpp) as address, closing(Connection(address)) as connection:
        assert connection.url == f"http://{address}"
        adapter = object.__new__(OpenAICompletions)  # without the questions that it asks first
        adapter.connection, adapter.model = connection, "m"
        with pytest.raises(mo.MdsdError, match="take --api llamacpp"):
            adapter.prompt("Once upon a time")


def test_cuda_is_a_device() -> None:
    """It is the other word for "gpu": the same error where there is none."""
    told = []
    for device in ("gpu", "cuda"):
        try:
            mo.acceptance_rates([[1.0, 0.0]], [[0.0, 1.0]], 1, device=device)
            told.append("")
        except mo.MdsdError as error:
            told.append(str(error))
    assert told[0] == told[1]
    with pytest.raises(mo.MdsdError, match='"gpu" or "cuda"'):
        mo.acceptance_rates([[1.0]], [[1.0]], 1, device="cude")
