"""mdsd-opt check: verdicts and exit codes."""

from __future__ import annotations

import json
from functools import partial

import pytest

from mdsd_opt.cddlib_checks import OutOfBudget, checking, conjectures


@pytest.fixture
def run(run_cli):
    """The verb."""
    return partial(run_cli, "check")


def test_without_a_name_all_claims_are_listed(run, tmp_path):
    shown = run().stdout
    listed = json.loads(run("--json").stdout)["conjectures"]
    assert [c["name"] for c in listed] == list(conjectures())
    for name in conjectures():
        assert name in shown
    assert "picture" not in run("--help").stdout
    assert "[Q(H+x)" in listed[3]["statement"]
    run("--out", tmp_path / "a.md")
    assert "\n- optimal_value\n\n- alpha* = 1 +" in (tmp_path / "a.md").read_text()


def test_a_claim_that_holds(run):
    done = run("acceptance_one", "-V", 3, "-k", 2, "--draft", "1/2,1/4,1/4", "--facets")
    assert done.returncode == 0
    assert "PROVED" in done.stdout
    assert "by: double description" in done.stdout
    assert "p0 + p1 >= 9/16" in done.stdout
    assert done.stderr == ""


def test_a_claim_that_is_refuted(run):
    done = run("exponent-plus-tenth", "--vocab-size", 3, "-k", 2, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["holds"] is False
    assert document["counterexample"]["kind"] == "too weak"


def test_a_claim_that_stays_undecided(run, monkeypatch):
    def late(job, arguments, **options):
        options["tick"](1.0)
        raise OutOfBudget("time ran out after 1 s")

    monkeypatch.setattr(checking, "run_in_child", late)
    done = run("projection", "--vocab-size", 8, "-k", 4, "--timeout", 1, "--progress")
    assert done.returncode == 3
    assert "OPEN" in done.stdout
    assert "time ran out" in done.stdout
    assert "projection, elimination" in done.stderr


def test_what_held_on_instances_is_not_proved(run):
    done = run("rrs_loses_at_most", "-V", 3, "-k", 2)
    assert done.returncode == 3
    assert "HELD on 30 instances, which settles nothing" in done.stdout
    assert "proof for every size: docs/theory/worst-cases.md" in done.stdout
    found = json.loads(run("gains_of_drafts_fall", "-V", 2, "-k", 2, "--json").stdout)
    assert (found["verdict"], found["holds"]) == ("held", None)
    assert found["instances"] > 0


def test_names_of_sizes_are_words(run):
    found = json.loads(run("vertex_counts", "-V", 3, "-k", 2, "--json").stdout)
    assert found["sizes"]["claimed_vertices_2"] > 0
    assert all(name.replace("_", "").isalnum() for name in found["sizes"])


def test_inequalities_of_ones_own(run):
    claim = ["condition", "--vocab-size", 2, "-k", 2, "--draft", "1/2,1/2", "--inequality",
             "p0 >= 1/4"]  # fmt: skip
    assert run(*claim).returncode == 1
    assert run(*claim, "--inequality", "p1 >= 1/4").returncode == 0


def test_drafts_that_differ(run):
    done = run("mean_draft_power", "--vocab-size", 2, "-k", 2, "--draft", "1/2,1/2",
               "--draft", "1/4,3/4")  # fmt: skip
    assert done.returncode == 1
    assert "q2 = (1/4, 3/4)" in done.stdout


def test_search(run):
    done = run("prefix_optimality", "--vocab-size", 4, "-k", 2, "--search", "--trials", 100,
               "--seed", 5, "--json")  # fmt: skip
    assert done.returncode == 3
    assert json.loads(done.stdout)["sizes"]["next_trial"] == 100


def test_facets_are_printed_and_leave_as_files(run_cli, tmp_path):
    pytest.importorskip("cdd")
    size = ("--vocab-size", 2, "--num-drafts", 2, "--timeout", 600)
    shown = run_cli.shown(
        "check", "acceptance_one", *size, "--facets", "--export", tmp_path / "out"
    )
    assert "P({0}) >= Q({0})" in shown
    assert "p0 >= 1/9" in shown
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["cone.ext", "cone.ine", "polytope.ext", "polytope.ine"]
    document = json.loads(run_cli("check", "acceptance_one", *size, "--facets", "--json").stdout)
    cone, polytope = document["polyhedra"]
    assert "p0 + p1 = 1" in polytope["inequalities"]
    assert cone["variables"] == ["p0", "p1", "W{0}", "W{1}", "W{0,1}"]
    (tmp_path / "file").touch()
    assert run_cli.refusal("check", "acceptance_one", *size, "--export", tmp_path / "file")


def test_checks_and_searches_have_tables_for_papers(run_cli):
    pytest.importorskip("cdd")
    size = ("--vocab-size", 2, "--num-drafts", 2, "--timeout", 600)
    latex = run_cli("check", "acceptance_one", *size, "--facets", "--latex").stdout
    assert r"acceptance\_one & proved" in latex
    assert r"\bottomrule" in latex
    claim = "with_replacement(2) >= with_replacement(1)"
    searched = run_cli("search", claim, "--vocab-size", 2, "--trials", 20, "--csv").stdout
    assert searched.splitlines()[0] == "claim,given,verdict,instances,p,q,fails by"
    assert searched.splitlines()[1].startswith(f"{claim},,held,")
