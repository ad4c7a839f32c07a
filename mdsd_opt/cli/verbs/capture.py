"""mdsd-opt capture: logits of a target and a draft model, as a corpus."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mdsd_opt.base.installed import loaded as attribute
from mdsd_opt.base.long_runs import token_progress_bar
from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.decoding import LoadedModel


@options.gathers_options()
def capture(
    *,
    target: options.TargetModel,
    draft: Annotated[
        str,
        "The same, skip:14,18 for the target without these decoder layers, or module:function, "
        "which is given the target and makes a draft of its own kind.",
    ],
    out: Annotated[Path, "Folder for the shards and their manifest."],
    prompts: Annotated[Path | None, 'One prompt a line, or .jsonl with the field "prompt".'] = None,
    text: Annotated[Path | None, "A text, cut into prompts of --window tokens."] = None,
    window: Annotated[int, "Tokens of each piece of --text."] = 64,
    tokens: Annotated[
        int, "Tokens the target adds to each prompt; 0: the logits of the prompts."
    ] = 64,
    positions: Annotated[
        int | None, "Evenly spaced positions to keep of each prompt; all if left out."
    ] = None,
    temperature: Annotated[float, "Of the sampling; 0 is greedy."] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling.")] = 0,
    dtype: Annotated[str, "Of the stored logits: bfloat16, float32."] = ("bfloat16"),
    precision: Annotated[str, "The models run in: bfloat16, float16, float32."] = "bfloat16",
    device: Annotated[str, "The models run on: cpu, cuda, ..."] = "cpu",
    revision: Annotated[str | None, "Of the target on the hub."] = None,
    draft_revision: Annotated[str | None, "Of the draft on the hub."] = None,
    pad: Annotated[bool, "Pad the narrower logits with impossible tokens."] = False,
    shard_mb: Annotated[float, "Size of a shard in MB, about."] = 256.0,
    force: Annotated[bool, "Overwrite another capture in the folder."] = False,
    rates_only: Annotated[
        bool, "Score at once and keep acceptance rates instead of logits."
    ] = False,
    schemes: Annotated[
        str | None, "With --rates-only: as of mdsd-opt rates, and so is what is taken if left out."
    ] = None,
    verifiers: Annotated[str | None, "The same."] = None,
    num_drafts: Annotated[str | None, "The same."] = None,
    sampling: options.SamplingOptions,
    threads: options.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
    progress: options.Progress = None,
) -> None:
    """Continue prompts by the target, and keep the logits of both models at every new token.

    Run the same command again to go on with a capture that was interrupted; it also captures again
    any shard that is missing or damaged.

    With --rates-only nothing but the rates of every position is kept, at --temperature and with the
    filters given: mdsd-opt rates shows them as it does those of stored logits.
    """
    from mdsd_opt.cli.output import look_here_for_modules, remark
    from mdsd_opt.cli.view import Form, View, present
    from mdsd_opt.corpora import RatesConfig
    from mdsd_opt.corpora import capture as capturing
    from mdsd_opt.decoding import ReadDraft, load_model

    if (prompts is None) == (text is None):
        raise InvalidInput("give either --prompts or --text")
    if not 0 < shard_mb < math.inf:
        raise InvalidInput(f"--shard-mb is {shard_mb:g}: give a positive size")
    look_here_for_modules()
    make_draft = maker_of_drafts(draft)
    settings = capturing.CaptureSettings(
        tokens, temperature, seed, positions, dtype, pad, int(shard_mb * 1e6)
    )
    named = {"schemes": schemes, "verifiers": verifiers, "num_drafts": num_drafts}
    config = None
    if rates_only:
        config = RatesConfig.of(
            options.parse_schemes(schemes or options.SCHEMES),
            options.parse_verifiers(verifiers or options.VERIFIERS),
            options.parse_counts(num_drafts or options.NUM_DRAFTS),
            **asdict(sampling),
        )
    else:
        others = {name: x for name, x in asdict(sampling).items() if name != "temperature"}
        for name, value in {**named, **others, "threads": threads}.items():
            if value is not None and value is not False:
                raise InvalidInput(f"--{name.replace('_', '-')} is for --rates-only")
    # read before the models, which take longer to load
    lines = capturing.read_prompts(prompts) if prompts is not None else []
    whole = capturing.read_text(text) if text is not None else ""
    small: Any
    if make_draft is None:
        big, small = load_pair(
            target, draft, precision, device, revision=revision, draft_revision=draft_revision
        )
    else:
        big = load_model(target, revision=revision, dtype=precision, device=device)
        small = ReadDraft(big, make_draft(big), draft)
    ids = [big.encode(line) for line in lines] or capturing.windows(big.encode(whole), window)
    _require_room(ids, tokens, big, small)
    try:
        with token_progress_bar("prompts", len(ids), bool(progress)) as advance:
            manifest = capturing.capture(
                ids, big, small, out, settings, _description(big, small), force, advance, remark,
                config, threads,
            )  # fmt: skip
    except KeyboardInterrupt:
        remark(f"shards that are complete stay in {out}: the same command goes on with them")
        raise
    count = sum(shard.num_positions for shard in manifest.shards)
    sentence = (
        f"{out}: {'rates of ' if rates_only else ''}{count:,} positions of {len(ids)} prompts "
        f"in {len(manifest.shards)} shards, V = {manifest.settings['vocab_size']:,}"
    )
    present(View(conclusion=[sentence], document=manifest.as_json()), Form(as_json=as_json))


def _skipped_layers(draft: str) -> list[int]:
    """Layers that --draft skip:14,18 leaves out of the target; empty for another model."""
    if not draft.startswith("skip:"):
        return []
    try:
        return sorted({int(layer) for layer in draft.removeprefix("skip:").split(",")})
    except ValueError:
        raise InvalidInput(
            f"--draft is {draft!r}: give numbers of layers, as in skip:14,18"
        ) from None


def load_pair(
    target: str, draft: str, precision: str, device: str, *, revision: str | None = None,
    draft_revision: str | None = None, attention: str | None = None, packed: bool = False,
) -> tuple[LoadedModel, LoadedModel]:  # fmt: skip
    """Target and draft of one vocabulary; skip:14,18 is the target without these layers."""
    from mdsd_opt.decoding import load_model, require_same_vocabulary, without_layers

    common: dict[str, Any] = {
        "dtype": precision, "device": device, "attention": attention, "packed": packed,
    }  # fmt: skip
    skip = _skipped_layers(draft)
    big = load_model(target, revision=revision, **common)
    if skip:
        return big, without_layers(big, skip)
    small = load_model(draft, revision=draft_revision, **common)
    require_same_vocabulary(big, small)
    return big, small


def maker_of_drafts(draft: str) -> Callable[[LoadedModel], Any] | None:
    """Function that ``module:function`` names; None if the draft is a model."""
    if ":" not in draft or draft.startswith(("skip:", "wheel:")) or Path(draft).exists():
        return None
    maker = attribute(draft)
    if not callable(maker):
        raise InvalidInput(f"{draft} is a {type(maker).__name__}: give a function of the target")
    return cast("Callable[[LoadedModel], Any]", maker)


def _require_room(ids: list[list[int]], tokens: int, target: LoadedModel, draft: Any) -> None:
    longest = max(map(len, ids)) + tokens
    for model in (target, draft):
        if model.context_length is not None and longest > model.context_length:
            raise InvalidInput(
                f"the longest prompt and {tokens} more tokens make {longest}, and "
                f"{model.identity['model']} reads {model.context_length}: shorten the prompts, "
                "--window or --tokens"
            )


def _description(target: LoadedModel, draft: Any) -> dict[str, Any]:
    import torch
    import transformers

    from mdsd_opt._version import __version__
    from mdsd_opt.decoding import tokenizer_identity

    return {
        "target": target.identity,
        "draft": draft.identity,
        "tokenizer": tokenizer_identity(target),
        "versions": {
            "mdsd-opt": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
