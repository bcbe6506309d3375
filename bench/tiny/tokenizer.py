"""The tiny model's tokenizer: whole words of a closed list, syllables of made-up names, characters as the last resort.

Knows the shape of Qwen's chat format, not the world: the words come from whoever calls. The same words give the same bytes.

    python -c "from bench.tiny.tokenizer import build; print(build(['the', 'creature'], ['Var'], ['kun']).encode('the Varkun').tokens)"
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIALS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    "<img>", "</img>", "<IMG_CONTEXT>", "<video>",
)  # fmt: skip
UNKNOWN: Final = "[UNK]"
CORE_WORDS: Final = ("yes", "no", "true", "false", "Yes", "No", "True", "False", "None", "user", "assistant", "system")

# Apostrophes and hyphens stay inside a word; every other punctuation mark is a token of its own.
_MARK: Final = r"(?<!\w)['\-]|['\-](?!\w)|[^\w'\-\s]|_"
_HUGS_LEFT: Final = (",", ".", ";", ":", "?", "!", ")", "]")
_MARKS = re.compile(_MARK)


def words_of(text: str) -> list[str]:
    """The text's words and marks as the tokenizer cuts them, before it looks any of them up."""
    out: list[str] = []
    for chunk in text.split():
        end = 0
        for mark in _MARKS.finditer(chunk):
            out.extend(filter(None, (chunk[end : mark.start()], mark.group())))
            end = mark.end()
        if end < len(chunk):
            out.append(chunk[end:])
    return out


def frequent_words(texts: Iterable[str], at_least: int, first: Sequence[str], following: Sequence[str]) -> list[str]:
    """Words seen at least so often, sorted; made-up names (a first syllable, then following ones) are left to their syllables."""
    name = re.compile(f"(?:{'|'.join(first)})(?:{'|'.join(following)})+")
    counts = Counter(word for text in texts for word in words_of(text))
    return sorted(w for w, n in counts.items() if n >= at_least and not name.fullmatch(w))


def build(words: Iterable[str], first: Sequence[str], following: Sequence[str]) -> Tokenizer:
    """A WordPiece tokenizer; every printable ASCII text can be encoded, any other character becomes ``[UNK]``.

    Args:
        words: the closed list. first, following: syllables that open a made-up name, and those that go on with it.
    """
    characters = string.ascii_letters + string.digits + string.punctuation
    whole = sorted({*CORE_WORDS, *words, *first, *characters})
    pieces = [f"##{piece}" for piece in sorted({*following, *characters})]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIALS, UNKNOWN, *whole, *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=60))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_MARK), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.WordPiece(prefix="##", cleanup=False), *(decoders.Replace(f" {mark}", mark) for mark in _HUGS_LEFT)]
    )
    tokenizer.add_special_tokens([*SPECIALS, UNKNOWN])
    return tokenizer


def token(tokenizer: Tokenizer, text: str) -> int:
    """The id of one whole token; KeyError when the tokenizer has none of that text."""
    found = tokenizer.token_to_id(text)
    if found is None:
        raise KeyError(text)
    return int(found)


def with_vocabulary_of(text: str) -> Tokenizer:
    """The tokenizer saved as JSON `text` (a folder's tokenizer.json)."""
    json.loads(text)  # a clear error for what is no JSON at all
    return Tokenizer.from_str(text)


# Qwen2.5-VL's chat format without its default system turn; white space between words is no token, so line ends cost nothing.
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}@IMAGE@"
    "{% elif content['type'] == 'video' or 'video' in content %}@VIDEO@"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_template(image: str, video: str) -> str:
    """The Jinja template whose image and video slots read so."""
    return CHAT_TEMPLATE.replace("@IMAGE@", image).replace("@VIDEO@", video)
