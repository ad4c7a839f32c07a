"""Microseconds of `mdsd_opt.serving.verify_tree` on a CUDA device, beside SGLang's own operation.

``python benchmarks/serving.py`` prints JSON: medians over captured CUDA graphs for rows of zeros
(target-only sampling) and for greedy drafts (one child a node was drawn), whether the kernel
decided as the reference did, and what it was measured on. SGLang's operation is there if it can be
imported, on the same rows of zeros.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from mdsd_opt.errors import MdsdError, MissingExtra
from mdsd_opt.serving import verify_tree

BATCHES, NODES, VOCABULARIES = (1, 8, 64), (8, 16, 64), (32_000, 128_256, 151_936)
CHILDREN, DEPTH, REPEATS = 4, 5, 50

#: Modules of SGLang's operation: the current one, and sgl_kernel, where it was before.
SGLANG = "sglang.kernels.ops.speculative.sampling", "sgl_kernel.speculative"


def case(torch: Any, bs: int, num_nodes: int, vocab_size: int, drawn: bool) -> list[Any]:
    """Arguments of the operation: full trees, the last child of a node drawn from the rest of q."""
    device = "cuda"
    generator = torch.Generator(device).manual_seed(0)
    shape = (bs, num_nodes, vocab_size)
    logits = 3.0 * torch.randn(shape, generator=generator, device=device)
    draft = (logits + torch.randn(shape, generator=generator, device=device)).softmax(-1)
    target = logits.softmax(-1)
    first = torch.full((bs, num_nodes), -1, dtype=torch.int64, device=device)
    following = first.clone()
    tokens = torch.zeros_like(first)
    for node in range(num_nodes):
        below = range(node * CHILDREN + 1, min((node + 1) * CHILDREN + 1, num_nodes))
        if not below:
            draft[:, node] = 0.0
            continue
        first[:, node] = below[0]
        following[:, list(below[:-1])] = torch.tensor(below[1:], device=device)
        tokens[:, list(below)] = draft[:, node].topk(len(below)).indices
        if drawn:
            draft[:, node].scatter_(1, tokens[:, list(below[:-1])], 0.0)
            draft[:, node] /= draft[:, node].sum(-1, keepdim=True)
            last = torch.multinomial(draft[:, node], 1, generator=generator)
            tokens[:, below[-1]] = last[:, 0]
    index = torch.arange(bs * num_nodes, device=device).view(bs, num_nodes)
    coins = torch.rand((bs, num_nodes), generator=generator, device=device)
    last_coins = torch.rand(bs, generator=generator, device=device)
    outputs = [
        torch.full(size, -1, dtype=torch.int32, device=device)
        for size in ((bs * num_nodes,), (bs, DEPTH), (bs,))
    ]
    laws = [target, draft if drawn else torch.zeros_like(draft)]
    return [*outputs, tokens, index, first, following, coins, last_coins, *laws]


def microseconds(torch: Any, run: Callable[[], None]) -> float:
    """Median time of a captured graph of one call, whose first runs are not counted."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(REPEATS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(stop))
    return statistics.median(times)


def decides_as_the_reference(torch: Any, arguments: list[Any]) -> bool:
    """Whether the same call on the CPU writes the same results."""
    on_host = [tensor.cpu() for tensor in arguments]
    verify_tree(*on_host)
    verify_tree(*arguments)
    return all(torch.equal(a.cpu(), b) for a, b in zip(arguments[:3], on_host[:3], strict=True))


def operation_of_sglang() -> Callable[..., None] | None:
    """SGLang's operation; None if it cannot be imported."""
    for name in SGLANG:
        try:
            module = __import__(name, fromlist=["tree_speculative_sampling_target_only"])
            found: Callable[..., None] = module.tree_speculative_sampling_target_only
        except (ImportError, AttributeError):
            continue
        return found
    return None


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        import torch
    except ImportError:
        raise MissingExtra.of("torch", "serving", "this benchmark") from None
    if not torch.cuda.is_available():
        raise MdsdError("no CUDA device is there, and nothing else can be timed: run it on one")
    theirs, rows = operation_of_sglang(), []
    for bs in BATCHES:
        for num_nodes in NODES:
            for vocab_size in VOCABULARIES:
                row: dict[str, Any] = {"bs": bs, "nodes": num_nodes, "vocab_size": vocab_size}
                for name, drawn in (("target_only", False), ("greedy", True)):
                    try:
                        arguments = case(torch, bs, num_nodes, vocab_size, drawn)
                        row[f"{name}_same"] = decides_as_the_reference(torch, arguments)
                        row[f"{name}_us"] = microseconds(torch, lambda a=arguments: verify_tree(*a))
                        if theirs is not None and not drawn:
                            # It writes into its rows of zeros; the time does not depend on that.
                            run = lambda a=arguments: theirs(*a, 1.0, 1.0, True)  # noqa: E731
                            row["sglang_us"] = microseconds(torch, run)
                    except torch.cuda.OutOfMemoryError:
                        row[name] = "does not fit into the device"
                    arguments = []
                rows.append(row)
                print(row, file=sys.stderr)
    on = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({**on, "repeats": REPEATS, "rows": rows}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except MdsdError as error:
        sys.exit(f"benchmarks/serving.py: {error}")
