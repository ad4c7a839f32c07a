"""Claims of the theory, proved or refuted at given sizes in exact rational arithmetic.

Double description (cddlib with GMP, through pycddlib) turns "for every target" into finitely many
vertices, and "for every draft law" into finitely many facets. pycddlib is under the GPL and an
optional extra (``pip install '.[cdd]'`` from a clone); nothing else in the package imports it.

>>> from mdsd_opt import cddlib_checks
>>> cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2).holds
True
"""

import lazy_loader

__all__ = [
    "CheckResult", "Conjecture", "Counterexample", "Inequality", "LawCounterexample", "LawProof",
    "Polyhedron", "TextClaim", "check", "check_condition", "conjectures", "optimum",
    "optimum_proof", "prove_laws", "search", "search_laws", "search_tables",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
