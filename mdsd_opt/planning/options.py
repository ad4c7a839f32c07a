"""Options of decoding with their speed at some costs, and what every advice between them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from mdsd_opt.base.frames import Column, Result, Table, data_frame, flat
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.planning.costs import StepCosts

#: Number of options that people are shown unless they ask for all.
SHOWN = 5

#: Width below which an interval comes from rounding alone.
_NO_WIDTH = 1e-6


@dataclass(frozen=True, slots=True)
class PricedOption:
    """A way to decode, with its speed at some costs.

    Attributes
    ----------
    step_ms, tokens_per_second : float, optional
        Milliseconds of a step and tokens a second of the whole batch; None without costs.
    speedup : MeanInterval
        Speed relative to plain decoding at the same costs. Without costs, the speed where a step is
        as dear as a pass of the target, which is the most that it can be.
    """

    step_ms: float | None
    tokens_per_second: float | None
    speedup: MeanInterval

    @classmethod
    def of(
        cls,
        accepted: MeanInterval,
        costs: StepCosts | None,
        num_drafts: float,
        depth: float | None = None,
        /,
        **own: Any,
    ) -> Self:
        """Option by the drafts that it accepts in a step; `own` are fields of the class itself."""
        ratio, step, per_second = 1.0, None, None
        if costs is not None:
            step = costs.drafted(num_drafts, depth) if num_drafts else costs.plain()
            ratio = costs.plain() / step
            per_second = 1e3 * costs.batch_size * (1.0 + accepted.mean) / step
        mean, low, high = ((1.0 + x) * ratio for x in (accepted.mean, accepted.low, accepted.high))
        return cls(step, per_second, MeanInterval(mean, low, high, accepted.num_groups), **own)

    @property
    def times(self) -> str:
        """Words such as "1.86 times the speed of plain decoding [1.70, 2.02]"."""
        ends = ends_shown(self.speedup.low, self.speedup.high)
        return f"{self.speedup.mean:.2f} times the speed of plain decoding{ends}"

    def brings(self, tokens: float, texts: int) -> str:
        """Words on the tokens of a step and of a second, from all texts, and on the speed."""
        whole = f" from {texts} texts" if texts > 1 else ""
        return (
            f"brings {tokens:.2f} tokens a step, {self.tokens_per_second:.0f} a second{whole}, "
            f"{self.times}"
        )


class Recommendation(Result):
    """The best of several options, with `rows` of all of them, the fastest first."""

    __slots__ = ()
    best: Any
    rows: Sequence[Any]

    @property
    def speedup(self) -> float:
        return float(self.best.speedup.mean)

    @property
    def speedup_interval(self) -> tuple[float, float]:
        return self.best.speedup.low, self.best.speedup.high

    @property
    def sentences(self) -> list[str]:
        """Decision in words, and what goes with it."""
        raise NotImplementedError

    def tables(self) -> list[Table]:
        """Tables, first that of the options."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Data frame with a line for each option; `MissingExtra` without pandas."""
        return data_frame([flat(row.to_dict()) for row in self.rows])

    def __str__(self) -> str:
        """Sentences, and a table with the best rows."""
        return "\n".join([*self.sentences, str(self.tables()[0])])


def speedup_cell(speedup: MeanInterval) -> str:
    """Text of a speed-up with its interval."""
    return f"{speedup.mean:.2f}{ends_shown(speedup.low, speedup.high)}"


def ends_shown(low: float, high: float) -> str:
    """Text of an interval to stand after its mean; empty where it has no width or there is none."""
    return f" [{low:.2f}, {high:.2f}]" if high - low > _NO_WIDTH else ""


#: Columns of what an option takes and brings; milliseconds are empty without costs.
PRICED = (
    Column("step_ms", "ms a\nstep", "{0:.2f}"),
    Column("speedup", "speed-up", speedup_cell),
    Column("tokens_per_second", "tokens\n/ s", "{0:.1f}"),
)


def engine_flags(depth: int, width: int = 1, num_drafts: int | None = None) -> dict[str, str]:
    """Flags that start vLLM, SGLang and llama.cpp with such trees; chains alone have all three.

    Names are those of vLLM 0.33, SGLang 0.5.23 and llama.cpp of October 2026. The draft model is to
    be added. llama.cpp's n-min stays 0: to clear a chain for being short, once it is drawn, is not
    lossless.
    """
    if not depth:
        return {}
    sglang = (
        f"--speculative-num-steps {depth} --speculative-eagle-topk {width} "
        f"--speculative-num-draft-tokens {1 + (num_drafts or depth)}"
    )
    if width > 1:
        return {"SGLang": sglang}
    return {
        "vLLM": f"--speculative-config '{{\"num_speculative_tokens\": {depth}}}'",
        "SGLang": sglang,
        "llama.cpp": f"--spec-draft-n-max {depth} --spec-draft-n-min 0",
    }
