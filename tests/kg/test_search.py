"""The search against scripted replies: equations 5 to 10, loops, several parents, phases, limits, orders of arrival."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kg.agents import Agents
from kg.dataset import Card
from kg.graph import Edge, Entity, Walk
from kg.search import Query, SearchConfig, SearchResult, View, search
from models.agents import Call

CARD = Card("toy", "You know this toy world.", "root", {}, ("I",), phase_kind="phase", action_kind="action", subject="toy")
AGENTS = Agents.load(CARD, "compact")


@dataclass
class Toy:
    """A graph written as {"A": ["B", "C"]}; the first key is the root. Names starting with P are phases."""

    shape: dict[str, list[str]]
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = list(dict.fromkeys([*self.shape, *(name for targets in self.shape.values() for name in targets)]))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def roots(self) -> list[int]:
        return [0]

    def entity(self, index: int) -> Entity:
        name = self.names[index]
        kind = "root" if index == 0 else "phase" if name.startswith("P") else "action"
        return Entity(index, name, "", kind, caption=f"caption of {name}")

    def neighbours(self, index: int) -> list[Edge]:
        return [Edge(index, "leads to", self.names.index(target)) for target in self.shape.get(self.names[index], [])]

    def find(self, name: str, owner: str = "") -> int | None:
        return self.names.index(name) if name in self.names else None


def run(
    toy: Toy,
    sufficient: set[str],
    config: SearchConfig = SearchConfig(),
    choose: Callable[[str, list[str]], str] | None = None,
    view: View | None = None,
) -> tuple[SearchResult, list[Call[Any]]]:
    """Plays the search: everything is chosen, and the named entities are judged sufficient."""
    log: list[Call[Any]] = []

    def reply(call: Call[Any]) -> str:
        log.append(call)
        if call.stage == "topic":
            return toy.names[0]
        name = toy.names[call.about.end]
        if call.stage == "expander":
            options = [toy.names[edge.target] for edge in toy.neighbours(call.about.end)]
            return choose(name, options) if choose else "; ".join(options)
        verdict = "Yes" if name in sufficient else "No"
        return verdict if call.stage == "validator" else f"seen {name}; {verdict}"

    episode = search(Query("What?", "a scene"), toy, AGENTS, view or View(lambda entity: entity.caption), config)
    try:
        calls = next(episode)
        while True:
            calls = episode.send([call.parse(reply(call)) for call in calls])
    except StopIteration as stop:
        return stop.value, log


def paths(toy: Toy, result: SearchResult) -> list[str]:
    return [">".join(toy.names[node] for node in walk.nodes) for walk in result.walks]


def test_breadth_first_finds_shorter_walks_first() -> None:
    toy = Toy({"R": ["A", "B"], "A": ["C"], "B": ["D"], "C": ["E"]})
    result, _ = run(toy, {"E", "D"})
    assert paths(toy, result) == ["R>B>D", "R>A>C>E"]
    assert result.rounds == 3


def test_a_sufficient_entity_is_not_opened_again() -> None:
    toy = Toy({"R": ["A"], "A": ["B"]})
    result, log = run(toy, {"A"})
    assert paths(toy, result) == ["R>A"]
    assert [toy.names[call.about.end] for call in log if call.stage == "expander"] == ["R"]


def test_a_sufficient_root_ends_the_search() -> None:
    toy = Toy({"R": ["A"]})
    result, log = run(toy, {"R"})
    assert paths(toy, result) == ["R"]
    assert [call.stage for call in log] == ["topic", "validator"]


def test_every_parent_counts_and_the_entity_is_asked_once() -> None:
    toy = Toy({"R": ["A", "B"], "A": ["C"], "B": ["C"]})
    result, log = run(toy, {"C"})
    assert paths(toy, result) == ["R>A>C", "R>B>C"]
    assert [toy.names[call.about.end] for call in log if call.stage == "validator"].count("C") == 1


def test_by_path_each_way_is_explored_for_itself() -> None:
    toy = Toy({"R": ["A", "B"], "A": ["C"], "B": ["C"]})
    result, log = run(toy, {"C"}, SearchConfig(visited="path"))
    assert paths(toy, result) == ["R>A>C", "R>B>C"]
    assert [toy.names[call.about.end] for call in log if call.stage == "validator"].count("C") == 2


def test_loops_are_closed_and_not_walked() -> None:
    toy = Toy({"R": ["A"], "A": ["B"], "B": ["A", "R", "B", "C"]})
    for visited in ("node", "path"):
        result, _ = run(toy, {"C"}, SearchConfig(visited=visited))  # type: ignore[arg-type]
        assert paths(toy, result) == ["R>A>B>C"]


def test_one_phase_an_expansion() -> None:
    toy = Toy({"R": ["P1", "P2", "A"], "P1": ["B"], "P2": ["C"]})
    result, _ = run(toy, {"A", "B", "C"}, choose=lambda name, options: "P2; P1; A" if name == "R" else "; ".join(options))
    assert paths(toy, result) == ["R>A", "R>P2>C"]


def test_first_k_walks_exactly() -> None:
    toy = Toy({"R": [f"A{i}" for i in range(9)]})
    result, _ = run(toy, set(toy.names[1:]), SearchConfig(max_paths=5))
    assert paths(toy, result) == [f"R>A{i}" for i in range(5)]
    result, _ = run(toy, set(toy.names[1:]), SearchConfig(max_paths=0))
    assert len(result.walks) == 9


def test_depth_first_completes_one_branch_before_the_next() -> None:
    toy = Toy({"R": ["A", "B"], "A": ["C"], "C": ["D"], "B": ["E"]})
    result, _ = run(toy, {"D", "E"}, SearchConfig(order="dfs", max_paths=1))
    assert paths(toy, result) == ["R>A>C>D"]
    result, _ = run(toy, {"D", "E"}, SearchConfig(order="bfs", max_paths=1))
    assert paths(toy, result) == ["R>B>E"]


def test_leaves_are_the_ends_of_the_subgraph() -> None:
    toy = Toy({"R": ["A", "B"], "A": ["C"]})
    result, _ = run(toy, set(), SearchConfig(paths="leaves"))
    assert paths(toy, result) == ["R>B", "R>A>C"]
    result, _ = run(toy, set(), SearchConfig(paths="leaves", visited="path"))
    assert paths(toy, result) == ["R>B", "R>A>C"]


def test_limits_are_said() -> None:
    toy = Toy({"R": ["A"], "A": ["B"], "B": ["C"]})
    result, _ = run(toy, set(), SearchConfig(max_rounds=2))
    assert result.limits == ("2 rounds",)
    result, _ = run(toy, set(), SearchConfig(max_calls=4))
    assert result.limits == ("4 calls",)


def test_online_captions_stay_inside_the_question_and_reach_the_next_prompt() -> None:
    toy = Toy({"R": ["A"], "A": ["B"]})
    view = View(lambda entity: "", lambda entity: ("picture",))  # type: ignore[arg-type,return-value]
    result, log = run(toy, {"B"}, view=view)
    assert dict(result.captions) == {1: "seen A", 2: "seen B"}
    assert [call.stage for call in log] == ["topic", "validator", "expander", "validator_online", "expander", "validator_online"]
    assert "seen A" in log[4].request.text and "caption of A" not in log[4].request.text
    again, _ = run(toy, {"B"}, view=view)
    assert again.captions is not result.captions


def test_unclear_replies_and_dropped_names_are_counted() -> None:
    toy = Toy({"R": ["A", "B"]})
    result, _ = run(toy, {"A"}, choose=lambda name, options: "A; Zzz")
    assert (paths(toy, result), result.dropped, result.unclear) == (["R>A"], 1, 0)
    result, _ = run(toy, set(), choose=lambda name, options: "what do you mean?")
    assert (result.walks, result.unclear) == ((), 1)


def test_no_topic_ends_the_search() -> None:
    toy = Toy({"R": ["A"]})
    episode = search(Query("What?", ""), toy, AGENTS, View(lambda entity: ""), SearchConfig())
    (call,) = next(episode)
    try:
        episode.send([call.parse("somebody else")])
        raise AssertionError("the search went on without a topic")
    except StopIteration as stop:
        assert stop.value == SearchResult(None, calls=1, unclear=1)


@st.composite
def toys(draw: st.DrawFn) -> tuple[Toy, set[str]]:
    count = draw(st.integers(2, 7))
    names = ["R", *(f"N{i}" for i in range(1, count))]
    shape = {name: draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) for name in names}
    return Toy(shape), draw(st.sets(st.sampled_from(names)))


@settings(max_examples=150, deadline=None)
@given(toys())
def test_node_and_path_agree_with_the_graph(case: tuple[Toy, set[str]]) -> None:
    """Every walk found runs over edges, without loops, and its end is sufficient; unlimited, both ways of visiting reach the same ends."""
    toy, sufficient = case
    ends = {}
    for visited in ("node", "path"):
        for order in ("bfs", "dfs"):
            config = SearchConfig(max_paths=0, visited=visited, order=order, max_rounds=20, max_calls=10_000)  # type: ignore[arg-type]
            result, _ = run(toy, sufficient, config)
            for walk in result.walks:
                assert len(set(walk.nodes)) == len(walk.nodes)
                assert toy.names[walk.end] in sufficient
                assert all(target in [edge.target for edge in toy.neighbours(node)] for node, target in pairwise(walk.nodes))
            assert len(set(result.walks)) == len(result.walks)
            ends[visited, order] = {walk.end for walk in result.walks}
    assert len(set(map(frozenset, ends.values()))) == 1
    assert isinstance(Walk((0,)), Walk)
