"""Files that cannot be imported: run whole, with stand-ins, or refused with a line."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mdsd_opt.auditing import load_definitions
from mdsd_opt.errors import InvalidInput

SOURCE = """
from __future__ import annotations
import math
from dataclasses import dataclass
from typing import Generic, Optional, TypeVar
import numpy as np
import no_such_package
import no_such_package.deep as deep
from no_such_package.deep import thing, helper as other, Base
from . import near
from ..far import Meta
try:
    from another_missing import Config
except ImportError:
    Config = None

T = TypeVar("T")
Kind = Optional[thing] | deep.Kind | None
Table = dict[str, deep.Kind[int]]
log = no_such_package.get_logger(__name__)
near.registry.names = ["verify"]

@dataclass
class Result:
    tokens: thing

SCALE: float = 2.0
_TABLE = [SCALE, 3.0]

@no_such_package.register
def _inner(x):
    return math.sqrt(x) * _TABLE[0]

@no_such_package.register("verify", tags=[deep.FAST])
def verify(p: thing, q: Config) -> no_such_package.boom():
    return _inner(p) + np.float64(q)

@deep.register_class("sampler")
class Sampler(Base, other, Generic[T], option=3):
    def __init__(self, x=1):
        self.x = x
    def draw(self):
        return thing(self.x)

def logs(x):
    log.info("called")
    return x

def imports(x):
    from no_such_package.deep import thing
    return thing(x)

def matches(x):
    return isinstance(x, thing), x
"""

#: What a file does, and `verify()` gives what it gives where everything is installed.
SAME = {
    "optional import that is there": (
        "try:\n    import math\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "def verify(): return HAS"
    ),
    "optional import": (
        "try:\n    import elsewhere\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "def verify(): return HAS"
    ),
    "only for types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from elsewhere import Type\n"
        "else:\n    K = 2\ndef verify(x: Type = None) -> Type: return K"
    ),
    "as a script": "def verify(): return 1\nif __name__ == '__main__':\n    verify = None",
    "decorator": "import elsewhere\n@elsewhere.register\ndef verify(): return 1",
    "registered by name": "import elsewhere\n@elsewhere.named('a')\ndef verify(): return 1",
    "others of other packages": (
        "from elsewhere import register, Base\nK = 2\nclass Box(Base):\n"
        "    def g(self): return verify()\nmade = Base(register)\ndef verify(): return K"
    ),
    "global": "K = 1\ndef f():\n    global K\n    K = 2\nf()\ndef verify(): return K",
    "globals": "globals()['K'] = 3\ndef verify(): return K",
    "exec": "exec('K = 3')\ndef verify(): return K",
    "its own module": "import sys\nsys.modules[__name__].K = 3\ndef verify(): return K",
    "its own place": "import os\nK = os.path.basename(__file__)\ndef verify(): return K",
    "its own text": "'''What it does.'''\n'not this'\ndef verify(): return __doc__",
    "star": "from math import *\ndef verify(): return sqrt(4)",
    "builtin": "def max(*a): return 'mine'\ndef verify(): return max(1, 2)",
    "settings": (
        "import numpy as np\nold = np.seterr(all='raise')\ndef verify(): return np.geterr()['over']"
    ),
    "dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass, field\n"
        "@dataclass\nclass Box:\n    k: int = 3\n    t: list = field(default_factory=list)\n"
        "def verify(): return Box().k, Box().t"
    ),
}

#: What a file does that hangs on another package, and on which line.
REFUSED: dict[str, Any] = {
    "condition from elsewhere": (
        "import elsewhere\nK = 1\nif elsewhere.thing:\n    K = 2\ndef verify(): return K", 3,
    ),
    "comparison": "import elsewhere\nK = elsewhere.version > (1, 2)\ndef verify(): return K",
    "equality": "import elsewhere\n\nK = elsewhere.kind == 'a'\ndef verify(): return K",
    "number": "import elsewhere\nK = 2 * elsewhere.SCALE\ndef verify(): return K",
    "loop": "import elsewhere\nfor x in elsewhere.table: pass\ndef verify(): return 1",
    "length": "import elsewhere\nK = len(elsewhere.table)\ndef verify(): return K",
    "block": "import elsewhere\nwith elsewhere.on():\n    K = 1\ndef verify(): return K",
    "kind": "import elsewhere\nK = isinstance(1, elsewhere.Number)\ndef verify(): return K",
    "star": "\nfrom elsewhere import *\ndef verify(): return max(1, 2)",
    "raises": "T = []\nT[0] = 1\ndef verify(): return T",
    "stops": "import sys\nsys.exit(2)\ndef verify(): return 1",
}  # fmt: skip


class Elsewhere(ModuleType):
    """A package that is there where the file is run, and nowhere else."""

    Base = type("Base", (), {"__init__": lambda self, *a: None})

    @staticmethod
    def register(f: Any) -> Any:
        return f

    @staticmethod
    def named(name: str) -> Any:
        return lambda f: f


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(SOURCE, tmp_path)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    settings, importing, modules = np.geterr(), builtins.__import__, {*sys.modules}
    yield
    np.seterr(**settings)
    assert builtins.__import__ is importing
    assert not {n for n in sys.modules.keys() - modules if n.startswith("definitions of")}


def written(source: str, folder: Path) -> Path:
    path = folder / "engine.py"
    path.write_text(source, "utf-8")
    return path


def test_a_function_is_the_files_own(file: Path) -> None:
    module = load_definitions(file, "verify")
    assert module.verify(4.0, 1.0) == 5.0
    code = module.verify.__code__
    assert (
        code.co_firstlineno == SOURCE[: SOURCE.index("@no_such_package.register(")].count("\n") + 1
    )
    assert code.co_filename == str(file)
    assert module.Result([1]).tokens == [1]
    assert module.Sampler(2).x == 2


def test_no_answer_hangs_on_what_is_not_there(file: Path) -> None:
    module = load_definitions(file)
    for call, named in (
        (module.Sampler().draw, r"no_such_package\.deep\.thing"),
        (lambda: module.logs(1), r"no_such_package\.get_logger\(\.\.\.\)\.info"),
        (lambda: module.imports(1), r"no_such_package\.deep\.thing"),
        (lambda: module.matches(1), r"no_such_package\.deep\.thing"),
        (lambda: module.near.registry["a"], r"\.near\.registry"),
    ):
        with pytest.raises(InvalidInput, match=f"{named} of another package is needed: give it"):
            call()
    with pytest.raises(InvalidInput, match=r"deep\.thing of another package is needed"):
        load_definitions(file, "thing")


def test_names_are_given(file: Path) -> None:
    module = load_definitions(file, "verify", thing=abs, log=np.random, _TABLE=[10.0])
    assert module.Sampler(-3).draw() == module.imports(-3) == 3
    assert module.verify(4.0, 1.0) == 21.0
    assert load_definitions(file, other=type("Mine", (), {"mine": 7})).Sampler().mine == 7


@pytest.mark.parametrize("kind", SAME)
def test_what_running_the_file_gives(kind: str, tmp_path: Path) -> None:
    path = written(SAME[kind], tmp_path)
    found = load_definitions(path, "verify").verify()
    module = ModuleType("run", "What it does." if kind == "its own text" else None)
    module.__file__ = str(path)
    sys.modules |= {"run": module, "elsewhere": Elsewhere("elsewhere")}
    try:
        flags = {"dont_inherit": True}
        source = "from __future__ import annotations\n" + path.read_text("utf-8")
        exec(compile(source, str(path), "exec", **flags), vars(module))
    finally:
        del sys.modules["run"], sys.modules["elsewhere"]
    assert found == module.verify()


@pytest.mark.parametrize("kind", REFUSED)
def test_or_it_is_refused(kind: str, tmp_path: Path) -> None:
    source, line = REFUSED[kind] if isinstance(REFUSED[kind], tuple) else (REFUSED[kind], None)
    line = line or 2 + source.startswith("import elsewhere\n\n")
    with pytest.raises(InvalidInput, match=rf"hangs on line {line}, which cannot be executed"):
        load_definitions(written(source, tmp_path), "verify")


def test_what_python_warns_of_is_left_alone(tmp_path: Path) -> None:
    path = written("def verify(p):\n    '\\in'\n    return p\n", tmp_path)
    assert load_definitions(path, "verify").verify(2) == 2


def test_what_cannot_be_found_or_read_is_said(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="defines no verifier, sample at its top level"):
        load_definitions(file, "verify", "verifier", "sample")
    with pytest.raises(InvalidInput, match="cannot be read as Python"):
        load_definitions(tmp_path / "none.py", "verify")
    (tmp_path / "broken.py").write_text("def verify(:\n")
    with pytest.raises(InvalidInput, match="cannot be read as Python"):
        load_definitions(tmp_path / "broken.py", "verify")
    with pytest.raises(InvalidInput, match="is not installed: pip install --no-deps no-such-thing"):
        load_definitions("a.py", "verify", package="no-such-thing")


def test_files_of_installed_packages() -> None:
    module = load_definitions("typer/colors.py", "RED", package="typer")
    assert isinstance(module.RED, str)
