"""Views of decoding: the text on the screen as it grows, and rules side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.cli.output import make_table, to_results
from mdsd_opt.cli.view import Section, View
from mdsd_opt.decoding import ComparedRule, Generation, Metrics
from mdsd_opt.evidence import MeanInterval, interval_note, mean_interval

if TYPE_CHECKING:
    from rich.table import Table


_SUBJECT = "rules on the same prompts; accept length, tokens a target call: higher is better"

_MEANINGS = (
    "acceptance rate: steps with a draft accepted; verifier's share: of the time; "
    "-: the rule was refused"
)


def prompts_table(outputs: Sequence[Generation]) -> Table:
    """Table of one line for each prompt, by number."""
    lines = enumerate(outputs, start=1)
    return _metrics_table(("#", "ended by"), (((str(n), x.ended_by), x.metrics) for n, x in lines))


def _metrics_table(
    keys: Sequence[str], lines: Iterable[tuple[tuple[str, ...], Metrics]], title: str | None = None
) -> Table:
    """Table of metrics, each after its key cells."""
    headings = (
        *("tokens", "target\ncalls", "accept\nlength", "acceptance\nrate", "ms a\ntoken"),
        "verifier's\nshare",
    )
    rows = (
        (
            *cells,
            str(metrics.num_tokens),
            str(metrics.num_steps),
            f"{metrics.accept_length:.2f}",
            f"{metrics.first_token_acceptance_rate:.3f}",
            f"{1e3 * metrics.seconds_per_token:.0f}",
            f"{metrics.verify_share:.1%}",
        )
        for cells, metrics in lines
    )
    return make_table(title, (*keys, *headings), rows, words=keys)


def compared_view(
    rows: Sequence[ComparedRule], num_prompts: int, interrupted: bool, forecast: float | None = None
) -> View:
    """View of rules on the same prompts, beside the forecast of the drafts that a step accepts.

    In its document a rule that is refused has its reason, and its results before.
    """
    done = max(len(row.prompts) for row in rows)
    prompts = "1 prompt" if num_prompts == 1 else f"{num_prompts} prompts"
    title = f"{prompts}; {interval_note(done, 'prompts')}"
    if interrupted:
        title += f"; interrupted in prompt {max(done, 1)}: what is done so far"
    if forecast is not None:
        title += f"\nforecast of the accept length: {1.0 + forecast:.2f}"
    document = {
        "num_prompts": num_prompts,
        "interrupted": interrupted,
        "forecast_accepted": forecast,
        "rows": [_entry(row) for row in rows],
    }
    return View(_SUBJECT, [Section(table=_rules_table(rows, title))], [conclusion(rows)], document)


def _entry(row: ComparedRule) -> dict[str, Any]:
    entry: dict[str, Any] = {"rule": row.rule}
    if row.refusal:
        entry["refused"] = row.refusal
    if row.prompts:
        entry |= {
            "accept_length": _over_prompts(row, "accept_length").to_dict(),
            "acceptance_rate": _over_prompts(row, "first_token_acceptance_rate").to_dict(),
            "observed_accepted": _over_prompts(row, "accepted_per_step").to_dict(),
            "total": row.total.to_dict(),
        }
    return entry


def _rules_table(rows: Sequence[ComparedRule], title: str) -> Table:
    """Table of one line for each rule, with the reason if it was refused."""
    headings = ["rule", "accept\nlength", "acceptance\nrate", "ms a\ntoken", "verifier's\nshare"]
    relaxed = any(row.total.kl > 0 for row in rows)
    if relaxed:
        headings.append("KL, nats\na token")
    count = len(headings)
    if any(row.refusal for row in rows):
        headings.append("refused")

    def line(row: ComparedRule) -> list[str]:
        cells, total = [row.rule], row.total
        if row.prompts:
            cells.append(_over_prompts(row, "accept_length").shown)
            cells.append(_over_prompts(row, "first_token_acceptance_rate").shown)
            cells += [f"{1e3 * total.seconds_per_token:.1f}", f"{total.verify_share:.1%}"]
            cells += [f"{total.kl_per_token:.4g}"] if relaxed else []
        cells += ["-"] * (count - len(cells))
        return cells + [row.refusal] * (len(headings) - count)

    table = make_table(
        f"{_SUBJECT}\n{title}",
        headings,
        map(line, rows),
        words=("rule", "refused"),
        caption=_MEANINGS,
    )
    if len(headings) > count:
        table.columns[-1].max_width = 60
    return table


def conclusion(rows: Sequence[ComparedRule]) -> str:
    """Sentence about the rules with the longest steps, and whether others may be as good."""
    done = {row.rule: _over_prompts(row, "accept_length") for row in rows if row.prompts}
    longest = max(done.values(), key=lambda length: length.mean)
    best = [name for name, length in done.items() if length.mean == longest.mean]
    text = f"most tokens a step: {', '.join(best)}, {longest.mean:.2f}"
    if longest.num_groups == 1 and len(done) > 1:
        return f"{text}; one prompt tells no rules apart: give several"
    near = [name for name in done if name not in best and done[name].high >= longest.low]
    if near:
        them = "it" if len(best) == 1 else "them"
        text += f"; not told apart from {them} by these prompts: {', '.join(near)}"
    return text


def _over_prompts(row: ComparedRule, value: str) -> MeanInterval:
    mean = mean_interval(np.array([getattr(metrics, value) for metrics in row.prompts]))
    return mean.within(0.0, 1.0) if value.endswith("rate") else mean


#: Number of prompt tokens that determine how the following ones are written.
_BEFORE = 8


def continuation(
    tokenizer: Any, ids: Sequence[int], tokens: Sequence[int], skip_special_tokens: bool
) -> str:
    """Text that tokens add to a prompt: alone, many tokenizers leave their first space out."""

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
    """Display of text and numbers as they come: in place on a terminal, else the text alone.

    `prompt` is what is shown, `ids` what the models read; the title stands above the numbers.
    """

    def __init__(
        self, prompt: str, ids: Sequence[int], tokenizer: Any, title: str | None = None
    ) -> None:
        self._prompt, self._ids, self._tokenizer, self._title = prompt, ids, tokenizer, title
        self._tokens: list[int] = []
        self._printed = ""
        self._live: Any = None

    @to_results()
    def __enter__(self) -> Screen:
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stdout)  # also for the thread that draws
            self._live = Live(
                console=console, transient=True, refresh_per_second=8, redirect_stderr=False
            )
            self._live.start()
        else:
            print(self._prompt, end="", flush=True)
        return self

    @to_results()
    def __call__(self, tokens: tuple[int, ...], metrics: Metrics) -> None:
        """Show the results of a step."""
        self._tokens += tokens
        text = self._text()
        if self._live is not None:
            from rich.console import Group
            from rich.text import Text

            numbers = _metrics_table((), [((), metrics)], self._title)
            self._live.update(Group(Text(self._prompt + text), numbers))
        elif text.startswith(self._printed) and not text.endswith("\ufffd"):  # a whole letter
            print(text[len(self._printed) :], end="", flush=True)
            self._printed = text

    @to_results()
    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            print(self._prompt + self._text(), end="")
        else:
            print(self._text()[len(self._printed) :], end="")
        print(flush=True)

    def _text(self) -> str:
        return continuation(self._tokenizer, self._ids, self._tokens, skip_special_tokens=True)
