"""The model card of an exported tiny model: what it is, what it learnt from, what it scores, what it cannot do.

At export the card says what the training state knows; its scores are filled in from an evaluation's JSON, and only from one of these
very weights. docs/tiny.md gets the same tables between its markers, and the reliability diagram beside it.

    python -m bench eval-tiny --all --json evaluation.json && python -m bench train-tiny --card evaluation.json
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.tiny import checkpoint
from models.errors import ConfigError
from models.files import replace

BEGIN: Final = "<!-- scores{}: begin -->"
END: Final = "<!-- scores{}: end -->"
DOCS: Final = Path("docs/tiny.md")
COMMANDS: Final = "`python -m bench eval-tiny --all --json FILE`, then `python -m bench train-tiny --card FILE`"
_TEXT: Final = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
tags: [test-fixture, synthetic]
---
# Tiny {title}

A test fixture: the real architecture with {parameters:.1f} million parameters, trained from nothing by this repository on its own
made-up world (`bench/world`). It sees drawn creatures and knows nothing else. It exists so that every agent can be run on real
pixels, anywhere, in seconds. Do not use it for anything else.

- **Data**: calls of the project's own agents on generated worlds, answered by an oracle (`bench/tiny/samples.py`,
  `bench/tiny/cuem_samples.py`), plus primers (`bench/tiny/primers.py`); frames drawn by `bench/world/render.py`. No text, picture or
  weight from anywhere else.
- **Training**: {samples:,} samples, {tokens:.1f} million tokens, {steps:,} steps, {minutes:.0f} minutes of joint training on two CPU
  cores, after the vision tower alone; `python -m bench train-tiny` repeats the recipe; docs/tiny.md says what was changed by hand, and that
  the tiny InternVL took its language model from the trained tiny Qwen2.5-VL.
- **Seeds**: weights and rows {seed}; clips 0; vision tower 7. Every number of the data follows from them. Test worlds share no seed and
  no name with training: names of creatures and attacks are split by a hash.
- **Prompts**: only the set `compact` (`--prompts compact`), frames of 16:9, one to four of them.
- **Limits**: names of attacks cannot be known without the graph; words outside its {vocabulary} tokens are spelt or become `[UNK]`;
  pictures that the sample world's renderer did not draw mean nothing to it.
- **Licence**: Apache-2.0, as the repository.

## Scores

{begin}
{scores}
{end}
"""
_NONE: Final = "These weights have not been evaluated yet: " + COMMANDS + "."


def card(family: str, source: Path) -> str:
    """README.md for the weights in `source`, without scores yet. Raises ModelError when the state cannot be read."""
    tensors, facts = checkpoint.load(source)
    weights = checkpoint.part(tensors, "average")
    return _TEXT.format(
        title={"qwen2.5-vl": "Qwen2.5-VL", "internvl": "InternVL"}[family],
        parameters=sum(w.numel() for w in weights.values()) / 1e6,
        samples=facts["samples"], tokens=facts["tokens"] / 1e6, steps=facts["step"], minutes=facts["minutes"],
        seed=facts.get("seed", 9),
        vocabulary=next(w.shape[0] for name, w in weights.items() if "embed_tokens" in name),
        begin=BEGIN.format(""), scores=_NONE, end=END.format(""),
    )  # fmt: skip


def scores(facts: Mapping[str, Any]) -> str:
    """All tables of an evaluation; parts that were not measured are named."""
    from bench.tiny.parts import PARTS, shown
    from bench.tiny.targets import BYTES, PARAMETERS

    model = facts["model"]
    lines = [
        f"Weights sha256 {model['weights'][:16]}…; {model['parameters'] / 1e6:.2f} M parameters "
        f"({_millions(PARAMETERS, model['parameters'])}), {model['bytes'] / 1e6:.1f} MB ({_millions(BYTES, model['bytes'])}). "
        "Greedy, bfloat16, CPU. Intervals are 95 %: Wilson's for shares, bootstrap over questions for means.",
        f"Made by {COMMANDS}; nothing between these markers is written by hand.",
    ]
    left_out = [name for name in PARTS if name not in facts["parts"]]
    if left_out:
        lines.append(f"Not measured: {', '.join(left_out)}.")
    return "\n\n".join(["\n".join(lines), *(shown(name, facts["parts"][name], "### ") for name in PARTS if name in facts["parts"])])


def _millions(target: Any, value: float) -> str:
    return f"≤ {target.bound / 1e6:g} M, {'met' if target.met(value) else 'missed'}"


def fill(facts: Mapping[str, Any], model: Path, docs: Path = DOCS) -> list[Path]:
    """Writes the scores into the model's card and, where it has a place for this family, into `docs`; the files written.

    Raises: ConfigError when the evaluation is of other weights, or a file has no place for scores.
    """
    from bench.tiny.calibration import diagram
    from bench.tiny.regression import weights_digest

    if not (model / "model.safetensors").exists():
        raise ConfigError("is no model folder", where=str(model), remedy="export one: python -m bench train-tiny --export")
    there = weights_digest(model)
    if facts["model"]["weights"] != there:
        raise ConfigError(
            f"the evaluation is of other weights ({facts['model']['weights'][:16]}…) than these ({there[:16]}…)",
            where=str(model), remedy="evaluate the folder itself: python -m bench eval-tiny --all --json FILE",
        )  # fmt: skip
    readme = model / "README.md"
    new = {readme: placed(readme, scores(facts), "")}
    family = facts["model"]["family"]
    mark = "" if family == "qwen2.5-vl" else f" {family}"
    if docs.exists() and BEGIN.format(mark) in docs.read_text(encoding="utf-8"):
        text = scores(facts)
        if "calibration" in facts["parts"]:
            drawing = docs.with_name(f"{docs.stem}-reliability{mark.replace(' ', '-')}.svg")
            new[drawing] = diagram(facts["parts"]["calibration"]["figures"])
            text += f"\n\n![Reliability: what was said against how often it was so]({drawing.name})"
        new[docs] = placed(docs, text, mark)
    for path, text in new.items():
        replace(path, text)
    return list(new)


def placed(path: Path, text: str, mark: str) -> str:
    """The file's content with `text` between its markers. Raises ConfigError."""
    begin, end = BEGIN.format(mark), END.format(mark)
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), remedy="export the model again") from None
    head, found, rest = old.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ConfigError(f"has no lines {begin} and {end}", where=str(path), remedy="export the model again, or add them")
    return f"{head}{begin}\n{text}\n{end}{tail}"
