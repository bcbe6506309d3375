"""The made-up worlds: same seed, same world; splits apart; facts that questions ask for exist in the graph."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.world import lexicon as lx
from bench.world.creatures import World, iter_creatures, make_world
from bench.world.graph import card, world_graph
from bench.world.lexicon import caption, caption_class, split_of
from bench.world.questions import COUNTS, TEXT_ONLY, WORDINGS, WorldQuestion, default_counts, make_questions
from kg.graph import Edge

worlds = st.builds(make_world, st.integers(0, 2**40), st.integers(1, 9), st.sampled_from(["train", "test"]))
few = settings(max_examples=40, deadline=None)


def names_of(world: World) -> set[str]:
    return {n for c in world.creatures for n in (c.name, c.nickname, *(a.name for a in c.actions))}


# ---- captions --------------------------------------------------------------------------------------------------------
@given(st.sampled_from(sorted(lx.MOTIONS)), st.sampled_from([None, *lx.ELEMENTS]), st.integers())
def test_a_caption_says_what_it_was_made_of(motion: str, element: str | None, seed: int) -> None:
    if element is None and motion in lx.NEEDS_ELEMENT:
        with pytest.raises(ValueError, match="needs an element"):
            caption(motion, element)
        return
    for text in (caption(motion, element), caption(motion, element, Random(seed))):
        assert caption_class(text) == (motion, element)
        assert caption_class("  " + text.upper().rstrip(".") + " ") == (motion, element)
        assert text == text.strip() and "  " not in text and text.endswith(".") and text[0].isupper()


def test_captions_have_several_wordings_and_strangers_have_no_class() -> None:
    rng = Random(1)
    assert len({caption("leap", "fire", rng) for _ in range(300)}) == 27
    assert len({caption("breath", "ice", rng) for _ in range(300)}) == 9
    assert caption_class("The creature sings.") is None


# ---- worlds ----------------------------------------------------------------------------------------------------------
def test_a_seed_fixes_a_world_and_another_seed_is_another_world() -> None:
    assert make_world(5, 4) == make_world(5, 4)
    assert make_questions(make_world(5, 4), 1) == make_questions(make_world(5, 4), 1)
    assert len({c.name for c in make_world(5).creatures} & {c.name for c in make_world(6).creatures}) < 5  # by chance only
    assert make_questions(make_world(5, 4), 1) != make_questions(make_world(5, 4), 2)


@few
@given(st.integers(0, 2**40), st.integers(1, 8))
def test_the_splits_never_share_a_name(seed: int, count: int) -> None:
    for split in ("train", "test"):
        assert {split_of(n) for n in names_of(make_world(seed, count, split))} == {split}


def test_the_hash_that_parts_the_splits_is_stable() -> None:
    names = ("Varkun", "Ember Fang", "Chihul", "Hollow Drill")
    assert [split_of(n) for n in names] == ["train", "train", "test", "test"]  # a trained checkpoint relies on it


@few
@given(worlds)
def test_creatures_are_consistent(world: World) -> None:
    assert len({c.name for c in world.creatures}) == len(world.creatures)
    for c in world.creatures:
        names = [a.name for a in c.actions]
        looks = [(a.motion, a.element) for a in c.actions]
        assert len(set(names)) == len(names) and len(set(looks)) == len(looks)
        assert 10 <= len(names) <= 14
        assert all(any(p in a.phases for a in c.actions) for p in c.phases)
        assert not {c.mostly_weak} & {*c.weak, *c.resist} and not set(c.weak) & set(c.resist)
        for a in c.actions:
            assert caption_class(a.caption) == (a.motion, a.element)
            assert bool(a.phases) == bool(c.phases) and set(a.phases) <= set(c.phases)
            assert a.next_phase not in a.phases and a.next_phase in ("", *c.phases)
            targets, conditions = [t for t, _ in a.follows], [k for _, k in a.follows if k]
            assert set(targets) <= set(names) - {a.name} and len(set(targets)) == len(targets)
            assert len(set(conditions)) == len(conditions)
            assert a.effect in ("", *c.effects)
        for partner in (c.subspecies, c.mate):
            other = world.creature(partner) if partner else None
            if other is not None:
                assert not other.phases
                assert sum(other.same(a) is not None for a in c.actions) >= 3
                assert other.mate == (c.name if partner == c.mate else "")


def test_the_proportions_are_those_of_the_paper() -> None:
    made = [world_graph(make_world(seed)) for seed in range(6)]
    mean = {kind: sum(e.kind == kind for g in made for e in g.entities) / len(made) for kind in lx.KINDS}
    assert mean[lx.ROOT] == 22 and mean[lx.PHASE] == 20 and mean[lx.EFFECT] == 9  # Table 6
    assert 255 <= mean[lx.ACTION] <= 275
    assert mean[lx.ELEMENT] == 9 and 7 <= mean[lx.WEAPON] <= 10 and 4 <= mean[lx.PROP] <= 6


def test_every_base_relation_occurs_and_no_other() -> None:
    seen = {e.relation for seed in range(8) for g in [world_graph(make_world(seed))] for e in g.entities for e in g.neighbours(e.index)}
    assert seen == set(lx.RELATIONS) and len(lx.RELATIONS) == 16


def test_streamed_creatures_are_the_same_and_bad_numbers_are_refused() -> None:
    assert tuple(iter_creatures(3, 7)) == make_world(3, 7).creatures
    assert len({c.name for c in iter_creatures(3, 2_100)}) == 2_100
    with pytest.raises(ValueError, match="at least one creature"):
        make_world(3, 0)


# ---- graph -----------------------------------------------------------------------------------------------------------
@few
@given(worlds)
def test_the_graph_is_sound(world: World) -> None:
    graph = world_graph(world)
    assert [graph.entity(i).name for i in graph.roots] == [c.name for c in world.creatures]
    assert len({(e.owner, e.name) for e in graph.entities}) == len(graph)
    reached, queue = set(graph.roots), list(graph.roots)
    while queue:
        edges = graph.neighbours(queue.pop())
        assert len({(e.relation, e.target, e.condition) for e in edges}) == len(edges)
        queue += (new := {e.target for e in edges} - reached)
        reached |= new
    assert len(reached) == len(graph)
    for e in graph.entities:
        assert e.index == graph.find(e.name, e.owner) and e.kind in card().kinds
        assert bool(e.caption) == (e.kind == lx.ACTION)
        actions = [x for x in graph.neighbours(e.index) if graph.entity(x.target).kind == lx.ACTION]
        assert len(actions) <= 14
    assert graph.find("Nobody") is None


# ---- questions -------------------------------------------------------------------------------------------------------
def walk(world: World, q: WorldQuestion, route: tuple[str, ...]) -> list[Edge]:
    graph = world_graph(world)
    owner, at = route[0], graph.find(route[0])
    assert at in graph.roots
    edges = []
    for name in route[1:]:
        to = graph.find(name, owner)
        owner = name if to in graph.roots else owner
        edge = next((e for e in graph.neighbours(at) if e.target == to and (not q.condition or e.condition in ("", q.condition))), None)
        assert edge is not None, (route, name)
        edges.append(edge)
        at = to
    return edges


@few
@given(worlds, st.integers(0, 2**20))
def test_gold_routes_exist_and_lead_to_the_answer(world: World, seed: int) -> None:
    questions = make_questions(world, seed, (3, 3, 3, 5, 3, 3))
    assert [q.question.row for q in questions] == list(range(1, len(questions) + 1))
    assert len({q.question.id for q in questions}) == len(questions)
    for q in questions:
        y, c = q.question, world.creature(q.creature)
        assert y.root == c.name and "{}" in y.text and "<c>" not in y.text
        assert ("Pure Text" in y.id) == (q.action is None) == (q.kind in TEXT_ONLY) == (not y.perception)
        ends = [route[-1] for route in y.routes]
        assert "; ".join(ends) == y.answer or y.task == 0
        edges = [walk(world, q, route) for route in y.routes]
        if q.action is not None:
            action = c.action(q.action)
            assert caption_class(y.perception) == (action.motion, action.element) and y.perception != action.caption
            assert bool(c.phases) == bool(y.extra) == bool(q.phase)
            assert y.task == 5 or all(action.name in r and (not q.phase or q.phase in r) for r in y.routes)
        if q.kind == "condition":
            assert q.condition in y.text and edges[0][-1].condition == q.condition
        if q.kind == "follow":
            assert len(y.routes) == len(c.action(q.action or "").follows)
        if y.task == 5:
            same = world.creature(y.routes[0][1]).action(y.answer)
            assert (same.motion, same.element) == (action.motion, action.element)


def test_questions_come_in_the_papers_numbers_and_depths() -> None:
    assert default_counts(22) == COUNTS and default_counts(2200) == tuple(100 * n for n in COUNTS)
    questions = [q for seed in range(4) for q in make_questions(make_world(seed), 0)]
    assert [sum(q.question.task == t for q in questions) for t in range(6)] == [4 * n for n in COUNTS]
    for task, depth in enumerate((1, 2.278, 3.25, 2.4137, 2.9, 3.038)):  # Table 7
        lengths = [len(r) for q in questions if q.question.task == task for r in q.question.routes]
        assert abs(sum(lengths) / len(lengths) - depth) < 0.6
    assert {q.kind for q in questions} == set(WORDINGS)


def test_counts_are_checked() -> None:
    with pytest.raises(ValueError, match="6 numbers"):
        make_questions(make_world(1, 3), 1, (1, 2))
    with pytest.raises(ValueError, match="none below 0"):
        make_questions(make_world(1, 3), 1, (1, 2, -1, 0, 0, 0))
    assert make_questions(make_world(1, 3), 1, (0, 2, 0, 0, 0, 0))[0].question.task == 1
    many = make_questions(make_world(1, 1), 1, (40, 40, 40, 40, 40, 40))  # more than there are facts: asked again, under other ids
    assert sum(q.question.task == 0 for q in many) == 40 and len({q.question.id for q in many}) == len(many)
