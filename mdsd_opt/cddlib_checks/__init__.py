"""Claims of the theory, proved or refuted at given sizes in exact rational arithmetic.

Double description (cddlib with GMP, through pycddlib) turns "for every target" into finitely many
vertices, and "for every draft law" into finitely many facets. pycddlib is under the GPL and an
optional extra (``pip install 'mdsd-opt[cdd]'``); nothing else in the package imports it.

>>> from mdsd_opt import cddlib_checks
>>> cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2).holds
True
"""

from __future__ import annotations

from mdsd_opt.cddlib_checks import registry as registry  # declares the claims
from mdsd_opt.cddlib_checks.checking import check, check_condition, conjectures, search
from mdsd_opt.cddlib_checks.expressions import TextClaim
from mdsd_opt.cddlib_checks.law_search import LawCounterexample, optimum, search_laws
from mdsd_opt.cddlib_checks.registry import Conjecture
from mdsd_opt.cddlib_checks.result import CheckResult, Counterexample, Inequality

__all__ = [
    "CheckResult",
    "Conjecture",
    "Counterexample",
    "Inequality",
    "LawCounterexample",
    "TextClaim",
    "check",
    "check_condition",
    "conjectures",
    "optimum",
    "search",
    "search_laws",
]
