"""mdsd-opt rates: how often can the drafts be accepted?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mdsd_opt import corpora, planning, plots
from mdsd_opt.base.frames import Result, Table
from mdsd_opt.cli import options
from mdsd_opt.cli.options import refuse
from mdsd_opt.cli.output import remark
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Drawing, Form, Section, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample
    from mdsd_opt.base.logits import Logits
    from mdsd_opt.corpora import AcceptedRate, RateIntervals, RateRow
    from mdsd_opt.planning import BestFilter, DraftComparison, SchemeComparison

#: Most positions at which schemes are ranked beside a bound: .1 s each at V = 50,000.
_MOST_BOUNDED = 500

_OF_FOLDERS = ("executor", "workers", "address", "verify", "rank_timeout")
_OF_FILES = ("best_temperature", "best_filter", "mask", "lift", "mask_draft")


class FolderForm(Form):
    """Forms of a view, where a folder of --out is for the rates of shards."""

    FOLDER = True


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Question of the user, for any kind of input."""

    paths: Sequence[Path]
    schemes: list[str]
    verifiers: list[str]
    num_drafts: list[int]
    best_temperature: bool
    best_filter: bool
    accepted: str | None
    masks: dict[str, Path]
    mask_draft: bool
    sampling: Given
    kind: str | None
    pad: bool
    vocab_size: int | None
    scoring: Given  # confidence and num_threads
    seed: int
    executor: Given
    form: Form
    progress: bool
    all_schemes: bool  # the schemes are all there are
    usual_schemes: bool  # they are those that are taken if none are named

    @property
    def of_rows(self) -> dict[str, Any]:
        """Options that rows of logits take."""
        return {**self.sampling, "pad": self.pad}


@dataclass(frozen=True, kw_only=True)
class Rates(Result):
    """What is told of the rates of a source, and of what was asked for beside them."""

    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    num_positions: int = 0
    vocab_size: int = 0
    temperature: float = 1.0
    confidence: float = 0.95
    interval_over: str = ""
    mask: str | None = None
    lift: str | None = None
    mask_draft: bool | None = None
    rows: Sequence[RateRow]
    refused: Mapping[str, str]
    comparison: SchemeComparison | None = None
    filters: Sequence[BestFilter] = ()

    columns: ClassVar = (
        "source", "metadata", "num_positions", "vocab_size", "temperature", "confidence",
        "interval_over", "mask?", "lift?", "mask_draft?", "rows", "refused", "comparison?",
        "filters?",
    )  # fmt: skip


@dataclass(frozen=True)
class EngineRates(Result):
    """What is told of an engine's accepted tokens, beside the optimum."""

    source: str
    confidence: float
    accepted: Sequence[AcceptedRate]
    optimal: Sequence[RateRow]


@dataclass(frozen=True)
class OfServers(Result):
    """What is told of the texts of two servers."""

    source: str
    found: RateIntervals
    confidence: float
    interval_over: str = "sequences"

    columns: ClassVar = ("source", "*found", "confidence", "interval_over")


def rates(
    logits: Annotated[
        list[Path] | None,
        "A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
        "perhaps 'sequence' [...], the text of each position, for the intervals (of [B, T, V] "
        "the first axis if left out), 'd2t' or 'draft_token_ids' where the draft has a part "
        "of the tokens; two .npy, .pt or .safetensors files; the target's and those of several "
        "drafts, which are then compared; a folder of shards; or two "
        ".jsonl files with the top-k log-probabilities that vLLM, SGLang or an OpenAI-style "
        "server gave the same texts, for certified intervals; the bundled real logits if "
        "left out.",
    ] = None,
    *,
    schemes: options.Schemes = options.SCHEMES,
    verifiers: options.Verifiers = options.VERIFIERS,
    num_drafts: options.NumDrafts = options.NUM_DRAFTS,
    best_temperature: Annotated[
        bool, "With --schemes all: also the best draft temperature of every position."
    ] = False,
    best_filter: Annotated[
        bool,
        "Also the filter and temperature of the draft that accept most at the largest K, of some "
        "ninety that are tried for each scheme.",
    ] = False,
    sampling: Given = options.SAMPLING,
    rows: Given = given("base.logits:Logits", "kind pad mask_draft"),
    vocab_size: Annotated[int | None, "Of .jsonl files: V, if known."] = None,
    mask: Annotated[
        Path | None,
        "A .npy file of booleans, [V] or one row a position: tokens that a grammar allows.",
    ] = None,
    lift: Annotated[
        Path | None,
        "A .npy file of weights by which the target's probabilities are multiplied, as the "
        "probability that an allowed text follows each token.",
    ] = None,
    accepted: Annotated[
        str | None,
        "What an engine counted by position: a log, metrics or answers; or .jsonl, .npz or .npy "
        "with 'accepted' tokens of each step, 'num_drafts' for a place, perhaps 'depth' (places of "
        "a step) and 'sequence'. Shown beside the optimum if LOGITS are given.",
    ] = None,
    scoring: Given = options.SCORING,
    seed: Given = given("corpora:RatesConfig", "seed"),
    form: FolderForm,
    progress: options.Progress = None,
    executor: Given = given("corpora:corpus_rates", "executor workers address verify rank_timeout"),
) -> None:
    """Acceptance rates of draft schemes and verifiers beside the optimum, averaged over positions.

    Where there is no verifier for a scheme or K, the cell stays empty. Lower bounds are marked.
    Of a folder, --out FOLDER is where the rates of each shard are kept, from which a run that was
    killed goes on; inside the folder if left out.
    """
    masks = {"mask": mask, "lift": lift}
    asked = Asked(
        paths=logits or [], schemes=options.parse_schemes(schemes),
        verifiers=options.parse_verifiers(verifiers), num_drafts=options.parse_counts(num_drafts),
        best_temperature=best_temperature, best_filter=best_filter, accepted=accepted,
        masks={name: path for name, path in masks.items() if path is not None},
        mask_draft=rows["mask_draft"], sampling=sampling, kind=rows.get("kind"), pad=rows["pad"],
        vocab_size=vocab_size, scoring=scoring, seed=seed["seed"], executor=executor, form=form,
        progress=bool(progress), all_schemes=schemes == "all",
        usual_schemes=schemes == options.SCHEMES,
    )  # fmt: skip
    if accepted is not None:
        view: View | None = _of_counts(asked, accepted)
    elif asked.paths and asked.paths[0].name.endswith((".jsonl", ".jsonl.gz")):
        view = _of_servers(asked)
    elif len(asked.paths) > 2:
        view = _of_drafts(asked)
    elif len(asked.paths) == 1 and asked.paths[0].is_dir():
        view = _of_folder(asked)
    else:
        view = _of_files(asked)
    if view is not None:
        present(view, form)


def _of_files(asked: Asked) -> View:
    """View of the rates of one sample of logits; with all schemes these are also ranked."""
    _require_arrays(asked)
    refuse("{name} is for a folder of shards: mdsd-opt rates DIR {name}", *_OF_FOLDERS)
    if asked.form.folder is not None:
        raise InvalidInput("--out is for a folder of shards: mdsd-opt rates DIR --out FOLDER")
    sample = options.stored_sample(asked.paths)
    return _measured_view(
        asked,
        _rows(asked, sample),
        _ranked(asked, sample) if asked.all_schemes else None,
        _best_filters(asked, sample) if asked.best_filter else (),
        source=sample.source,
        metadata=dict(sample.metadata),
        num_positions=sample.num_positions,
        vocab_size=sample.vocab_size,
        interval_over="positions" if sample.texts is None else "sequences",
    )


def _require_arrays(asked: Asked) -> None:
    """Raise if options are given that arrays have no use for."""
    refuse("{name} is for .jsonl files: arrays have it as their last axis", "vocab_size")
    if asked.best_temperature and not asked.all_schemes:
        raise InvalidInput("--best-temperature is for --schemes all")


def _rows(asked: Asked, sample: LogitsSample) -> list[RateRow]:
    """Rates of a sample."""
    from mdsd_opt.base.files.arrays import read_npy

    masks: dict[str, Any] = {name: read_npy(path) for name, path in asked.masks.items()}
    if not masks:
        refuse("{name} goes with --mask or --lift", "mask_draft")
    elif asked.all_schemes:
        raise InvalidInput(f"--{next(iter(masks))} goes without --schemes all: name some schemes")
    else:
        masks["mask_draft"] = asked.mask_draft
    return corpora.rate_rows(
        sample, asked.schemes, asked.num_drafts, asked.verifiers, kind=_kind(asked),
        progress=asked.progress, rng=asked.seed, **asked.scoring, **asked.of_rows, **masks,
    )  # fmt: skip


def _kind(asked: Asked) -> str | None:
    return asked.kind if asked.paths else "logits"


def _ranked(asked: Asked, sample: LogitsSample) -> SchemeComparison:
    """Comparison of draft schemes at the largest number of drafts, the best first."""
    return planning.compare_draft_schemes(
        _pair(asked, sample), asked.num_drafts[-1], best_temperature=asked.best_temperature,
        inclusion=sample.num_positions <= _MOST_BOUNDED, sequence=sample.texts,
        progress=asked.progress, **asked.scoring,
    )  # fmt: skip


def _best_filters(asked: Asked, sample: LogitsSample) -> list[BestFilter]:
    """Best filter of the draft for each scheme, at the largest number of drafts."""
    if asked.masks:
        raise InvalidInput("--best-filter goes without --mask and --lift")
    refuse("--best-filter finds the draft's temperature: leave it out", "draft_temperature")
    return [
        planning.best_draft_filter(
            _pair(asked, sample), asked.num_drafts[-1], scheme, sequence=sample.texts,
            progress=asked.progress, **asked.scoring,
        )
        for scheme in asked.schemes
    ]  # fmt: skip


def _pair(asked: Asked, sample: LogitsSample) -> Logits:
    from mdsd_opt.base.logits import Logits

    return Logits(
        sample.target, sample.draft, kind=_kind(asked), draft_token_ids=sample.draft_token_ids,
        **asked.of_rows,
    )  # fmt: skip


def _measured_view(
    asked: Asked,
    rows: Sequence[RateRow],
    comparison: SchemeComparison | None = None,
    filters: Sequence[BestFilter] = (),
    **known: Any,
) -> View:
    """View of measured rates; `known` is the document's entries on their source."""
    from mdsd_opt.evidence import interval_note

    groups, unit = rows[0].acceptance.num_groups, known.pop("interval_over")
    temperature, confidence = asked.sampling["temperature"], asked.scoring["confidence"]
    masked = "".join(f", {name} {path.name}" for name, path in asked.masks.items())
    masked += " on the target alone" if masked and not asked.mask_draft else ""
    number = known["num_positions"]
    title = (
        f"{number} position{'s' if number != 1 else ''}, V = {known['vocab_size']:,}\n"
        f"temperature {temperature:g}{masked}; {interval_note(groups, unit, confidence)}"
    )
    name = known["source"] if asked.paths else Path(known["source"]).name
    known |= {"temperature": temperature, "confidence": confidence, "interval_over": unit}
    known |= {mask: str(path) for mask, path in asked.masks.items()}
    known |= {"mask_draft": asked.mask_draft} if asked.masks else {}
    refused = corpora.refusals(asked.schemes, asked.verifiers, asked.num_drafts)
    return rates_view(rows, title, refused, comparison, filters, name=name, **known)


def rates_view(
    rows: Sequence[RateRow],
    title: str,
    refused: dict[str, str],
    comparison: SchemeComparison | None = None,
    filters: Sequence[BestFilter] = (),
    *,
    name: str = "",
    **known: Any,
) -> View:
    """View of a source's rates, of verifiers without, and perhaps of ranked schemes and filters.

    The title says what they are of, the name stands before it, but not above a picture, and `known`
    is what else the document says of it.
    """
    named = f"{name}: {title}" if name else title
    tables: list[Section | Table] = [corpora.rates_table(rows, named)]
    if refused:
        tables.append(Section("Left out", values=list(refused.items()), inline=True))
    tables += [] if comparison is None else comparison.tables()
    tables += [table for best in filters for table in best.tables()]
    document = Rates(**known, rows=rows, refused=refused, comparison=comparison, filters=filters)
    drawing = Drawing(
        partial(plots.rates_figure, rows),
        "Mean acceptance rate against the number of drafts; higher is better. Up to three lines of "
        "a panel have their intervals as bands.",
        "Acceptance rate by the number of drafts",
    )
    conclusion = [corpora.rates_conclusion(rows)]
    lines = [row.to_dict() for row in rows]
    return View(f"Acceptance rates of {named}", tables, conclusion, document, drawing, rows=lines)


def _of_counts(asked: Asked, path: str) -> View:
    """View of an engine's accepted tokens, beside the optimum if logits are given."""
    from mdsd_opt.formats import read_counts, read_steps

    if asked.form.plot is not None or any(x.is_dir() or x.suffix == ".jsonl" for x in asked.paths):
        raise InvalidInput("--accepted goes with files of logits, and without a picture")
    refuse("{name} goes without --accepted", "best_filter")
    if not asked.paths:
        refuse("{name} goes with LOGITS", "mask", "lift", "mask_draft")
    steps = None if "://" in path else read_steps(path)
    confidence = asked.scoring["confidence"]
    by_request = steps is not None and "sequence" in steps
    if steps is None:
        counts = read_counts(path)
        by_request = counts.unit == "requests"
        measured = [corpora.rate_of_counts(counts, confidence)]
    else:
        if "num_drafts" not in steps:
            if len(asked.num_drafts) != 1:
                raise InvalidInput(f"{path} does not say num_drafts: give it as --num-drafts")
            steps["num_drafts"] = asked.num_drafts[0]
        measured = corpora.accepted_rates(**steps, confidence=confidence)
    optimal = []
    if asked.paths:
        drafts = [rate.num_drafts for rate in measured]
        of_optimum = replace(asked, verifiers=["optimal"], num_drafts=drafts)
        optimal = _rows(of_optimum, options.stored_sample(asked.paths))
    intervals = (
        f"{100 * confidence:g}% intervals over texts" if by_request
        else "intervals are at least so wide: steps of one text share its rate"
    )  # fmt: skip
    title = f"{path}: how often one of K drafts was accepted\n{intervals}"
    lines = [rate.to_dict() for rate in measured]
    document = EngineRates(path, confidence, measured, optimal)
    tables = [corpora.accepted_table(measured, optimal, title)]
    return View(f"Accepted drafts of {path}", tables, document=document, rows=lines)


def _of_servers(asked: Asked) -> View:
    """View of certified intervals of the optimum, of texts of servers in two files."""
    from mdsd_opt.base.files import file_size

    why = "{name} is not for log-probabilities of servers: they are what the server sampled from, "
    refuse(
        f"{why}or would have", "temperature", "draft_temperature", "top_k", "top_p", "min_p",
        "pad", "kind", "plot", "executor", *_OF_FILES,
    )  # fmt: skip
    if asked.form.folder is not None:
        raise InvalidInput("--out is not for log-probabilities of servers, but as a file")
    if len(asked.paths) != 2:
        raise InvalidInput(
            f"{len(asked.paths)} .jsonl files given: give the target's and the draft's"
        )
    for path in asked.paths:
        file_size(path)  # missing, or no file
    target, draft = asked.paths
    schemes = asked.schemes
    if asked.all_schemes or asked.usual_schemes:
        schemes = ["with_replacement", "without_replacement"]
    confidence = asked.scoring["confidence"]
    found = corpora.rate_intervals(
        target, draft, schemes, asked.num_drafts, asked.vocab_size, confidence, asked.progress
    )
    source = f"{target} and {draft}"
    title = (
        f"{source}: {found.num_positions} positions in {found.num_texts} texts\n"
        f"not listed on average: {found.target_tail:.3g} of the target, "
        f"{found.draft_tail:.3g} of the draft"
    )
    lines = [row.to_dict() for row in found.rows]
    document = OfServers(source, found, confidence)
    tables, conclusion = corpora.intervals_table(found, title), corpora.intervals_conclusion(found)
    return View(f"Acceptance rates of {title}", [tables], [conclusion], document, rows=lines)


def _of_folder(asked: Asked) -> View | None:
    """View of the rates of a corpus; None if another rank of torchrun shows them."""
    _require_arrays(asked)
    refuse("{name} is for files, not for a folder of shards", *_OF_FILES)
    if asked.kind != "logits":
        refuse("{name} is for files: the shards of a folder hold logits", "kind")
    (folder,), executor = asked.paths, asked.executor["executor"]
    if "rank_timeout" in asked.executor and executor != "torchrun":
        raise InvalidInput(f"--rank-timeout is given, and executor {executor!r} has no ranks")
    silent = executor == "torchrun" and corpora.rank() != 0

    def tell(text: str) -> None:
        if not silent:
            remark(text)

    corpus = corpora.open_corpus(folder)
    manifest, num_shards = corpus.manifest, len(corpus.shards)
    if manifest is not None and not manifest.is_complete:
        tell(
            f"the capture of {folder} is not complete: {len(manifest.shards)} of "
            f"{manifest.num_shards} shards are there"
        )
    without = num_shards - len(corpus.sums)
    if manifest is not None and without and asked.executor["verify"]:
        tell(f"{without} of {num_shards} shards have no sum in the manifest to verify")
    columns = asked.schemes, asked.verifiers, asked.num_drafts
    config = corpora.RatesConfig.of(*columns, seed=asked.seed, **asked.of_rows)
    if corpus.stored_rates is not None:
        wanted, config = config, config.within(corpus.stored_rates)
        lacking = len(set(wanted.columns) - set(config.columns))
        if lacking:
            tell(f"{folder} holds rates instead of logits, and lacks {lacking} of those asked for")
    summary = corpora.corpus_rates(
        folder, config, out=asked.form.folder, progress=asked.progress and not silent,
        **asked.executor, **asked.scoring,
    )  # fmt: skip
    if summary.num_reused and corpus.stored_rates is None:
        tell(f"{summary.num_reused} of {summary.num_shards} shards had been scored before")
    if summary.interval_over == "positions":
        tell("the shards name no prompts (array 'sequence'): intervals are over positions")
    if silent:
        return None
    return _measured_view(
        asked,
        summary.rows,
        source=str(folder),
        metadata={} if manifest is None else dict(manifest.settings),
        num_positions=summary.num_positions,
        vocab_size=summary.vocab_size,
        interval_over=summary.interval_over,
    )


def _of_drafts(asked: Asked) -> View:
    """View of the rates of several drafts of one target, with those of two together."""
    if asked.verifiers not in (options.VERIFIERS.split(","), ["optimal"]):
        raise InvalidInput("several drafts are compared by their optimum: leave --verifiers out")
    refuse("{name} goes with one draft", "vocab_size", *_OF_FILES)
    scheme = "with_replacement" if asked.usual_schemes else asked.schemes[0]
    if not asked.usual_schemes and len(asked.schemes) > 1:
        raise InvalidInput("several drafts are compared by one scheme: give one in --schemes")
    found = compared(
        asked.paths, asked.num_drafts, scheme, kind=asked.kind, progress=asked.progress,
        **asked.scoring, **asked.of_rows,
    )  # fmt: skip
    return drafts_view(found, f"{asked.paths[0].name}, {scheme.replace('_', ' ')}")


def compared(
    paths: Sequence[Path], num_drafts: Sequence[int], scheme: str, **options: Any
) -> DraftComparison:
    """Comparison of the drafts in all files but the first, which is the target's."""
    from mdsd_opt.base.files.logits import load_logits

    target, *drafts = paths
    names = [x.stem for x in drafts]
    if len({*names}) < len(names):
        names = [str(x) for x in drafts]
    if len({*names}) < len(names):
        raise InvalidInput("a file of a draft is given twice")
    samples = [load_logits([target, x]) for x in drafts]
    texts = next((x.texts for x in samples if x.texts is not None), None)
    if any(x.draft_token_ids is not None for x in samples):
        raise InvalidInput("drafts with a part of the tokens are compared one by one")
    given = dict(zip(names, (x.draft for x in samples), strict=True))
    if options.get("draft_ms"):
        own = options["draft_ms"] * (len(names) if len(options["draft_ms"]) == 1 else 1)
        options["draft_ms"] = dict(zip(names, own, strict=True))
    return planning.compare_drafts(
        samples[0].target, given, num_drafts, scheme, sequence=texts, **options
    )


def drafts_view(found: DraftComparison, title: str) -> View:
    """View of a comparison of drafts: rates by K, and what each brings at its costs."""
    rates, *others = found.tables()
    tables: list[Section | Table] = [replace(rates, title=f"{title}\n{rates.title}"), *others]
    if batches := found.by_batch:
        told = [(f"batch {batch}", name) for batch, name in batches.items()]
        tables.append(Section("Fastest by batch", values=told))
    return View(
        f"Which draft?\n{title}",
        tables,
        found.sentences,
        found,
        Drawing(
            partial(plots.drafts_figure, found),
            "Optimal acceptance by the number of drafts, with intervals over texts; dashed are two "
            "drafts together.",
            "Optimal acceptance of several drafts",
        ),
        rows=[row.to_dict() for row in found.rates],
    )
