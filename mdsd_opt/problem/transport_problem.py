"""The transport problem: a target and a draft scheme over one vocabulary."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any, Unpack

from mdsd_opt.base.arrays import Numbers
from mdsd_opt.base.checked import of_kind
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    checked_draft_scheme,
    checked_scheme,
    require_exact,
)
from mdsd_opt.errors import InvalidInput


class TransportProblem:
    """A target and a draft scheme over one vocabulary.

    Parameters
    ----------
    target : array_like, shape (V,)
        p. Fractions are kept exactly; a sum within 1e-3 of one is renormalised.
    drafts : DraftScheme
        Law of the draft tuple.

    Attributes
    ----------
    exact : bool
        Whether target and drafts hold Fractions and not float64, see `law`.

    Raises
    ------
    InvalidDistribution
        The target is not a distribution.
    InvalidInput
        Target and drafts have different vocabularies.
    """

    exact = False

    def __init__(self, target: Any, drafts: DraftScheme) -> None:
        self.drafts = checked_draft_scheme(drafts)
        self._target = Distribution.of(target, "target")
        if self._target.vocab_size != drafts.vocab_size:
            raise InvalidInput(
                f"the target has {self._target.vocab_size} tokens and the drafts have "
                f"{drafts.vocab_size}: they must share one vocabulary (from_logits pads the "
                "narrower side with pad=True)"
            )

    @staticmethod
    @of_logits(
        late=(
            *("temperature", "draft_temperature", "top_k", "top_p", "min_p"),
            *("pad", "kind", "draft_token_ids"),
        )
    )
    def from_logits(
        target_logits: Any,
        draft_logits: Any,
        num_drafts: int,
        drafts: str = "with_replacement",
        **options: Unpack[LogitsKeywords],
    ) -> TransportProblem:
        """Problem of one position, from the logits of both models.

        Parameters
        ----------
        target_logits, draft_logits : array_like, shape (V,)
            Or a pair of them, `mdsd_opt.Logits`, as the first argument.
        num_drafts : int
            K.
        drafts : str
            "with_replacement", "without_replacement", "greedy" or "top_k".
        **options
            How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`.
        """
        checked_scheme(drafts)
        pair = Logits.of(target_logits, draft_logits, options)
        for side in (pair.target, pair.draft):
            if len(side.shape) != 1:
                raise InvalidInput(
                    f"{side.name} has shape {side.shape}: give one position, shape (V,); "
                    "acceptance_rates takes whole batches"
                )
        target, draft = pair.placed()
        p = pair.reading.target.law(target, pair.target.name)
        q = pair.reading.draft.law(draft, pair.draft.name)
        return TransportProblem(p, SINGLE_MODEL_SCHEMES[drafts](q, num_drafts))

    def law(self, exact: bool) -> TransportProblem:
        """Same problem, target and drafts in Fractions if `exact`, in float64 if not.

        Raises
        ------
        ProblemTooLarge
            There are too many tokens for Fractions.
        """
        return self._fractions if exact and not self.exact else self

    @cached_property
    def _fractions(self) -> TransportProblem:
        require_exact(self.vocab_size)
        problem = TransportProblem(self._target, self.drafts.law(exact=True))
        problem.exact = True
        return problem

    @cached_property
    def target(self) -> Numbers:
        """Target p, read-only, shape (V,)."""
        return self._target.numbers(self.exact)

    @property
    def target_law(self) -> Distribution:
        """Target with the numbers as they were given."""
        return self._target

    @property
    def exact_target(self) -> tuple[Fraction, ...]:
        """Target as given, in Fractions, divided by their sum; `ProblemTooLarge` for too many."""
        return tuple(self.law(exact=True).target)

    @property
    def vocab_size(self) -> int:
        return self._target.vocab_size

    @property
    def num_drafts(self) -> int:
        return self.drafts.num_drafts

    def cut_value(self, subset: Any) -> Any:
        """Bound 1 + P(H) - Q(H) on the acceptance rate, from above, for every subset H."""
        contained = self.drafts.containment(subset)  # checks the subset
        value = 1 + self.target[subset].sum() - contained
        return value if self.exact else float(value)

    def __repr__(self) -> str:
        return f"TransportProblem(vocab_size={self.vocab_size}, drafts={self.drafts!r})"


def checked_problem(problem: Any) -> TransportProblem:
    """A problem; `InvalidInput` for anything else, such as its target alone."""
    wanted = "mdsd_opt.TransportProblem(target, drafts)"
    return of_kind(problem, TransportProblem, "problem", wanted)
