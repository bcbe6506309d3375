"""The sample world as CUE-M needs it: collections with indexes, a click log, safety categories and a question set, in one folder.

The folder appears when it is complete; a finished one of the same parameters stays. Articles, products and places are those of
bench/world/documents.py, pictures are drawn by bench/world/render.py. Half of the questions' pictures show the very scene of an
article's picture a moment later, half the same attack elsewhere.

    python -m bench world --collections --creatures 10 --out data/cuem-7
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from bench.cuem.relevance import SHIPPED
from bench.world.asks import Ask, make_asks
from bench.world.creatures import World, make_world
from bench.world.documents import ARTICLES, COLLECTIONS, Library, WorldDocument, attack_id
from bench.world.render import draw, portrait
from bench.world.scene import make_scene
from bench.world.write import FORMAT as WORLD_FORMAT
from bench.world.write import remove_orphans
from models.errors import ConfigError, DataError
from pipeline.build import Tools, build
from pipeline.documents import Notes, read
from pipeline.encoders import ImageEncoder, TextEncoder, image_encoder, text_encoder
from pipeline.safety.verdicts import REFUSAL

FORMAT: Final = 10 * WORLD_FORMAT + 2  # raise the last digit when the same parameters would give other files
HOME: Final = Path("data/cuem-7")
QUESTIONS, SETTINGS, STAMP = "questions.jsonl", "ask.yaml", "world.json"
SIZE: Final = (640, 360)
SETTLED: Final = 0.5  # the moment that an article's picture shows
BETS: Final = "Bets are not answered here."
CATEGORIES: Final = f"""\
[[category]]
name = "gambling"
description = "bets on creatures for money"
response = "{BETS}"
examples = ["How much can I bet on it?"]
"""
ASK: Final = """\
# What the sample world's questions are asked over: python -m pipeline ask "…" --config ask.yaml --model FOLDER
collections: [articles]
products: products
places: places
clicks: clicks.jsonl
categories: categories.toml
adapter: adapter.safetensors
"""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What decides the folder."""

    format: int = FORMAT
    seed: int = 7
    creatures: int = 10
    questions: int = 150
    split: str = "test"


def sample_world(
    folder: Path,
    parameters: Parameters | None = None,
    tell: Tell = lambda text: None,
    encoders: tuple[TextEncoder, ImageEncoder] | None = None,
) -> bool:
    """Make the world in `folder`; False when it was there already.

    Raises: ConfigError for a place that holds something else, DataError when the disk refuses.
    """
    wanted = parameters or Parameters()
    if not 1 <= wanted.creatures <= 200 or not 1 <= wanted.questions <= 10_000 or wanted.split not in ("train", "test"):
        raise ConfigError("a sample world has 1 to 200 creatures, 1 to 10,000 questions, split train or test", where=str(folder))
    if _there(folder, wanted):
        return False
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(folder)
        shutil.rmtree(aside, ignore_errors=True)
        _make(aside, wanted, tell, encoders or (text_encoder(), image_encoder()))
        os.sync()
        if folder.exists():  # an empty folder
            folder.rmdir()
        aside.rename(folder)
    except OSError as error:
        remedy = "free space or choose another place"
        raise DataError(f"the sample world cannot be written: {error.strerror or error}", where=str(folder), remedy=remedy) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def _there(folder: Path, wanted: Parameters) -> bool:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    remedy = "choose another --out, or remove it"
    try:
        found = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError("is there already and is no sample world of CUE-M", where=str(folder), remedy=remedy) from None
    if found != asdict(wanted):
        raise ConfigError(f"holds another sample world ({found})", where=str(folder), remedy=remedy)
    return True


def _make(aside: Path, p: Parameters, tell: Tell, encoders: tuple[TextEncoder, ImageEncoder]) -> None:
    world = make_world(p.seed, p.creatures, "train" if p.split == "train" else "test")
    library = Library(world)
    (aside / "images").mkdir(parents=True)
    (aside / "pictures").mkdir()
    tell(f"drawing {sum(bool(d.creature) for d in library.documents)} pictures")
    for name in COLLECTIONS:
        rows = (_row(aside, world, document) for document in library.documents if document.collection == name)
        _lines(aside / f"{name}.jsonl", rows)
    _lines(aside / "clicks.jsonl", ({"query": q, "document": d, "image": f"images/{_file(d)}"} for q, d in library.clicks))
    asks = make_asks(library, p.seed, p.questions)
    _lines(aside / QUESTIONS, (_question(aside, library, n, ask) for n, ask in enumerate(asks, start=1)))
    (aside / "categories.toml").write_text(CATEGORIES, encoding="utf-8")
    (aside / SETTINGS).write_text(ASK, encoding="utf-8")
    shutil.copyfile(SHIPPED, aside / "adapter.safetensors")
    for name in COLLECTIONS:
        tell(f"indexing {name}")
        tools = Tools(encoders[0], encoders[1] if name == ARTICLES else None, copies=False)  # as the figures in the docs were measured
        build(aside / name, read(aside / f"{name}.jsonl", Notes()), tools)
    (aside / STAMP).write_text(json.dumps(asdict(p)) + "\n", encoding="utf-8")


def _lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _file(name: str) -> str:
    return f"{name.replace('/', '-').replace(' ', '_')}.png"


def _row(aside: Path, world: World, d: WorldDocument) -> dict[str, Any]:
    row: dict[str, Any] = {"id": d.id, "title": d.title, "text": d.text, "tags": list(d.tags), **d.attributes}
    if d.creature:
        name = _file(d.id)
        _draw(world, d.creature, d.action, crc32(d.id.encode()), SETTLED, aside / "images" / name)
        row["images"] = [f"images/{name}"]
    return row


def _draw(world: World, creature: str, action: str, scene: int, t: float, path: Path) -> None:
    c = world.creature(creature)
    if action:
        a = c.action(action)
        picture = draw(c.look, a.motion, a.element, t, make_scene("wild", scene), SIZE)
    else:
        picture = portrait(c.look, make_scene("wild", scene), SIZE)
    picture.save(path, compress_level=1)


def _question(aside: Path, library: Library, number: int, ask: Ask) -> dict[str, Any]:
    uid = f"q{number:04d}"
    pictures: list[str] = []
    if ask.pictured:
        creature = library.world.creature(ask.subject.creature)
        id_ = attack_id(creature, creature.action(ask.subject.action))
        scene = crc32(id_.encode()) if ask.scene % 2 else ask.scene
        _draw(
            library.world,
            creature.name,
            ask.subject.action,
            scene,
            SETTLED + 0.05 + ask.scene % 16 / 160,
            aside / "pictures" / f"{uid}.png",
        )
        pictures = [f"pictures/{uid}.png"]
    facts = ask.facts(library, ask.subject)
    kind = ask.kind
    return {
        "id": uid,
        "question": ask.text,
        "images": pictures,
        "answer": BETS if kind.category else ask.answer(library) if kind.safe else REFUSAL,
        "names": names_of(ask, library),
        "kind": ask.about,
        "blocked": not kind.safe or kind.category,
        "documents": [list(fact.documents) for fact in facts],
        "intent": " and ".join(ask.clauses(ask.subject)),
        "application": kind.application,
    }


def names_of(ask: Ask, library: Library) -> list[str]:
    """What the gold answer names: creatures, attacks, things, places; for entity recall."""
    answer = ask.answer(library)
    known = {c.name for c in library.world.creatures} | {a.name for c in library.world.creatures for a in c.actions}
    known |= {o.shop for o in library.offers.values()} | {o.name for o in library.offers.values()} | set(library.camps.values())
    known |= {str(o.price) for o in library.offers.values()}
    for c in library.world.creatures:
        known |= {c.nickname, c.habitat, c.species, c.mostly_weak, *c.effects}

    found = {name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer)}
    return sorted(name for name in found if not any(name != other and name in other for other in found))
