"""Tiny random language models of many families."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

from mdsd_opt.decoding import LoadedModel

SIZE = 61  # tokens
LLAMA: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
DEEPSEEK = LLAMA | {
    "num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "n_shared_experts": 1,
}  # fmt: skip

#: By name: the architecture, and its configuration. Texts outgrow the windows.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA),
    "llama4": ("Llama4", LLAMA | {
        "attention_chunk_size": 36, "intermediate_size_mlp": 48, "num_local_experts": 2,
        "head_dim": 8, "num_hidden_layers": 4}),
    "mistral": ("Mistral", LLAMA | {"sliding_window": None}),
    "mistral with a window": ("Mistral", LLAMA | {"sliding_window": 36}),
    "gemma": ("Gemma", LLAMA | {"head_dim": 8}),
    "gemma2": ("Gemma2", LLAMA | {"head_dim": 8, "sliding_window": 36}),
    "gemma3": ("Gemma3", LLAMA | {"head_dim": 8, "sliding_window": 36}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen2 moe": ("Qwen2Moe", LLAMA | EXPERTS | {"shared_expert_intermediate_size": 16}),
    "qwen3": ("Qwen3", LLAMA | {"head_dim": 8}),
    "qwen3 moe": ("Qwen3Moe", LLAMA | EXPERTS | {"head_dim": 8}),
    "mixtral": ("Mixtral", LLAMA | {"num_local_experts": 4, "sliding_window": None}),
    "phi": ("Phi", LLAMA),
    "phi3": ("Phi3", LLAMA | {"pad_token_id": 0, "sliding_window": None}),
    "gpt2": ("GPT2", GPT),
    "gptj": ("GPTJ", GPT | {"rotary_dim": 8}),
    "gpt neox": ("GPTNeoX", LLAMA),
    "opt": ("OPT", {
        "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 256, "word_embed_proj_dim": 32}),
    "bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 256}),
    "falcon": ("Falcon", LLAMA),
    "falcon with alibi": ("Falcon", LLAMA | {"alibi": True, "new_decoder_architecture": False}),
    "deepseek v2": ("DeepseekV2", DEEPSEEK),
    "deepseek v3": ("DeepseekV3", DEEPSEEK),
    "gpt oss": ("GptOss", LLAMA | {
        "head_dim": 8, "sliding_window": 36, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mamba": ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
    "mamba2": ("Mamba2", {
        "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8,
        "n_groups": 2}),
}  # fmt: skip


def model_of(family: str, seed: int, **changes: Any) -> LoadedModel:
    name, given = FAMILIES[family]
    single = getattr(transformers, f"{name}TextConfig", None)
    config_class = single or getattr(transformers, f"{name}Config")
    settings = {"vocab_size": SIZE, "bos_token_id": 1, "eos_token_id": 2} | given | changes
    config = config_class(**settings)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():  # laws far from flat, which positions matter to
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return LoadedModel(model, SimpleNamespace(eos_token_id=None), {"model": family})


def text_of(length: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(5).integers(3, SIZE, size=length).tolist()
    return tokens
