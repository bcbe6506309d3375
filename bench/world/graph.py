"""The knowledge graph of a made-up world, in memory, and the card of its data set.

Knows nothing of files: bench/world/write.py puts the same entities and edges into sheets, in the same order.

    python -c "from bench.world.creatures import make_world; from bench.world.graph import world_graph; print(world_graph(make_world(7)))"
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.world import lexicon as lx
from bench.world.creatures import Creature, World
from kg.dataset import Card
from kg.graph import Edge, Entity

Triple = tuple[str, str, str, str]  # source name, relation, condition, target name: local names of one creature's sheet

PERSONA = "You study the creatures of a made-up world: their attacks, their phases and what they are weak to."
TASKS = (
    "Individual Information",
    "Attack Recognition",
    "Combo Premonition",
    "Condition Awareness",
    "Proc Effect Insight",
    "Cross Monster Analysis",
)


def card() -> Card:
    """What a data set of a made-up world calls its things; the sub-tasks are those of Table 1."""
    return Card("A made-up world", PERSONA, lx.ROOT, dict(lx.KINDS), TASKS, lx.PHASE, lx.ACTION, "creature")


def own_nodes(creature: Creature) -> list[tuple[str, str, str, str]]:
    """(name, kind, caption, info) of the creature and of what belongs to it alone, in the order of its sheet."""
    about = f"Its species is {creature.species}. Its nickname is {creature.nickname}. It lives in the {creature.habitat}."
    rows = [(creature.name, lx.ROOT, "", about)]
    rows += [(p, lx.PHASE, "", text) for p, text in zip(creature.phases, creature.phase_texts, strict=True)]
    rows += [(a.name, lx.ACTION, a.caption, a.info) for a in creature.actions]
    rows += [(e, lx.EFFECT, "", lx.EFFECTS[e][1]) for e in creature.effects]
    return rows


def shared_nodes(creature: Creature) -> list[tuple[str, str]]:
    """(name, kind) of what it shares with others: elements, weapons, props; each once."""
    rows: dict[str, str] = {}
    for element in (creature.mostly_weak, *creature.weak, *creature.resist):
        rows[element] = lx.ELEMENT
    rows.update((w, lx.WEAPON) for w in creature.weapons)
    rows.update((a.stopped_by, lx.PROP) for a in creature.actions if a.stopped_by)
    return list(rows.items())


def triples(creature: Creature) -> list[Triple]:
    """The creature's edges by local name, in the order of its sheet."""
    me = creature.name
    out: list[Triple] = [(me, lx.HAS_PHASE, "", p) for p in creature.phases]
    if creature.phases:
        out += [(p, lx.HAS_ACTION, "", a.name) for p in creature.phases for a in creature.actions if a.opens and p in a.phases]
    else:
        out += [(me, lx.HAS_ACTION, "", a.name) for a in creature.actions if a.opens]
    for a in creature.actions:
        out += [(a.name, lx.CONTINUES, condition, target) for target, condition in a.follows]
        relation = lx.HAS_VARIANT if len(a.variants) == 1 else lx.HAS_VARIANTS
        out += [(a.name, relation, "", v) for v in a.variants]
        if a.next_phase:
            out.append((a.name, lx.CHANGES_PHASE, "", a.next_phase))
        if a.stopped_by:
            out.append((a.name, lx.STOPPED_BY, "", a.stopped_by))
        if a.effect:
            out.append((a.name, lx.EFFECTS[a.effect][0], "", a.effect))
    out += [(e, lx.TURNS_TO, "", lx.EFFECTS[e][2]) for e in creature.effects if lx.EFFECTS[e][2] in creature.effects]
    out.append((me, lx.MOSTLY_WEAK, "", creature.mostly_weak))
    out += [(me, lx.WEAK, "", e) for e in creature.weak]
    out += [(me, lx.RESISTANT, "", e) for e in creature.resist]
    out += [(me, lx.MATERIALS, "", w) for w in creature.weapons]
    out += [(me, lx.SUBSPECIES, "", creature.subspecies)] if creature.subspecies else []
    out += [(me, lx.MATED, "", creature.mate)] if creature.mate else []
    return out


class WorldGraph:
    """kg.graph.Graph over one world. `names`: (owner, name) → entity; edges in the order of the sheets."""

    def __init__(self, world: World) -> None:
        self.entities: list[Entity] = []
        self._ids: dict[tuple[str, str], int] = {}
        roots: list[int] = []
        for creature in world.creatures:
            roots.append(len(self.entities))
            for name, kind, caption, info in own_nodes(creature):
                self._add(name, "" if kind == lx.ROOT else creature.name, kind, caption, info)
        for creature in world.creatures:
            for name, kind in shared_nodes(creature):
                if ("", name) not in self._ids:
                    self._add(name, "", kind)
        self._roots = tuple(roots)
        self._edges: list[list[Edge]] = [[] for _ in self.entities]
        for creature in world.creatures:
            for source, relation, condition, target in triples(creature):
                edge = Edge(self._id(source, creature.name), relation, self._id(target, creature.name), "", condition)
                self._edges[edge.source].append(edge)

    def _add(self, name: str, owner: str, kind: str, caption: str = "", info: str = "") -> None:
        index = len(self.entities)
        self.entities.append(Entity(index, name, owner, kind, (), None, caption, info))
        self._ids[owner, name] = index

    def _id(self, name: str, owner: str) -> int:
        index = self._ids.get((owner, name))
        return self._ids["", name] if index is None else index

    @property
    def roots(self) -> Sequence[int]:
        """The creatures, in the world's order."""
        return self._roots

    def entity(self, index: int) -> Entity:
        """The entity with this number."""
        return self.entities[index]

    def neighbours(self, index: int) -> Sequence[Edge]:
        """Edges that leave this entity, in the order of the sheets."""
        return self._edges[index]

    def find(self, name: str, owner: str = "") -> int | None:
        """The entity that `owner` means by `name`: its own first, then a shared one or a root."""
        index = self._ids.get((owner, name))
        return self._ids.get(("", name)) if index is None else index

    def __len__(self) -> int:
        return len(self.entities)

    def __repr__(self) -> str:
        return f"WorldGraph({len(self._roots)} creatures, {len(self.entities)} entities, {sum(map(len, self._edges))} edges)"


def world_graph(world: World) -> WorldGraph:
    """The graph of a world; names are local to their creature, except creatures, elements, weapons and props."""
    return WorldGraph(world)
