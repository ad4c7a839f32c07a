"""Interface of every draft scheme, and of those that one draft model describes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.checked import MAX_SAMPLED, checked_generator, checked_integer, mask, of_kind
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.support_law import SupportLaw, readable
from mdsd_opt.drafts.uniform_intervals import UniformIntervals, masses_in_list
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.prefix_search import BatchRates, RandomDraws

#: Weight of a component of a mixture, and its draft models with the number of draws from each.
IndependentDraws = tuple[Any, list[tuple[Distribution, int]]]

#: A scheme in the form of a file: names and numbers, lists and other entries.
Entry = dict[str, Any]

#: Most draft tuples that are listed for a scheme without a formula of its own.
_MAX_LISTED = 200_000

#: Methods that gave Fractions in earlier versions, with what gives them from ``law(exact=True)``.
_GONE = {
    "exact_containment": "containment(subset)",
    "exact_prefix_containment": "prefix_containment(order)",
    "exact_prefix_order": "prefix_order(masses)",
    "exact_support_law": "support_law().masses()",
    "exact_tuple_law": "tuple_law()",
    "exact_weights": "weights",
    "exact_q": "q",
}
_IN_FRACTIONS = "such as return DraftSetLaw(vocab_size, {(0, 1): Fraction(1)}).law(exact=True)"


class EntryReader(Protocol):
    """A place in a file, whose entries are checked when read; errors name the place.

    ``entry[name]`` is the entry of that name in it, `items` those of a list; `vector` gives an
    array or a list of Fractions; `error` makes what to raise where the place is wrong.
    """

    def __getitem__(self, name: str) -> EntryReader: ...
    def items(self) -> Sequence[EntryReader]: ...
    def integer(self) -> int: ...
    def tokens(self) -> tuple[int, ...]: ...
    def vector(self) -> Any: ...
    def law(self) -> Distribution: ...
    def scheme(self) -> DraftScheme: ...
    def error(self, problem: str) -> Exception: ...


class DraftScheme(ABC):
    """Joint law of the K draft tokens X_1..X_K.

    Attributes
    ----------
    scheme : str
        Name of the scheme, as in files and on the command line.
    title : str
        Name of the scheme as it is written for readers.
    entries : tuple of str
        Entries of the scheme in a file beside its name.
    has_many_models : bool
        Whether each draft comes from a model of its own, with laws of shape (K, V).
    vocab_size : int
    num_drafts : int
        K, the largest number of drafts proposed at once.
    exact : bool
        Whether the numbers of its laws are Fractions, in object arrays, and not float64: of
        containment, prefixes, draft sets, tuples and weights.
    """

    scheme: ClassVar[str]
    title: ClassVar[str] = ""
    entries: ClassVar[tuple[str, ...]] = ()
    has_many_models: ClassVar[bool] = False
    vocab_size: int
    num_drafts: int
    exact: bool = False

    def law(self, exact: bool) -> Self:
        """Same drafts, with their laws in Fractions if `exact`, in float64 if not.

        Numbers given as floats are taken as what their bits say, and divided by their sum.
        """
        return self._fractions if exact and not self.exact else self

    @cached_property
    def _fractions(self) -> Self:
        for name in _GONE:
            if hasattr(type(self), name):
                raise UnsupportedScheme(
                    f"{type(self).__name__}.{name} is not asked any more: define in_fractions() in "
                    f"place of it, {_IN_FRACTIONS}"
                )
        return self.in_fractions()

    def in_fractions(self) -> Any:
        """Scheme of the same drafts whose laws are in Fractions.

        Raises
        ------
        UnsupportedScheme
            There are none, as the class does not define this.
        """
        raise UnsupportedScheme(
            f"{type(self).__name__} has no laws in Fractions (exact=True): define in_fractions(), "
            f"{_IN_FRACTIONS}"
        )

    def _with_fractions(self, **parts: Any) -> Self:
        """Copy in which numbers are Fractions, with these parts, and nothing computed so far."""
        kind = type(self)
        copied = {
            name: part
            for name, part in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }
        result = object.__new__(kind)
        vars(result).update(copied, exact=True, **parts)
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            use = f": use law(exact=True).{_GONE[name]}" if name in _GONE else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{use}")

    def zeros(self, *shape: int) -> Numbers:
        """Array of zeros of the kind of numbers that the laws hold."""
        return np.full(shape, Fraction(0), dtype=object) if self.exact else np.zeros(shape)

    @property
    def models(self) -> tuple[Distribution, ...]:
        """Draft models that determine the scheme together with K; () if it takes more."""
        return ()

    @property
    def random_draws(self) -> RandomDraws | None:
        """K draws at random from one law, if the scheme is of this form, else None."""
        return None

    @property
    def independent_models(self) -> tuple[tuple[Distribution, int], ...] | None:
        """Models of independent drafts, with the number of draws from each; None for other schemes.

        They are in draw order.
        """
        return None

    def independent_laws(self) -> Iterator[Floats] | None:
        """Law of each draft, shape (V,), in draw order; None if the drafts are not independent."""
        models = self.independent_models
        if models is None:
            return None
        return chain.from_iterable(repeat(model.values, count) for model, count in models)

    @property
    def prefix_form(self) -> PrefixDraftScheme | None:
        """The scheme itself, if some order of the tokens has an optimal prefix, else None."""
        return None

    @property
    def always_drafted(self) -> Integers:
        """Tokens that every draft set holds, in order of rank."""
        return np.empty(0, dtype=np.int64)

    @property
    def beside_fixed(self) -> DraftScheme | None:
        r"""Drafts beside tokens that are always drafted; None if there are no others.

        With T these tokens, :math:`\alpha^* = p(T) + \alpha^*_S(p \text{ with } p_T := 0)`, S the
        scheme beside them.
        """
        return self

    @property
    def begins_with_fixed(self) -> bool:
        """Whether the tokens that are always drafted come first, in their order."""
        return self.random_draws is None and self.beside_fixed is not self

    def random_places(self, tokens: Integers) -> Integers:
        """Places of a draft tuple (K,), padded with -1, that hold drafts of `beside_fixed`."""
        fixed = self.always_drafted
        drawn = tokens >= 0
        return np.flatnonzero(drawn & ~np.isin(tokens, fixed) if fixed.size else drawn)

    def mixture_parts(self) -> list[tuple[Any, DraftScheme]]:
        """Schemes of which one is chosen at random, with their probabilities; [] for others."""
        return []

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        """Entry of the scheme in a file.

        Parameters
        ----------
        written : callable
            Makes numbers of a law.

        Raises
        ------
        UnsupportedScheme
            There is no such form.
        """
        raise UnsupportedScheme(f"drafts of type {type(self).__name__} have no file format")

    @classmethod
    def from_entry(cls, entry: EntryReader) -> DraftScheme:
        """Scheme that a file's entry describes."""
        raise UnsupportedScheme(f"drafts of type {cls.__name__} have no file format")

    def containment(self, subset: Any) -> Any:
        r"""Containment probability :math:`Q(H) = \Pr(X_1..X_K \in H)`.

        Parameters
        ----------
        subset : array_like of bool, shape (V,)

        Returns
        -------
        float, or Fraction if `exact`
        """
        contained = self._containment(mask(subset, "subset", self.vocab_size, "tokens"))
        return Fraction(contained) if self.exact else float(contained)

    @abstractmethod
    def _containment(self, subset: Flags) -> Any: ...

    def with_finer_quadrature(self) -> DraftScheme:
        """Same drafts with Q computed from other, finer nodes; themselves if it needs none.

        What both say of Q differs by about the error of the coarser of them.
        """
        return self

    def prefix_containment(self, order: Integers) -> Numbers:
        """Containment Q of every prefix of `order`, the empty one included, (len(order) + 1,)."""
        subset = np.zeros(self.vocab_size, dtype=np.bool_)
        contained = [self._containment(subset)]
        for i in order.tolist():
            subset[i] = True
            contained.append(self._containment(subset))
        return np.array(contained, dtype=object if self.exact else np.float64)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Integers:
        """Draw draft tuples.

        Parameters
        ----------
        rng : numpy.random.Generator
        size : int, optional
            Number of tuples; None for one.

        Returns
        -------
        ndarray of int64, shape (K,) or (size, K)
            Token ids in draw order, padded with -1 where the law drafts fewer than K.
        """
        rows = 1 if size is None else checked_integer(size, "size", 0)
        if rows * self.num_drafts > MAX_SAMPLED:
            raise ProblemTooLarge(
                f"{rows:,} tuples of K={self.num_drafts:,} drafts are over the limit of "
                f"{MAX_SAMPLED:,} tokens: draw fewer at a time"
            )
        drawn = self._sample(checked_generator(rng), rows)
        return drawn[0] if size is None else drawn

    @abstractmethod
    def _sample(self, rng: np.random.Generator, size: int) -> Integers: ...

    def next_law(self, earlier: Integers) -> Floats:
        r"""Law of the next draft, :math:`\Pr(X_{k+1} = \cdot \mid X_1..X_k)`.

        Parameters
        ----------
        earlier : ndarray of int64, shape (k,)
            Drafts that the scheme can have drawn, in draw order, without padding.

        Returns
        -------
        ndarray, shape (V,)
            Sums to the probability that there is a next draft: 0 where drafting ends with these.
        """
        tuples, masses = self._listed()
        matching = (tuples[:, : earlier.size] == earlier).all(axis=1)
        law = np.zeros(self.vocab_size)
        if earlier.size < self.num_drafts and matching.any():
            following = tuples[matching, earlier.size]
            drawn = following >= 0
            np.add.at(law, following[drawn], masses[matching][drawn])
            law /= masses[matching].sum()
        return law

    def is_possible(self, tokens: Integers) -> bool:
        """Whether the draft tuple (K,), padded with -1, has positive probability.

        Schemes that draw a set take its tokens in any order.
        """
        return bool(self.uniform_intervals(tokens[None]).possible[0])

    def _draws(self, tokens: Integers) -> bool:
        """Whether the tuple is possible in this order: `tuple_law` has one order of each set."""
        return self.is_possible(tokens)

    def uniform_intervals(self, tuples: Integers) -> UniformIntervals:
        """Intervals of [0, 1) that the drafts of tuples (N, K), padded with -1, take in their laws.

        By default one choice, of the tuple, out of the listed law.

        Raises
        ------
        UnsupportedScheme
            There are too many tuples to list them.
        """
        listed: dict[tuple[int, ...], float] = {}
        for row, mass in zip(*(x.tolist() for x in self._listed()), strict=True):
            listed[tuple(row)] = listed.get(tuple(row), 0.0) + mass
        place = {row: n for n, row in enumerate(listed)}
        chosen = [place.get(tuple(row), -1) for row in tuples.tolist()]
        return masses_in_list(np.array(list(listed.values())), chosen)

    def _listed(self) -> tuple[NDArray[np.int32], Floats]:
        count = self.count_tuples()
        if count > _MAX_LISTED:
            raise UnsupportedScheme(
                f"the {readable(count)} draft tuples of {self.scheme!r} drafts would have to be "
                f"listed, more than {_MAX_LISTED:,}"
            )
        return self.tuple_law()

    def independent_places(self) -> list[tuple[list[int], Floats]]:
        """Groups of places of the tuple with one law each, all of them drawn independently."""
        return []

    def drafted_mass(self, p: Floats) -> float:
        r"""Expected mass of the drafted tokens, :math:`\sum_i p_i \Pr(i \in \{X_1..X_K\})`.

        Parameters
        ----------
        p : ndarray, shape (V,)
            Any non-negative vector.
        """
        law = self.support_law()
        return float(p[law.tokens] @ law.mass[law.arc_support])

    def propensity(self) -> Floats:
        """Numbers that are larger for tokens that are drafted more often, shape (V,)."""
        law = self.support_law()
        held = law.mass[law.arc_support]
        return np.bincount(law.tokens, weights=held, minlength=self.vocab_size).astype(np.float64)

    def independent_draws(self) -> list[IndependentDraws] | None:
        """Mixture of independent draws that is the scheme; None if there is none."""
        models = self.independent_models
        return None if models is None else [(1, list(models))]

    @abstractmethod
    def count_supports(self) -> tuple[int, int]:
        """Upper bounds on the number of draft sets and of their elements, without listing them."""

    def require_listable(self) -> None:  # noqa: B027  # most laws are as short as their counts
        """Raise `ProblemTooLarge` if `support_law` would take too long to compute."""

    @abstractmethod
    def support_law(self) -> SupportLaw:
        """Law of the draft set, every mass computed without cancellation."""

    def count_tuples(self) -> int:
        """Number of ordered draft tuples that `tuple_law` lists."""
        return self.count_supports()[0]

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        """Law of the ordered tuple: token ids (n, K), padded with -1, and masses (n,).

        In Fractions no tuple stands twice, and none has no mass.

        Schemes without an order list each set once, ascending.
        """
        law = self.support_law()
        tuples = np.full((law.num_supports, self.num_drafts), -1, dtype=np.int32)
        sizes = np.diff(law.offsets)
        column = np.arange(law.num_arcs) - np.repeat(law.offsets[:-1], sizes)
        tuples[law.arc_support, column] = law.tokens
        return tuples, law.mass

    def as_listed(self, tuples: Integers) -> Integers:
        """Draft tuples (N, K) in the form in which `tuple_law` lists them."""
        return tuples

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, num_drafts={self.num_drafts})"


class PrefixDraftScheme(DraftScheme):
    r"""Scheme for which some optimal subset is a prefix of one fixed order of the tokens.

    The order sorts by the ratio of the target to `weights`, ascending; tokens that are always
    drafted come first, tokens that are never drafted are left out. It holds whenever Q is
    w-convex: :math:`[Q(H+x)-Q(H)]/w_x \le [Q(H+x+y)-Q(H+x)]/w_y` [Hu25].
    """

    @property
    @abstractmethod
    def weights(self) -> Numbers:
        """Weights w, shape (V,): within a block of equal ratio, drafts follow w."""

    @property
    def prefix_form(self) -> PrefixDraftScheme:
        return self

    def prefix_order(self, masses: Numbers) -> Integers:
        """Order of the tokens in which prefixes have to be compared.

        Parameters
        ----------
        masses : ndarray, shape (V,)
            The target, or any other non-negative vector to be held against Q, of the same kind of
            numbers as the weights.

        Returns
        -------
        ndarray of int64, shape (n,), n <= V
            Ties keep ascending token ids.
        """
        free = np.flatnonzero(self.weights > 0)
        with np.errstate(over="ignore"):
            ratio = masses[free] / self.weights[free]
        return np.concatenate([self.always_drafted, free[np.argsort(ratio, kind="stable")]])

    def ordered(self, masses: Numbers) -> tuple[Integers, Numbers]:
        """Order of the tokens and Q of its prefixes; exact if the masses are Fractions.

        The masses, shape (V,), are float64, or Fractions in an object array.
        """
        law = self.law(masses.dtype == object)
        order = law.prefix_order(masses)
        return order, law.prefix_containment(order)

    @abstractmethod
    def prefix_containment(self, order: Integers) -> Numbers:
        """Containment Q of every prefix of `order`, the empty one included, (len(order) + 1,)."""

    def prefix_slopes(self, order: Integers) -> Floats:
        """Slopes [Q(H_j) - Q(H_{j-1})] / w_j along `order`, without cancellation, (len(order),).

        Raises
        ------
        UnsupportedScheme
            Some token of the order has no weight.
        """
        raise UnsupportedScheme(f"{self.scheme} drafts have always-drafted tokens without weight")

    def prefix_containment_and_slopes(self, order: Integers) -> tuple[Numbers, Floats]:
        """Results of `prefix_containment` and `prefix_slopes`, in one pass if it finds both."""
        return self.prefix_containment(order), self.prefix_slopes(order)


#: Largest number of drafts: more have no use, and no room in the integers of the kernels.
MAX_NUM_DRAFTS = 2**31 - 1


def checked_num_drafts(num_drafts: Any) -> int:
    """Validate K, an integer or a float that is one."""
    is_whole = isinstance(num_drafts, (float, np.floating)) and num_drafts.is_integer()
    k = checked_integer(int(num_drafts) if is_whole else num_drafts, "num_drafts")
    if k > MAX_NUM_DRAFTS:
        raise InvalidInput(
            f"num_drafts is {Decimal(k):.3g}: give an integer of at most {MAX_NUM_DRAFTS:,}"
        )
    return k


def checked_draft_scheme(drafts: Any, name: str = "drafts") -> DraftScheme:
    """A draft scheme; `InvalidInput` for anything else, such as its law alone."""
    wanted = "a draft scheme such as WithReplacement(q, num_drafts)"
    return of_kind(drafts, DraftScheme, name, wanted)


def inverse_cdf(q: Floats, rng: np.random.Generator, shape: tuple[int, ...]) -> Integers:
    """Draw tokens from q."""
    return tokens_at(q, rng.random(shape))


#: Number of tokens of a block, whose masses are summed before any token is searched.
_BLOCK = 256

#: Most draws that search their block one after another.
_FEW_DRAWS = 16


def tokens_at(law: Floats, uniforms: Any) -> Any:
    """Tokens by inverse CDF of masses (V,); a token of mass zero is never drawn."""
    if law.size <= _BLOCK or np.size(uniforms) > _FEW_DRAWS:
        cumulative = law.cumsum()
        index = cumulative.searchsorted(uniforms * cumulative[-1], side="right")
        return np.minimum(index, cumulative.searchsorted(cumulative[-1]))
    # A running sum waits for every addition; sums of blocks do not, and one block is then enough.
    reached = np.add.reduceat(law, np.arange(0, law.size, _BLOCK)).cumsum()
    aims, tokens = np.asarray(uniforms * reached[-1]), []
    for aim in aims.ravel().tolist():
        block = first_beyond(reached, aim)
        start, before = block * _BLOCK, reached[block - 1] if block else 0.0
        tokens.append(start + first_beyond(law[start : start + _BLOCK].cumsum(), aim - before))
    return np.array(tokens, np.int64).reshape(aims.shape)


def first_beyond(cumulative: Floats, aim: float) -> int:
    """First place whose running sum passes the aim; rounding leads to none of mass zero."""
    index = int(cumulative.searchsorted(aim, side="right"))
    return index if index < cumulative.size else int(cumulative.searchsorted(cumulative[-1]))


@dataclass(frozen=True, slots=True)
class Composition:
    """Composition of K drafts from one q: its likeliest tokens for certain, then draws.

    Attributes
    ----------
    num_random : int or None
        Number of draws, from q without the likeliest tokens, which make up the others of the K
        drafts (ties towards the lowest id); None if all K are drawn.
    is_replaced : bool
        Whether one token can be drawn twice.
    """

    num_random: int | None = None
    is_replaced: bool = False

    @property
    def is_random(self) -> bool:
        """Whether all drafts are drawn at random."""
        return self.num_random is None

    def num_fixed(self, num_drafts: int) -> int:
        """Number of drafts, among K, that are the likeliest tokens."""
        return 0 if self.num_random is None else num_drafts - self.num_random


class SingleModelDrafts(DraftScheme):
    """Scheme that one draft distribution q and K describe.

    Attributes
    ----------
    composition : Composition or None
        Composition of the drafts from q; None if it cannot describe them.
    optimal_kernels : BatchRates or None
        Kernels of the optimal verifier for batches; without it positions are taken one by one.
    model : Distribution
    """

    entries: ClassVar[tuple[str, ...]] = ("q", "num_drafts")
    composition: ClassVar[Composition | None] = None
    optimal_kernels: ClassVar[BatchRates | None] = None
    model: Distribution

    def __init__(self, q: Any, num_drafts: int) -> None:
        self.model = Distribution.of(q, "q")
        self.num_drafts = checked_num_drafts(num_drafts)
        self.vocab_size = self.model.vocab_size

    @classmethod
    def draws_independently(cls) -> bool:
        """Whether all drafts are independent draws from q, as far as the composition says."""
        composition = cls.composition
        return composition is not None and composition.is_random and composition.is_replaced

    @classmethod
    def from_entry(cls, entry: EntryReader) -> Self:
        return cls(entry["q"].law(), entry["num_drafts"].integer())

    @cached_property
    def q(self) -> Numbers:
        return self.model.numbers(self.exact)

    def in_fractions(self) -> Self:
        return self._with_fractions()


class OneDraft(SingleModelDrafts, PrefixDraftScheme):
    """Scheme of K drafts from one draft distribution q, whose ratios p/q order the tokens."""

    @property
    def models(self) -> tuple[Distribution, ...]:
        return (self.model,)

    @cached_property
    def random_draws(self) -> RandomDraws | None:
        composition = self.composition
        if composition is None or not composition.is_random:
            return None
        return RandomDraws(self.q, self.num_drafts, composition.is_replaced)

    def to_entry(self, written: Callable[[Distribution], Any]) -> Entry:
        return {"scheme": self.scheme, "q": written(self.model), "num_drafts": self.num_drafts}

    def propensity(self) -> Floats:
        return self.q

    @property
    def weights(self) -> Numbers:
        return self.q
