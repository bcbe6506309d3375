"""Every word of the sample world: names, places, elements, effects, and the closed grammar of captions.

Knows nothing of graphs, questions or pictures. The language is small on purpose: a 5 M parameter model has to read all of it.

    python -c "from bench.world.lexicon import caption; print(caption('breath', 'fire'))"
"""

from __future__ import annotations

from random import Random
from typing import Final, Literal
from zlib import crc32

Split = Literal["train", "test"]

# ---- kinds (MH-MMKG, Table 6) and base relations (section 7.1) -------------------------------------------------------
ROOT, ACTION, PHASE = "creature", "action", "phase"
ELEMENT, WEAPON, PROP, EFFECT = "element", "weapon", "prop", "effect"
KINDS: Final = {
    ROOT: "a creature; a search may start here",
    ACTION: "an attack movement of a creature, with a clip and its description",
    PHASE: "a state in which a creature has attacks of its own",
    ELEMENT: "an element that a creature resists or is weak to",
    WEAPON: "a weapon made from a creature's materials",
    PROP: "a thing that hunters use on creatures",
    EFFECT: "what an attack leaves or causes",
}
HAS_ACTION, CONTINUES = "has attack action of", "continues with attack action of"
HAS_VARIANT, HAS_VARIANTS = "has attack variant of", "has attack variants of"
HAS_PHASE, CHANGES_PHASE = "has attack phase of", "change attack phase to"
MOSTLY_WEAK, WEAK, RESISTANT = "is mostly weaken with", "is weaken with", "is resistant with"
MATERIALS, STOPPED_BY = "provide materials for", "can be stopped by"
GENERATES, CAUSE, TURNS_TO = "generates", "cause", "turns to"
MATED, SUBSPECIES = "mated pair with", "has subspecies of"
RELATIONS: Final = (
    HAS_ACTION, CONTINUES, HAS_VARIANT, HAS_PHASE, CHANGES_PHASE, MOSTLY_WEAK, WEAK, RESISTANT,
    MATERIALS, STOPPED_BY, HAS_VARIANTS, GENERATES, CAUSE, TURNS_TO, MATED, SUBSPECIES,
)  # fmt: skip


def _words(text: str, ending: str = "") -> tuple[str, ...]:
    return tuple(word + ending for word in text.split())


# ---- names -----------------------------------------------------------------------------------------------------------
FIRST: Final = _words(
    "Var Zin Mor Kel Dra Tor Gar Bel Nar Rath Ul Os Fen Gor Hal Ish Jor Kir Lun Mag Nok Pra Qua Ron Sil Tig Vol Wex Yan Zor "
    "Bra Chi Dun Eld Fro Gly"
)
NEXT: Final = _words(
    "kun gre dok los mar nix path ros tas vak wyn xil zan bal cer dron far gon hul jin kor lith mun nor por ran sor thul vex yar"
)
ADJECTIVES: Final = _words(
    "Ember Frost Storm Iron Shadow Crimson Azure Silent Savage Rolling Twin Grand Rising Falling Thunder Venom Dusk Dawn Hollow Razor "
    "Stone Wild Burning Bitter Ancient Royal Swift Heavy Broken Golden Silver Phantom Tidal Ashen Blazing Cruel Dire Final Giant Holy "
    "Jade Lunar Mad Night Pale Quick Red Solar Tri Under"
)
NOUNS: Final = _words(
    "Sweep Fang Roar Claw Dance Blast Crash Wave Fury Strike Lance Hammer Spiral Howl Rush Breaker Cannon Edge Flare Grip Horn "
    "Judgment Kick Lash Maelstrom Nova Orbit Pounce Quake Rend Slam Talon Uppercut Vortex Whip Arrow Bloom Comet Drill Echo"
)
TITLES: Final = _words("King Queen Knight Hermit Terror Giant Ghost Warden")
PHASES: Final = _words("Charged Enraged Calm Frozen Armored Tired Airborne Hidden Molten Feral Radiant Cursed", " Phase")
HABITATS: Final = _words("swamp desert tundra volcano jungle canyon island cavern plains ruins glacier reef")
SPECIES: Final = _words("drake wyvern beast serpent raptor turtle moth crab")
ELEMENT_NAMES: Final = _words("Fire Ice Lightning Water Poison Wind Earth Light Dark", " Element")
WEAPONS: Final = (*(f"{e} Weapon" for e in ELEMENT_NAMES), "Raw Element Weapon")
PROPS: Final = _words("Pierce Flash Smoke Sleep Sonic Net", " Pod")
EFFECTS: Final = {  # name → (relation that leads to it, text, what it may turn to)
    "Ice Patch": (GENERATES, "The ground is slippery.", "Deep Freeze"),
    "Slime Pool": (GENERATES, "The ground is covered with slime.", "Slime Burst"),
    "Dust Cloud": (GENERATES, "The hunter sees nothing.", ""),
    "Hot Ash": (GENERATES, "The ground glows.", "Ash Fire"),
    "Deep Freeze": (CAUSE, "The hunter is frozen.", ""),
    "Slime Burst": (CAUSE, "The slime explodes.", ""),
    "Ash Fire": (CAUSE, "The ash burns the hunter.", ""),
    "Stun": (CAUSE, "The hunter is stunned.", ""),
    "Toxin": (CAUSE, "The hunter loses health.", ""),
}
CONDITIONS: Final = (
    "when hunter is hit", "when hunter is far", "when hunter is close", "when hunter is behind", "when hunter dodges",
    "when tail is cut", "when horn is broken", "when it is night", "when it is angry", "when it is near the wall",
)  # fmt: skip
PHASE_TEXTS: Final = (
    "It attacks more often.", "Its attacks are stronger.", "It moves slowly.", "Its body is hard.", "It is easy to hit.",
)  # fmt: skip
ACTION_TEXTS: Final = ("It is hard to dodge.", "It is easy to dodge.", "It hits many times.", "It is used often.")

# ---- captions --------------------------------------------------------------------------------------------------------
ELEMENTS: Final = ("fire", "ice", "lightning", "water", "poison")
MOTIONS: Final[dict[str, tuple[str, str, str]]] = {  # the first wording is the canonical one; {e} is the element
    "tail_left": ("sweeps its tail to the left", "swings the tail leftward", "lashes left with its long tail"),
    "tail_right": ("sweeps its tail to the right", "swings the tail rightward", "lashes right with its long tail"),
    "leap": ("leaps forward in a high arc", "jumps through the air toward the hunter", "springs ahead with a long jump"),
    "charge": ("charges along the ground", "runs straight at the hunter", "rushes ahead with the head low"),
    "breath": ("breathes a stream of {e}", "exhales {e} from its mouth", "opens its jaws and sprays {e}"),
    "ball": ("spits a ball of {e}", "shoots a round {e} projectile", "launches one {e} orb"),
    "slam": ("slams the ground", "rears up and crashes down", "pounds the earth with its body"),
    "spin": ("spins around in place", "whirls its body in a circle", "turns round and round"),
    "roar": ("raises its head and roars", "lets out a loud roar", "howls with the head up"),
    "dive": ("flies up and dives", "takes off and swoops down", "climbs into the sky then plunges"),
    "dig": ("digs under the ground", "burrows below the floor", "sinks into the soil"),
    "rock": ("throws a rock", "hurls a stone", "tosses a boulder at the hunter"),
    "bite": ("bites with its jaws", "snaps its teeth", "lunges the head to bite"),
    "back": ("jumps backward", "hops away from the hunter", "retreats with a back step"),
}
NEEDS_ELEMENT: Final = frozenset({"breath", "ball"})
SUBJECTS: Final = ("The creature", "It", "The beast")
AURAS: Final = ("with {e} around it", "while {e} covers its body", "and {e} bursts from it")  # an element on any other motion


def caption(motion: str, element: str | None, rng: Random | None = None) -> str:
    """The sentence for a motion and its element: canonical (what a perceiver says), or with `rng` a random paraphrase."""
    if rng is None:
        return _sentence(SUBJECTS[0], MOTIONS[motion][0], AURAS[0], motion, element)
    pick = int(rng.random() * 27)  # one draw: this runs millions of times in training
    return _sentence(SUBJECTS[pick % 3], MOTIONS[motion][pick // 3 % 3], AURAS[pick // 9], motion, element)


def _sentence(subject: str, motion_text: str, aura: str, motion: str, element: str | None) -> str:
    if element is None:
        if motion in NEEDS_ELEMENT:
            raise ValueError(f"the motion {motion!r} needs an element")
        return f"{subject} {motion_text}."
    text = f"{subject} {motion_text}" if motion in NEEDS_ELEMENT else f"{subject} {motion_text} {aura}"
    return text.replace("{e}", element) + "."


def _all_captions() -> dict[str, tuple[str, str | None]]:
    out: dict[str, tuple[str, str | None]] = {}
    for motion, texts in MOTIONS.items():
        bare: tuple[str | None, ...] = () if motion in NEEDS_ELEMENT else (None,)
        for element in (*bare, *ELEMENTS):
            for subject in SUBJECTS:
                for text in texts:
                    for aura in AURAS:
                        out[_key(_sentence(subject, text, aura, motion, element))] = (motion, element)
    return out


def _key(text: str) -> str:
    return " ".join(text.split()).rstrip(".").rstrip().lower()


_CLASSES = _all_captions()


def caption_class(text: str) -> tuple[str, str | None] | None:
    """The (motion, element) that a sentence of the grammar stands for, or None; case, spaces and the full stop do not matter."""
    return _CLASSES.get(_key(text))


def split_of(name: str) -> Split:
    """The split that owns a made-up name: one in four belongs to the test worlds, so training never sees it."""
    return "test" if crc32(name.encode()) % 4 == 0 else "train"
