"""TGI: log-probabilities in `details`, asked for with top_n_tokens; the drawn token beside them."""

from __future__ import annotations

from typing import Any

from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.content import holders
from mdsd_opt.formats.format import Format


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """All texts of an answer: that of `details`, and those of `best_of_sequences`."""
    found = holders(record, "top_tokens")
    more = [text for x in found for text in holders(x.get("best_of_sequences"), "top_tokens")]
    return [_listed(x, where) for x in (*found, *more) if isinstance(x.get("tokens"), list)]


def _listed(details: dict[str, Any], where: str) -> Answer:
    tokens = details["tokens"]
    return answer_of(
        where, [int(x["id"]) for x in tokens],
        [[(int(e["id"]), e["logprob"]) for e in row] for row in details["top_tokens"]],
        own=[x.get("logprob") for x in tokens], fields=("top_tokens", "logprob"),
    )  # fmt: skip


FORMATS = (
    Format("TGI's answers", "JSON with 'details' of 'top_tokens' (top_n_tokens)", answers=answers),
)
