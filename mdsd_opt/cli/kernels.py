"""Kernels that each verb may have to compile: those that it calls from Python."""

from __future__ import annotations

_READING = ("weigh_kernels.decode_halves",)
_RATES = (
    *_READING,
    "rates_with_replacement_kernels.rates_of_rows",
    "rates_without_replacement_kernels.rates_of_rows",
    "rates_deterministic_kernels.rates_of_rows",
)
_TREES = ("tree_kernels.best_below",)
_SEARCH = tuple(
    f"ratio_groups_kernels.{name}"
    for name in ("fill_buckets", "sum_buckets", "arrange", "doubt_cut", "open_tokens", "narrow")
)
_DECISIONS = (
    *_SEARCH,
    "ratio_groups_kernels.ratio_keys",
    *(
        f"acceptance_rule_kernels.{name}"
        for name in (
            "death_levels", "fill_groups", "doubt_levels", "block_around", "doubt_block",
            "excess_token",
        )
    ),
)  # fmt: skip
_FRONTIERS = (
    "scan_kernels.smallest_prefix_difference",
    *(f"cost_kernels.{name}" for name in ("build_hull", "rate_at_slope", "point", "rate_within")),
)

#: Names of the kernels by verb, with its usual options.
KERNELS: dict[str, tuple[str, ...]] = {
    "advise": (*_RATES, *_TREES),
    "audit": _DECISIONS,
    "plan": (*_RATES[:2], *_TREES),
    "rates": _RATES,
    "relax": (*_READING, *_FRONTIERS),
    "reproduce": _RATES,
    "solve": _SEARCH,
}
