"""mdsd-opt capture: logits of a target and a draft model, as a corpus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mdsd_opt import corpora, decoding
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.cli import options
from mdsd_opt.cli.output import look_here_for_modules, remark
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import TableForm, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.decoding import LoadedModel


def capture(
    *,
    target: options.Target,
    draft: options.Draft,
    out: Annotated[Path, "Folder for the shards and their manifest."],
    prompts: options.Prompts = None,
    text: Annotated[Path | None, "A text, cut into prompts of --window tokens."] = None,
    window: Annotated[int, "Tokens of each piece of --text."] = 64,
    settings: Given = given(
        "corpora.capture:CaptureSettings",
        "num_tokens=tokens num_positions=positions temperature seed dtype pad",
    ),
    shard_mb: Annotated[float, "Size of a shard in MB, about."] = 256.0,
    model: Given = given("decoding:load_model", "dtype=precision device revision"),
    draft_revision: Annotated[str | None, "Of the draft on the hub."] = None,
    asked: Given = given("corpora.capture:capture", "force num_threads=threads"),
    rates_only: Annotated[
        bool, "Score at once and keep acceptance rates instead of logits."
    ] = False,
    schemes: options.Schemes = options.SCHEMES,
    verifiers: options.Verifiers = options.VERIFIERS,
    num_drafts: options.NumDrafts = options.NUM_DRAFTS,
    sampling: Given = options.SAMPLING,
    as_json: options.AsJson = False,
    progress: options.Progress = None,
) -> None:
    """Continue prompts by the target, and keep the logits of both models at every new token.

    Run the same command again to go on with a capture that was interrupted; it also captures again
    any shard that is missing or damaged.

    With --rates-only nothing but the rates of every position is kept, of --schemes, --verifiers and
    --num-drafts, at --temperature and with the filters given: mdsd-opt rates shows them as it does
    those of stored logits.
    """
    from mdsd_opt.corpora import capture as capturing

    if (prompts is None) == (text is None):
        raise InvalidInput("give either --prompts or --text")
    if not 0 < shard_mb < math.inf:
        raise InvalidInput(f"--shard-mb is {shard_mb:g}: give a positive size")
    look_here_for_modules()
    make_draft = decoding.maker_of_drafts(draft)
    config = None
    if rates_only:
        config = corpora.RatesConfig.of(
            options.parse_schemes(schemes),
            options.parse_verifiers(verifiers),
            options.parse_counts(num_drafts),
            **sampling,
        )
    else:
        options.refuse(
            "{name} is for --rates-only", "schemes", "verifiers", "num_drafts", "threads",
            "draft_temperature", "top_k", "top_p", "min_p", "joint",
        )  # fmt: skip
    # read before the models, which take longer to load
    lines = corpora.read_prompts(prompts) if prompts is not None else []
    whole = capturing.read_text(text) if text is not None else ""
    small: Any
    if make_draft is None:
        big, small = decoding.load_pair(target, draft, draft_revision=draft_revision, **model)
    else:
        big = decoding.load_model(target, **model)
        small = decoding.ReadDraft(big, make_draft(big), draft)
    ids = [big.encode(line) for line in lines] or capturing.windows(big.encode(whole), window)
    chosen = capturing.CaptureSettings(**settings, shard_bytes=int(shard_mb * 1e6))
    _require_room(ids, chosen.num_tokens, big, small)
    try:
        with progress_bar("prompts", len(ids), bool(progress)) as advance:
            manifest = capturing.capture(
                ids, big, small, out, chosen, _description(big, small), progress=advance,
                tell=remark, rates=config, **asked,
            )  # fmt: skip
    except KeyboardInterrupt:
        remark(f"shards that are complete stay in {out}: the same command goes on with them")
        raise
    count = sum(shard.num_positions for shard in manifest.shards)
    sentence = (
        f"{out}: {'rates of ' if rates_only else ''}{count:,} positions of {len(ids)} prompts "
        f"in {len(manifest.shards)} shards, V = {manifest.settings['vocab_size']:,}"
    )
    present(View(conclusion=[sentence], document=manifest.as_json()), TableForm(as_json=as_json))


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

    return {
        "target": target.identity,
        "draft": draft.identity,
        "tokenizer": decoding.tokenizer_identity(target),
        "versions": {
            "mdsd-opt": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
