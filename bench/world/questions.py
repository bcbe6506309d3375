"""Questions about a made-up world, of all six sub-tasks, with gold answers and gold routes (MH-MMKG, Tables 1 and 7).

Knows no files and draws nothing; `WorldQuestion` says which creature does what in the question's clip.

    python -c "from bench.world.creatures import make_world; from bench.world.questions import make_questions
    print(*make_questions(make_world(7), 7), sep=chr(10))"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.world import lexicon as lx
from bench.world.creatures import Action, Creature, World
from kg.dataset import Question

COUNTS: Final = (24, 109, 28, 29, 35, 13)  # per 22 creatures (Table 1)
EXTRA: Final = "{{}} is under {}."

WORDINGS: Final[dict[str, tuple[str, ...]]] = {
    "nickname": ("What is the nickname of {}?", "Which nickname does {} have?"),
    "habitat": ("Where does {} live?", "What is the habitat of {}?"),
    "species": ("What is the species of {}?", "Which species does {} belong to?"),
    "name": ("What attack action is {} using?", "Name the attack action that {} performs.", "Which attack of {} is this?"),
    "follow": ("Which attack actions can follow this attack of {}?", "What can {} continue with after this attack?"),
    "condition": ("What does {} continue with after this attack <c>?", "Which attack action follows this attack of {} <c>?"),
    "phase": ("Which attack phase does {} change to after this attack?", "Which attack phase of {} comes after this attack?"),
    "prop": ("Which prop stops this attack of {}?", "What can stop {} during this attack?"),
    "weak": ("Which element is {} mostly weak to?", "Which element weakens {} the most?"),
    "generates": ("What does this attack of {} leave on the ground?", "What is left on the ground after {} uses this attack?"),
    "cause": ("What does this attack of {} cause?", "Which effect does this attack of {} have?"),
    "turns": ("What does the effect of this attack of {} turn to?", "What comes out of the effect after {} uses this attack?"),
    "subspecies": (
        "Which attack of the subspecies of {} is the same as this one?",
        "Name the attack of the subspecies of {} that is the same.",
    ),
    "mate": ("Which attack of the mated pair of {} is the same as this one?", "Name the attack of the mated pair of {} that is the same."),
}
TEXT_ONLY: Final = frozenset({"nickname", "habitat", "species", "weak"})
SHARES: Final = {"weak": 0.45, "condition": 0.3, "phase": 0.1, "prop": 0.15, "generates": 0.45, "cause": 0.35, "turns": 0.2}


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A question and what its media show.

    Attributes:
        question: without media; the writer fills those in.
        kind: a key of WORDINGS. creature: the root's name. action: name of the attack shown, None for pure text.
        phase: the phase that the extra text states, "" without. condition: the one that the text states, "" without.
        scene: seed of the picture's background.
    """

    question: Question
    kind: str
    creature: str
    action: str | None
    phase: str
    condition: str
    scene: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    task: int
    kind: str
    creature: Creature
    action: Action | None
    phase: str
    condition: str
    answer: str
    routes: tuple[tuple[str, ...], ...]


def default_counts(creatures: int) -> tuple[int, ...]:
    """The paper's numbers of questions per sub-task, in proportion to the number of creatures; at least one of each."""
    return tuple(max(1, round(n * creatures / 22)) for n in COUNTS)


def make_questions(world: World, seed: int, counts: Sequence[int] | None = None) -> tuple[WorldQuestion, ...]:
    """`counts[task]` questions of every sub-task, shuffled; the same arguments give the same questions.

    A sub-task that a small world cannot fill gets fewer distinct questions: what there is comes again with another
    wording and another scene, and nothing comes when the world has no such fact at all.
    """
    counts = default_counts(len(world.creatures)) if counts is None else counts
    if len(counts) != len(COUNTS) or min(counts) < 0:
        raise ValueError(f"counts are {len(COUNTS)} numbers of questions, one a sub-task, none below 0; got {tuple(counts)}")
    rng = Random(f"{world.seed}/{world.split}/{len(world.creatures)}/{seed}")
    pools: list[dict[str, list[_Candidate]]] = [{} for _ in COUNTS]
    for creature in world.creatures:
        for c in _candidates(world, creature):
            if counts[c.task]:
                pools[c.task].setdefault(c.kind, []).append(c)
    chosen: list[tuple[_Candidate, int]] = []
    for pool, count in zip(pools, counts, strict=True):
        chosen += _choose(rng, pool, count)
    rng.shuffle(chosen)
    numbers: dict[str, int] = {}
    return tuple(_ask(rng, c, again, row, numbers) for row, (c, again) in enumerate(chosen, start=1))


def _choose(rng: Random, pool: dict[str, list[_Candidate]], count: int) -> list[tuple[_Candidate, int]]:
    """`count` candidates and how often each came before; kinds by SHARES, none twice before all of the sub-task came once."""
    out: list[tuple[_Candidate, int]] = []
    total = sum(map(len, pool.values()))
    while pool and len(out) < count:
        # Attacks without a phase come first a little more often: that keeps the depths near Table 7.
        left = {k: sorted(cs, key=lambda c: rng.random() * (1.6 if c.phase else 1.0), reverse=True) for k, cs in pool.items()}
        while left and len(out) < count:
            kinds = list(left)
            kind = rng.choices(kinds, [SHARES.get(k, 1.0) for k in kinds])[0]
            out.append((left[kind].pop(), len(out) // total))
            if not left[kind]:
                del left[kind]
    return out


def _ask(rng: Random, c: _Candidate, again: int, row: int, numbers: dict[str, int]) -> WorldQuestion:
    wordings = WORDINGS[c.kind]
    text = wordings[(rng.randrange(len(wordings)) + again) % len(wordings)].replace("<c>", c.condition)
    base = f"{c.creature.name}_{c.action.name if c.action is not None else 'Pure Text'}"
    numbers[base] = n = numbers.get(base, 0) + 1
    name = f"{base}{n}" if n > 1 or c.action is None else base
    extra = EXTRA.format(c.phase) if c.phase else ""
    perception = "" if c.action is None else _paraphrase(rng, c.action)
    question = Question(name, row, text, c.creature.name, extra, perception, (), None, c.answer, c.routes, c.task)
    shown = None if c.action is None else c.action.name
    return WorldQuestion(question, c.kind, c.creature.name, shown, c.phase, c.condition, rng.getrandbits(30))


def _paraphrase(rng: Random, action: Action) -> str:
    """Another wording than the graph's own caption."""
    while (text := lx.caption(action.motion, action.element, rng)) == action.caption:
        pass
    return text


# ---- all that can be asked -------------------------------------------------------------------------------------------
def _candidates(world: World, c: Creature) -> Iterator[_Candidate]:
    root = (c.name,)
    yield _Candidate(0, "nickname", c, None, "", "", c.nickname, (root,))
    yield _Candidate(0, "habitat", c, None, "", "", c.habitat, (root,))
    yield _Candidate(0, "species", c, None, "", "", c.species, (root,))
    yield _Candidate(3, "weak", c, None, "", "", c.mostly_weak, ((c.name, c.mostly_weak),))
    for action in (a for a in c.actions if a.opens):
        for phase in action.phases or ("",):
            head = (c.name, phase, action.name) if phase else (c.name, action.name)
            yield from _about(c, action, phase, head)
        for kind, partner in (("subspecies", c.subspecies), ("mate", c.mate)):
            other = world.creature(partner) if partner else None
            same = other.same(action) if other is not None else None
            if other is not None and same is not None and same.opens and not other.phases:
                phase = action.phases[0] if action.phases else ""
                yield _Candidate(5, kind, c, action, phase, "", same.name, ((c.name, other.name, same.name),))


def _about(c: Creature, action: Action, phase: str, head: tuple[str, ...]) -> Iterator[_Candidate]:
    yield _Candidate(1, "name", c, action, phase, "", action.name, (head,))
    if action.follows:
        routes = tuple((*head, target) for target, _ in action.follows)
        yield _Candidate(2, "follow", c, action, phase, "", "; ".join(t for t, _ in action.follows), routes)
    for target, condition in action.follows:
        if condition:
            yield _Candidate(3, "condition", c, action, phase, condition, target, ((*head, target),))
    if action.next_phase:
        yield _Candidate(3, "phase", c, action, phase, "", action.next_phase, ((*head, action.next_phase),))
    if action.stopped_by:
        yield _Candidate(3, "prop", c, action, phase, "", action.stopped_by, ((*head, action.stopped_by),))
    if action.effect:
        relation, _, after = lx.EFFECTS[action.effect]
        kind = "generates" if relation == lx.GENERATES else "cause"
        yield _Candidate(4, kind, c, action, phase, "", action.effect, ((*head, action.effect),))
        if after in c.effects:
            yield _Candidate(4, "turns", c, action, phase, "", after, ((*head, action.effect, after),))
