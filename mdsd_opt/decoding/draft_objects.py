"""Drafts that are no language models: heads over the target's hidden states, small vocabularies.

Such a draft is any object with a method ``tree_logits(ids, continuations)``. It may have, too,

token_ids : sequence of int
    The target's tokens that its logits are of, in their order: logits are [n, len(token_ids)], and
    the others are never drafted. A law with zeros is a law like any other: rules stay lossless.
read : callable
    ``read(tokens, features)`` is told the text as the target reads it: the tokens it was not told
    of yet, and the target's hidden states there, [len(tokens), F]. The last token of a text is one
    that the target has not read. A text's first step has no drafts, so that the prompt is read by
    the target alone, once.
features : sequence of int
    Numbers of the hidden states, side by side: 0 is the embedding, n what layer n has made, as in
    the ``hidden_states`` of the transformers library.
begin : callable
    ``begin()`` is called before the first `read` of a text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats, Integers, Text
from mdsd_opt.base.arrays import frozen, to_numpy
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.sampling import checked_softmax
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import MANY_TOKENS
from mdsd_opt.verifiers import draw

if TYPE_CHECKING:
    from mdsd_opt.decoding.models.loading import LoadedModel


#: Sizes of buffers: tokens that are weighed at once, and maxima that are sought side by side.
_BLOCK, _LANES = 1024, 256


def token_ids_of(draft: Any) -> Integers | None:
    """Ids of the tokens that a draft has, None for all; `InvalidInput` for what is no ids."""
    raw = getattr(draft, "token_ids", None)
    if raw is None:
        return None
    ids = np.asarray(raw)
    if ids.ndim != 1 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
        raise InvalidInput(
            f"token_ids of the draft are {ids.dtype} of shape {ids.shape}: give token ids in a row"
        )
    if ids.min() < 0 or np.unique(ids).size < ids.size:
        raise InvalidInput("token_ids of the draft are negative or repeat: give different ids")
    return ids.astype(np.int64)


def spread(own: Any, token_ids: Integers | None, vocab_size: int) -> Any:
    """Logits [n, V] from a tensor of a draft's own [n, len(token_ids)], -inf elsewhere.

    `InvalidInput` for rows of another length than the ids, or ids that the target does not have.
    """
    if token_ids is None:
        return own
    if own.shape[-1] != token_ids.size or token_ids.max() >= vocab_size:
        raise _unfit(own.shape[-1], token_ids, vocab_size)
    import torch

    whole = own.new_full((len(own), vocab_size), -torch.inf)
    return whole.index_copy_(1, torch.as_tensor(token_ids, device=own.device), own)


def _unfit(num_logits: int, token_ids: Integers, vocab_size: int) -> InvalidInput:
    return InvalidInput(
        f"the draft gives {num_logits:,} logits for {token_ids.size:,} token_ids up to "
        f"{token_ids.max():,}, and the target has {vocab_size:,} tokens: these must fit"
    )


def _is_read_at_once(logits: NDArray[Any], temperature: float = 1.0, **filters: Any) -> bool:
    """Whether compiled code reads such rows: long ones, unless filters need all tokens."""
    return logits.shape[-1] >= MANY_TOKENS and (
        temperature == 0 or not set(filters.values()) - {None, False}
    )


class OwnTokens:
    """Draft's own tokens, numbered from 0, and one token for all that it does not have.

    What is never drafted is one token to a verifier: a rule that is lossless for the sum of its
    probabilities stays so if the token is then drawn from p among all of them. So laws are as short
    as the draft's.
    """

    def __init__(self, token_ids: Integers) -> None:
        self._ids, self._names = token_ids, token_ids.tolist()
        order = np.argsort(token_ids)
        self._ascending = token_ids[order], order
        every = np.arange(token_ids.size)
        self._every = every, every
        self._room = np.empty((2, _BLOCK))
        self._others: Integers = np.empty(0, np.int64)
        self._vocab_size = 0

    def of_draft(self, own: Floats) -> Floats:
        """Laws of the draft, [n, S], with a zero for the others, and for what is below 1e-300."""
        if own.shape[-1] != self._ids.size:
            raise _unfit(own.shape[-1], self._ids, self._vocab_size)
        laws = np.zeros((len(own), self._ids.size + 1))
        laws[:, :-1] = np.where(own < SMALLEST_PROBABILITY, 0.0, own)
        return laws

    def of_target(self, law: Floats) -> Floats:
        """Law (V,) of the target as probabilities of own tokens and of all others, (S + 1,).

        It uses up what it is given.
        """
        self._fit(law.size)
        masses = np.empty(self._ids.size + 1)
        masses[:-1] = law[self._ids]
        law[self._ids] = 0.0
        masses[-1] = law.sum()
        return masses

    def draft_laws(self, logits: NDArray[Any], **sampling: Any) -> Floats:
        """Result of `of_draft` on the softmax of logits, [n, S]."""
        laws = np.empty((len(logits), self._ids.size + 1))
        if logits.shape[-1] == self._ids.size and _is_read_at_once(logits, **sampling):
            pairs = zip(logits, laws, strict=True)
            if all(self._masses(row, self._every, law, **sampling) for row, law in pairs):
                return laws
        return self.of_draft(checked_softmax(logits, **sampling))

    def target_law(self, row: NDArray[Any], **sampling: Any) -> Floats:
        """Result of `of_target` on the softmax of a row of logits, shape (V,)."""
        if _is_read_at_once(row, **sampling):
            self._fit(row.size)
            law = np.empty(self._ids.size + 1)
            if self._masses(row, self._ascending, law, **sampling):
                return law
        return self.of_target(checked_softmax(row, **sampling))

    def _masses(
        self, row: NDArray[Any], tokens: tuple[Integers, Integers], masses: Floats,
        temperature: float = 1.0, **_: Any,
    ) -> bool:  # fmt: skip
        """Write the softmax of a row at some tokens, and the sum of it at all others.

        The tokens are in ascending order, and have each its place. False where the row has no law,
        of which `softmax` then says why.
        """
        from mdsd_opt.decoding.own_tokens_kernels import own_masses

        dtype = np.float32 if np.can_cast(row.dtype, np.float32) else np.float64
        row = frozen(np.ascontiguousarray(row, dtype).view())  # one kind of array
        if temperature == 0:
            best, (ids, places) = row.argmax(), tokens
            n = int(ids.searchsorted(best))
            masses[...] = 0.0
            masses[places[n] if n < ids.size and ids[n] == best else -1] = 1.0
            return bool(np.isfinite(row[best]))
        scale = math.log2(math.e) / temperature
        return bool(own_masses(row, scale, *tokens, np.empty(_LANES, dtype), self._room, masses))

    def _fit(self, vocab_size: int) -> None:
        """Use this as the size of the target's vocabulary."""
        if vocab_size == self._vocab_size:
            return
        if self._ids.max() >= vocab_size:
            raise _unfit(self._ids.size, self._ids, vocab_size)
        self._vocab_size = vocab_size
        missing = np.ones(vocab_size, np.bool_)
        missing[self._ids] = False
        self._others = np.flatnonzero(missing)

    def ids(self, drafts: Text) -> Text:
        """The target's ids of some drafts."""
        return tuple([self._names[token] for token in drafts])

    def has(self, token: int) -> bool:
        """Whether a token is the draft's own."""
        return token < len(self._names)

    def other(self, law: Floats, uniform: float) -> int:
        """A token that the draft does not have, drawn in proportion to a law, shape (V,)."""
        return int(self._others[draw(law[self._others], uniform)])


class FeatureFeed:
    """Passes the target's hidden states of a text to a draft, as far as it has been read."""

    def __init__(self, target: Any, draft: Any) -> None:
        self.reads = hasattr(draft, "read")
        self.waits = self.reads or token_ids_of(draft) is not None
        if not self.reads:
            return
        if not hasattr(target, "hidden_states"):
            raise InvalidInput(
                f"the draft reads hidden states, and {type(target).__name__} shows none: give a "
                "TreeModel as target"
            )
        self._target, self._draft = target, draft
        self._num_told = self._told_of = 0
        target.keep_hidden_states(tuple(getattr(draft, "features", ())))
        if hasattr(draft, "begin"):
            draft.begin()

    def tell(self, text: Sequence[int]) -> None:
        """Let the draft read what is new, once a step, before it is asked for drafts."""
        if not self.reads or self._told_of == len(text):
            return
        self._told_of = len(text)
        states = self._target.hidden_states(text, self._num_told)
        if len(states):
            known = self._num_told + len(states)
            self._draft.read(tuple(text[self._num_told : known]), states)
            self._num_told = known


class ReadDraft:
    """Laws of a draft object after each token of a text, as while it decodes: for captures.

    Where it reads the target's hidden states, it is told those of all tokens but the last; after a
    text of one token, where it would not be asked yet, it says nothing: all its tokens are alike.
    """

    def __init__(self, target: LoadedModel, draft: Any, name: str) -> None:
        self.vocab_size, self.context_length = target.vocab_size, target.context_length
        self.identity = {"model": name}
        self._target, self._draft = target, draft
        token_ids = token_ids_of(draft)
        self._token_ids = np.arange(self.vocab_size) if token_ids is None else token_ids

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> NDArray[Any]:
        """Logits after each of the prefixes that end at `rows`, ascending; [len(rows), V]."""
        import torch

        from mdsd_opt.decoding.models.tree_pass import TreeModel

        model = TreeModel(self._target)
        feed = FeatureFeed(model, self._draft)
        if feed.reads:
            model.tree_tensor(list(ids), [()])
        logits = np.empty((len(rows), self.vocab_size), np.float32)
        for n, row in enumerate(rows):
            feed.tell(ids[:row])
            if feed.reads and row == 0:
                own = torch.zeros(1, self._token_ids.size)
            else:
                own = torch.as_tensor(self._draft.tree_logits(ids[: row + 1], [()]))
            logits[n] = to_numpy(spread(own, self._token_ids, self.vocab_size))[0]
        return logits
