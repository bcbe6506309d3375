"""Properties of the planner over made-up shapes and machines, against a brute-force reading of its rules."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import ModelError
from models.planner import GIB, Need, cache_bytes, cache_tokens, degrees, plan, weight_bytes, working_counts
from models.shape import Shape


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv = draw(st.integers(1, 16))
    heads = kv * draw(st.integers(1, 8))
    weights = draw(st.integers(1, 400 * GIB))
    return Shape(
        "Made", heads, kv, draw(st.integers(1, 100)), 64 * heads, 64, draw(st.integers(1, 40_000)), draw(st.integers(1, 200_000)),
        draw(st.integers(64, 200_000)), 2, draw(st.integers(0, 4000)), weights, draw(st.integers(0, weights)),
    )  # fmt: skip


machines = st.lists(st.integers(1, 200).map(lambda gib: gib * GIB), min_size=1, max_size=9)


@settings(deadline=None)
@given(shapes(), machines, st.integers(-1, 10), st.integers(1, 5))
def test_a_plan_keeps_its_promises(shape: Shape, memory: list[int], gpus: int, calls: int) -> None:
    need = Need(min(64, shape.context), calls)
    try:
        chosen = plan(shape, gpus, memory, need)
    except ModelError as error:
        assert "—" in str(error)  # a remedy is always named
        if 1 <= gpus <= len(memory):
            smallest = min(memory[:gpus])
            for d in degrees(shape, gpus):
                assert cache_tokens(shape, d, cache_bytes(shape, d, smallest)) < need.context * need.calls
        return
    d, used = chosen.tensor_parallel, [g for replica in chosen.replicas for g in replica]
    assert sorted([*used, *chosen.idle]) == list(range(gpus))  # every GPU once
    assert all(len(replica) == d for replica in chosen.replicas) and len(chosen.idle) < d
    assert shape.heads % d == 0 and d in degrees(shape)
    smallest = min(memory[:gpus])
    assert chosen.weight_bytes + chosen.cache_bytes <= smallest
    assert chosen.cache_tokens >= need.context * need.calls
    for smaller in degrees(shape, d - 1):
        assert cache_tokens(shape, smaller, cache_bytes(shape, smaller, smallest)) < need.context * need.calls


@settings(deadline=None)
@given(shapes(), st.integers(1, 200), st.integers(1, 9))
def test_counts_named_as_working_do_work_and_others_do_not(shape: Shape, gib: int, up_to: int) -> None:
    memory, need = [gib * GIB] * up_to, Need(min(64, shape.context), 1)
    working = working_counts(shape, gib * GIB, need, up_to)
    for count in range(1, up_to + 1):
        try:
            plan(shape, count, memory, need)
            planned = True
        except ModelError:
            planned = False
        assert planned == (count in working)


@settings(deadline=None)
@given(shapes())
def test_degrees_split_everything_that_must_split(shape: Shape) -> None:
    found = degrees(shape)
    assert found[0] == 1
    for d in found:
        assert shape.heads % d == shape.intermediate % d == 0
        assert shape.kv_heads % d == 0 or d % shape.kv_heads == 0
        assert weight_bytes(shape, d) * d >= shape.weight_bytes  # nothing gets lost
    assert all(weight_bytes(shape, a) >= weight_bytes(shape, b) for a, b in pairwise(found))
