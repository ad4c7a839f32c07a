from . import gumbel as gumbel, race as race
from .base import (
    BatchRates as BatchRates, Verifier as Verifier, batch_verifiers as batch_verifiers,
    draw as draw, get as get, names as names, normalised as normalised,
    positive_part as positive_part, register as register,
)
from .optimal.acceptance_rule import (
    BlockRule as BlockRule, Drawn as Drawn,
    acceptance_probabilities as acceptance_probabilities, block_rule as block_rule,
    masses_left as masses_left, output_token as output_token,
)
from .optimal.acceptance_rule_kernels import (
    block_around as block_around, death_levels as death_levels, fill_side as fill_side,
    spans_of_blocks as spans_of_blocks,
)
from .optimal.grouped_plan import (
    BinMarginal as BinMarginal, BinPlan as BinPlan, bin_marginal as bin_marginal,
)
from .optimal.grouped_plan import BinnedPlan as BinnedPlan
from .optimal.grouped_plan import GroupedPlan as GroupedPlan
from .optimal.grouped_plan import SortedPlan as SortedPlan
from .rejection import accepted as accepted, without as without
from .verdicts import (
    BatchVerdict as BatchVerdict, Decision as Decision, RelaxedProblems as RelaxedProblems,
    RelaxedVerdict as RelaxedVerdict, Uniforms as Uniforms, Verdict as Verdict,
    first_places as first_places,
)
from .worst_case import WORST_CASES as WORST_CASES, WorstCase as WorstCase, worst_case as worst_case
from .worst_case import WorstTree as WorstTree
