"""Definitions are what running their file makes them, or are refused with a line."""

from __future__ import annotations

import builtins
import decimal
import importlib.machinery
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mdsd_opt.auditing import load_definitions
from mdsd_opt.errors import InvalidInput

#: What a file does, and `verify()` then gives what running the file gives.
SAME = {
    "if": "if 1 < 2:\n    K = 1\nelse:\n    K = 2\ndef verify(): return K",
    "else": "if 1 > 2:\n    K = 1\nelse:\n    K = 2\ndef verify(): return K",
    "function by condition": (
        "import sys\nif sys.version_info > (3,):\n    def verify(): return 1\n"
        "else:\n    def verify(): return 2"
    ),
    "except": "try:\n    K = {}['a']\nexcept KeyError as e:\n    K = 2\ndef verify(): return K",
    "try, else, finally": (
        "try:\n    K = 1\nexcept KeyError:\n    K = 2\nelse:\n    K += 10\nfinally:\n    K += 100\n"
        "def verify(): return K"
    ),
    "optional import that is there": (
        "try:\n    import math\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "def verify(): return HAS"
    ),
    "for": "T = []\nfor i in range(3):\n    T.append(i * i)\ndef verify(): return T",
    "for and item": "T = {}\nfor i in range(3):\n    T[i] = i * i\ndef verify(): return T",
    "while": "K = 0\nwhile K < 5:\n    K += 2\ndef verify(): return K",
    "with": (
        "import contextlib\nwith contextlib.suppress(ValueError):\n    K = 1\n    int('a')\n"
        "    K = 2\ndef verify(): return K"
    ),
    "with as": "import io\nwith io.StringIO('abc') as f:\n    K = f.read()\ndef verify(): return K",
    "match": (
        "match [1, 2, 3]:\n    case [first, *rest]:\n        pass\n    case _:\n        rest = 0\n"
        "def verify(): return rest"
    ),
    "global": "K = 1\ndef f():\n    global K\n    K = 2\nf()\ndef verify(): return K",
    "global of a function kept in a list": (
        "K = 1\ndef f():\n    global K\n    K = 2\nready = []\nready.append(f)\nready[0]()\n"
        "def verify(): return K"
    ),
    "global of a lambda's function": (
        "K = 1\ndef f():\n    global K\n    K = 2\n(lambda g: g())(f)\ndef verify(): return K"
    ),
    "item": "T = [1, 2]\nT[0] = 5\ndef verify(): return T",
    "augmented": "K = 1\nK += 4\ndef verify(): return K",
    "append": "T = [1]\nT.append(2)\ndef verify(): return T",
    "append by a function": "T = []\ndef f(x): T.append(x)\nf(3)\ndef verify(): return T",
    "append by a decorator": (
        "T = {}\ndef register(f):\n    T[f.__name__] = f\n    return f\n"
        "@register\ndef seven(): return 7\ndef verify(): return T['seven']()"
    ),
    "append by a subclass": (
        "T = []\nclass Base:\n    def __init_subclass__(cls):\n        T.append(cls.__name__)\n"
        "class One(Base): pass\ndef verify(): return T"
    ),
    "append by an instance": (
        "T = []\nclass Box:\n    def __init__(self, x):\n        T.append(x)\nbox = Box(3)\n"
        "def verify(): return T"
    ),
    "append by members": (
        "from enum import Enum\nT = []\nclass Kind(Enum):\n    A = 1\n    B = 2\n"
        "    def __init__(self, x):\n        T.append(x)\ndef verify(): return T"
    ),
    "append in the body of a class": (
        "T = []\nclass Box:\n    T.append(3)\ndef verify(): return T"
    ),
    "append in a default": "T = []\ndef f(x=T.append(1)): pass\ndef verify(): return T",
    "append to a default": ("T = []\ndef f(t=T): t.append(1)\nf()\ndef verify(): return T"),
    "alias": "T = [1]\nU = T\nU.append(2)\ndef verify(): return T",
    "alias in an alias": "T = [1]\nU = [T]\nV = U[0]\nV.append(2)\ndef verify(): return T",
    "alias that a function returns": (
        "T = [1]\ndef table(): return T\ntable().append(2)\nu = table()\nu.append(3)\n"
        "def verify(): return T"
    ),
    "alias by a loop": (
        "A, B = [], []\nfor t in (A, B):\n    t.append(1)\ndef verify(): return A, B"
    ),
    "bound method": "T = []\npush = T.append\npush(3)\ndef verify(): return T",
    "twice": "K = 1\nL = K\nK = 2\ndef verify(): return K, L",
    "function twice": "def f(): return 1\ng = f\ndef f(): return 2\ndef verify(): return f(), g()",
    "wrapped": (
        "def verify(): return 1\ndef twice(f):\n    return lambda: 2 * f()\nverify = twice(verify)"
    ),
    "builtin": "def max(*a): return 'mine'\ndef verify(): return max(1, 2)",
    "builtin's module": ("import builtins\nbuiltins.mine = 'mine'\ndef verify(): return mine"),
    "star": "def sqrt(x): return 'mine'\nfrom math import *\ndef verify(): return sqrt(4)",
    "star before": "from math import *\ndef sqrt(x): return 'mine'\ndef verify(): return sqrt(4)",
    "walrus": "if (K := 3) > 2:\n    pass\ndef verify(): return K",
    "walrus in a comprehension": "T = [K := i for i in range(4)]\ndef verify(): return K",
    "attribute": (
        "class Box:\n    def f(self): return 1\ndef f(self): return 2\nBox.f = f\n"
        "def verify(): return Box().f()"
    ),
    "setattr": ("class Box:\n    k = 1\nsetattr(Box, 'k', 2)\ndef verify(): return Box.k"),
    "attribute by a function": (
        "class Box:\n    k = 1\ndef patch():\n    Box.k = 2\npatch()\ndef verify(): return Box.k"
    ),
    "attribute of itself": "def verify(): return verify.k\nverify.k = 3",
    "defaults": "def verify(k=1): return k\nverify.__defaults__ = (2,)",
    "attribute by an alias": "def verify(): return verify.k\nf = verify\nf.k = 3",
    "attribute of an attribute": (
        "class A:\n    class B:\n        k = 1\nA.B.k = 2\ndef verify(): return A.B.k"
    ),
    "attribute of a module": (
        "import math\nbefore = math.tau\nmath.mine = 3\ndef verify(): return math.mine"
    ),
    "attribute of a module by another name": (
        "import math\nimport math as m\nm.mine = 4\ndef verify(): return math.mine"
    ),
    "settings": (
        "import numpy as np\nold = np.seterr(all='raise')\ndef verify(): return np.geterr()['over']"
    ),
    "settings, no value taken": (
        "import decimal\ndecimal.getcontext().prec = 5\n"
        "def verify(): return str(decimal.Decimal(1) / 3)"
    ),
    "settings by a function": (
        "import numpy as np\ndef set_up():\n    np.seterr(all='raise')\nset_up()\n"
        "def verify(): return np.geterr()['over']"
    ),
    "deleted": "K = 1\ndef f(): return K\nK = 2\nv = f()\ndel K\ndef verify(): return v",
    "deleted item": "T = {1: 1, 2: 2}\ndel T[1]\ndef verify(): return T",
    "exec": "exec('K = 3')\ndef verify(): return K",
    "exec of what was there": "A = 2\nexec('K = A + 3')\ndef verify(): return K",
    "globals": "globals()['K'] = 3\ndef verify(): return K",
    "globals by a function": (
        "def put(n, v): globals()[n] = v\nput('K', 3)\nB = 5\n"
        "def verify(): return globals()['K'] + globals()['B']"
    ),
    "vars": "vars().update(K=3)\ndef verify(): return K",
    "its own module": (
        "import sys\nsetattr(sys.modules[__name__], 'K', 3)\ndef verify(): return K"
    ),
    "closure": (
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n"
        "        return n\n    return up\nup = counter()\nup()\nup()\ndef verify(): return up()"
    ),
    "default": "K = 1\ndef verify(k=K): return k\nK = 2",
    "class body": "K = 1\nclass Box:\n    k = K\n    j = k + 1\nK = 2\ndef verify(): return Box.j",
    "unpacked": "(a, *b), c = [1, 2, 3], 4\ndef verify(): return a, b, c",
    "local names are local": (
        "from elsewhere import thing\nK = 1\ndef verify():\n    thing = K\n    return thing"
    ),
    "only for types": (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from elsewhere import Type\n    K = 1\nelse:\n    K = 2\n"
        "def verify(x: Type = None) -> Type: return K"
    ),
    "branch with an import that is not taken": (
        "import sys\nif sys.version_info > (3,):\n    from math import tau\nelse:\n"
        "    from elsewhere import tau\ndef verify(): return tau"
    ),
    "as a script": (
        "import elsewhere\nK = 1\ndef main():\n    global K\n    K = elsewhere.thing()\n"
        "def verify(): return K\nif __name__ == '__main__':\n    main()"
    ),
    "others of other packages": (
        "from elsewhere import register, Base\nimport logging\n"
        "log = logging.getLogger('a')\nK = 2\n@register\ndef f():\n    log.info('a')\n"
        "    return verify() * K\n"
        "class Box(Base):\n    def g(self): return verify()\nmade = Base(register)\n"
        "def verify():\n    log.debug('b')\n    return K"
    ),
    "dataclass": (
        "from dataclasses import dataclass, field\n@dataclass\nclass Box:\n    k: int = 3\n"
        "    t: list = field(default_factory=list)\ndef verify(): return Box().k, Box().t"
    ),
    "not in ASCII": "K = 'é'\ndef verify(): return K",
    "its own place": "import os\nK = os.path.basename(__file__)\ndef verify(): return K",
    "its own text": "'''What it does.'''\ndef verify(): return __doc__",
    "star of another package, all bound after": (
        "from elsewhere import *\ndef f(): return 1\ndef verify(): return f()"
    ),
    "thread": (
        "import threading\nT=[]\ndef f(): T.append(1)\nth=threading.Thread(target=f)\n"
        "th.start()\nth.join()\ndef verify(): return T"
    ),
    "partial function": (
        "import functools\nK=1\ndef f(x):\n    global K\n    K=x\n"
        "g=functools.partial(f,5)\ng()\ndef verify(): return K"
    ),
    "generator": (
        "K=0\ndef gen():\n    global K\n    K=4\n    yield 1\nfor _ in gen(): pass\n"
        "def verify(): return K"
    ),
    "with of the file": (
        "from contextlib import contextmanager\nK=0\n@contextmanager\ndef c():\n"
        "    global K\n    K=1\n    yield\n    K+=5\nwith c():\n    pass\n"
        "def verify(): return K"
    ),
    "descriptor that is told its name": (
        "T=[]\nclass D:\n    def __set_name__(self,o,n): T.append(n)\nclass A:\n    x=D()\n"
        "def verify(): return T"
    ),
    "metaclass": (
        "T=[]\nclass M(type):\n    def __init__(cls,*a):\n        T.append(cls.__name__)\n"
        "class A(metaclass=M): pass\nclass B(A): pass\ndef verify(): return T"
    ),
    "subclass that its base calls": (
        "K=1\nclass Base:\n    def __init_subclass__(cls): cls.go()\nclass A(Base):\n"
        "    @classmethod\n    def go(cls):\n        global K\n        K=9\n"
        "def verify(): return K"
    ),
    "iterator of the file": (
        "K=1\nclass B:\n    def __iter__(self):\n        global K\n        K=3\n"
        "        return iter(())\nfor x in B(): pass\ndef verify(): return K"
    ),
    "property": (
        "K=1\nclass B:\n    @property\n    def p(self):\n        global K\n        K=3\n"
        "b=B()\nx=b.p\ndef verify(): return K"
    ),
    "item by a function": (
        "import operator\nT=[0]\noperator.setitem(T,0,3)\ndef verify(): return T"
    ),
    "exec by another name": ("e=exec\ne('K=2')\ndef verify(): return K"),
    "its own module, taken alone": (
        "from sys import modules\nK=1\nmodules[__name__].K=2\ndef verify(): return K"
    ),
    "frame of the caller": (
        "import inspect\nK=1\ndef f():\n    inspect.currentframe().f_back.f_locals['K']=2\n"
        "f()\ndef verify(): return K"
    ),
    "names of a function's module": ("K=1\ndef verify(): return K\nverify.__globals__['K']=2"),
    "attribute by a subclass": (
        "class A:\n    k=[]\nclass B(A): pass\nB.k.append(3)\ndef verify(): return A.k"
    ),
    "else of a loop": ("K=1\nfor i in []:\n    pass\nelse:\n    K=2\ndef verify(): return K"),
    "counter of two loops": (
        "T=[]\nfor i in range(3): T.append(i)\nfor i in range(7): pass\ndef f(): return i\n"
        "def verify(): return T,f()"
    ),
    "seed": ("from random import seed, random\nseed(3)\ndef verify(): return random()"),
    "dispatched": (
        "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n"
        "@f.register\ndef _(x: int): return 1\ndef verify(): return f(3)"
    ),
    "function with a memory": (
        "from functools import lru_cache\nC=0\n@lru_cache\ndef f(x):\n    global C\n"
        "    C+=1\n    return C\nf(1)\nf(2)\ndef verify(): return f(3)"
    ),
    "alias in an attribute of a function": (
        "T=[]\ndef f(): pass\nf.t=T\nf.t.append(1)\ndef verify(): return T"
    ),
    "functions by a loop": (
        "F=[]\nfor i in range(3):\n    def f(i=i): return i\n    F.append(f)\n"
        "def verify(): return [g() for g in F]+[f()]"
    ),
    "star before a builtin of its own": (
        "from elsewhere import *\ndef f(): return max(1,2)\ndef max(*a): return 'm'\n"
        "def verify(): return f()"
    ),
}

#: What a file does that cannot be known, and on which line.
REFUSED = {
    "optional import": (
        "try:\n    import elsewhere\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "def verify(): return HAS",
        2,
    ),
    "optional import, whatever is raised": (
        "try:\n    from .near import f\nexcept:\n    def f(): return 1\ndef verify(): return f()",
        2,
    ),
    "optional import by a function": (
        "def has():\n    try:\n        import elsewhere\n    except ImportError:\n"
        "        return False\n    return True\nHAS = has()\ndef verify(): return HAS",
        3,
    ),
    "asked for": (
        "from importlib.util import find_spec\nHAS = find_spec('elsewhere') is not None\n"
        "def verify(): return HAS",
        2,
    ),
    "asked for by a function": (
        "import importlib\ndef has():\n    return importlib.util.find_spec('elsewhere')\n"
        "HAS = has() is not None\ndef verify(): return HAS",
        4,
    ),
    "imported": ("from elsewhere import thing\ndef verify(): return thing()", 1),
    "imported for a base": ("import elsewhere\nclass verify(elsewhere.Base): pass", 1),
    "decorator": ("import elsewhere\n@elsewhere.register\ndef verify(): return 1", 1),
    "decorator that may call": (
        "import elsewhere\nK = 1\n@elsewhere.call\ndef f():\n    global K\n    K = 2\n"
        "def verify(): return K",
        1,
    ),
    "handed over": ("import elsewhere\nT = []\nelsewhere.fill(T)\ndef verify(): return T", 1),
    "function handed over": (
        "from elsewhere import double\ndef verify(): return 1\nverify = double(verify)",
        1,
    ),
    "attribute from elsewhere": (
        "import elsewhere\nclass Box:\n    k = 1\nBox.k = elsewhere.thing\n"
        "def verify(): return Box.k",
        1,
    ),
    "table of others": (
        "import elsewhere\nT = {}\nT['a'] = elsewhere.thing\nT['b'] = 1\n"
        "def verify(): return T['b']",
        1,
    ),
    "star": ("from elsewhere import *\ndef verify(): return max(1, 2)", 1),
    "star by condition": (
        "if True:\n    from elsewhere import *\ndef verify(): return max(1, 2)",
        2,
    ),
    "star in between": (
        "from elsewhere import *\nK = max(1, 2)\ndef max(*a): return 0\ndef verify(): return K",
        1,
    ),
    "exec in a file with others": (
        "import elsewhere\nexec('K = elsewhere.thing')\ndef verify(): return K",
        1,
    ),
    "raises": ("T = []\nfor i in range(3):\n    T[i] = i\ndef verify(): return T", 3),
    "stops": ("import sys\nK = 1\nif K:\n    K = 2\n    sys.exit(2)\ndef verify(): return K", 5),
    "annotation that is evaluated": (
        (
            "T=[]\ndef r(n):\n    T.append(n)\n    return int\ndef g(x: r('a')): pass\n"
            "def verify(): return T"
        ),
        5,
    ),
    "annotations that are read": (
        (
            "T={}\ndef reg(f):\n    T.update(f.__annotations__)\n    return f\n@reg\n"
            "def g(x: int): pass\ndef verify(): return T"
        ),
        6,
    ),
    "called by another package": (
        (
            "import elsewhere\nK=1\ndef setter():\n    global K\n    K=2\n"
            "elsewhere.call(setter)\ndef verify(): return K"
        ),
        1,
    ),
    "alias handed over": (
        ("import elsewhere\nT=[1]\nC={'t':T}\nelsewhere.fill(C['t'])\ndef verify(): return T"),
        1,
    ),
    "condition from elsewhere": (
        ("import elsewhere\nK=1\nif elsewhere.thing:\n    K=2\ndef verify(): return K"),
        1,
    ),
    "instance of a class from elsewhere": (
        (
            "import elsewhere\nK=1\ndef setter():\n    global K\n    K=2\n"
            "class R(elsewhere.Base):\n    def __init__(self): setter()\nr=R()\n"
            "def verify(): return K"
        ),
        1,
    ),
}


class Elsewhere(ModuleType):
    """A package that is there where the file is run, and nowhere else."""

    __all__ = ("Base", "call", "double", "max", "register", "thing")
    __spec__ = importlib.machinery.ModuleSpec("elsewhere", None)
    Base = type("Base", (), {"__init__": lambda self, *a: None})
    thing, Type = staticmethod(lambda: 5), int
    tau = 3

    @staticmethod
    def call(f: Any) -> Any:
        return f() or f

    @staticmethod
    def register(f: Any) -> Any:
        return f

    @staticmethod
    def double(f: Any) -> Any:
        return lambda: 2 * f()

    @staticmethod
    def fill(t: list[int]) -> None:
        t.append(7)

    @staticmethod
    def max(*a: Any) -> str:
        return "from elsewhere"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    settings, precision = np.geterr(), decimal.getcontext().prec
    modules, importing = set(sys.modules), builtins.__import__
    yield
    np.seterr(**settings)
    decimal.getcontext().prec = precision
    for module in (builtins, math):
        vars(module).pop("mine", None)
    assert builtins.__import__ is importing
    assert not {name for name in set(sys.modules) - modules if name.startswith("definitions of")}


def run(path: Path) -> Any:
    """The module that running the file gives, where everything is installed."""
    module = ModuleType("run")
    module.__file__ = str(path)
    sys.modules |= {"run": module, "elsewhere": Elsewhere("elsewhere")}
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules["run"], sys.modules["elsewhere"]
    return module


def written(source: str, folder: Path) -> Path:
    path = folder / "engine.py"
    path.write_text(source, "utf-8")
    return path


@pytest.mark.parametrize("kind", SAME)
def test_what_running_the_file_binds(kind: str, tmp_path: Path) -> None:
    path = written(SAME[kind], tmp_path)
    found = load_definitions(path, "verify").verify()
    assert found == run(path).verify()


@pytest.mark.parametrize("kind", REFUSED)
def test_or_it_is_refused(kind: str, tmp_path: Path) -> None:
    source, line = REFUSED[kind]
    with pytest.raises(InvalidInput, match=rf"\bline {line}\b"):
        load_definitions(written(source, tmp_path), "verify")
