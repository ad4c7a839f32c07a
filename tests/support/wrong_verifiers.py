"""The gallery of wrong verifiers, which lives with the examples, for the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FILE = Path(__file__).parents[2] / "examples" / "wrong_verifiers.py"

_spec = importlib.util.spec_from_file_location("wrong_verifiers", _FILE)
assert _spec is not None
assert _spec.loader is not None
module = importlib.util.module_from_spec(_spec)
sys.modules["wrong_verifiers"] = module  # dataclasses look their module up there
_spec.loader.exec_module(module)

WrongVerifier = module.WrongVerifier
faultless = module.faultless
gallery = module.gallery
main = module.main
