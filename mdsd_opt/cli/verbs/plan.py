"""mdsd-opt plan: which tree of drafts accepts most?"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput


@options.gathers_options()
def plan(
    logits: options.LogitFiles = None,
    *,
    kind: options.Kind = None,
    nodes: Annotated[int, "Drafts of the tree, at most."] = 16,
    depth: Annotated[int | None, "Levels, at most; no limit by default."] = None,
    num_drafts: Annotated[int, "Drafts after a node, at most."] = 8,
    cost: Annotated[
        str | None,
        "Milliseconds of a step by its number of drafts, as 1:20,16:22,64:40: then the "
        "plan is for the most tokens a second.",
    ] = None,
    scheme: Annotated[str, "How the drafts of a node are drawn."] = "with_replacement",
    sampling: options.SamplingOptions,
    form: Form,
) -> None:
    """The tree of drafts that accepts most within its size, by rates measured on logits.

    Beside it the forecasts of balanced trees, a sparse one and a chain of the same size. `mdsd-opt
    decode --tree planned16` makes such a plan on the models at hand, and tells what came of it.
    """
    from mdsd_opt.cli.report import plans
    from mdsd_opt.cli.view import present
    from mdsd_opt.decoding import place_rates
    from mdsd_opt.trees import plan_tree

    milliseconds = None if cost is None else parse_cost(cost)
    sample = options.given_sample(logits, kind)
    table = place_rates(
        sample.target, sample.draft, num_drafts, scheme, kind="logits", **asdict(sampling)
    )
    seconds = milliseconds and {n: 1e-3 * took for n, took in milliseconds.items()}
    tree = plan_tree(table, nodes, depth, seconds)
    rows = plans.forecasts(tree, table, depth)
    name = sample.source if logits else Path(sample.source).name
    title = (
        f"{name}: {sample.num_positions} positions, V = {sample.vocab_size:,}\n"
        f"{scheme.replace('_', ' ')}, temperature {sampling.temperature:g}"
    )
    if tree.tokens_per_second is not None:
        title += f"\nplanned: {tree.tokens_per_second:.1f} tokens a second"
    known = {"source": sample.source, "scheme": scheme, "temperature": sampling.temperature}
    present(plans.plan_view(tree, table, rows, title, **known), form)


def parse_cost(text: str, option: str = "--cost", of: str = "drafts") -> dict[int, float]:
    """Milliseconds by a number `of` something: "1:20,16:22" gives 20 for 1 and 22 for 16."""
    table: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*:\s*(\d+\.?\d*|\.\d+)\s*", part)
        if not match or int(match[1]) in table:
            raise InvalidInput(
                f"{option} is {text!r:.60}: give {of} and milliseconds, as 1:20,16:22,64:40, and "
                "each number once"
            )
        table[int(match[1])] = float(match[2])
    return table
