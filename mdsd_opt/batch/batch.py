"""A batch of logits, opened once: whose arrays they are, and what is asked of every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened, as_logits
from mdsd_opt.batch.job import Job
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

if TYPE_CHECKING:
    from mdsd_opt.gpu.philox import Randomness
    from mdsd_opt.verifiers import BatchVerdict


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Logits of both sides, and what to compute of them.

    Attributes
    ----------
    job : Job
        Scheme, verifier, numbers of drafts, and how probabilities come from logits.
    target, draft : Opened
        As they were given: nothing is copied or converted before it is known where to.
    device : {None, "cpu", "gpu"}
        Where to compute, see `acceptance_rates`.
    """

    job: Job
    target: Opened
    draft: Opened
    device: str | None = None

    @classmethod
    def open(
        cls,
        target_logits: Any,
        draft_logits: Any,
        job: Job,
        device: str | None,
        kind: str | None = None,
    ) -> Batch:
        """Look once at what was given, and take it as `as_logits` says.

        Raises
        ------
        InvalidInput
            No arrays of numbers.
        """
        target = as_logits(Opened.of(target_logits, "target_logits"), kind)
        return cls(job, target, as_logits(Opened.of(draft_logits, "draft_logits"), kind), device)

    @property
    def reference(self) -> Opened:
        """The side in whose library results are handed back."""
        return self.draft if self.target.library == "numpy" else self.target

    @property
    def may_use_a_device(self) -> bool:
        """Whether to ask for one: arrays of NumPy go there on request only."""
        if self.device is None:
            return {self.target.library, self.draft.library} != {"numpy"}
        return self.device == "gpu"

    def rates(self, keep_axis: bool = True) -> Any:
        """Acceptance rates, shape (..., len(num_drafts)); without the last axis on request."""
        if "dask" in (self.target.library, self.draft.library):
            return self._dask_rates(keep_axis)
        if self.may_use_a_device:
            from mdsd_opt.batch.device_rates import Request, device_rates

            found = device_rates(self.target, self.draft, Request.of(self.job), self.device)
            if found is not None:
                return found if keep_axis else found[..., 0]
        rates = self.job.rates(*self.job.rows(self.target, self.draft))
        if not keep_axis:
            rates = rates[..., 0]
        return rates[()] if self.reference.library == "numpy" else self.reference.like(rates)

    def decide(
        self,
        drafts: Opened,
        uniforms: NDArray[np.float64] | None,
        randomness: Randomness,
        with_rates: bool,
        relax: Mapping[str, float] | None = None,
    ) -> BatchVerdict:
        """Output tokens, see `verify_batch`; `uniforms` as rows, in place of `randomness`."""
        if relax is not None and self.device == "gpu":
            raise UnsupportedScheme('there is no kernel for relaxed targets: give device="cpu"')
        if relax is None and self.may_use_a_device:
            from mdsd_opt.batch.device_rates import Request
            from mdsd_opt.batch.device_verification import VerificationRequest, verify_on_device

            request = VerificationRequest(Request.of(self.job), randomness, with_rates)
            found = verify_on_device(
                self.target, self.draft, drafts, uniforms, request, self.device
            )
            if found is not None:
                return found
        from mdsd_opt.batch.decisions import Decisions
        from mdsd_opt.verifiers import BatchVerdict

        rows = self.job.rows(self.target, self.draft)
        decisions = Decisions(self.job, *rows, drafts, relax)
        shape = rows[0].index_shape
        return BatchVerdict(**{
            name: self.reference.like(column.reshape(shape))
            for name, column in decisions.columns(uniforms, randomness, with_rates).items()
        })  # fmt: skip

    def _dask_rates(self, keep_axis: bool) -> Any:
        if self.device == "gpu":
            raise InvalidInput(
                'device="gpu" takes no Dask arrays: call acceptance_rates on their blocks'
            )
        from mdsd_opt.batch.dask_rates import dask_rates

        job = self.job
        if job.num_threads is None:  # Dask runs the blocks in parallel already
            job = replace(job, num_threads=1)
        return dask_rates(job, self.target.array, self.draft.array, keep_axis)
