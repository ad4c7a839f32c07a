"""The command line end to end, in processes of its own where exit codes or signals matter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support import engine_logs

import mdsd_opt as mo
from mdsd_opt import TransportProblem, WithReplacement, __version__, save_problem


@pytest.fixture
def run(run_cli):
    return run_cli


@pytest.fixture
def golden(tmp_path):
    p = [Fraction(309, 500), Fraction(177, 500), Fraction(7, 250)]
    q = [Fraction(373, 1000), Fraction(29, 50), Fraction(47, 1000)]
    path = tmp_path / "golden.json"
    save_problem(TransportProblem(p, WithReplacement(q, 2)), path)
    return path


def test_version_and_help(run):
    assert run("--version").stdout == f"mdsd-opt {__version__}\n"
    for verb in ("rates", "solve"):
        assert verb in run.shown(verb, "--help")


def test_rates_on_the_bundled_logits(run):
    document = run.document("rates", "--num-drafts", "1,2", "--schemes", "with-replacement,top-k")
    assert document["vocab_size"] == 49152
    assert document["interval_over"] == "sequences"
    optimal = [row for row in document["rows"] if row["verifier"] == "optimal"]
    rows = {(row["scheme"], row["num_drafts"]): row for row in optimal}
    single = rows["with_replacement", 1]
    assert single["mean"] == pytest.approx(0.699, abs=5e-4)
    assert single["low"] < single["mean"] < single["high"]
    assert single["num_groups"] == 14
    assert rows["with_replacement", 2]["tokens_per_call"] == pytest.approx(1.870, abs=5e-4)


def test_rates_on_own_logits_as_table_csv_and_picture(run, logits, tmp_path):
    shown = run.shown("rates", logits, "-k", "1-3", "--plot", tmp_path / "rates.svg")
    assert "without replacement" in shown
    assert (tmp_path / "rates.svg").read_bytes().startswith(b"<?xml")
    lines = {}
    for row in run.records("rates", logits, "-k", "1-3"):
        lines.setdefault(row["verifier"], set()).add((row["scheme"], row["num_drafts"]))
    both = {(scheme, k) for scheme in ("with_replacement", "without_replacement") for k in "123"}
    assert lines == {
        "optimal": both | {(scheme, k) for scheme in ("greedy", "top_k") for k in "123"},
        "rrs": both,
        "kseq": {(scheme, k) for scheme, k in both if scheme == "with_replacement"},
    }


def test_intervals_are_promised_only_where_there_are_some(run, logits, tmp_path):
    assert "95% intervals over 6 positions" in run("rates", logits, "-k", "2").stdout
    path = tmp_path / "one.npz"
    with np.load(logits) as sample:
        one = {side: sample[side] for side in sample}
    np.savez(path, **one, sequence=np.zeros(6, dtype=np.int64))
    alone = run("rates", path, "-k", "2").stdout
    assert "no intervals, which take several sequences" in alone
    assert "95%" not in alone
    assert "1 prompt; no intervals" in run("reproduce", "spechub", path).stdout


def test_rates_say_which_verifier_has_none(run, logits):
    asked = ("rates", logits, "-k", "3", "--verifiers", "spechub,naive_target")
    shown = run.shown(*asked)
    assert "spechub: no rates" in shown
    assert "greedy drafts at K = 2" in shown
    assert [*run.document(*asked)["refused"]] == ["spechub"]


def test_filters_are_joint_where_that_is_asked_for(run, logits):
    filters = {"top_k": 3, "top_p": 0.5}
    asked = ("rates", logits, "-k", "2", "--top-k", "3", "--top-p", "0.5")
    for order, options in ((True, ("--joint",)), (False, ())):
        row = run.document(*asked, *options)["rows"][0]
        arrays = np.load(logits)
        rates = mo.acceptance_rates(
            arrays["target"], arrays["draft"], 2, row["scheme"], joint=order, **filters
        )
        assert row["mean"] == pytest.approx(rates.mean())


def test_rates_of_all_schemes_are_ranked(run, logits):
    document = run.document("rates", logits, "-k", "2,3", "--schemes", "all", "--best-temperature")
    compared = document["comparison"]
    assert compared["num_drafts"] == 3
    means = [row["mean"] for row in compared["rates"]]
    assert means == sorted(means, reverse=True)
    by_scheme = {row["name"]: row["mean"] for row in compared["rates"]}
    best = {
        row["scheme"]: row["mean"]
        for row in document["rows"]
        if row["num_drafts"] == 3 and row["verifier"] == "optimal"
    }
    assert by_scheme["without_replacement"] == pytest.approx(best["without_replacement"])
    table = run("rates", logits, "-k", "3", "--schemes", "all").stdout
    assert "behind the best" in table
    assert "draft T x 0.7" in table
    assert "behind" not in run("rates", logits, "-k", "3").stdout


def test_rates_rank_padded_vocabularies(run, tmp_path):
    path = tmp_path / "wide.npz"
    np.savez(path, target=np.zeros((3, 6)), draft=np.zeros((3, 4)))
    assert "top-K" in run.shown("rates", path, "-k", "2", "--schemes", "all", "--pad")


def test_rates_of_chosen_verifiers(run, logits):
    asked = ("rates", logits, "-k", "1-3", "--verifiers", "kseq,gumbel,rrs,optimal")
    rows = run.document(*asked)["rows"]
    cells = {(row["scheme"], row["num_drafts"], row["verifier"]): row for row in rows}
    assert {row["verifier"] for row in rows if row["bound"]} == {"gumbel"}
    for k in (2, 3):
        kseq, rrs, optimal = (
            cells["with_replacement", k, name] for name in ("kseq", "rrs", "optimal")
        )
        share = (kseq["mean"] - rrs["mean"]) / (optimal["mean"] - rrs["mean"])
        assert kseq["gap_closed_percent"] == pytest.approx(100 * share)
        assert rrs["gap_closed_percent"] == 0
        assert optimal["gap_closed_percent"] == pytest.approx(100)
    assert cells["with_replacement", 1, "kseq"]["gap_closed_percent"] is None
    assert cells["greedy", 2, "optimal"]["gap_closed_percent"] is None


def test_table_of_all_verifiers(run, logits, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    pictures = [tmp_path / "few.png", tmp_path / "all.png"]
    shown = run.shown("rates", logits, "-k", "1-3", "--verifiers", "all", "--plot", pictures[1])
    assert "† a lower bound" in shown
    lines = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert len(cells) == 4 * 3
    verifiers = ["optimal", "rrs", "kseq", "single", "importance", "gumbel", "race", "spechub"]
    column = {name: i for i, name in enumerate(verifiers, start=2)}
    assert [line[0] for line in cells if line[0]] == [
        "with replacement",
        "without replacement",
        "greedy",
        "top-K",
    ]
    assert [bool(line[column["spechub"]]) for line in cells] == [False] * 7 + [True] + [False] * 4
    assert [bool(line[column["kseq"]]) for line in cells] == [True] * 3 + [False] * 9
    assert [line[column["gumbel"]].startswith("≥") for line in cells] == [True] * 3 + [False] * 9
    few = run("rates", logits, "-k", "1-3", "--plot", pictures[0])
    assert "†" not in few.stdout
    assert "gap closed" in few.stdout
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_narrow_terminal_gets_the_columns_that_fit(run, logits, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    wide = run("rates", logits, "-k", "2", "--verifiers", "all").stdout
    numbers = set(re.findall(r"[\d.]+ ± [\d.]+", wide))
    monkeypatch.delenv("COLUMNS")
    piped = run.shown("rates", logits, "-k", "2", "--verifiers", "all")
    assert max(len(line) for line in piped.splitlines() if "│" in line) <= 80
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("mdsd_opt.cli.output.sys.stdout.isatty", lambda: True)
    narrow = run("rates", logits, "-k", "2", "--verifiers", "all", "--no-progress").stdout
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", narrow)
    assert max(map(len, wide.splitlines())) > 120
    assert max(map(len, narrow.splitlines())) <= 80
    assert set(re.findall(r"[\d.]+ ± [\d.]+", narrow)) < numbers
    assert narrow.count("┏") == 1
    assert "…" not in narrow
    table, line = narrow.split("no room here for: ")
    left = {" ".join(name.split()) for name in line.partition("(COLUMNS=")[0].split(";")}
    assert "optimal" in table
    assert {"tokens / target call", "importance sampling †"} <= left


def test_the_seed_moves_nothing_but_estimates(run, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.npz"
    np.savez(path, target=rng.standard_normal((2, 500)), draft=rng.standard_normal((2, 500)))

    def means(seed):
        rows = run.document("rates", path, "-k", "2,3", "--seed", seed)["rows"]
        return {(r["scheme"], r["num_drafts"], r["verifier"]): r["mean"] for r in rows}

    first, second = means(0), means(1)
    assert first == means(0)
    moved = {key for key in first if first[key] != second[key]}
    assert moved == {("without_replacement", 3, "rrs")}


def test_rates_of_two_npy_files_and_of_one_position(run, tmp_path):
    rng = np.random.default_rng(1)
    for name in ("t", "d"):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(30))
    (row, *_) = run.document("rates", tmp_path / "t.npy", tmp_path / "d.npy", "-k", "2")["rows"]
    assert row["low"] is None  # one position gives no interval


def test_without_matplotlib_the_picture_is_refused_at_once(run, logits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'matplotlib" in run.refusal(
        "rates", logits, "-k", "1", "--plot", tmp_path / "x.png"
    )


def test_an_interrupt_while_the_program_loads_is_one_line(run_cli, monkeypatch):
    def interrupted(name, *_):
        if name == "mdsd_opt.cli.verbs":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "mdsd_opt.cli.verbs")
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=interrupted), *sys.meta_path])
    done = run_cli("rates")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mdsd-opt: interrupted\n")


#: The command line where a picture is never finished, and says when it has been begun.
ENDLESS = """
import itertools, time
from matplotlib.figure import Figure

def endless(self, file, **options):
    file.write(b"half")
    print("begun", flush=True)
    for _ in itertools.count():
        time.sleep(0.01)

Figure.savefig = endless
from mdsd_opt.cli import main
main()
"""


def test_interrupted_run_leaves_no_half_written_picture(tmp_path, logits):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, "rates", str(logits), "--plot", str(picture)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()  # it draws now, and does not come to an end
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0
    assert "Traceback" not in errors
    assert {file.name for file in tmp_path.iterdir()} == {"own.npz"}


def test_solve_shows_all_methods_and_marks_the_choice(run, golden):
    rows = {row["method"]: row for row in run.document("solve", golden, "--exact")["methods"]}
    assert set(rows) >= {"subset_selection", "full_lp", "dual_lp", "max_flow", "truncated_lp"}
    assert [name for name, row in rows.items() if row["chosen"]] == ["subset_selection"]
    for name in ("subset_selection", "max_flow"):
        assert rows[name]["exact_lower"] == rows[name]["exact_upper"] == "988871/1000000"
    for row in rows.values():
        assert row["valid"]
        assert row["gap"] < 1e-12 or not mo.methods()[row["method"]].exact
    table = run("solve", golden)
    assert "subset_selection *" in table.stdout
    assert "0.988871" in table.stdout


def test_solve_goes_on_where_a_certificate_or_auto_is_refused(run, golden, monkeypatch):
    from mdsd_opt.bench import methods
    from mdsd_opt.errors import ProblemTooLarge

    solve = methods.solve

    def refusing(problem, method="auto", **options):
        if method == "auto":
            raise ProblemTooLarge("auto: none fits")
        return solve(problem, method, **options)

    def certify(problem, solution, exact, original=methods.certify):
        if solution.method == "full_lp":
            raise ProblemTooLarge("the certificate: too large")
        return original(problem, solution, exact=exact)

    monkeypatch.setattr(methods, "solve", refusing)
    monkeypatch.setattr(methods, "certify", certify)
    rows = {row["method"]: row for row in run.document("solve", golden)["methods"]}
    assert rows["full_lp"]["refused"] == "the certificate: too large"
    assert rows["max_flow"]["valid"]


def test_audit_of_a_trace(run, tmp_path):
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(12), 4000), rng.dirichlet(np.ones(12), 4000)
    drafts = np.array([rng.choice(12, 2, p=row) for row in q])
    for name, source, code in (("right", p, 0), ("wrong", q, 1)):
        tokens = np.array([rng.choice(12, p=row) for row in source])
        path = tmp_path / f"{name}.npz"
        np.savez(path, target=p, draft=q, drafts=drafts, tokens=tokens)
        assert run("audit", "--trace", path, "--detect", "0.1").returncode == code


def test_rates_under_a_grammar(run, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    target, draft = rng.standard_normal((2, 3, 4, 20))
    mask, lift = rng.random((3, 4, 20)) < 0.5, rng.random(20)
    mask[..., 0] = True
    np.savez(tmp_path / "mine.npz", target=target, draft=draft)
    for name, array in {"mask": mask, "lift": lift}.items():
        np.save(tmp_path / f"{name}.npy", array)

    def means(*arguments):
        rows = run.document("rates", tmp_path / "mine.npz", "-k", "1,2", *arguments)["rows"]
        return [x["mean"] for x in rows if (x["scheme"], x["verifier"]) == ("greedy", "optimal")]

    files = "--mask", tmp_path / "mask.npy", "--lift", tmp_path / "lift.npy"
    for few in (False, True):  # and where a file is worked through in parts
        if few:
            monkeypatch.setattr("mdsd_opt.base.files.logits.CHUNK_BYTES", 5 * 2 * 20 * 8)
        for options, given in (
            ({"mask": mask}, files[:2]),
            ({"mask": mask, "mask_draft": False}, (*files[:2], "--no-mask-draft")),
            ({"mask": mask, "lift": lift}, files),
        ):
            rates = mo.acceptance_rates(target, draft, (1, 2), "greedy", **options)
            assert means(*given) == pytest.approx(rates.mean(axis=(0, 1)), abs=1e-12)
    shown = run("rates", tmp_path / "mine.npz", *files[:2], "--no-mask-draft").stdout
    assert "mask mask.npy on the target alone" in shown


@pytest.mark.parametrize("verb", [["rates", "-k", "1,2"], ["check"], ["solve", "--help"]])
def test_a_reader_that_has_gone_is_no_verdict(verb: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "mdsd_opt", *verb]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    told = [line for line in done.stderr.splitlines() if "compiling kernels" not in line]
    assert (done.returncode, told) == (141, [])


ENTERED = """if True:
    import contextlib, io, json, sys
    from mdsd_opt.cli import main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    print(json.dumps([*sys.modules]))
"""


@pytest.mark.parametrize(
    ("words", "most", "without"),
    [
        (["--version"], 10, ["typer", "numpy"]),
        (["rates", "--help"], 60, ["scipy", "numba"]),
        (["advise", "LOG", "--target-ms", "20", "--draft-ms", "2"], 60, ["mdsd_opt.drafts"]),
    ],
)
def test_a_verb_enters_what_it_needs(words, most, without, tmp_path):
    (tmp_path / "run.log").write_text(engine_logs.vllm_log(engine_logs.a_run()))
    words = [str(tmp_path / "run.log") if word == "LOG" else word for word in words]
    done = subprocess.run([sys.executable, "-c", ENTERED, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entered = json.loads(done.stdout.splitlines()[-1])
    assert len([name for name in entered if name.split(".")[0] == "mdsd_opt"]) <= most
    assert not {*without} & {*entered}
