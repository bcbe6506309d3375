"""Prefix and hardware bounds, against brute force and hand arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.cards import card_named
from models.radix import Radix, bound
from models.roofline import Peak, Work, least, peak_of
from models.shape import shape_of
from models.tokenized import marked

rows = st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=25)


def shared(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@settings(deadline=None)
@given(rows, st.integers(1, 5))
def test_radix_against_brute_force(calls: list[list[int]], block: int) -> None:
    found = bound(calls, block)
    expected = []
    for i, call in enumerate(calls):
        best = max((shared(call, earlier) for earlier in calls[:i]), default=0)
        expected.append(min(best, max(0, len(call) - 1)) // block * block)
    assert list(found.each) == expected
    assert (found.calls, found.prompt_tokens, found.served) == (len(calls), sum(map(len, calls)), sum(expected))
    assert 0 <= found.share < 1


@settings(deadline=None)
@given(rows)
def test_larger_blocks_never_serve_more(calls: list[list[int]]) -> None:
    served = [bound(calls, block).served for block in (1, 2, 4)]
    assert served == sorted(served, reverse=True)


def test_radix_by_hand() -> None:
    persona = list(range(100))
    calls = [[*persona, 200], [*persona, 201], [*persona, 200], [7]]
    assert bound(calls).each == (0, 100, 100, 0)
    assert bound(calls, 16).each == (0, 96, 96, 0)
    assert bound([]).share == 0.0
    tree = Radix()
    assert [tree.add(np.array(row)) for row in ([1, 2, 3, 4], [1, 2], [1, 2, 9], [1, 2, 3, 4, 5], [1, 2, 9, 9])] == [0, 2, 2, 4, 3]
    with pytest.raises(ValueError, match="at least 1"):
        bound([], 0)


def test_pictures_become_their_own_numbers() -> None:
    pad = [6] * 16
    tokens = [1, 413, 3, *pad, 4, 3, *pad, 4, 422, 39, 39, 2]
    same = marked(tokens, ["a" * 64, "a" * 64])
    other = marked(tokens, ["a" * 64, "b" * 64])
    assert len(same) == len(tokens) and (same == other).sum() == len(tokens) - 16
    assert bound([same, same, other]).each == (0, len(tokens) - 1, 3 + 16 + 2)
    assert list(marked(tokens, [])) == tokens
    assert list(marked([1, 2], ["a" * 64] * 3)) == [1, 2]  # no placeholder: left alone


def test_hardware_bound_by_hand() -> None:
    shape = shape_of(card_named("Qwen2.5-VL-7B").config(), round(16.6e9), round(1.36e9))
    peak = Peak(100e12, 1e12, "made up")
    weights = (16.6e9 - 1.36e9) / 2
    prefill = least(shape, peak, Work(1000, 0, 0, 0.0, 1)).prefill
    assert prefill == pytest.approx(1000 * 2 * weights / 100e12)
    alone = least(shape, peak, Work(0, 0, 640, 0.0, 1)).decode
    batched = least(shape, peak, Work(0, 0, 640, 0.0, 64)).decode
    assert alone == pytest.approx(640 * 2 * weights / 1e12)
    assert batched == pytest.approx(alone / 64, rel=0.01)
    assert least(shape, peak, Work(1000, 0, 640, 500.0, 8), gpus=2).total == pytest.approx(
        least(shape, peak, Work(1000, 0, 640, 500.0, 8)).total / 2
    )
    cache = least(shape, peak, Work(0, 0, 10**6, 10_000.0, 10**6)).decode  # then the cache, not the weights, is what is read
    assert cache == pytest.approx(10**6 * 10_000 * shape.kv_bytes_per_token() / 1e12, rel=0.01)


def test_peaks_by_name_and_by_number() -> None:
    a6000 = peak_of("NVIDIA RTX A6000")
    assert a6000 is not None and (a6000.flops, a6000.bandwidth) == (155e12, 768e9)
    assert "H100 PCIe" in peak_of("NVIDIA H100 PCIe").source  # type: ignore[union-attr]
    assert peak_of("NVIDIA H100 80GB HBM3").bandwidth == 3350e9  # type: ignore[union-attr]
    assert peak_of("A GPU nobody knows") is None and peak_of("A GPU nobody knows", tflops=10) is None
    assert peak_of("", 10, 20) == Peak(10e12, 20e9, "given")
    assert peak_of("NVIDIA RTX A6000", tflops=10).flops == 10e12  # type: ignore[union-attr]
