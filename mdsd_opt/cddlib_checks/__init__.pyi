from . import cones as cones, prefixes as prefixes, provers as provers
from .checking import (
    check as check, check_condition as check_condition, conjectures as conjectures,
    search as search,
)
from .child import OutOfBudget as OutOfBudget, run_in_child as run_in_child
from .condition import acceptance_polytope as acceptance_polytope
from .double_description import WITNESSES as WITNESSES, available as available, run_with as run_with
from .draft_laws import battery as battery, drafts_for as drafts_for
from .expressions import TextClaim as TextClaim
from .law_proofs import LawProof as LawProof, prove_laws as prove_laws
from .law_search import (
    LawCounterexample as LawCounterexample, LawSearch as LawSearch,
    laws_tried as laws_tried, optimum as optimum,
    optimum_proof as optimum_proof,
    search_laws as search_laws, search_tables as search_tables,
)
from .polyhedra import Polyhedron as Polyhedron
from .claims import Conjecture as Conjecture
from .result import (
    CheckResult as CheckResult, Counterexample as Counterexample, Inequality as Inequality,
)
