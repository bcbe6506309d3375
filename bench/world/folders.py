"""What one creature's folder and the list of questions hold, in the layout in which MH-MMKG is published.

Knows no processes and no progress; bench/world/write.py calls it. Columns: kg/load_mh.py.

    python -m bench world --seed 7 --creatures 3 --clips none --out DIR
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from bench.world import lexicon as lx
from bench.world.creatures import Creature, World
from bench.world.graph import card, own_nodes, shared_nodes, triples
from bench.world.media import ClipSpec, MediaJob, film, glow_of, write_portrait
from bench.world.questions import WorldQuestion
from bench.world.sheets import write_sheet
from kg.load_mh import IMAGES, NODE_HEADER, NODES, QUESTION_HEADER, RELATION_HEADER, RELATIONS, VIDEOS


@dataclass(frozen=True, slots=True)
class Media:
    """What is filmed: None writes sheets only; `clips` off leaves the keyframes."""

    spec: ClipSpec
    clips: bool


def write_creature(folder: Path, creature: Creature, media: Media | None) -> int:
    """Node.xlsx, Relations.xlsx and the media of one creature; returns the number of clips."""
    folder.mkdir(parents=True)
    captions = {a.name for a in creature.actions}
    clips = media is not None and media.clips

    def rows() -> Iterator[tuple[str, ...]]:
        yield NODE_HEADER
        for name, kind, caption, info in own_nodes(creature):
            images = f"{name}.png" if kind == lx.ROOT else name if name in captions else ""
            yield name, images if media else "", f"{name}.mp4" if clips and name in captions else "", caption, info
        for name, _ in shared_nodes(creature):
            yield name, "", "", "", ""

    write_sheet(folder / NODES, rows())
    edges = ((source, relation, "", condition, target) for source, relation, condition, target in triples(creature))
    write_sheet(folder / RELATIONS, (RELATION_HEADER, *edges))
    if media is None:
        return 0
    write_portrait(creature.look, crc32(creature.name.encode()), folder / IMAGES / f"{creature.name}.png", media.spec)
    done = 0
    for a in creature.actions:
        scene, clip = crc32(f"{creature.name}/{a.name}".encode()), folder / VIDEOS / f"{a.name}.mp4"
        frames = folder / IMAGES / a.name
        glow = glow_of(creature, a)
        job = MediaJob(creature.look, a.motion, a.element, glow, "arena", scene, a.name, clip if clips else None, frames)
        done += film(job, media.spec)
    return done


def question_job(world: World, q: WorldQuestion, folder: Path, clips: bool) -> MediaJob | None:
    """The film of a question in the wild; None for pure text."""
    if q.action is None:
        return None
    creature = world.creature(q.creature)
    a = creature.action(q.action)
    base = folder / q.question.id
    clip = base / f"{a.name}.mp4" if clips else None
    return MediaJob(
        creature.look, a.motion, a.element, glow_of(creature, a, q.phase), "wild", q.scene, a.name, clip, base / a.name
    )  # fmt: skip


def write_questions(path: Path, questions: Iterable[WorldQuestion], media: Media | None) -> int:
    """question_list.xlsx; returns the number of questions."""

    def rows() -> Iterator[tuple[str | int, ...]]:
        yield QUESTION_HEADER
        for q in questions:
            y, shown = q.question, q.action or ""
            video, image = (f"{shown}.mp4" if shown and media and media.clips else ""), (shown if media else "")
            routes = ";".join(">".join(route) for route in y.routes)
            yield y.id, video, image, y.text, y.root, y.extra, y.perception, routes, y.answer, y.task

    return write_sheet(path, rows()) - 1


def card_text(name: str) -> str:
    """dataset.toml: the card, and the rules by which a reader of the sheets tells kinds apart."""
    c = card()
    lines = ["# A made-up world of the sample benchmark: see bench/world."]
    fields = {"name": name, "persona": c.persona, "subject": c.subject, "root_kind": c.root_kind}
    fields |= {"phase_kind": c.phase_kind, "action_kind": c.action_kind}
    lines += [f"{key} = {_toml(value)}" for key, value in fields.items()]
    lines += ["tasks = [", *(f"    {_toml(task)}," for task in c.tasks), "]", "", "[kinds]"]
    lines += [f"{kind} = {_toml(text)}" for kind, text in c.kinds.items()]
    shared = ((lx.WEAPON, " Element Weapon"), (lx.ELEMENT, " Element"), (lx.PROP, " Pod"))
    lines += ["", "[[rules]]", f"kind = {_toml(lx.PHASE)}", 'suffix = " Phase"']
    for kind, suffix in shared:
        lines += ["", "[[rules]]", f"kind = {_toml(kind)}", f"suffix = {_toml(suffix)}", "shared = true"]
    names = ", ".join(map(_toml, lx.EFFECTS))
    lines += ["", "[[rules]]", f"kind = {_toml(lx.EFFECT)}", f"names = [{names}]"]
    lines += ["", "[[rules]]", f"kind = {_toml(lx.ACTION)}"]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
