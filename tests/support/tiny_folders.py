"""Tiny language models with a tokenizer, saved as those of the model hub are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = "{% for message in messages %}user: {{ message['content'] }}\n{% endfor %}answer:"


def tiny_folder(folder: Path, vocab_size: int, template: str | None = None, **changes: Any) -> str:
    """The name of a folder with a random Llama and a tokenizer of bytes."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
    known = Tokenizer(models.BPE({token: n for n, token in enumerate(alphabet)}, []))
    known.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    known.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=known, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = template
    settings: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "bos_token_id": 256, "eos_token_id": 257,
    }  # fmt: skip
    torch.manual_seed(vocab_size)
    config = transformers.LlamaConfig(vocab_size=vocab_size, **settings | changes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
