"""The package as it is installed: quick to import, complete when built, one version everywhere."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import mdsd_opt

ROOT = Path(__file__).parents[2]

#: Costly to import, or not there in a core installation: each is imported where it is used.
LATE = (
    "cupy",
    "cvxpy",
    "dask",
    "highspy",
    "joblib",
    "matplotlib",
    "numba",
    "pandas",
    "rich",
    "safetensors",
    "scipy",
    "torch",
    "transformers",
    "triton",
    "typer",
)


def _run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


class TestImport:
    def test_loads_little_beside_numpy(self) -> None:
        """It takes as long as what is loaded; a third of a second on the slowest machine met."""
        code = """if True:
            import json, sys, numpy
            before = set(sys.modules)
            import mdsd_opt
            print(json.dumps(sorted(set(sys.modules) - before)))
        """
        loaded = json.loads(_run_python(code))
        assert "mdsd_opt" in loaded
        assert len(loaded) < 20

    @pytest.mark.parametrize(
        "use",
        [
            "mdsd_opt.__version__",
            "mdsd_opt.TransportProblem([0.5, 0.5], mdsd_opt.WithReplacement([0.9, 0.1], 2))",
        ],
    )
    def test_leaves_the_costly_packages_alone(self, use: str) -> None:
        code = f"import json, sys, mdsd_opt; {use}; print(json.dumps(sorted(sys.modules)))"
        loaded = set(json.loads(_run_python(code)))
        assert "mdsd_opt" in loaded
        assert loaded.isdisjoint(LATE)

    def test_rates_load_little_of_scipy_once_kernels_are_compiled(self) -> None:
        code = """if True:
            import json, sys, numpy as np
            from mdsd_opt.base.files.logits import LogitsSample
            from mdsd_opt.corpora.sample_rates import rate_rows
            logits = np.random.default_rng(0).normal(size=(2, 4, 40)).astype(np.float32)
            sample = LogitsSample(*logits, sequence=np.array([0, 0, 1, 1]))
            schemes = ["with_replacement", "without_replacement", "greedy", "top_k"]
            print(len(rate_rows(sample, schemes, [1, 2, 3], ["optimal", "rrs", "kseq"])))
            print(json.dumps(sorted(name for name in sys.modules if name.startswith("scipy."))))
        """
        _run_python(code)
        num_rows, loaded = _run_python(code).splitlines()
        assert int(num_rows) > 20
        assert {"scipy.linalg", "scipy.special"}.isdisjoint(json.loads(loaded))

    def test_type_checkers_see_the_same_names(self) -> None:
        stub = Path(mdsd_opt.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
        seen = set()
        for node in ast.parse(stub).body:
            if isinstance(node, ast.ImportFrom):
                seen |= {alias.asname for alias in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                seen |= {ast.unparse(target) for target in targets}
        assert seen == {*mdsd_opt.__all__, *mdsd_opt._MODULES}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source distribution of this very tree, built without a network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


class TestWheel:
    def test_holds_every_file_of_the_package(self, wheel: zipfile.ZipFile) -> None:
        package = ROOT / "mdsd_opt"
        shipped = (".py", ".typed", ".npz", ".npy", ".json", ".md", ".cu", ".cuh")
        expected = {
            path.relative_to(ROOT).as_posix()
            for path in package.rglob("*")
            if path.suffix in shipped or path.name == "py.typed"
        }
        assert {"mdsd_opt/py.typed", "mdsd_opt/_version.py"} <= expected
        assert any(name.endswith(".npz") for name in expected)
        assert expected <= set(wheel.namelist())

    def test_holds_nothing_but_the_package(self, wheel: zipfile.ZipFile) -> None:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        assert tops == {"mdsd_opt", f"mdsd_opt-{mdsd_opt.__version__}.dist-info"}
        assert not [name for name in wheel.namelist() if "__pycache__" in name]

    def test_names_the_command(self, wheel: zipfile.ZipFile) -> None:
        (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "mdsd-opt = mdsd_opt.cli:main" in wheel.read(name).decode()

    def test_carries_the_license(self, wheel: zipfile.ZipFile, metadata: Message) -> None:
        assert metadata["License-Expression"] == "Apache-2.0"
        (name,) = (name for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
        assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()

    def test_core_needs_no_extra(self, metadata: Message) -> None:
        requires: list[str] = metadata.get_all("Requires-Dist", [])
        core = " ".join(line for line in requires if "extra ==" not in line)
        assert "numpy" in core
        for optional in ("cdd", "cupy", "torch", "matplotlib", "dask", "ray"):
            assert optional not in core
        extras = set(metadata.get_all("Provides-Extra", []))
        assert {"cdd", "gpu", "models", "cluster", "plot", "report"} <= extras
        assert not {"docs", "test", "lint"} & extras  # groups of the project's own


class TestSourceDistribution:
    def test_holds_all_that_make_needs(self, dist: Path) -> None:
        (path,) = dist.glob("*.tar.gz")
        with tarfile.open(path) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        assert {"README.md", "LICENSE", "Makefile", "pyproject.toml"} <= names
        assert {".ci/run", "constraints.txt", "lowest.txt", "scripts/make-venv"} <= names
        for folder in ("tests", "examples", "benchmarks", "docs"):
            sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.py")}
            assert sources <= names
        assert "tests/package/test_package.py" in names


class TestVersion:
    def test_is_the_same_in_every_place(self, metadata: Message) -> None:
        version = mdsd_opt.__version__
        assert metadata["Version"] == version
        citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
        assert f"version: {version}" in citation
        assert f"version = {{{version}}}," in (ROOT / "README.md").read_text(encoding="utf-8")
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        (released,) = [line for line in citation if line.startswith("date-released: ")]
        assert f"## [{version}] - {released.partition(': ')[2]}\n" in changes

    def test_the_recipe_for_conda_needs_the_same(self) -> None:
        recipe = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
        (version,) = re.findall(r"regex_pattern='(.*)'", recipe)
        source = (ROOT / "mdsd_opt" / "_version.py").read_text(encoding="utf-8")
        assert re.findall(version, source) == [mdsd_opt.__version__]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = {f"python{project['requires-python']}", *project["dependencies"]}
        run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
        assert {line.strip("- ").replace(" ", "") for line in run.splitlines()} == needed
        for name, entry in project["scripts"].items():
            assert f"- {name} = {entry}" in recipe

    def test_python_versions_agree(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["project"]["requires-python"] == ">=3.11"
        assert project["tool"]["ruff"]["target-version"] == "py311"
        assert "(3, 11)" in (ROOT / "scripts" / "make-venv").read_text(encoding="utf-8")


def test_all_but_the_backend_cvxpy_goes_without_it() -> None:
    code = """if True:
        import sys
        sys.modules["cvxpy"] = None
        import mdsd_opt as mo
        problem = mo.TransportProblem([0.7, 0.2, 0.1], mo.WithReplacement([0.2, 0.3, 0.5], 2))
        for method in ("auto", "full_lp", "dual_lp", "max_flow", "truncated_lp"):
            print(round(mo.solve(problem, method).acceptance_rate, 9))
        for method in ("full_lp", "dual_lp"):
            try:
                mo.solve(problem, method, backend="cvxpy")
            except mo.MdsdError as error:
                print(error)
    """
    *rates, first, second = _run_python(code).splitlines()
    assert len(rates) == 5
    assert len(set(rates)) == 1
    assert "pip install 'cvxpy" in first
    assert first == second
