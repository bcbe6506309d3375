"""The model card of an exported tiny model: what it is, what it learnt from, what it scores, what it cannot do."""

from __future__ import annotations

from pathlib import Path

from bench.tiny import checkpoint

_TEXT = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
tags: [test-fixture, synthetic]
---
# Tiny {title}

A test fixture: the real architecture with {parameters:.1f} million parameters, trained from nothing by this repository on its own
made-up world (`bench/world`). It sees drawn creatures and knows nothing else. It exists so that every agent can be run on real
pixels, anywhere, in seconds. Do not use it for anything else.

- **Data**: calls of the project's own agents on generated worlds, answered by an oracle (`bench/tiny/samples.py`), plus primers
  (`bench/tiny/primers.py`); frames drawn by `bench/world/render.py`. No text, picture or weight from anywhere else.
- **Training**: {samples:,} samples, {tokens:.1f} million tokens, {steps:,} steps, {minutes:.0f} minutes of two CPU cores, from seed;
  `python -m bench train-tiny`. Test worlds share no seed and no name with training.
- **Prompts**: only the set `compact` (`--prompts compact`), frames of 16:9, two to four of them.
- **Limits**: names of attacks cannot be known without the graph; words outside its {vocabulary} tokens are spelt or become `[UNK]`.
- **Licence**: Apache-2.0, as the repository.

Scores on unseen worlds: `python -m bench eval-tiny`{scores}
"""


def card(family: str, source: Path, scores: str = "") -> str:
    """README.md for the weights in `source`; `scores` is eval-tiny's table, "" when it was not run."""
    tensors, facts = checkpoint.load(source)
    weights = checkpoint.part(tensors, "average")
    return _TEXT.format(
        title={"qwen2.5-vl": "Qwen2.5-VL", "internvl": "InternVL"}[family],
        parameters=sum(w.numel() for w in weights.values()) / 1e6,
        samples=facts["samples"], tokens=facts["tokens"] / 1e6, steps=facts["step"], minutes=facts["minutes"],
        vocabulary=next(w.shape[0] for name, w in weights.items() if "embed_tokens" in name),
        scores=f"\n\n```\n{scores}\n```" if scores else "",
    )  # fmt: skip
