"""mdsd-opt advise --accepted, --costs, --measure: what engines count, and what passes cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import remark
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.formats import AcceptedCounts
    from mdsd_opt.planning import CountAdvice, Pass, PassCost, StepCosts

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_TOTALS = re.compile(r"(\d+)\s*/\s*(\d+)")
_POSITIONS = re.compile(rf"({_NUMBER}(?:\s*,\s*{_NUMBER})+)(?:\s*/\s*({_NUMBER}))?")
_MEAN = re.compile(_NUMBER)


def are_counts(names: Sequence[str]) -> bool:
    """Whether arguments are what an engine wrote: no files of arrays, by their names.

    Raises `InvalidInput` where some are, and some are not.
    """
    known = (".npz", ".npy", ".pt", ".safetensors")
    arrays = [x for x in names if Path(x).suffix in known or Path(x).is_dir()]
    others = [x for x in names if x not in arrays]
    if arrays and others:
        raise InvalidInput(
            f"{arrays[0]} is of logits, and {others[0]} is not: give logits "
            f"({', '.join(known)}), or what an engine wrote"
        )
    return bool(others)


def advice_of_counts(
    sources: Sequence[str],
    depth: int | None,
    prices: Sequence[dict[str, Any]],
    max_drafts: int,
    speedup: float | None,
    confidence: float,
    watch: float | None,
    with_baseline: bool,
) -> list[CountAdvice]:
    """Advice on the counts in files or in numbers, by keywords of costs as of `advice_of_run`."""
    from mdsd_opt.formats import Run, read_run
    from mdsd_opt.planning import advice_of_run

    sources = [_with_scheme(x) for x in sources]
    addresses = [x for x in sources if "://" in x]
    if watch is not None and not addresses:
        raise InvalidInput(f"--watch {watch:g} goes with an address of /metrics: give one")
    for name in addresses:
        remark(f"reading {name} twice, {watch or 10.0:g} seconds apart")
    if with_baseline or addresses:
        run = read_run(sources, depth, watch or 10.0)
    else:
        run = Run(counts_of(sources, depth), (), ())
    asked: dict[str, Any] = {
        "max_drafts": max_drafts, "speedup": speedup, "confidence": confidence,
    }  # fmt: skip
    return [advice_of_run(run, **asked, **own) for own in prices]


def _with_scheme(name: str) -> str:
    """Address with its scheme, where a name that is no file looks like one."""
    is_one = re.fullmatch(r"[\w.-]+:\d+(/\S*)?", name) and not Path(name).exists()
    return f"http://{name}" if is_one else name


def counts_of(accepted: Sequence[str], depth: int | None) -> AcceptedCounts:
    """Counts in files, or in numbers of the forms in the help of --accepted."""
    from mdsd_opt.formats import read_counts
    from mdsd_opt.planning import counts_given

    text = accepted[0].strip()
    if len(accepted) > 1 or Path(text).exists() or not re.fullmatch(r"[\d.,/\s]+", text):
        return read_counts(accepted, depth)
    if match := _TOTALS.fullmatch(text):
        return counts_given(float(match[1]), float(match[2]), depth=depth)
    if match := _POSITIONS.fullmatch(text):
        shares = [float(x) for x in match[1].split(",")]
        steps = None if match[2] is None else float(match[2])
        positions = shares if steps is None else (shares, steps)
        return counts_given(by_position=positions, depth=depth)
    if _MEAN.fullmatch(text):
        if float(text) < 1:
            raise InvalidInput(
                f"--accepted is {text}: tokens a step are at least 1, with that of the target. "
                "Give shares by position with a comma, as .72,.5"
            )
        return counts_given(float(text) - 1.0, depth=depth, steps=1.0)
    raise InvalidInput(
        f"--accepted is {text!r:.60}: give a file, 1093/1717, 720,500,340/1000, .72,.5,.34 or 2.56"
    )


def prices(
    target_ms: str | None,
    draft_ms: str | None,
    rows_ms: str | None,
    verify_ms: float,
    draft_passes: int | None,
) -> dict[str, Any]:
    """Costs of options, as keywords of `advise_from_counts`."""
    from mdsd_opt.cli.verbs.plan import parse_cost

    return {
        "target_ms": pass_cost(target_ms, "--target-ms"),
        "draft_ms": pass_cost(draft_ms, "--draft-ms"),
        "rows_ms": None if rows_ms is None else parse_cost(rows_ms, "--rows-ms", "rows"),
        "verify_ms": verify_ms,
        "draft_passes": draft_passes,
    }


def costs_of_file(
    path: Path | None, batch: int, context: int | None, by_hand: dict[str, Any]
) -> StepCosts | None:
    """Costs of a file that was measured; None without one."""
    from mdsd_opt.planning import read_costs

    if path is None:
        if context is not None:
            raise InvalidInput("--context goes with --costs or --measure")
        return None
    if any(by_hand[name] is not None for name in ("target_ms", "draft_ms", "rows_ms")):
        raise InvalidInput("--costs has the milliseconds: leave --target-ms and others out")
    beside = {name: by_hand[name] for name in ("verify_ms", "draft_passes")}
    return read_costs(path).at(batch, context, **beside)


def pass_cost(text: str | None, option: str) -> PassCost | None:
    """Milliseconds of a pass, or by texts together, of an option; None where it is not given."""
    from mdsd_opt.cli.verbs.plan import parse_cost

    if text is None:
        return None
    if ":" in text:
        return parse_cost(text, option, "texts together")
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(
            f"{option} is {text!r:.60}: give milliseconds, or by texts together, as 1:20,32:40"
        ) from None


def write_costs(
    path: Path,
    target: str | None,
    draft: str | None,
    precision: str,
    device: str,
    context: int | None,
) -> None:
    """Time the passes of models, and write them to a file."""
    from mdsd_opt.base.files import check_writable
    from mdsd_opt.cli.output import remark, say
    from mdsd_opt.planning import measured

    if target is None:
        raise InvalidInput("--measure takes --target, and --draft where there is a draft model")
    check_writable(path)
    if any("://" in x for x in (target, draft or "")):
        raise InvalidInput(
            "--measure times models: of a server, give the log of a run without drafts, too"
        )
    remark("timing passes: about a minute a model")
    sides = _models(target, draft, precision, device, context)
    passes = measured(
        *sides, how="transformers", precision=precision, device=device, target_name=target,
        draft_name=draft,
    )  # fmt: skip
    passes.save(path)
    plain = next(x for x in passes.of_target if x.rows == 1)
    say(
        f"{path}: {len(passes.of_target)} kinds of target passes from {plain.ms:.2f} ms on"
        + (
            f", {len(passes.of_draft)} of the draft from {passes.of_draft[0].ms:.2f}"
            if passes.of_draft
            else ""
        )
        + f"; mdsd-opt advise --accepted LOG --costs {path}"
    )


def _models(
    target: str, draft: str | None, precision: str, device: str, context: int | None
) -> tuple[partial[list[Pass]], partial[list[Pass]] | None]:
    from mdsd_opt.cli.verbs import capture
    from mdsd_opt.decoding import load_model
    from mdsd_opt.planning import time_model

    timed: dict[str, Any] = {} if context is None else {"contexts": (context,)}
    if draft is None:
        big, small = load_model(target, dtype=precision, device=device), None
    else:
        big, small = capture.load_pair(target, draft, precision, device)
    return (
        partial(time_model, big, **timed),
        None if small is None else partial(time_model, small, rows=(1,), **timed),
    )
