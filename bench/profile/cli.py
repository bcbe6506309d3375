"""``python -m bench profile``: the agent rounds of one setting at rising concurrency, with bounds and the paper's Table 18 beside them.

python -m bench profile --settings perceptive --limit 64                        the embedded model, in this process
python -m bench profile --settings unaided-online --model FOLDER --gpu 2        vLLM on this machine's GPUs
python -m bench profile --model NAME --endpoint http://HOST:PORT/v1             servers that run already ($MODEL_API_KEY)
python -m bench profile --replay RUN --model FOLDER --gpu 2                     a run's recorded calls, nothing decided anew
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bench.captions import offline_captions
from bench.config import ROLES, RunConfig, from_arguments, validate
from bench.config import add_arguments as add_options
from bench.episode import Prediction, Sample, decoded, life
from bench.gold import gold
from bench.predict import Job, asked, longest_first
from bench.preflight import check, check_engines, chosen
from bench.profile.target import Target, opened
from bench.rows import Row, settings_suite
from bench.run import open_data
from bench.settings import Scene
from bench.workshop import CACHE, NoFrames, Workshop
from kg.dataset import Dataset, Question
from models.agents import Episode, changed
from models.engines import Engine
from models.errors import ConfigError
from models.journal import Journal
from models.profile import Episodes
from models.profile_cli import add_measuring, conclude, concurrencies, measure, replayed, work_of
from models.progress import console
from models.replay import salted

SETTING = "perceptive"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run, and those of measuring."""
    add_options(parser)
    parser.add_argument("--replay", type=Path, metavar="RUN", help="send a run's recorded calls again, in their order, deciding nothing")
    add_measuring(parser)


def run(args: argparse.Namespace) -> int:
    """Measures and reports; 0 when it did. Raises UserError."""
    config = from_arguments(args)
    if "settings" not in vars(args) and len(config.settings) > 1:
        config = validate({**config.model_dump(), "settings": [SETTING]})
    if len(config.settings) != 1:
        raise ConfigError(f"a profile is of one setting, and {', '.join(config.settings)} came", remedy=f"--settings {SETTING}")
    if args.repetitions < 1:
        raise ConfigError(f"--repetitions {args.repetitions}", remedy="at least 1")
    if args.replay is not None:
        return _replay(args, config)
    (row,) = settings_suite(config)
    dataset = open_data(config)
    questions = chosen(dataset, config.tasks, config.limit)
    check([row], dataset, questions)
    wanted = concurrencies(args.concurrency, len(questions))
    with opened(config, CACHE / "frames", args.out) as target:
        workshop = Workshop(dataset, CACHE, factory=lambda backend, options: target.engine(64, {}))
        with closing(workshop):
            check_engines([row], {"agent": target.engine(64, {})}, [workshop.agents(config)])
            samples = ready(row, questions, workshop, args.out)
            console().print(f"{row.label}: {len(samples)} questions", highlight=False)
            levels = measure(args, made(row, samples, workshop), lambda slots: roles(target, slots), target.served, wanted)
            conclude(args, levels, target.served, target.folder, gpus=config.gpu or 1)
    return 0


def _replay(args: argparse.Namespace, config: RunConfig) -> int:
    work = work_of(args.replay, config.limit)
    wanted = concurrencies(args.concurrency, len(work.steps))
    with opened(config, CACHE / "frames", args.out) as target:
        levels = measure(args, replayed(work), lambda slots: roles(target, slots), target.served, wanted)
        conclude(args, levels, target.served, target.folder, gpus=config.gpu or 1)
    return 0


def roles(target: Target, slots: int) -> Mapping[str, Engine]:
    """Every role answered by the model under measurement."""
    return dict.fromkeys(ROLES, target.engine(slots, {}))


def ready(row: Row, questions: Sequence[Question], workshop: Workshop, out: Path) -> list[tuple[str, Sample]]:
    """Frames and offline captions made before anything is timed; (name, sample) of every question whose media can be used."""
    captioning = [row.label] if row.setting.needs_offline_captions else []
    showing = workshop.prepare([row], questions, captioning)
    out.mkdir(parents=True, exist_ok=True)
    with Journal(out / "captions.sqlite") as journal:
        workshop.offline, said = offline_captions([row], workshop, showing, journal)
    for line in said:
        console().print(line, highlight=False)
    samples = []
    for job in longest_first([Job(row, question) for question in questions]):
        scene = workshop.scene(row, job.question)
        if not isinstance(scene, NoFrames):
            samples.append((job.key, _sample(job, scene, workshop.dataset)))
    if row.setting.needs_node_media:  # looked up once, so that no clip is decoded while the clock runs
        for frames in workshop.world(row).album.frames.values():
            len(frames)
    if not samples:
        raise ConfigError("no question's media can be used", remedy="python -m kg check DATA says why")
    return samples


def _sample(job: Job, scene: Scene, dataset: Dataset) -> Sample:
    return Sample(asked(job, dataset), scene, gold(dataset.graph, job.question))


def made(row: Row, samples: Sequence[tuple[str, Sample]], workshop: Workshop) -> Episodes:
    """The samples as episodes, made anew for each pass."""
    world, config = workshop.world(row), row.config

    def fresh(salt: str) -> Iterator[tuple[str, Episode[Prediction]]]:
        for name, sample in samples:
            episode = decoded(life(sample, row.setting, world), config.temperature, config.seed)
            yield name, changed(episode, lambda request: salted(request, salt)) if salt else episode

    return fresh
