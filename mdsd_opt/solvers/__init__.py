"""Solvers for the transport problem, one file each, behind one `solve`.

- `solving`: `solve`, methods by name, a user's own among them, and which of them to take
- `method`: what a solver says of itself, and the budget over which it is refused
- `subset_selection`: the best prefix of an order, at any size; exact arithmetic as well; a good
  subset for different models in a few passes, with `scan_kernels`
- `full_lp`, `dual_lp`, `truncated_lp`: linear programmes, stated in `linear_programmes`, solved by
  `highs_backend` or `cvxpy_backend`; `export` gives them away
- `max_flow`: the same network in integers, by `dinic_kernels`
- `submodular`: no order of the tokens is needed; certified from below
- `frontier`: beyond lossless

To read one, begin with `subset_selection`: all have its shape, a `solve` and a `METHOD`.
"""

import lazy_loader

__all__ = [
    "Found",
    "Method",
    "Status",
    "TransportLP",
    "exact_optimum",
    "get",
    "linear_programme",
    "methods",
    "register",
    "solve",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
