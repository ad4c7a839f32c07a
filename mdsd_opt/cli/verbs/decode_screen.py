"""A text on the screen as it grows, and where it stands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdsd_opt.decoding import Metrics


#: Tokens of the prompt that tell how what follows them is to be written.
_BEFORE = 8


def continuation(
    tokenizer: Any, ids: Sequence[int], tokens: Sequence[int], skip_special_tokens: bool
) -> str:
    """The text that tokens add to a prompt: alone, many tokenizers leave their first space out."""

    def written(tokens: Sequence[int]) -> str:
        text: str = tokenizer.decode(
            list(tokens),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,  # which changes what is on the screen already
        )
        return text

    before = ids[-_BEFORE:]
    return written([*before, *tokens])[len(written(before)) :]


class Screen:
    """Text and numbers as they come: in place on a terminal, else the text alone.

    Parameters
    ----------
    prompt : str
        As it is shown.
    ids : sequence of int
        As the models read it.
    tokenizer : transformers.PreTrainedTokenizerBase
    title : str, optional
        Above the numbers.
    """

    def __init__(
        self, prompt: str, ids: Sequence[int], tokenizer: Any, title: str | None = None
    ) -> None:
        self._prompt, self._ids, self._tokenizer, self._title = prompt, ids, tokenizer, title
        self._tokens: list[int] = []
        self._printed = ""
        self._live: Any = None

    def __enter__(self) -> Screen:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(transient=True, refresh_per_second=8, redirect_stderr=False)
            self._live.start()
        else:
            print(self._prompt, end="", flush=True)
        return self

    def __call__(self, tokens: tuple[int, ...], metrics: Metrics) -> None:
        """After a step."""
        self._tokens += tokens
        text = self._text()
        if self._live is not None:
            self._live.update(self._panel(self._prompt + text, metrics))
        elif text.startswith(self._printed) and not text.endswith("\ufffd"):  # a whole letter
            print(text[len(self._printed) :], end="", flush=True)
            self._printed = text

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            print(self._prompt + self._text(), end="")
        else:
            print(self._text()[len(self._printed) :], end="")
        print(flush=True)

    def _text(self) -> str:
        return continuation(self._tokenizer, self._ids, self._tokens, skip_special_tokens=True)

    def _panel(self, text: str, metrics: Metrics) -> Any:
        from rich.console import Group
        from rich.text import Text

        from mdsd_opt.cli.report.decoding import metrics_cells, metrics_table

        table = metrics_table(title=self._title)
        table.add_row(*metrics_cells(metrics))
        return Group(Text(text), table)
