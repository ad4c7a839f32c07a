"""Linear layers for the few rows of a tree of drafts, on a CPU.

PyTorch takes about twice as long for two rows of float32 as for one; oneDNN reads weights that it
has packed beforehand once for all of some ten rows. PyTorch's compiler packs them so, too, when it
freezes a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from mdsd_opt.errors import InvalidInput

#: Number of rows that the packing is for; others are as right.
_ROWS = 8

#: Largest error of a row of a layer, relative to its size: rounding of sums in another order.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


class PackedLinear(torch.nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """Linear layer x W^T + b with packed weights, for inference on a CPU."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
        self.packed = torch.nn.Parameter(packed, requires_grad=False)
        self.bias = layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features

    @property
    def weight(self) -> Any:
        """Matrix W, unpacked each time it is asked for."""
        return self.packed.to_dense()

    def forward(self, rows: Any) -> Any:
        return torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")


def pack_linear_layers(model: torch.nn.Module) -> int:
    """Pack the weights of a model's linear layers, in place; return how many there are.

    Logits stay the same up to the order in which sums are rounded. Weights that are shared, such as
    those of embedding and head, are kept twice.

    Raises
    ------
    InvalidInput
        The model is not on a CPU, runs in float16, or this PyTorch has no such layers.
    """
    layers = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is torch.nn.Linear
    ]
    for _, _, layer in layers:
        if layer.weight.device.type != "cpu" or layer.weight.dtype not in _TOLERANCE:
            raise InvalidInput(
                f"weights are packed on a CPU in float32 or bfloat16, not for {layer.weight.dtype} "
                f"on {layer.weight.device}: leave packing out"
            )
    if layers:
        _check(layers[0][2])
    packed: dict[torch.nn.Linear, PackedLinear] = {}
    for parent, name, layer in layers:
        if layer not in packed:
            packed[layer] = PackedLinear(layer)
        setattr(parent, name, packed[layer])
    return len(packed)


def _check(layer: torch.nn.Linear) -> None:
    """Try one layer: the operations are PyTorch's own, and may change."""
    rows = torch.linspace(-1.0, 1.0, 3 * layer.in_features).reshape(1, 3, -1).to(layer.weight.dtype)
    try:
        with torch.inference_mode():
            packed = PackedLinear(layer)(rows).double()
            plain = functional.linear(rows, layer.weight, layer.bias).double()
    except (AttributeError, RuntimeError, TypeError) as error:
        raise InvalidInput(
            f"PyTorch {torch.__version__} does not pack weights here ({error}): leave packing out"
        ) from error
    if not (packed - plain).norm() <= _TOLERANCE[layer.weight.dtype] * plain.norm():
        raise InvalidInput(
            f"packed weights give other numbers with PyTorch {torch.__version__}: leave packing out"
        )
