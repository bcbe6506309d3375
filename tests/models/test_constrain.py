"""Constrained decoding, token by token: whatever the model would rather say, a pattern that can be completed is completed."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.constrain import matching
from models.errors import CallFailed

END = 0
PIECES = [
    "",
    *(chr(code) for code in range(32, 127)),
    "None",
    "; ",
    " Tail",
    "Tail",
    "Swipe",
    *(chr(code) for code in range(0x4E00, 0x4E00 + 4000)),
]
NAMES = st.lists(st.text("abTS \u4e00\u4e8c", min_size=1, max_size=6).map(str.strip).filter(bool), min_size=1, max_size=4, unique=True)


class Words:
    """A tokenizer of characters and a few words. `joins`: words after others get a space, and lose it where they stand alone."""

    def __init__(self, joins: bool = False) -> None:
        self.joins = joins

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return (" " if self.joins else "").join(PIECES[i] for i in ids if i != END)

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool = True) -> list[str]:
        return [self.decode(row) for row in rows]


def said(pattern: str, logits: torch.Tensor, tokenizer: Any, steps: int = 60) -> str:
    choose, out = matching(pattern, tokenizer, {END}), list[int]()
    for step in range(steps):
        token = choose(out, logits.roll(step * 7 + 1) if step else logits)
        if token == END:
            break
        out.append(token)
    return str(tokenizer.decode(out))


@given(NAMES, st.integers(0, 10_000))
def test_any_logits_end_in_a_name(names: list[str], seed: int) -> None:
    """Every step's order of tokens is another one, and most of the vocabulary fits nowhere."""
    pattern = f"(None|{'|'.join(names)})"
    logits = torch.randn(len(PIECES), generator=torch.Generator().manual_seed(seed))
    assert said(pattern, logits, Words()) in {"None", *names}


def test_the_token_that_a_pattern_needs_may_be_the_least_probable_one() -> None:
    logits = torch.arange(len(PIECES), 0, -1).float()
    logits[PIECES.index("N")], logits[PIECES.index("None")] = 1e6, -1e6
    logits[PIECES.index("o")], logits[PIECES.index("n")], logits[PIECES.index("e")] = -1e5, -1e5, -1e5
    choose = matching("(None|Tail)", Words(), {END})
    out = [PIECES.index("N")]
    for _ in "one":
        out.append(choose(out, logits))
    assert Words().decode(out) == "None"


def test_words_that_get_a_space_after_others_are_found() -> None:
    logits = torch.arange(len(PIECES), 0, -1).float()
    for word in ("Tail", "Swipe"):
        logits[PIECES.index(word)] = -1e6
    logits[PIECES.index("T")] = -1e7
    tokenizer = Words(joins=True)
    assert matching("Swipe Tail", tokenizer, {END})([PIECES.index("Swipe")], logits) == PIECES.index("Tail")


def test_a_pattern_that_no_token_continues_fails_the_call() -> None:
    with pytest.raises(CallFailed, match="no token continues"):
        matching("\u0416+", Words(), {END})([], torch.zeros(len(PIECES)))
    with pytest.raises(CallFailed, match=r"\(a"):
        matching("(a", Words(), {END})
