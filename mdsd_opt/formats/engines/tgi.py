"""TGI: log-probabilities in `details`, asked for with top_n_tokens; the drawn token beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.content import holders
from mdsd_opt.formats.format import Format


def answers(record: Any, where: str, top: int | None) -> Iterator[Answer]:
    """All texts of an answer: that of `details`, and those of `best_of_sequences`."""
    texts = holders(record, "top_tokens")
    more = [text for x in texts for text in holders(x.get("best_of_sequences"), "top_tokens")]
    for details in (*texts, *more):
        if isinstance(tokens := details.get("tokens"), list):
            rows = [[(int(e["id"]), e["logprob"]) for e in row] for row in details["top_tokens"]]
            yield answer_of(
                where, [int(x["id"]) for x in tokens], rows,
                own=[x.get("logprob") for x in tokens], fields=("top_tokens", "logprob"),
            )  # fmt: skip


FORMATS = (
    Format("TGI's answers", "JSON with 'details' of 'top_tokens' (top_n_tokens)", answers=answers),
)
