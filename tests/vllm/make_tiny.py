"""Writes a tiny checkpoint with random weights, whole enough for vllm: python make_tiny.py {qwen2.5-vl,internvl} FOLDER

For servers of an architecture of which no trained tiny model exists. What such a model says means nothing. Needs transformers and
torchvision: run it with the Python of .venv-vllm.
"""

import sys
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = """You are a careful observer. A picture shows a creature near a red rock. Which action is it? Answer with one name.
Is this claim true or false? Yes or No. {"answer": "yes", "score": 0.5} 0 1 2 3 4 5 6 7 8 9 first second third neighbour question
"""
WORDS = ["Yes", "No", "yes", "no", "true", "false", "True", "False"]
TURN = "<|im_start|>{{ message['role'] }}\n"
CLOSE = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def tokenizer(special: list[str], **more: object) -> hf.PreTrainedTokenizerFast:
    """Byte-level pairs learned from a few lines; every word of WORDS is one token, alone and after a space."""
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=[], show_progress=False, initial_alphabet=alphabet)
    lines = [TEXT] * 20 + WORDS * 500 + [f" {word}" for word in WORDS] * 500
    pairs.train_from_iterator(lines, trainer)
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=pairs, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=8192, **more
    )
    fast.add_special_tokens({"additional_special_tokens": special})
    return fast


def template(picture: str) -> str:
    """A chat template: system, user and assistant turns; a picture becomes `picture`."""
    inner = (
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
        "{% if part['type'] in ('image', 'image_url') %}" + picture + "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
        "{% endfor %}{% endif %}"
    )
    return "{% for message in messages %}" + TURN + inner + CLOSE


def text_config(tok: hf.PreTrainedTokenizerFast, **more: object) -> dict[str, object]:
    one = tok.convert_tokens_to_ids
    size = (len(tok) + 63) // 64 * 64
    return {
        "vocab_size": size, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 8192, "tie_word_embeddings": False, "bos_token_id": one("<|endoftext|>"),
        "eos_token_id": one("<|im_end|>"), "pad_token_id": one("<|endoftext|>"), **more,
    }  # fmt: skip


def qwen() -> tuple[hf.PreTrainedModel, hf.ProcessorMixin]:
    special = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"]
    tok = tokenizer([f"<|{name}|>" for name in special])
    pixels = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 64}
    processor = hf.Qwen2_5_VLProcessor(
        image_processor=hf.Qwen2VLImageProcessor(**pixels),
        tokenizer=tok,
        video_processor=hf.Qwen2VLVideoProcessor(**pixels),
        chat_template=template("<|vision_start|><|image_pad|><|vision_end|>"),
    )
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}
    vision = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 128, "fullatt_block_indexes": [1],
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
    }  # fmt: skip
    marks = {f"{name}_token_id": tok.convert_tokens_to_ids(f"<|{token}|>") for name, token in (
        ("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"), ("vision_end", "vision_end"))}  # fmt: skip
    config = hf.Qwen2_5_VLConfig(
        text_config=text_config(tok, rope_parameters=rope), vision_config=vision, tie_word_embeddings=False, **marks
    )
    return hf.Qwen2_5_VLForConditionalGeneration(config), processor


def internvl() -> tuple[hf.PreTrainedModel, hf.ProcessorMixin]:
    side, patch = 112, 14
    tokens = (side // patch // 2) ** 2
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"}
    tok = tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *named.values()], extra_special_tokens=named)
    norm = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "size": {"height": side, "width": side}}
    processor = hf.InternVLProcessor(
        image_processor=hf.GotOcr2ImageProcessor(crop_to_patches=True, min_patches=1, max_patches=4, **norm),
        tokenizer=tok,
        video_processor=hf.InternVLVideoProcessor(**norm),
        image_seq_length=tokens,
        chat_template=template("<IMG_CONTEXT>\n"),
    )
    vision = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "image_size": [side, side],
        "patch_size": [patch, patch], "use_mean_pooling": True, "attention_bias": True,
    }  # fmt: skip
    config = hf.InternVLConfig(
        text_config=text_config(tok, model_type="qwen2", rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
        vision_config=vision,
        image_token_id=tok.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=tokens,
        downsample_ratio=0.5,
        tie_word_embeddings=False,
    )
    return hf.InternVLForConditionalGeneration(config), processor


def main(family: str, folder: Path) -> None:
    torch.manual_seed(0)
    model, processor = {"qwen2.5-vl": qwen, "internvl": internvl}[family]()
    model = model.to(torch.bfloat16).eval()
    ids = processor.tokenizer.convert_tokens_to_ids
    model.generation_config.eos_token_id = [ids("<|im_end|>"), ids("<|endoftext|>")]
    model.generation_config.pad_token_id = ids("<|endoftext|>")
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    print(f"{folder}: {family}, {sum(p.numel() for p in model.parameters()):,} parameters, {len(processor.tokenizer)} tokens")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
