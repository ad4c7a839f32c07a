"""mdsd-opt advise: do drafts pay, and which?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt import corpora, decoding, formats, planning
from mdsd_opt.base.files import check_writable
from mdsd_opt.cli import options
from mdsd_opt.cli.options import refuse
from mdsd_opt.cli.output import remark, say
from mdsd_opt.cli.signatures import Given, given, parse_numbers
from mdsd_opt.cli.view import Form, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.formats import AcceptedCounts
    from mdsd_opt.planning import CountAdvice, PassCost, StepCosts

#: Most seconds between two readings of metrics.
_LONGEST_WATCH = 86400

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_TOTALS = re.compile(r"(\d+)\s*/\s*(\d+)")
_POSITIONS = re.compile(rf"({_NUMBER}(?:\s*,\s*{_NUMBER})+)(?:\s*/\s*({_NUMBER}))?")
_MEAN = re.compile(_NUMBER)


@dataclass(frozen=True, kw_only=True)
class Models:
    """Models that are measured, and what they write."""

    target: Annotated[
        str | None,
        "With --draft, in place of LOGITS: a model, as of mdsd-opt decode, whose passes "
        "are measured and with which the advice is tried out.",
    ] = None
    draft: Annotated[str | None, "The same, or skip:14,18 for the target without layers."] = None
    prompts: options.Prompts = None
    prompt: Annotated[list[str] | None, "The same, here; may be given several times."] = None


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Costs of a step: milliseconds, or a file of them."""

    target_ms: Annotated[
        str | None,
        "Milliseconds of a target pass, or by the texts decoded together, as 1:20,32:40; "
        "with LOGITS 20 if left out.",
    ] = None
    draft_ms: Annotated[
        str | None,
        "The same of a draft pass; with LOGITS 2 if left out. Of several drafts 2/1/.5, one each.",
    ] = None
    rows_ms: Annotated[
        str | None,
        "Milliseconds of a target pass by its rows, as 1:20,8:21,64:40; the same for any "
        "number of rows if left out. A tree of n drafts is n + 1 rows for each text.",
    ] = None
    costs: Annotated[Path | None, "A file that --measure wrote, in place of milliseconds."] = None
    context: Annotated[
        int | None, "Tokens before a pass: of --costs, if it has several, or of --measure."
    ] = None

    @property
    def are_given(self) -> bool:
        """Whether any milliseconds are."""
        return any(x is not None for x in (self.target_ms, self.draft_ms, self.rows_ms))

    def of(self, draft_ms: str | None) -> dict[str, Any]:
        """Milliseconds, as keywords of `advise_from_counts`, with those of one draft."""
        from mdsd_opt.cli.verbs.plan import parse_cost

        rows_ms = self.rows_ms
        return {
            "target_ms": pass_cost(self.target_ms, "--target-ms"),
            "draft_ms": pass_cost(draft_ms, "--draft-ms"),
            "rows_ms": None if rows_ms is None else parse_cost(rows_ms, "--rows-ms", "rows"),
        }

    def of_file(self, batch: int, beside: dict[str, Any]) -> StepCosts | None:
        """Costs of a file that was measured; None without one."""
        if self.costs is None:
            if self.context is not None:
                raise InvalidInput("--context goes with --costs or --measure")
            return None
        if self.are_given:
            raise InvalidInput("--costs has the milliseconds: leave --target-ms and others out")
        return planning.read_costs(self.costs).at(batch, self.context, **beside)


def advise(
    logits: Annotated[
        list[str] | None,
        "A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
        "perhaps 'sequence' and 'position' [...], two .npy or .pt files, or a folder of "
        "shards; the bundled real logits if left out. Or what an engine wrote of a run, as "
        "of --accepted, and perhaps of another without drafts, which is then compared.",
    ] = None,
    *,
    models: Models,
    tried: Given = given("planning:advise_models", "num_tokens=tokens rng=seed"),
    loading: Given = given("decoding:load_model", "dtype=precision device"),
    accepted: Annotated[
        list[str] | None,
        "What an engine counted: a log, metrics, saved answers or streams, as of vLLM or "
        "llama.cpp, told apart by content (of another file an error lists all that are known), "
        "gzipped or not; - for standard input, or the address of /metrics, which is read twice; "
        "further files behind it. Or numbers: 1093/1717 accepted of drafted, 720,500,340/1000 by "
        "position of steps, .72,.5,.34 the same as shares, 2.56 tokens a step.",
    ] = None,
    watch: Annotated[
        float | None, "With an address of /metrics: seconds between its two readings; else 10."
    ] = None,
    counted: Given = given("planning:advise_from_counts", "depth speedup"),
    num_drafts: Annotated[int | None, typer.Option(hidden=True)] = None,
    prices: Prices,
    measure: Annotated[
        Path | None,
        "Time passes of the models --target and perhaps --draft, and write them to this file.",
    ] = None,
    beside: Given = given("planning:StepCosts", "verify_ms draft_passes"),
    batch: Annotated[
        str | None,
        "Texts that are decoded together; of a run's own costs, as many as in most of its steps. "
        "else one. With counts several, as 1,16,64.",
    ] = None,
    schemes: Annotated[str, "Draft schemes, separated by commas."] = options.SCHEMES,
    asked: Given = given("planning:advise", "max_drafts verifier"),
    sampling: Given = options.SAMPLING,
    kind: Given = options.KIND,
    scoring: Given = options.SCORING,
    form: Form,
    progress: options.Progress = None,
) -> None:
    """Whether drafts are worth it at your costs, and which scheme and tree bring most tokens.

    Beside the best: plain decoding, drafts one by one, and every scheme's best tree. With --target
    and --draft the costs are measured and the texts the target's own; the tree advised is tried out
    in one call of decoding, and what came of it stands beside the forecast. With --accepted, how
    long chains of drafts should be, by what an engine counted.
    """
    from mdsd_opt.cli.report.advice import advice_view, count_advice_view
    from mdsd_opt.data import sample_logits_path

    if measure is not None:
        write_costs(measure, models, prices.context, loading)
        return
    names = options.parse_schemes(schemes)
    if watch is not None and not 0 < watch <= _LONGEST_WATCH:
        raise InvalidInput(f"--watch is {watch}: give seconds above 0, up to {_LONGEST_WATCH}")
    batches = [1] if batch is None else parse_numbers(batch, "--batch", 10**6)
    if accepted is not None or are_counts(logits or ()):
        refuse(
            "--accepted goes without --kind, models and prompts",
            "target", "draft", "prompts", "prompt", "kind",
        )  # fmt: skip
        refuse(
            "{name} does nothing with counts of an engine: leave it out", "schemes", "verifier",
            "tokens", "seed", "precision", "device", "threads", "temperature", "draft_temperature",
            "top_k", "top_p", "min_p", "joint",
        )  # fmt: skip
        if num_drafts is not None:
            remark("--num-drafts of advise is --depth: the old word goes with the next release")
            counted.setdefault("depth", num_drafts)
        sources = [*(accepted or []), *(logits or [])]
        by_hand = prices.of(prices.draft_ms) | beside
        own: list[dict[str, Any]] = [
            by_hand | {"costs": prices.of_file(size, beside)} | ({"batch": size} if batch else {})
            for size in batches
        ]
        asked_of_counts = {
            "max_drafts": asked["max_drafts"], "speedup": counted.get("speedup"),
            "confidence": scoring["confidence"],
        }  # fmt: skip
        by_batch = advice_of_counts(
            sources, counted.get("depth"), own, watch, accepted is None, asked_of_counts
        )
        present(count_advice_view(by_batch, " and ".join(sources), batches), form)
        return
    refuse("--depth and --speedup go with --accepted or a log", "num_drafts", "depth", "speedup")
    if watch is not None or len(batches) > 1:
        raise InvalidInput("--watch and several of --batch go with what an engine counted")
    if models.target is not None or models.draft is not None:
        asked |= {"schemes": names, "confidence": scoring["confidence"], **tried, **sampling}
        others = (logits, prices.are_given, prices.costs, batches != [1], kind)
        present(_of_models(models, loading, any(others) or beside["verify_ms"], asked), form)
        return
    each = (prices.draft_ms or "2").split("/")
    drafts, (rule, *rules) = (
        max(len(logits or ()) - 1, 1),
        options.parse_verifiers(asked["verifier"]),
    )
    if rules:
        raise InvalidInput(f"--verifier is {asked['verifier']!r:.60}: give one")
    if len(each) not in (1, drafts):
        raise InvalidInput(
            f"--draft-ms has {len(each)} costs, and the number of drafts is {drafts}"
        )
    by_hand = prices.of(prices.draft_ms and each[0]) | beside
    given_costs = {name: x for name, x in by_hand.items() if x is not None}
    price = prices.of_file(batches[0], beside) or planning.StepCosts(
        **given_costs, batch_size=batches[0]
    )
    costs = {
        "rows_ms": price.rows_ms, "verify_ms": price.verify_ms, "batch_size": price.batch_size,
        "draft_passes": price.draft_passes, "max_drafts": asked["max_drafts"],
    }  # fmt: skip
    common = {**scoring, **sampling, "progress": bool(progress)}
    if logits and len(logits) > 2:
        refuse("several drafts have the optimum: leave {name} out", "verifier")
        present(_of_drafts([Path(x) for x in logits], price, each, names, costs, **kind, **common),
                form)  # fmt: skip
        return
    files: list[Any] = logits or [sample_logits_path()]
    advice = planning.advise(
        files, target_ms=price.target_ms, draft_ms=price.draft_ms,
        schemes=names, verifier=rule, kind=kind.get("kind") if logits else "logits", **costs,
        **common,
    )  # fmt: skip
    source = " and ".join(logits or []) or sample_logits_path().name
    title = f"{source}; temperature {sampling['temperature']:g}, {price.told}"
    present(advice_view(advice, title, source=source), form)


def _of_drafts(
    paths: list[Path], price: StepCosts, each: list[str], schemes: list[str],
    costs: dict[str, Any], **asked: Any,
) -> View:  # fmt: skip
    """View of several drafts of one target at these costs."""
    from mdsd_opt.cli.verbs.rates import compared, drafts_view

    scheme, *more = ["with_replacement"] if schemes == options.SCHEMES.split(",") else schemes
    if more:
        raise InvalidInput(
            f"--schemes has {1 + len(more)} names: several drafts are compared by one"
        )
    own = [pass_cost(x, "--draft-ms") for x in each] if len(each) > 1 else [price.draft_ms]
    comparison = compared(
        paths, [1, 2, 3, 4], scheme, target_ms=price.target_ms, draft_ms=own, costs=costs, **asked
    )
    return drafts_view(comparison, f"{paths[0].name}, {price.told}")


def _of_models(models: Models, loading: Given, others: Any, asked: dict[str, Any]) -> View:
    """View of the advice for models that are measured, and of what came of it."""
    from mdsd_opt.cli.report.advice import model_advice_view

    target, draft = models.target, models.draft
    if target is None or draft is None or not (models.prompt or models.prompts) or others:
        raise InvalidInput(
            "--target and --draft go together, with --prompt or --prompts, and without LOGITS, "
            "--kind, --batch and costs, which are measured"
        )
    asked.pop("verifier")
    texts = [*(models.prompt or [])]
    texts += corpora.read_prompts(models.prompts) if models.prompts is not None else []
    big, small = decoding.load_pair(target, draft, **loading)
    pair = decoding.TreeModel(big), decoding.TreeModel(small, vocab_size=big.vocab_size)
    ids = [big.encode(text) for text in texts]
    decoding.require_room(*pair, ids)
    advice = planning.advise_models(*pair, ids, tell=remark, **asked)
    title = f"{target} and {draft}; temperature {asked['temperature']:g}"
    return model_advice_view(advice, title, source=[target, draft])


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
    sources: Sequence[str], depth: int | None, prices: Sequence[dict[str, Any]],
    watch: float | None, with_baseline: bool, asked: dict[str, Any],
) -> list[CountAdvice]:  # fmt: skip
    """Advice on the counts in files or in numbers, by keywords of costs as of `advice_of_run`."""
    sources = [_with_scheme(x) for x in sources]
    addresses = [x for x in sources if "://" in x]
    if watch is not None and not addresses:
        raise InvalidInput(f"--watch {watch:g} goes with an address of /metrics: give one")
    for name in addresses:
        remark(f"reading {name} twice, {watch or 10.0:g} seconds apart")
    if with_baseline or addresses:
        run = formats.read_run(sources, depth, watch or 10.0)
    else:
        run = formats.Run(counts_of(sources, depth), (), ())
    return [planning.advice_of_run(run, **asked, **own) for own in prices]


def _with_scheme(name: str) -> str:
    """Address with its scheme, where a name that is no file looks like one."""
    is_one = re.fullmatch(r"[\w.-]+:\d+(/\S*)?", name) and not Path(name).exists()
    return f"http://{name}" if is_one else name


def counts_of(accepted: Sequence[str], depth: int | None) -> AcceptedCounts:
    """Counts in files, or in numbers of the forms in the help of --accepted."""
    text = accepted[0].strip()
    if len(accepted) > 1 or Path(text).exists() or not re.fullmatch(r"[\d.,/\s]+", text):
        return formats.read_counts(accepted, depth)
    if match := _TOTALS.fullmatch(text):
        return planning.counts_given(float(match[1]), float(match[2]), depth=depth)
    if match := _POSITIONS.fullmatch(text):
        shares = [float(x) for x in match[1].split(",")]
        steps = None if match[2] is None else float(match[2])
        positions = shares if steps is None else (shares, steps)
        return planning.counts_given(by_position=positions, depth=depth)
    if _MEAN.fullmatch(text):
        if float(text) < 1:
            raise InvalidInput(
                f"--accepted is {text}: tokens a step are at least 1, with that of the target. "
                "Give shares by position with a comma, as .72,.5"
            )
        return planning.counts_given(float(text) - 1.0, depth=depth, steps=1.0)
    raise InvalidInput(
        f"--accepted is {text!r:.60}: give a file, 1093/1717, 720,500,340/1000, .72,.5,.34 or 2.56"
    )


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


def write_costs(path: Path, models: Models, context: int | None, loading: Given) -> None:
    """Time the passes of models, and write them to a file."""
    target, draft = models.target, models.draft
    if target is None:
        raise InvalidInput("--measure takes --target, and --draft where there is a draft model")
    check_writable(path)
    if any("://" in x for x in (target, draft or "")):
        raise InvalidInput(
            "--measure times models: of a server, give the log of a run without drafts, too"
        )
    remark("timing passes: about a minute a model")
    timed: dict[str, Any] = {} if context is None else {"contexts": (context,)}
    if draft is None:
        big, small = decoding.load_model(target, **loading), None
    else:
        big, small = decoding.load_pair(target, draft, **loading)
    passes = planning.measured(
        partial(planning.time_model, big, **timed),
        None if small is None else partial(planning.time_model, small, rows=(1,), **timed),
        how="transformers", precision=loading["dtype"], device=loading["device"],
        target_name=target, draft_name=draft,
    )  # fmt: skip
    passes.save(path)
    plain = next(x for x in passes.of_target if x.rows == 1)
    of_draft = passes.of_draft
    drafted = f", {len(of_draft)} of the draft from {of_draft[0].ms:.2f}" if of_draft else ""
    say(
        f"{path}: {len(passes.of_target)} kinds of target passes from {plain.ms:.2f} ms on"
        f"{drafted}; mdsd-opt advise --accepted LOG --costs {path}"
    )
