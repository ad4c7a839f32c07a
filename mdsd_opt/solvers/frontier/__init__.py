"""Laws beyond lossless: the closest to the target among all with a given acceptance rate.

- `curve`: the frontier of a problem, all such laws, from one chain of sets, by `cost_kernels`
- `relaxation`: the law that one budget buys, and distances from the target
- `relaxed_rows`: the same for rows of logits, by `group_kernels`
- `rules`: rules in use that accept more than a lossless one may
"""

from mdsd_opt.solvers.frontier.relaxation import Relaxation, relax

__all__ = ["Relaxation", "relax"]
