"""Writes a made-up world as a folder in the layout in which MH-MMKG is published.

The folder appears only when it is complete: it is made aside and renamed. A finished world of the same parameters stays as it is.
Knows no sheet's columns (bench/world/folders.py) and draws nothing itself.

    python -m bench world --seed 7 --creatures 22 --clips 640x360@30 --out DIR
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.world.creatures import Creature, World, iter_creatures
from bench.world.folders import Media, card_text, question_job, write_creature, write_questions
from bench.world.graph import own_nodes, triples
from bench.world.lexicon import Split
from bench.world.media import ClipSpec, film, parse_clips
from bench.world.questions import make_questions
from kg.load_mh import GRAPH, LIST, QUESTIONS
from models.errors import ConfigError, DataError
from video.errors import VideoError

FORMAT: Final = 2  # raise it when the same parameters would give another world
STAMP: Final = "world.json"
DEFAULT_CLIPS: Final = "640x360@30"
MAX_CREATURES, MAX_FILMED = 100_000, 2_000
ASKED: Final = 2_200  # questions are about the first so many creatures: 23,800 questions are enough for any load test

Progress = Callable[[int, int, str], None]  # done, total, what


@dataclass(frozen=True, slots=True)
class Parameters:
    """What decides a world, byte for byte; the stamp of a finished folder."""

    format: int
    seed: int
    creatures: int
    clips: str
    keyframes: bool
    split: str


@dataclass(frozen=True, slots=True)
class Written:
    """A world on disk. `made` is False when it was there already. Entities count names shared by creatures once per creature's sheet."""

    path: Path
    made: bool
    entities: int
    edges: int
    questions: int
    clips: int


def write_world(
    out: str | Path, seed: int = 7, creatures: int = 22, clips: str | None = DEFAULT_CLIPS, *, workers: int = 2,
    progress: Progress | None = None, split: Split = "test", keyframes: bool | None = None,
) -> Written:  # fmt: skip
    """Make the world of these parameters in the folder `out`.

    Args:
        clips: ``WIDTHxHEIGHT@FPS`` or None. keyframes: three chosen pictures an attack; by default where there are clips.
        workers: processes; 1 stays in this one.

    Raises: ConfigError for a wrong parameter or a folder that holds something else, DataError when the disk refuses.
    """
    parameters, media = _check(seed, creatures, clips, workers, split, keyframes)
    target = Path(out).absolute()
    there = _finished(target, parameters)
    if there is not None:
        return there
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(target)
        shutil.rmtree(aside, ignore_errors=True)
        facts = _make(aside, parameters, media, workers, progress or (lambda done, total, what: None))
        stamp = {"parameters": asdict(parameters), "facts": facts}
        (aside / STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        os.sync()
        aside.rename(target)
    except OSError as e:
        raise DataError(
            f"the world cannot be written: {e.strerror or e}", where=str(target), remedy="free space or choose another --out"
        ) from e
    except VideoError as e:
        raise DataError(f"a clip cannot be written: {e.what}", where=str(target), remedy=e.remedy) from e
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Written(target, True, **facts)


def _check(
    seed: int, creatures: int, clips: str | None, workers: int, split: Split, keyframes: bool | None
) -> tuple[Parameters, Media | None]:  # fmt: skip
    spec: ClipSpec = parse_clips(clips or DEFAULT_CLIPS)
    filmed = clips is not None if keyframes is None else keyframes
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed {seed} is out of range", remedy="a whole number from 0 to 2^63 - 1")
    if not 1 <= creatures <= MAX_CREATURES:
        raise ConfigError(f"{creatures:,} creatures are out of range", remedy=f"1 to {MAX_CREATURES:,}")
    if (filmed or clips is not None) and creatures > MAX_FILMED:
        raise ConfigError(f"{creatures:,} creatures are too many to film", remedy=f"clips none, or at most {MAX_FILMED:,} creatures")
    if not 1 <= workers <= 256:
        raise ConfigError(f"{workers} workers are out of range", remedy="1 to 256")
    if clips is not None and not filmed:
        raise ConfigError("clips without keyframes", remedy="leave keyframes on, or choose clips none")
    text = f"{spec.width}x{spec.height}@{spec.fps}" if clips is not None else "none"
    media = Media(spec, clips is not None) if filmed else None
    return Parameters(FORMAT, seed, creatures, text, filmed, split), media


def _finished(target: Path, parameters: Parameters) -> Written | None:
    """The world that is there already, None for a free place. Raises: ConfigError when something else is there."""
    if target.is_dir() and not any(target.iterdir()):
        return None
    if not target.exists():
        return None
    remedy = "choose another --out, or remove it"
    try:
        stamp = json.loads((target / STAMP).read_text(encoding="utf-8"))
        found, facts = Parameters(**stamp["parameters"]), {k: int(v) for k, v in stamp["facts"].items()}
        there = Written(target, False, **facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError("is there already and is no sample world", where=str(target), remedy=remedy) from None
    if found != parameters:
        pairs = zip(asdict(found).items(), asdict(parameters).values(), strict=True)
        differ = ", ".join(f"{key} {old} instead of {new}" for (key, old), new in pairs if old != new)
        raise ConfigError(f"holds another world ({differ})", where=str(target), remedy=remedy)
    return there


def remove_orphans(target: Path) -> None:
    """Half-made worlds of processes that are gone."""
    for path in target.parent.glob(f".{target.name}.*.part"):
        pid = path.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            shutil.rmtree(path, ignore_errors=True)


def _make(aside: Path, p: Parameters, media: Media | None, workers: int, progress: Progress) -> dict[str, int]:
    split: Split = "train" if p.split == "train" else "test"
    (aside / GRAPH).mkdir(parents=True)
    (aside / QUESTIONS).mkdir()
    (aside / "dataset.toml").write_text(card_text(f"Made-up world {p.seed}"), encoding="utf-8")
    asked: list[Creature] = []
    facts = {"entities": 0, "edges": 0, "questions": 0, "clips": 0}

    def creature_jobs() -> Iterator[Callable[[], int]]:
        for c in iter_creatures(p.seed, p.creatures, split):
            if len(asked) < ASKED:
                asked.append(c)
            facts["entities"] += len(own_nodes(c))
            facts["edges"] += len(triples(c))
            yield partial(write_creature, aside / GRAPH / c.name, c, media)

    with _pool(workers) as pool:
        for n, clips in enumerate(_run(pool, creature_jobs(), workers), start=1):
            facts["clips"] += clips
            progress(n, p.creatures, "creatures")
        world = World(p.seed, split, tuple(asked))
        questions = make_questions(world, p.seed)
        facts["questions"] = write_questions(aside / QUESTIONS / LIST, questions, media)
        if media is not None:
            films = [question_job(world, q, aside / QUESTIONS, media.clips) for q in questions]
            jobs = [job for job in films if job is not None]
            for n, clips in enumerate(_run(pool, (partial(film, job, media.spec) for job in jobs), workers), start=1):
                facts["clips"] += clips
                progress(n, len(jobs), "questions")
    return facts


# ---- processes -------------------------------------------------------------------------------------------------------
def _pool(workers: int) -> AbstractContextManager[Executor | None]:
    if workers == 1:
        return nullcontext()
    # Spawned, not forked: a forked child of a process with threads can hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the pool


def _run(pool: Executor | None, jobs: Iterable[Callable[[], int]], workers: int) -> Iterator[int]:
    """Results as they come; a bounded number of jobs is in flight, so that a world of any size fits in memory."""
    if pool is None:
        for job in jobs:
            yield job()
        return
    rest = iter(jobs)
    running: set[Future[int]] = {pool.submit(job) for job in islice(rest, 8 * workers)}
    try:
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(job) for job in islice(rest, len(done))}
            for future in done:
                yield future.result()
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
