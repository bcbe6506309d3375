"""A llama-type GGUF file → a folder in Hugging Face layout (bfloat16 safetensors), converted once. The only file that imports gguf.

transformers' own reading of GGUF needs one more package (accelerate), and the mapping of a llama is short: names, and the order of
rows in the query and key matrices, which GGUF stores interleaved. Sources: the GGUF specification (ggml-org/ggml, docs/gguf.md);
llama.cpp's convert_hf_to_gguf.py, `permute`. Knows nothing of where the file came from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from models.errors import ModelError

_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# llama.cpp's names of pre-tokenizers → do digits stand alone?
_DIGITS_ALONE = {"smollm": True, "gpt-2": False, "default": False}


def convert(source: Path, out: Path) -> None:
    """Writes config, generation config, tokenizer, chat template and weights into the existing folder `out`. Raises ModelError."""
    reader = gguf.GGUFReader(source)
    facts = _Facts(reader, source)
    if facts["general.architecture"] != "llama" or facts["tokenizer.ggml.model"] != "gpt2":
        raise ModelError("only llama models with a byte-level BPE tokenizer are converted", where=str(source))
    heads, kv_heads = int(facts["llama.attention.head_count"]), int(facts["llama.attention.head_count_kv"])
    tensors = {}
    for tensor in reader.tensors:
        name = _name(tensor.name, source)
        data = gguf.dequantize(tensor.data, tensor.tensor_type)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            data = _uninterleave(data, heads if "q_proj" in name else kv_heads)
        tensors[name] = torch.from_numpy(np.array(data, dtype=np.float32)).to(torch.bfloat16)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    end = int(facts["tokenizer.ggml.eos_token_id"])
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_size": int(facts["llama.embedding_length"]),
        "intermediate_size": int(facts["llama.feed_forward_length"]),
        "num_hidden_layers": int(facts["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": int(facts["llama.context_length"]),
        "rms_norm_eps": float(facts["llama.attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(facts["llama.rope.freq_base"])},
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": int(facts["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": end,
        "pad_token_id": end,
    }
    _write(out / "config.json", config)
    _write(out / "generation_config.json", {"eos_token_id": end, "pad_token_id": end})
    words = _tokenizer(facts, out)
    _write(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": words[end],
            "pad_token": words[end],
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
        },
    )
    (out / "chat_template.jinja").write_text(str(facts["tokenizer.chat_template"]), encoding="utf-8")


class _Facts:
    """The file's metadata; a missing key is named."""

    def __init__(self, reader: gguf.GGUFReader, source: Path) -> None:
        self._fields, self._source = reader.fields, source

    def __getitem__(self, key: str) -> Any:
        if key not in self._fields:
            raise ModelError(f"has no {key}", where=str(self._source), remedy="fetch the file again")
        return self._fields[key].contents()


def _name(name: str, source: Path) -> str:
    if name in _TOP:
        return _TOP[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _BLOCK:
        return f"model.layers.{parts[1]}.{_BLOCK[parts[2]]}.{parts[3]}"
    raise ModelError(f"holds a tensor {name!r} that no llama has", where=str(source))


def _uninterleave(data: np.ndarray, heads: int) -> np.ndarray:
    """GGUF keeps each rotary pair of a head side by side; the library keeps first halves, then second halves."""
    rows, columns = data.shape
    return data.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(facts: _Facts, out: Path) -> list[str]:
    words: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    kinds = facts["tokenizer.ggml.token_type"]
    pre = str(facts["tokenizer.ggml.pre"])
    if pre not in _DIGITS_ALONE:
        raise ModelError(f"splits text by the unknown rule {pre!r}", remedy=f"known: {', '.join(_DIGITS_ALONE)}")
    tok = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if _DIGITS_ALONE[pre]:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    control = int(gguf.TokenType.CONTROL)
    tok.add_special_tokens([word for word, kind in zip(words, kinds, strict=True) if int(kind) == control])
    tok.save(str(out / "tokenizer.json"))
    return words


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
