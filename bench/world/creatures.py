"""Made-up creatures: looks, attacks, phases and how they hang together. A seed fixes a world; every seed has other names and facts.

Knows no graph, question or picture. Creatures are made one by one, so that 100,000 of them need not be in memory at once.

    python -c "from bench.world.creatures import make_world; print(make_world(7).creatures[0])"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from bench.world import lexicon as lx
from bench.world.lexicon import Split, split_of

SHAPES = ("ellipse", "box", "tri", "long")
COLOURS = 10
PHASED, WITH_EFFECTS, PAIRED = 9 / 22, 7 / 22, 5 / 22  # shares of creatures (20 phases, 9 effects in 22 creatures; Table 6)
MAX_ACTIONS = 14
FINISHERS = 0.3  # share of attacks that only continue others, as "Back Slam" does in the published graph


@dataclass(frozen=True, slots=True)
class Look:
    """How a creature is drawn: body shape, palette number, horns 0-2, wings, relative tail length, legs 2 or 4, relative size."""

    shape: str
    colour: int
    horns: int
    wings: bool
    tail: float
    legs: int
    size: float


@dataclass(frozen=True, slots=True)
class Action:
    """An attack: what is seen (motion, element), what a human wrote of it (caption, info), and where it leads.

    One that `opens` stands among its creature's (or its phase's) attacks; the others are finishers, which only continue another attack.

    `phases`: the phases that have it ("()" for a creature without phases). `follows`: (action name, condition or "").
    `next_phase`, `effect`, `stopped_by`: names, "" for none. `variants`: the same motion with another element.
    """

    name: str
    motion: str
    element: str | None
    caption: str
    info: str = ""
    phases: tuple[str, ...] = ()
    follows: tuple[tuple[str, str], ...] = ()
    next_phase: str = ""
    effect: str = ""
    stopped_by: str = ""
    variants: tuple[str, ...] = ()
    opens: bool = True


@dataclass(frozen=True, slots=True)
class Creature:
    """A root of the graph. `effects` are names of the lexicon; `phase_texts` are aligned with `phases`; partners are names or ""."""

    name: str
    look: Look
    species: str
    nickname: str
    habitat: str
    phases: tuple[str, ...]
    phase_texts: tuple[str, ...]
    actions: tuple[Action, ...]
    mostly_weak: str
    weak: tuple[str, ...]
    resist: tuple[str, ...]
    weapons: tuple[str, ...]
    effects: tuple[str, ...] = ()
    subspecies: str = ""
    mate: str = ""

    def action(self, name: str) -> Action:
        """The attack of this name; KeyError without one."""
        for action in self.actions:
            if action.name == name:
                return action
        raise KeyError(name)

    def same(self, action: Action) -> Action | None:
        """This creature's attack with the same motion and element, if it has one."""
        return next((a for a in self.actions if (a.motion, a.element) == (action.motion, action.element)), None)


@dataclass(frozen=True, slots=True)
class World:
    """All creatures of a seed, in the order of the data set."""

    seed: int
    split: Split
    creatures: tuple[Creature, ...]
    _by_name: dict[str, Creature] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((c.name, c) for c in self.creatures)

    def creature(self, name: str) -> Creature:
        """The creature of this name; KeyError without one."""
        return self._by_name[name]


def make_world(seed: int, creatures: int = 22, split: Split = "test") -> World:
    """The world of this seed, whole. The same arguments give the same world; names of the two splits never meet."""
    return World(seed, split, tuple(iter_creatures(seed, creatures, split)))


def iter_creatures(seed: int, creatures: int, split: Split = "test") -> Iterator[Creature]:
    """The same creatures one by one. Pairs (subspecies, mates) come one right after the other."""
    if creatures < 1:
        raise ValueError(f"a world needs at least one creature, got {creatures}")
    rng = Random(f"{seed}/{split}/{creatures}")
    names = _names(rng, creatures, split)
    pairs = _pairs(rng, creatures)
    lone = [i for i in range(creatures) if i not in pairs and i - 1 not in pairs]
    phased, with_effects = _plan(rng, creatures, lone)
    effect_names = _effect_groups(rng, len(with_effects))
    groups = dict(zip(sorted(with_effects), effect_names, strict=True))
    first: Creature | None = None
    for i, name in enumerate(names):
        own = Random(f"{seed}/{split}/{i}/{name}")
        if first is not None:  # the second of a pair
            kind = pairs[i - 1]
            yield _creature(own, name, split, 0, groups.get(i, ()), first, first.name if kind == "mate" else "", kind)
            first = None
            continue
        made = _creature(own, name, split, phased.get(i, 0), groups.get(i, ()))
        if i in pairs:
            made = replace(made, subspecies=names[i + 1]) if pairs[i] == "subspecies" else replace(made, mate=names[i + 1])
            first = made
        yield made


# ---- the plan of a world ---------------------------------------------------------------------------------------------
def _names(rng: Random, count: int, split: Split) -> list[str]:
    names: dict[str, None] = {}
    long = count > 2_000  # 2 and 3 syllables give about 8,000 test names
    while len(names) < count:
        name = rng.choice(lx.FIRST) + rng.choice(lx.NEXT)
        if long or rng.random() < 0.3:
            name += rng.choice(lx.NEXT)
        if long:
            name += rng.choice(lx.NEXT)
        if split_of(name) == split:
            names[name] = None
    return list(names)


def _pairs(rng: Random, count: int) -> dict[int, str]:
    """First index of a pair → "subspecies" or "mate"; three in five are subspecies. The second of a pair has no phases."""
    want = max(1, round(count * PAIRED)) if count > 1 else 0
    starts = rng.sample(range(count // 2), want) if want else []
    offset = count % 2 if rng.random() < 0.5 else 0
    return {2 * s + offset: "subspecies" if n % 5 < 3 else "mate" for n, s in enumerate(starts, start=rng.randrange(5))}


def _plan(rng: Random, count: int, lone: list[int]) -> tuple[dict[int, int], set[int]]:
    """How many phases which creature has, and which creatures have effects (preferably others)."""
    order = rng.sample(lone, len(lone))
    want = _share(rng, count * PHASED)
    phased = {i: 3 if n % 9 < 2 else 2 for n, i in enumerate(order[:want])}
    rest = [i for i in range(count) if i not in phased]
    rest = rng.sample(rest, len(rest))
    return phased, set(rest[: max(1, round(count * WITH_EFFECTS))])


def _share(rng: Random, expected: float) -> int:
    """An integer whose mean is `expected`: small worlds keep the proportions of large ones on average."""
    return int(expected) + (rng.random() < expected % 1)


def _effect_groups(rng: Random, count: int) -> list[tuple[str, ...]]:
    """Effects per creature that has some: an effect alone, or one and what it turns to. Seven creatures use up all nine."""
    out: list[tuple[str, ...]] = []
    chained = [e for e, (_, _, after) in lx.EFFECTS.items() if after]
    while len(out) < count:
        pairs = rng.sample(chained, 2)
        paired = {*pairs, *(lx.EFFECTS[p][2] for p in pairs)}
        groups = [(p, lx.EFFECTS[p][2]) for p in pairs] + [(e,) for e in lx.EFFECTS if e not in paired]
        out += rng.sample(groups, len(groups))
    return out[:count]


# ---- one creature ----------------------------------------------------------------------------------------------------
def _creature(
    rng: Random, name: str, split: Split, phase_count: int, effects: tuple[str, ...],
    partner: Creature | None = None, mate: str = "", relation: str = "",
) -> Creature:  # fmt: skip
    look = _look(rng)
    if partner is not None and relation == "subspecies":
        look = replace(partner.look, colour=(partner.look.colour + rng.randrange(1, COLOURS)) % COLOURS)
    phases = tuple(rng.sample(lx.PHASES, phase_count))
    drafts = _drafts(rng, split, partner)
    elements = rng.sample(lx.ELEMENT_NAMES, rng.choice((3, 4, 4, 5)))
    cut = rng.choice((1, 2))
    return Creature(
        name=name,
        look=look,
        species=partner.species if partner is not None else rng.choice(lx.SPECIES),
        nickname=_two_words(rng, split, lx.TITLES),
        habitat=rng.choice(lx.HABITATS),
        phases=phases,
        phase_texts=tuple(rng.sample(lx.PHASE_TEXTS, phase_count)),
        actions=_link(rng, drafts, phases, effects),
        mostly_weak=elements[0],
        weak=tuple(elements[1:cut]),
        resist=tuple(elements[cut:]),
        weapons=tuple(rng.sample(lx.WEAPONS, rng.choice((0, 1, 1, 2)))),
        effects=effects,
        mate=mate,
    )


def _look(rng: Random) -> Look:
    return Look(
        rng.choice(SHAPES), rng.randrange(COLOURS), rng.randrange(3), rng.random() < 0.5, rng.choice((0.8, 1.0, 1.25)),
        rng.choice((2, 4)), rng.uniform(0.88, 1.12),
    )  # fmt: skip


def _two_words(rng: Random, split: Split, nouns: tuple[str, ...]) -> str:
    while True:
        name = f"{rng.choice(lx.ADJECTIVES)} {rng.choice(nouns)}"
        if split_of(name) == split:
            return name


def _drafts(rng: Random, split: Split, partner: Creature | None) -> list[Action]:
    """Names and motions; a (motion, element) pair occurs once. A partner hands on four of its attacks, half of them renamed."""
    count = rng.randint(10, MAX_ACTIONS)
    out: dict[str, Action] = {}
    seen: set[tuple[str, str | None]] = set()
    motions = tuple(lx.MOTIONS)
    for n, old in enumerate(rng.sample(partner.actions, 4) if partner is not None else ()):
        name = old.name if n % 2 else _fresh(rng, split, out)
        if name not in out:
            out[name] = Action(name, old.motion, old.element, lx.caption(old.motion, old.element, rng))
            seen.add((old.motion, old.element))
    while len(out) < count:
        hard = rng.random() < 0.25 and out  # a hard negative: a motion that is there, with another element
        motion = rng.choice(tuple(out.values())).motion if hard else rng.choice(motions)
        element = rng.choice(lx.ELEMENTS) if motion in lx.NEEDS_ELEMENT or hard or rng.random() < 0.35 else None
        if (motion, element) in seen:
            continue
        seen.add((motion, element))
        name = _fresh(rng, split, out)
        out[name] = Action(
            name, motion, element, lx.caption(motion, element, rng), rng.choice(lx.ACTION_TEXTS) if rng.random() < 0.1 else ""
        )
    actions = list(out.values())
    rng.shuffle(actions)
    return actions


def _fresh(rng: Random, split: Split, used: dict[str, Action]) -> str:
    while True:
        name = _two_words(rng, split, lx.NOUNS)
        if name not in used:
            return name


def _link(rng: Random, drafts: list[Action], phases: tuple[str, ...], effects: tuple[str, ...]) -> tuple[Action, ...]:
    """Phases, follow-ups, phase changes, effects, props and variants of a creature's attacks."""
    finishers = [a.name for a in drafts[len(drafts) - max(2, round(len(drafts) * FINISHERS)) :]]
    out = []
    for n, draft in enumerate(drafts):
        own: tuple[str, ...] = ()
        if phases:  # in turn, so that no phase is empty; one attack in five belongs to two phases
            home, second = phases[n % len(phases)], phases[(n + 1) % len(phases)]
            both = rng.random() < 0.2
            own = tuple(p for p in phases if p == home or (both and p == second))
        others = [p for p in phases if p not in own]
        variants: tuple[str, ...] = ()
        if rng.random() < 0.12:
            variants = tuple(a.name for a in drafts if a.motion == draft.motion and a is not draft)[:2]
        opens = draft.name not in finishers
        out.append(
            replace(
                draft,
                phases=own,
                opens=opens,
                follows=_follows(rng, draft.name, finishers) if rng.random() < (0.65 if opens else 0.3) else (),
                next_phase=rng.choice(others) if others and rng.random() < 0.25 else "",
                effect=effects[0] if effects and rng.random() < 0.5 else "",
                stopped_by=rng.choice(lx.PROPS) if rng.random() < 0.12 else "",
                variants=variants,
            )
        )
    if effects and not any(a.effect and a.opens for a in out):
        out[0] = replace(out[0], effect=effects[0])
    for n, name in enumerate(finishers):  # no finisher that nothing leads to
        if not any(a.opens and name in dict(a.follows) for a in out):
            at = n % (len(out) - len(finishers))
            out[at] = replace(out[at], follows=(*out[at].follows, (name, "")))
    return tuple(out)


def _follows(rng: Random, name: str, names: list[str]) -> tuple[tuple[str, str], ...]:
    """One to three follow-ups (1.35 on average); conditions differ within an attack."""
    draw = rng.random()
    others = [n for n in names if n != name]
    targets = rng.sample(others, min(len(others), 1 if draw < 0.7 else 2 if draw < 0.95 else 3))
    conditions = rng.sample(lx.CONDITIONS, len(targets))
    return tuple((t, c if rng.random() < 0.45 else "") for t, c in zip(targets, conditions, strict=True))
