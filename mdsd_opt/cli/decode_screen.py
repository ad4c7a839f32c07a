"""A text on the screen as it grows, and where it stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdsd_opt.decoding import Metrics


class Screen:
    """Text and numbers as they come: in place on a terminal, else the text alone.

    Parameters
    ----------
    prompt : str
    tokenizer : transformers.PreTrainedTokenizerBase
    title : str, optional
        Above the numbers.
    """

    def __init__(self, prompt: str, tokenizer: Any, title: str | None = None) -> None:
        self._prompt, self._tokenizer, self._title = prompt, tokenizer, title
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
        text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        if self._live is not None:
            self._live.update(self._panel(self._prompt + text, metrics))
        elif text.startswith(self._printed) and not text.endswith("\ufffd"):  # a whole letter
            print(text[len(self._printed) :], end="", flush=True)
            self._printed = text

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
            print(self._prompt + text, end="")
        print(flush=True)

    def _panel(self, text: str, metrics: Metrics) -> Any:
        from rich.console import Group
        from rich.text import Text

        from mdsd_opt.report.decoding import metrics_cells, metrics_table

        table = metrics_table(title=self._title)
        table.add_row(*metrics_cells(metrics))
        return Group(Text(text), table)
