"""Every module and public name can be what a process asks for first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.first_imports import first_imports

import mdsd_opt

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

#: What an installation without extras may lack, by the names under which it is imported.
EXTRAS = (
    *("accelerate", "cdd", "cupy", "cvxpy", "dask", "distributed", "gguf", "httpx", "igraph"),
    *("jinja2", "matplotlib", "ortools", "ot", "pandas", "ppl", "PyNormaliz", "ray", "torch"),
    *("transformers", "triton", "uvicorn"),
)


#: The short name leads to the same module when it is asked for first.
SHORT = {
    "import mdsd_opt.engines, mdsd_opt.auditing.engines as same, sys\n"
    "from mdsd_opt.engines import get\n"
    "assert sys.modules['mdsd_opt.engines'] is same is mdsd_opt.engines": "mdsd_opt.engines"
}


def test_all_can_be_imported_first_without_any_extra() -> None:
    ready = ["numpy", "numba", "scipy.special", "typer", "ml_dtypes"]
    outcomes = first_imports(
        "mdsd_opt", ROOT, ready=ready, absent=list(EXTRAS), statements=list(SHORT)
    )
    folder = ROOT / "mdsd_opt"
    files = {path.relative_to(ROOT).with_suffix("") for path in folder.rglob("*.py")}
    modules = {".".join(path.parts).removesuffix(".__init__") for path in files}
    lazy = {*mdsd_opt.__all__, *mdsd_opt._MODULES} - {"__version__"}
    names = {f"mdsd_opt:{name}" for name in lazy} | {"mdsd_opt.batch:relaxed_rates"}
    assert outcomes.keys() >= {*SHORT, *modules, *names} - {"mdsd_opt.__main__"}
    failed = {
        SHORT.get(what, what): told
        for what, told in outcomes.items()
        if told[0] and told[0] != "MissingExtra" and told[1] not in EXTRAS
    }
    assert not failed


def test_a_planted_circle_and_other_faults_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    (package / "room").mkdir(parents=True)
    texts = {
        "__init__": "__all__ = ['lost']\ndef __dir__():\n    return ['asked']\n"
        "def __getattr__(name):\n    if name == 'asked':\n        from planted import second\n"
        "    raise AttributeError(name)\n",
        "first": "x = 1\nfrom planted.second import y\n",
        "second": "from planted.first import x\ny = 2\n",  # works after `first` alone
        "ends": "import sys\nsys.exit(0)\n",
        "dies": "import os\nos._exit(3)\n",
        "lacks": "import no_such_package.part\n",
        "hidden": "import numpy\n",
        "wrong": "import planted.no_such_module\n",
        "room/__init__": "raise ImportError('a sentence')\n",
        "room/below": "",
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    outcomes = first_imports("planted", tmp_path, absent=["numpy"], statements=["import planted"])
    assert {what: told[:2] for what, told in outcomes.items()} == {
        "import planted": ("", ""),
        "planted": ("", ""),
        "planted:asked": ("ImportError", ""),
        "planted:lost": ("AttributeError", ""),
        "planted.first": ("", ""),
        "planted.second": ("ImportError", ""),
        "planted.ends": ("SystemExit", ""),
        "planted.dies": ("process", ""),
        "planted.lacks": ("ModuleNotFoundError", "no_such_package"),
        "planted.hidden": ("ModuleNotFoundError", "numpy"),
        "planted.wrong": ("ModuleNotFoundError", ""),
        "planted.room": ("ImportError", ""),
    }


def test_a_process_that_has_the_package_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as end:
        first_imports("mdsd_opt", ROOT, ready=["mdsd_opt.errors"])
    assert "mdsd_opt.errors" in end.value.stderr
