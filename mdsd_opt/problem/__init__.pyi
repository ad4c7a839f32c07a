from .certificate import (
    Certificate as Certificate, assert_optimal as assert_optimal, certify as certify,
    read_solution as read_solution,
)
from .files import load_problem as load_problem, save_problem as save_problem
from .lower_bounds import inclusion_bound as inclusion_bound
from .lower_bounds import (
    BoxCover as BoxCover, OrderMixture as OrderMixture, TileBound as TileBound,
    tile_bound as tile_bound,
)
from .solution import Found as Found, Solution as Solution, Status as Status
from .solution import (
    PlanBasis as PlanBasis, TransportPlan as TransportPlan,
    clip_to_marginals as clip_to_marginals, feasible_mass as feasible_mass,
    feasible_masses as feasible_masses,
)
from .transport_problem import (
    TransportProblem as TransportProblem, checked_problem as checked_problem,
)
from .water_filling import fill as fill, running_sums as running_sums, water_level as water_level
