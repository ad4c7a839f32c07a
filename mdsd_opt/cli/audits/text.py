"""mdsd-opt audit text: a function that drafts and verifies by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli.audits.common import Audited, Laws, Library, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A function, and the library of its models."""

    text: Annotated[
        str,
        "module:function with (target, draft) -> tokens, which drafts and verifies by itself; the "
        "models are toys.",
    ]
    library: Library = "numpy"
    laws: Laws
    limits: Limits


def run(options: Options) -> Audited:
    """Audit of the texts that the function writes with toy models."""
    from mdsd_opt.auditing import audit_text

    report = audit_text(
        loaded(options.text), options.limits.seed, library=options.library, **options.laws.given(),
        **options.limits.given("num_texts"),
    )  # fmt: skip
    return Audited.of(report, f"{options.text}: texts of toy models")
