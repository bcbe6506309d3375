"""Primers: tiny tasks of no agent that teach what the agents' tasks need, cheaply: to copy names, to look one up, to compare.

Prompt and reply as plain text; without pictures. Knows the lexicon, no world and no tokens.

    python -c "from random import Random; from bench.tiny.primers import PRIMERS; print(PRIMERS['find'](Random(1)))"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from bench.world import lexicon as lx
from bench.world.questions import WORDINGS

Pair = tuple[str, str]


def creature_name(rng: Random) -> str:
    """A name that no test world has."""
    while True:
        name = rng.choice(lx.FIRST) + rng.choice(lx.NEXT) + (rng.choice(lx.NEXT) if rng.random() < 0.3 else "")
        if lx.split_of(name) == "train":
            return name


def attack_name(rng: Random) -> str:
    """A two-word name that no test world has."""
    while True:
        name = f"{rng.choice(lx.ADJECTIVES)} {rng.choice(lx.NOUNS)}"
        if lx.split_of(name) == "train":
            return name


def _names(rng: Random, most: int) -> list[str]:
    make = attack_name if rng.random() < 0.7 else creature_name
    return list(dict.fromkeys(make(rng) for _ in range(rng.randint(2, most))))


def copy(rng: Random) -> Pair:
    """Repeat a list of names, or one of several lists: stopping where it ends is half of what an expansion takes."""
    if rng.random() < 0.3:
        text = "; ".join(_names(rng, 12))
        return f"copy . {text.replace('; ', ' ; ')}", text
    groups = {relation: _names(rng, 10) for relation in rng.sample(lx.RELATIONS, rng.randint(2, 4))}
    wanted = rng.choice(list(groups))
    shown = " ; ".join(f"[ {relation} ] {' ; '.join(names)}" for relation, names in groups.items())
    return f"copy . {wanted} neighbors : {shown}", "; ".join(groups[wanted])


def find(rng: Random) -> Pair:
    """Say the name that stands behind a key: a condition, a caption or another name; or a fact among a creature's facts."""
    if rng.random() < 0.4:
        return _fact(rng)
    names = _names(rng, 6)
    keys: dict[str, str] = {}
    for name in names:
        draw = rng.random()
        key = rng.choice(lx.CONDITIONS) if draw < 0.4 else creature_name(rng) if draw < 0.7 else any_caption(rng)
        keys.setdefault(key, name)
    wanted = rng.choice(list(keys))
    return "find . " + " ; ".join(f"{k} : {n}" for k, n in keys.items()) + f" . {wanted} ?", keys[wanted]


def _fact(rng: Random) -> Pair:
    """One of the three facts that a root's text states, of one or two creatures."""
    facts = {
        creature_name(rng): {
            "species": rng.choice(lx.SPECIES),
            "nickname": f"{rng.choice(lx.ADJECTIVES)} {rng.choice(lx.TITLES)}",
            "habitat": rng.choice(lx.HABITATS),
        }
        for _ in range(rng.randint(1, 2))
    }
    told = " ; ".join(
        f"{name} ( Its species is {f['species']}. Its nickname is {f['nickname']}. It lives in the {f['habitat']}. )"
        for name, f in facts.items()
    )
    name, kind = rng.choice(list(facts)), rng.choice(("species", "nickname", "habitat"))
    return f"find . {told} . {rng.choice(WORDINGS[kind]).format(name)}", facts[name][kind]


def equal(rng: Random) -> Pair:
    """Are two names, or two lists, the same? Wrong ones differ in one word."""
    left = _names(rng, 3)
    right = list(left)
    same = rng.random() < 0.5
    if not same:
        place = rng.randrange(len(right))
        words = right[place].split()
        if len(words) == 2:
            spot = rng.randrange(2)
            words[spot] = rng.choice([w for w in (lx.ADJECTIVES, lx.NOUNS)[spot] if w != words[spot]])
            right[place] = " ".join(words)
        else:
            right[place] = creature_name(rng)
    if rng.random() < 0.4:
        rng.shuffle(right)
    return f"equal . {'; '.join(left)} . {'; '.join(right)}", "Yes" if set(left) == set(right) else "No"


def name_it(rng: Random) -> Pair:
    """Put a paraphrase into the canonical words: what comparing two captions rests on."""
    motion, element = any_action(rng)
    return f"say . {lx.caption(motion, element, rng)}", lx.caption(motion, element)


def pick(rng: Random) -> Pair:
    """Which of several named captions shows what the query shows? The search's question, without its graph."""
    motion, element = any_action(rng)
    seen = {(motion, element): attack_name(rng)}
    for _ in range(rng.randint(1, 3)):
        other = (motion, rng.choice(lx.ELEMENTS)) if rng.random() < 0.5 else any_action(rng)
        seen.setdefault(other, attack_name(rng))
    items = list(seen.items())
    rng.shuffle(items)
    text = " . ".join(f"{name} ( {lx.caption(m, e, rng)} )" for (m, e), name in items)
    return f"pick . query : {lx.caption(motion, element, rng)} . {text}", seen[motion, element]


def any_action(rng: Random) -> tuple[str, str | None]:
    """A motion and its element, if it has one."""
    motion = rng.choice(tuple(lx.MOTIONS))
    return motion, rng.choice(lx.ELEMENTS) if motion in lx.NEEDS_ELEMENT or rng.random() < 0.45 else None


def any_caption(rng: Random) -> str:
    """A sentence for any action, without its full stop."""
    return lx.caption(*any_action(rng), rng).rstrip(".")


PRIMERS: Mapping[str, Callable[[Random], Pair]] = {"copy": copy, "find": find, "equal": equal, "say": name_it, "pick": pick}
