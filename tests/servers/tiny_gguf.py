"""Two tiny random models as GGUF files: a target, and a draft that is the target with noise.

    python tests/servers/tiny_gguf.py FOLDER [NOISE]

They say nothing, fast: what is audited is the engine's law, and not the models.
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import gguf
import numpy as np

#: A vocabulary of bytes below 128 (half a character has no probabilities) and pairs of letters.
BYTES, SIZE = 128, 300
WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128


def write(path: Path, noise: float, seed: int = 5, sharpness: float = 2.2) -> None:
    """Write a Llama of random weights, so much of which is noise of its own."""
    shared, own = np.random.default_rng(seed), np.random.default_rng(seed + 1)

    def weights(*shape: int, scale: float = 1.0) -> np.ndarray:
        mixed = shared.normal(size=shape) + noise * own.normal(size=shape)
        return (mixed * scale / np.sqrt(1 + noise**2)).astype(np.float32)

    pairs = [a + b for a in string.ascii_lowercase for b in string.ascii_lowercase]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(BYTES))]
    pieces += [*pairs[: SIZE - len(pieces) - 1], "\u2581"]  # what a space becomes
    file = gguf.GGUFWriter(str(path), "llama")
    file.add_name("tiny")
    file.add_context_length(4096)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(SIZE)
    file.add_file_type(0)
    file.add_tokenizer_model("llama")
    file.add_token_list([piece.encode() for piece in pieces])
    file.add_token_scores([0.0] * SIZE)
    file.add_token_types([2, 3, 3] + [6] * BYTES + [1] * (SIZE - BYTES - 3))
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    file.add_add_bos_token(False)
    file.add_add_space_prefix(False)
    file.add_tensor("token_embd.weight", weights(SIZE, WIDTH))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            file.add_tensor(f"{block}{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            file.add_tensor(f"{block}{name}.weight", weights(WIDTH, WIDTH, scale=1.5 / WIDTH**0.5))
        for name in ("ffn_gate", "ffn_up"):
            file.add_tensor(f"{block}{name}.weight", weights(INNER, WIDTH, scale=WIDTH**-0.5))
        file.add_tensor(f"{block}ffn_down.weight", weights(WIDTH, INNER, scale=1.5 / INNER**0.5))
    file.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    file.add_tensor("output.weight", weights(SIZE, WIDTH, scale=sharpness / WIDTH**0.5))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def write_pair(folder: Path, noise: float = 0.05) -> tuple[Path, Path]:
    """Write target.gguf and draft.gguf."""
    folder.mkdir(parents=True, exist_ok=True)
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    write(target, 0.0)
    write(draft, noise)
    return target, draft


if __name__ == "__main__":
    print(*write_pair(Path(sys.argv[1]), *map(float, sys.argv[2:3])), sep="\n")
