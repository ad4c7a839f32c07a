"""Arguments of the tree operations: tensors of an engine, checked by shape and type alone.

Nothing here looks at a value, which would wait for the device.
"""

from typing import Any, NamedTuple, Self

from mdsd_opt.base.checked import check_counts
from mdsd_opt.errors import InvalidInput


class TreeArguments(NamedTuple):
    """Arguments of `mdsd_opt.serving.verify_tree`, where each has its section.

    Once they are `checked`, `draft_probs` are rows [R, V]; without `draft_rows`, the children of
    node i of request b have row b N + i.
    """

    predicts: Any
    accept_index: Any
    accept_token_num: Any
    candidates: Any
    retrive_index: Any
    retrive_next_token: Any
    retrive_next_sibling: Any
    uniform_samples: Any
    uniform_samples_for_final_sampling: Any
    target_probs: Any
    draft_probs: Any
    threshold_single: float = 1.0
    threshold_acc: float = 1.0
    deterministic: bool = True
    draft_rows: Any | None = None
    num_drawn: int = 1

    def checked(self) -> Self:
        """Arguments for the kernels; `InvalidInput` if one does not fit the others."""
        if getattr(self.candidates, "ndim", 0) != 2 or 0 in self.candidates.shape:
            raise InvalidInput(
                f"candidates have shape {_shape(self.candidates)}; pass a tensor [bs, N] of token "
                "ids, column 0 of which is the root"
            )
        bs, num_nodes = nodes = tuple(self.candidates.shape)
        laws = (*nodes, _size(self.target_probs, 3))
        trees = ("candidates", "retrive_index", "retrive_next_token", "retrive_next_sibling")
        wanted: dict[str, tuple[str, tuple[int, ...]]] = {
            **dict.fromkeys(trees, ("int64", nodes)),
            "predicts": ("int32", (bs * num_nodes,)),
            "accept_index": ("int32", (bs, _size(self.accept_index, 2))),
            "accept_token_num": ("int32", (bs,)),
            "target_probs": ("float32", laws),
            "draft_probs": ("float32", laws),
            "uniform_samples": ("float32", nodes),
            "uniform_samples_for_final_sampling": ("float32", (bs,)),
        }
        if self.draft_rows is not None:
            wanted["draft_probs"] = "float32", (_size(self.draft_probs, 2, 0), laws[-1])
            wanted["draft_rows"] = "int64", nodes
        for name, (dtype, shape) in wanted.items():
            self.require(name, getattr(self, name), dtype, shape)
        for name in ("threshold_single", "threshold_acc"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise InvalidInput(f"{name} is {value}; it lies in [0, 1], and 1 is lossless")
        check_counts(num_drawn=self.num_drawn)
        return self._replace(
            draft_probs=self.draft_probs.view(-1, laws[-1]),
            threshold_single=float(self.threshold_single),
            threshold_acc=max(float(self.threshold_acc), 1e-9),
        )

    def require(self, name: str, tensor: Any, dtype: str, shape: tuple[int, ...]) -> None:
        """Raise `InvalidInput` unless a tensor is what the operation reads, laid out in order."""
        device = self.candidates.device
        wanted = f"{dtype} {list(shape)} on {device}"
        if not hasattr(tensor, "is_contiguous"):
            kind = type(tensor).__name__
            raise InvalidInput(f"{name} is of {kind}; pass a torch tensor: {wanted}")
        kind = str(tensor.dtype).removeprefix("torch.")
        if tuple(tensor.shape) != shape or kind != dtype or tensor.device != device:
            raise InvalidInput(
                f"{name} is {kind} {_shape(tensor)} on {tensor.device}; pass {wanted}, "
                "as candidates and target_probs have it"
            )
        if not tensor.is_contiguous():
            raise InvalidInput(f"{name} is not contiguous; pass {name}.contiguous()")

    def children(self) -> Any:
        """Children of every node, [bs, N, C], with -1 after the last."""
        import torch

        ranks, child = [], self.retrive_next_token
        for _ in range(max(self.candidates.shape[1] - 1, 1)):
            ranks.append(child)
            sibling = self.retrive_next_sibling.gather(1, child.clamp(min=0))
            child = torch.where(child >= 0, sibling, -1)
        return torch.stack(ranks, -1)


def _size(tensor: Any, ndim: int, axis: int = -1) -> int:
    """Length of an axis, at least 1; also 1 for a tensor with another number of axes."""
    return max(tensor.shape[axis], 1) if getattr(tensor, "ndim", 0) == ndim else 1


def _shape(tensor: Any) -> list[int]:
    return list(getattr(tensor, "shape", ()))
