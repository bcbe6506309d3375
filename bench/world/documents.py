"""What a made-up world's collections hold: articles on creatures and attacks, products, places, and which pictures were clicked for what.

Texts are short and of a closed grammar, each fact stands in one document only, so that the right document has to be found. Knows no
question, no index and no file; bench/world/collections.py writes them.

    python -c "from bench.world.creatures import make_world; from bench.world.documents import Library
    print(*Library(make_world(7)).documents[:6], sep=chr(10))"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from bench.world import lexicon as lx
from bench.world.creatures import Action, Creature, World
from bench.world.lexicon import Split, split_of

ARTICLES, PRODUCTS, PLACES = "articles", "products", "places"
COLLECTIONS = (ARTICLES, PRODUCTS, PLACES)


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A row of a collection. `creature` and `action` are what its pictures show ("" for none): the creature at rest, or attacking."""

    id: str
    collection: str
    title: str
    text: str
    tags: tuple[str, ...] = ()
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    creature: str = ""
    action: str = ""

    @property
    def told(self) -> str:
        """The text with the attributes, as applications say them (pipeline/applications.py)."""
        facts = "; ".join(f"{key}: {value}" for key, value in self.attributes.items())
        return f"{self.text}\n{facts}".strip() if facts else self.text


@dataclass(frozen=True, slots=True)
class Offer:
    """A product: who sells it, and for how many coins."""

    name: str
    shop: str
    price: int


class Library:
    """All documents of one world, and where each fact stands.

    Attributes:
        offers: props by name, and each creature's weapon as ``weapon/CREATURE``. camps: a creature's name → the camp near it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        rng = Random(f"library/{world.seed}/{world.split}")
        shops = [f"{made_name(rng, world.split)} Shop" for _ in range(max(2, len(world.creatures) // 4))]
        self.offers: dict[str, Offer] = {}
        for prop in lx.PROPS:
            self.offers[prop] = Offer(prop, rng.choice(shops), 5 * rng.randint(1, 18))
        self.camps: dict[str, str] = {}
        self._where: dict[str, tuple[int, int]] = {}
        taken: set[str] = set()
        for creature in world.creatures:
            if creature.weapons:
                name = f"{creature.weapons[0]} of {creature.name}"
                self.offers[f"weapon/{creature.name}"] = Offer(name, rng.choice(shops), 5 * rng.randint(1, 18))
            while (camp := f"{made_name(rng, world.split)} Camp") in taken:
                pass
            taken.add(camp)
            self.camps[creature.name] = camp
            self._where[creature.name] = rng.randint(10, 60), rng.randint(10, 90)

    @cached_property
    def documents(self) -> tuple[WorldDocument, ...]:
        """Articles, then products, then places."""
        out: list[WorldDocument] = []
        for creature in self.world.creatures:
            out += [_about(creature), _weakness(creature), *(_attack(creature, action) for action in creature.actions)]
        for key, offer in self.offers.items():
            text = "Hunters use it to stop attacks." if key in lx.PROPS else f"It is a weapon made from {key.partition('/')[2]}."
            tags = () if key in lx.PROPS else (key.partition("/")[2],)
            out.append(WorldDocument(key, PRODUCTS, offer.name, text, tags, {"price": offer.price, "shop": offer.shop}))
        for creature in self.world.creatures:
            latitude, longitude = self._where[creature.name]
            attributes: dict[str, str | int] = {"area": creature.habitat, "latitude": latitude, "longitude": longitude}
            text = f"Hunters of {creature.name} meet there."
            out.append(WorldDocument(f"camp/{creature.name}", PLACES, self.camps[creature.name], text, (creature.name,), attributes))
        return tuple(out)

    @cached_property
    def by_id(self) -> Mapping[str, WorldDocument]:
        return {document.id: document for document in self.documents}

    @cached_property
    def by_title(self) -> Mapping[str, WorldDocument]:
        """Titles are unique within a world."""
        return {document.title: document for document in self.documents}

    @cached_property
    def words(self) -> Mapping[str, frozenset[str]]:
        """What each document says, as a bag of words, by id."""
        return {document.id: words_in(f"{document.title} {document.told}") for document in self.documents}

    @cached_property
    def clicks(self) -> tuple[tuple[str, str], ...]:
        """(query, id of the document whose picture was clicked), oldest first; popular attacks come often, a few clicks are stray."""
        rng = Random(f"clicks/{self.world.seed}/{self.world.split}")
        out: list[tuple[str, str]] = []
        for creature in self.world.creatures:
            for action in creature.actions:
                for _ in range(rng.choice((0, 1, 2, 4))):
                    query = rng.choice(
                        (creature.name, f"{creature.name} {action.name}", f"{action.name} attack", f"attacks of {creature.name}")
                    )
                    stray = rng.random() < 0.05
                    meant = rng.choice(rng.choice(self.world.creatures).actions) if stray else None
                    other = next((c for c in self.world.creatures if meant in c.actions), creature) if meant else creature
                    out.append((query, attack_id(other, meant or action)))
        return tuple(out)


def words_in(text: str) -> frozenset[str]:
    """The words that tell something."""
    return frozenset(re.findall(r"\w+", text.casefold())) - _STOP


_STOP = frozenset("the a of is it to what where which how does do this can i in and that".split())  # noqa: SIM905


def made_name(rng: Random, split: Split) -> str:
    """A made-up name of two syllables that the other split never has."""
    while True:
        name = rng.choice(lx.FIRST) + rng.choice(lx.NEXT)
        if split_of(name) == split:
            return name


def attack_id(creature: Creature, action: Action) -> str:
    return f"{creature.name}/{action.name}"


def weakness_id(creature: Creature) -> str:
    return f"{creature.name}/weakness"


def _about(c: Creature) -> WorldDocument:
    text = f"Its species is {c.species}. Its nickname is {c.nickname}. It lives in the {c.habitat}."
    return WorldDocument(c.name, ARTICLES, c.name, text, (c.name, c.species), creature=c.name)


def _weakness(c: Creature) -> WorldDocument:
    text = f"It is mostly weak to {c.mostly_weak}." + (f" It is resistant to {' and '.join(c.resist)}." if c.resist else "")
    return WorldDocument(weakness_id(c), ARTICLES, f"Weakness of {c.name}", text, (c.name,))


def _attack(c: Creature, a: Action) -> WorldDocument:
    parts = [a.caption]
    if a.effect:
        parts.append(f"It {'leaves' if lx.EFFECTS[a.effect][0] == lx.GENERATES else 'causes'} {a.effect}.")
    if a.stopped_by:
        parts.append(f"{a.stopped_by} stops it.")
    if a.follows:
        parts.append(f"After it comes {' and '.join(target for target, _ in a.follows)}.")
    tags = (c.name, a.name)
    return WorldDocument(attack_id(c, a), ARTICLES, f"{a.name} of {c.name}", " ".join(parts), tags, creature=c.name, action=a.name)
