"""Transport plans: whether they are feasible, and the exact plan behind rounded masses."""
