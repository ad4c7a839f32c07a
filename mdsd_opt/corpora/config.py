"""What to compute of every position of a corpus."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from mdsd_opt._version import __version__
from mdsd_opt.base.distributions import check_sampling_parameters
from mdsd_opt.corpora.rates import combinations
from mdsd_opt.errors import InvalidInput, UnreadableFile


class Column(NamedTuple):
    """What one column of scored rates holds."""

    scheme: str
    verifier: str
    num_drafts: int


@dataclass(frozen=True, slots=True)
class RatesConfig:
    """Draft schemes, verifiers, numbers of drafts, and how probabilities come from logits.

    Two configs that are equal give the same numbers, whatever executor computes them; results are
    kept under `digest`, so that those of different configs never mix.

    Attributes
    ----------
    schemes, verifiers : tuple of str
    num_drafts : tuple of int
    temperature, draft_temperature, top_k, top_p, min_p, pad, seed
        As in `mdsd_opt.acceptance_rates`.
    """

    schemes: tuple[str, ...] = ("with_replacement", "without_replacement", "greedy", "top_k")
    verifiers: tuple[str, ...] = ("optimal",)
    num_drafts: tuple[int, ...] = (1, 2, 3, 4)
    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    pad: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for temperature in {self.temperature, self.draft_temperature} - {None}:
            assert temperature is not None
            check_sampling_parameters(temperature, self.top_k, self.top_p, self.min_p)
        combinations(self.schemes, self.verifiers, self.num_drafts)

    @classmethod
    def of(
        cls,
        schemes: Iterable[str],
        verifiers: Iterable[str],
        num_drafts: Iterable[int],
        **options: Any,
    ) -> RatesConfig:
        """Build a config from any iterables; `options` are the other attributes."""
        return replace(cls(tuple(schemes), tuple(verifiers), tuple(num_drafts)), **options)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the scored rates, in order."""
        groups = combinations(self.schemes, self.verifiers, self.num_drafts)
        return tuple(Column(scheme, verifier, k) for scheme, verifier, ks in groups for k in ks)

    @property
    def options(self) -> dict[str, Any]:
        """The attributes that are keyword arguments of `acceptance_rates`."""
        return {field.name: getattr(self, field.name) for field in fields(self)[3:]}

    def within(self, stored: RatesConfig) -> RatesConfig:
        """What of this config is there in rates that were stored under another one.

        Raises
        ------
        InvalidInput
            The probabilities come from the logits in another way, or nothing of it is there.
        """
        for name, value in self.options.items():
            there = getattr(stored, name)
            if value != there and name != "pad":  # stored rows are padded already
                raise InvalidInput(
                    f"{name} is {value}, and the rates were stored with {name} {there}: ask for "
                    "that, or capture again"
                )
        names = ("schemes", "verifiers", "num_drafts")
        common: dict[str, Any] = {
            name: tuple(x for x in getattr(self, name) if x in getattr(stored, name))
            for name in names
        }
        for name, found in common.items():
            if not found:
                there = ", ".join(map(str, getattr(stored, name)))
                raise InvalidInput(f"none of the {name} asked for is stored. There are: {there}.")
        return replace(stored, **common)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that stand for this config and this version of the package."""
        described = json.dumps({**asdict(self), "version": __version__}, sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:16]


#: Where a manifest says it, among its settings.
RATES_KEY = "rates"


def stored_config(settings: Mapping[str, Any]) -> RatesConfig | None:
    """What the shards of a manifest with these settings hold rates of; None if they hold logits."""
    described = settings.get(RATES_KEY)
    if described is None:
        return None
    try:
        values: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in described.items()
        }
        values.pop("version", None)  # of the package that computed them
        return RatesConfig(**values)
    except (AttributeError, TypeError, InvalidInput) as error:
        raise UnreadableFile(f"the manifest has no rates of this version: {error}") from error
