"""mdsd-opt advise: do drafts pay, and which? By logits, a log, or models that are measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

import typer

from mdsd_opt import corpora, decoding, formats, planning, plots
from mdsd_opt.base.files import check_writable
from mdsd_opt.base.frames import Result, Table
from mdsd_opt.cli import options
from mdsd_opt.cli.commands import Kinds
from mdsd_opt.cli.output import remark, say
from mdsd_opt.cli.signatures import Given, given, parse_cost, parse_numbers
from mdsd_opt.cli.view import Drawing, Form, Section, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.formats import AcceptedCounts, Run
    from mdsd_opt.planning import Advice, CountAdvice, ModelAdvice, PassCost, StepCosts

#: Most seconds between two readings of metrics.
_LONGEST_WATCH = 86400

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_TOTALS = re.compile(r"(\d+)\s*/\s*(\d+)")
_POSITIONS = re.compile(rf"({_NUMBER}(?:\s*,\s*{_NUMBER})+)(?:\s*/\s*({_NUMBER}))?")
_MEAN = re.compile(_NUMBER)

Context = Annotated[int | None, "Tokens before a pass, where --costs or --measure has several."]


@dataclass(frozen=True)
class Advised(Form):
    """Forms of an advice."""

    every: Annotated[bool, typer.Option("--all", help="Show all rows, not the five best.")] = False


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Costs of a step: milliseconds, or a file of them."""

    target_ms: Annotated[
        str | None,
        "Milliseconds of a target pass, or by the texts decoded together, as 1:20,32:40; of logits "
        "20 if left out.",
    ] = None
    draft_ms: Annotated[
        str | None,
        "The same of a draft pass; of logits 2 if left out. Of several drafts 2/1/.5, one each.",
    ] = None
    rows_ms: Annotated[
        str | None,
        "Milliseconds of a target pass by its rows, as 1:20,8:21,64:40; the same for any "
        "number of rows if left out. A tree of n drafts is n + 1 rows for each text.",
    ] = None
    costs: Annotated[
        Path | None, "A file that advise models --measure wrote, in place of milliseconds."
    ] = None
    context: Context = None

    def at(self, batch: int, beside: Given) -> dict[str, Any]:
        """Milliseconds as keywords of `StepCosts`, those that are given; or `costs` of the file."""
        by_hand = {
            "target_ms": pass_cost(self.target_ms, "--target-ms"),
            "draft_ms": pass_cost(self.draft_ms, "--draft-ms"),
            "rows_ms": self.rows_ms and parse_cost(self.rows_ms, "--rows-ms", "rows"),
        }
        told = {name: x for name, x in by_hand.items() if x is not None}
        if self.costs is None:
            if self.context is not None:
                raise InvalidInput("--context goes with --costs or --measure")
            return told | beside
        if told:
            raise InvalidInput("--costs has the milliseconds: leave --target-ms and others out")
        return {"costs": planning.read_costs(self.costs).at(batch, self.context, **beside)}


AnyAdvice = TypeVar("AnyAdvice")


@dataclass(frozen=True)
class Sourced(Result, Generic[AnyAdvice]):
    """What is told of an advice, and what it is by: files, or two models."""

    source: str | list[str]
    advice: AnyAdvice

    columns: ClassVar[Sequence[str]] = ("source", "*advice")


@dataclass(frozen=True)
class AtBatch(Result):
    """An advice by counts, at one batch."""

    batch: int
    advice: CountAdvice

    columns: ClassVar = ("batch", "*advice")


@dataclass(frozen=True)
class OfCounts(Sourced["CountAdvice"]):
    """What is told of an advice by counts; of several batches by each."""

    advice: CountAdvice
    batches: list[AtBatch] = field(default_factory=list)

    columns: ClassVar = ("source", "*advice", "batches?")


def log(
    accepted: Annotated[
        list[str],
        "What an engine wrote of a run, and perhaps of another without drafts, which is then "
        "compared: logs, metrics, saved answers or streams, as of vLLM or llama.cpp, told apart by "
        "content (of another file an error lists all that are known), gzipped or not; - for "
        "standard input, or the address of /metrics, which is read twice. Or numbers: 1093/1717 "
        "accepted of drafted, 720,500,340/1000 by position of steps, .72,.5,.34 the same as "
        "shares, 2.56 tokens a step.",
    ],
    *,
    watch: Annotated[
        float | None, "With an address of /metrics: seconds between its two readings; else 10."
    ] = None,
    asked: Given = given("planning:advise_from_counts", "depth speedup max_drafts confidence"),
    prices: Prices,
    beside: Given = given("planning:StepCosts", "verify_ms draft_passes"),
    batch: Annotated[
        str | None,
        "Texts that are decoded together, perhaps several, as 1,16,64; of a run's own costs as "
        "many as in most of its steps, else one.",
    ] = None,
    form: Advised,
) -> None:
    """By what an engine wrote of a run: how many drafts a step should have, and whether they pay.

    Costs that are not given are those of the run itself and of one without drafts.
    """
    if watch is not None and not 0 < watch <= _LONGEST_WATCH:
        raise InvalidInput(f"--watch is {watch}: give seconds above 0, up to {_LONGEST_WATCH}")
    batches = [1] if batch is None else parse_numbers(batch, "--batch", 10**6)
    depth, run = asked.pop("depth", None), None
    source = " and ".join(accepted)
    by_batch = []
    for size in batches:
        own = prices.at(size, beside) | ({"batch": size} if batch else {})
        run = run or _run([_with_scheme(x) for x in accepted], depth, watch)
        by_batch.append(planning.advice_of_run(run, **asked, **own))
    first = by_batch[0]
    each = [*zip(batches, by_batch, strict=True)]
    sentences, document = first.sentences, OfCounts(source, first)
    if len(each) > 1:
        sentences = [*(f"Batch {n}: {x.sentence}" for n, x in each), *sentences[1:]]
        document = replace(document, batches=[*starmap(AtBatch, each)])
    title = source if first.costs is None else f"{source}; {first.costs.told}"
    if not first.counts.forced:
        first = replace(first, notes=(*first.notes, first.better_verifier))
    shows = (
        "Speed-up over plain decoding by the drafts of a step; full points were counted, open "
        "ones are forecasts; bars span chance and all assumptions."
    )
    drawing = Drawing(lambda: plots.chains_figure(first), shows, "Speed-up by the drafts of a step")
    present(_view(first, title, sentences, document, drawing, form), form)


def logits(
    logits: options.LogitFiles = None,
    *,
    prices: Prices,
    beside: Given = given("planning:StepCosts", "verify_ms draft_passes batch_size=batch"),
    schemes: options.Schemes = options.SCHEMES,
    asked: Given = given("planning:advise", "max_drafts verifier"),
    sampling: Given = options.SAMPLING,
    kind: Given = options.KIND,
    scoring: Given = options.SCORING,
    form: Advised,
    progress: options.Progress = None,
) -> None:
    """By logits of both models: which scheme and tree bring most tokens, and whether they pay.

    Beside the best: plain decoding, drafts one by one, and every scheme's best tree. The files may
    be the target's and those of several drafts, or LOGITS a folder of shards.
    """
    from mdsd_opt.data import sample_logits_path

    files, names = logits or [sample_logits_path()], options.parse_schemes(schemes)
    own = (prices.draft_ms or "2").split("/")
    if len(own) not in (1, max(len(files) - 1, 1)):
        raise InvalidInput(
            f"--draft-ms has {len(own)} costs, and the number of drafts is {max(len(files) - 1, 1)}"
        )
    rule, *rules = options.parse_verifiers(asked["verifier"])
    if rules:
        raise InvalidInput(f"--verifier is {asked['verifier']!r:.60}: give one")
    batch = beside.pop("batch_size")
    priced = replace(prices, draft_ms=prices.draft_ms and own[0]).at(batch, beside)
    costs = priced.get("costs") or planning.StepCosts(**priced, batch_size=batch)
    common = {**scoring, **sampling, "progress": bool(progress)}
    if len(files) > 2:
        options.refuse("several drafts have the optimum: leave {name} out", "verifier")
        view = _of_drafts(files, costs, own, names, asked["max_drafts"], **kind, **common)
        present(view, form)
        return
    advice = planning.advise(
        files, schemes=names, verifier=rule, max_drafts=asked["max_drafts"],
        kind=kind.get("kind") if logits else "logits", **_keywords(costs), **common,
    )  # fmt: skip
    source = " and ".join(map(str, logits or [])) or files[0].name
    title = f"{source}; temperature {sampling['temperature']:g}, {costs.told}"
    present(_advice_view(advice, title, source, form), form)


def models(
    *,
    target: options.Target,
    draft: Annotated[str | None, "The same, or skip:14,18 for the target without layers."] = None,
    prompts: options.Prompts = None,
    prompt: options.Prompt = None,
    asked: Given = given("planning:advise_models", "num_tokens=tokens max_drafts rng=seed"),
    confidence: Given = given("planning:advise", "confidence"),
    schemes: options.Schemes = options.SCHEMES,
    loading: Given = given("decoding:load_model", "dtype=precision device"),
    sampling: Given = options.SAMPLING,
    measure: Annotated[
        Path | None, "Time passes alone, and write them to this file, for --costs."
    ] = None,
    context: Context = None,
    form: Advised,
) -> None:
    """By two models: passes are measured, and the tree that is advised is tried out.

    The texts are the target's own continuations of the prompts. What came of the tree stands beside
    the forecast.
    """
    if measure is not None:
        _write_costs(measure, target, draft, context, loading)
        return
    if draft is None or not (prompt or prompts):
        raise InvalidInput("--target goes with --draft, and with --prompt or --prompts")
    if context is not None:
        raise InvalidInput("--context goes with --measure")
    texts = [*(prompt or []), *(corpora.read_prompts(prompts) if prompts is not None else [])]
    big, small = decoding.load_pair(target, draft, **loading)
    first, second = decoding.TreeModel(big), decoding.TreeModel(small, vocab_size=big.vocab_size)
    ids = [big.encode(text) for text in texts]
    decoding.require_room(first, second, ids)
    advice = planning.advise_models(
        first, second, ids, tell=remark, schemes=options.parse_schemes(schemes),
        **asked, **confidence, **sampling,
    )  # fmt: skip
    title = f"{target} and {draft}; temperature {sampling['temperature']:g}"
    present(_advice_view(advice, title, [target, draft], form), form)


def _advice_view(advice: Advice | ModelAdvice, title: str, source: Any, form: Advised) -> View:
    """View of an advice by logits, of files or of models."""
    found: Any = getattr(advice, "advice", advice)
    told = f"{found.tree.name} is {found.best.in_words}"
    shows = (
        "Speed-up over plain decoding at the same costs, with intervals over texts; above one is "
        "faster."
    )
    drawing = Drawing(lambda: plots.advice_figure(found), shows, "Speed-up over plain decoding")
    told_by = Sourced(source, advice)
    return _view(advice, title, [*advice.sentences, told], told_by, drawing, form)


def _view(
    advice: Advice | CountAdvice | ModelAdvice, title: str, sentences: Sequence[str],
    document: Result, drawing: Drawing, form: Advised,
) -> View:  # fmt: skip
    """The decision, the options, what it rests on, and flags of engines."""
    first, *others = advice.tables()
    first = replace(first, title=f"{title}\n{first.title}", most=0 if form.every else first.most)
    notes = [(f"note {n}", note) for n, note in enumerate(advice.notes, start=1)]
    tables: list[Section | Table] = [first, *others, Section("What is assumed", values=notes)]
    tables += [Section("Flags", values=[*advice.flags.items()])] if advice.flags else []
    return View(
        f"Do drafts pay?\n{title}", tables, sentences, document, drawing, decides=True,
        rows=document.to_dict()["rows"],
    )  # fmt: skip


def _of_drafts(
    paths: list[Path], costs: StepCosts, each: list[str], schemes: list[str], max_drafts: int,
    **asked: Any,
) -> View:  # fmt: skip
    """View of several drafts of one target at these costs."""
    from mdsd_opt.cli.verbs.rates import compared, drafts_view

    scheme, *more = ["with_replacement"] if schemes == options.SCHEMES.split(",") else schemes
    if more:
        raise InvalidInput(
            f"--schemes has {1 + len(more)} names: several drafts are compared by one"
        )
    own = [pass_cost(x, "--draft-ms") for x in each] if len(each) > 1 else [costs.draft_ms]
    others = _keywords(costs) | {"max_drafts": max_drafts}
    target_ms, _ = others.pop("target_ms"), others.pop("draft_ms")
    comparison = compared(
        paths, [1, 2, 3, 4], scheme, target_ms=target_ms, draft_ms=own, costs=others, **asked
    )
    return drafts_view(comparison, f"{paths[0].name}, {costs.told}")


def _keywords(costs: StepCosts) -> dict[str, Any]:
    return {x.name: getattr(costs, x.name) for x in fields(costs)}


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


def _run(sources: list[str], depth: int | None, watch: float | None) -> Run:
    """Run that files tell of, or numbers."""
    addresses = [x for x in sources if "://" in x]
    if watch is not None and not addresses:
        raise InvalidInput(f"--watch {watch:g} goes with an address of /metrics: give one")
    for name in addresses:
        remark(f"reading {name} twice, {watch or 10.0:g} seconds apart")
    text = sources[0].strip()
    if len(sources) == 1 and not Path(text).exists() and re.fullmatch(r"[\d.,/\s]+", text):
        return formats.Run(_counts_in(text, depth), (), ())
    return formats.read_run(sources, depth, watch or 10.0)


def _with_scheme(name: str) -> str:
    """Address with its scheme, where a name that is no file looks like one."""
    is_one = re.fullmatch(r"[\w.-]+:\d+(/\S*)?", name) and not Path(name).exists()
    return f"http://{name}" if is_one else name


def _counts_in(text: str, depth: int | None) -> AcceptedCounts:
    """Counts in numbers of the forms that the help of the argument has."""
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
                f"{text} accepted: tokens a step are at least 1, with that of the target. "
                "Give shares by position with a comma, as .72,.5"
            )
        return planning.counts_given(float(text) - 1.0, depth=depth, steps=1.0)
    raise InvalidInput(
        f"{text!r:.60}: give a file, 1093/1717, 720,500,340/1000, .72,.5,.34 or 2.56"
    )


def pass_cost(text: str | None, option: str) -> PassCost | None:
    """Milliseconds of a pass, or by texts together, of an option; None where it is not given."""
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


def _write_costs(
    path: Path, target: str, draft: str | None, context: int | None, loading: Given
) -> None:
    """Time the passes of models, and write them to a file."""
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
        f"{drafted}; mdsd-opt advise LOG --costs {path}"
    )


def _chosen(words: list[str], arguments: list[str]) -> list[str]:
    """Words for the kind that arguments are of, or that an option names."""
    plain = [x.removeprefix("--accepted=") for x in words if x != "--accepted"]  # its older word
    if any(x.partition("=")[0] == "--target" for x in words):
        return ["models", *words]
    return ["log" if plain != words or are_counts(arguments) else "logits", *plain]


advise = Kinds(
    "advise",
    {"log": log, "logits": logits, "models": models},
    "Whether drafts are worth it at your costs, and how many, or which tree.\n\nEach kind has "
    "options of its own, as mdsd-opt advise log --help says. Without a kind: files of logits and "
    "folders are logits, other arguments a log, --target is models, and nothing is the bundled "
    "logits.",
    _chosen,
)
