"""mdsd-opt audit tree: a rule that accepts several drafts of a tree at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli.audits.common import Audited, Limits, Scheme, scheme_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A rule, and the trees it is given."""

    tree: Annotated[str, "A rule for trees, or module:function with (root, rng) -> tokens."]
    shape: Annotated[str, "Of the tree: drafts x depth, chain2, ..."] = "2x2"
    scheme: Scheme = "with_replacement"
    limits: Limits


def run(options: Options) -> Audited:
    """Audit of the law of the texts that a rule for trees gives, on laws of all kinds."""
    from mdsd_opt.auditing import audit_portfolio
    from mdsd_opt.decoding import get_rule

    name = options.tree
    rule = loaded(name) if ":" in name else get_rule(name)
    report = audit_portfolio(
        getattr(rule, "verify", rule), options.limits.seed,
        tree=options.shape, scheme=scheme_named(options.scheme), **options.limits.given(),
    )  # fmt: skip
    return Audited.of(report, f"{name}: trees {options.shape}, {options.scheme} drafts")
