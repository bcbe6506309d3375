"""How near an answer is to its reference, in any script: ROUGE-L, BERTScore with a local encoder, recall of named entities.

Words are letters and digits in a row; of scripts without spaces (Han, kana, Hangul, Thai) each character is a word of its own.
Knows no run. Try: python -c "from bench.cuem.texts import rouge_l; print(rouge_l('it lives in the swamp', 'the swamp'))"
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_UNSPACED = r"\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORDS = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W_])+")


def folded(text: str) -> str:
    """One form for what looks the same: NFKC, case, spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> list[str]:
    return _WORDS.findall(folded(text))


def rouge_l(gold: str, said: str) -> float | None:
    """F1 of the longest common subsequence of words (Lin 2004); None when the reference holds no word."""
    want, got = words(gold), words(said)
    if not want:
        return None
    if not got:
        return 0.0
    common = _subsequence(want, got)
    return 2 * common / (len(want) + len(got))


def _subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    before = [0] * (len(b) + 1)
    for x in a:
        row = [0]
        for j, y in enumerate(b, start=1):
            row.append(before[j - 1] + 1 if x == y else max(before[j], row[-1]))
        before = row
    return before[-1]


def bert_score(gold: NDArray[np.float32], said: NDArray[np.float32]) -> float | None:
    """F1 of greedily matched token vectors (Zhang et al. 2020), not rescaled and without idf; (tokens, size) of unit length each.

    None when the reference has no token.
    """
    if not len(gold):
        return None
    if not len(said):
        return 0.0
    near = gold @ said.T
    recall, precision = float(near.max(1).mean()), float(near.max(0).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def entity_recall(names: Sequence[str], said: str) -> float | None:
    """Share of the names that the answer holds; a name in a script with spaces has to stand as whole words. None without names."""
    if not names:
        return None
    return sum(holds(said, name) for name in names) / len(names)


def holds(text: str, name: str) -> bool:
    """Whether the name stands in the text."""
    wanted, line = words(name), words(text)
    n = len(wanted)
    return n > 0 and any(line[i : i + n] == wanted for i in range(len(line) - n + 1))
