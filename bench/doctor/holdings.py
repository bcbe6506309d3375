"""Checks of what lies on disk for a run: model folders, data sets, collections, the embedded model and encoders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.doctor import ask
from bench.doctor.rows import Asked, Line, fail, ok, refused, unknown, warn

EMBEDDED = ask.ROOT / "models" / "tiny-qwen2.5-vl"
GIB = 2**30
_TOKENIZER = """
import json, sys
from tokenizers import Tokenizer
made = Tokenizer.from_file(sys.argv[1])
print(json.dumps({"size": made.get_vocab_size(), "ids": made.encode("one word").ids}))
"""
_ENCODERS = """
import contextlib, io, json
with contextlib.redirect_stdout(io.StringIO()) as said:
    from pipeline.__main__ import main
    code = main(["index", "encoders"])
print(json.dumps({"code": code, "said": said.getvalue().splitlines()}))
"""


def models(asked: Asked) -> Iterator[Line]:
    from models.errors import UserError
    from models.locate import locate

    for name in asked.models or (str(EMBEDDED),):
        try:
            folder = locate(name)
            yield from _model(folder, asked)
        except UserError as error:
            yield refused(error, "python -m models list shows what lies here and how to fetch the rest")


def _model(folder: Path, asked: Asked) -> Iterator[Line]:
    from models.checkpoint import inspect
    from models.errors import ModelError
    from models.fleet import find_vllm, prepare
    from models.found import fitting, name_of
    from models.placement import Placement
    from models.shape import read_shape
    from models.vllm_flags import ServeOptions

    shape, weights = read_shape(folder)
    cards = fitting(shape, name_of(folder))
    size = f"{weights.parameters / 1e9:.3g} billion parameters, {weights.bytes / GIB:.2f} GiB in {len(weights.shards)} files"
    said = f"{folder.name}: {shape.architecture}, {size}"
    said += f", card {' or '.join(cards)}" if cards else ""
    if weights.faults:
        for fault in weights.faults:
            yield fail(f"{folder.name}: {fault}", "copy the folder again, all its files")
        return
    if asked.gpus:
        options, where = ServeOptions(folder.name), Placement(gpus=asked.gpus, context=asked.context)
        try:
            _, plan, misfits = prepare(folder, where, options, vllm=find_vllm())
        except ModelError as error:  # the folder itself may be sound all the same
            yield refused(error, "docs/vllm.md says how GPUs are counted")
        else:
            yield from (fail(f"{folder.name}: {one.what}", one.remedy) for one in misfits)
            if not misfits:
                yield ok(f"{said}; {plan}")
    else:
        found = inspect(folder)
        yield ok(f"{said}, context {found.context:,}")
        from bench.doctor.machine import _meminfo

        free = _meminfo("MemAvailable")
        if free is not None and free < 1.3 * weights.bytes:
            yield fail(
                f"{folder.name} takes {1.3 * weights.bytes / GIB:.0f} GiB of memory, {free / GIB:.0f} are free",
                "GPU=n serves it on GPUs; or a smaller model",
            )
    yield from _tokenizer(folder, shape.vocabulary)
    yield from _bytes(folder, weights.shards)


def _tokenizer(folder: Path, vocabulary: int) -> Iterator[Line]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        yield unknown(f"{folder.name}: no tokenizer.json; whether its other tokenizer files are whole was not tried")
        return
    rows, wrong = ask.python(["-c", _TOKENIZER, path], 120.0)
    if not rows:
        yield fail(f"{folder.name}: its tokenizer does not load: {wrong}", "copy tokenizer.json again")
    elif rows[0]["size"] > vocabulary:
        yield fail(
            f"{folder.name}: its tokenizer has {rows[0]['size']} words, its weights {vocabulary}",
            "the two are of different models: copy both from one",
        )


def _bytes(folder: Path, shards: tuple[str, ...]) -> Iterator[Line]:
    from models.digests import Digests, differing, published
    from models.progress import progress

    digests, wanted = Digests(), published(folder)
    fresh = [folder / name for name in {*wanted, *shards} if (folder / name).is_file() and digests.known(folder / name) is None]
    done = 0
    with progress(f"reading {folder.name}, MiB", sum(path.stat().st_size for path in fresh) >> 20) as tell:

        def more(count: int) -> None:
            nonlocal done
            done += count
            tell(done >> 20, "")

        faults = differing(folder, wanted, digests, more)
        if not wanted and len(shards) <= 1:
            for path in fresh:
                digests.of(path, more)
    for fault in faults:
        yield fail(f"{folder.name}: {fault}", "copy this file again")
    if not wanted and folder.resolve() != EMBEDDED:  # the embedded one is a part of the project
        yield unknown(
            f"{folder.name}: whether its bytes are the published ones: the folder holds no digests",
            "put the publisher's SHA256SUMS beside the weights, or carry it over with make bundle",
        )
    elif wanted and not faults:
        yield ok(f"{folder.name}: {len(wanted)} files are byte for byte what was published")


def data(asked: Asked) -> Iterator[Line]:
    from kg.check import check
    from models.errors import UserError

    for folder in asked.data:
        try:
            found = check(folder)
        except UserError as error:
            yield refused(error, "docs/data.md has the layouts")
            continue
        errors = [one for one in found.findings if one.level == "error"]
        warnings = len(found.findings) - len(errors)
        said = f"{found.card.name}: {len(found.questions)} questions; {len(errors)} errors, {warnings} warnings"
        if errors:
            yield fail(f"{said}; the first: {errors[0]}", f"make check DATA={folder} lists all")
        elif warnings:
            yield warn(said, f"make check DATA={folder} lists them")
        else:
            yield ok(said)
    if not asked.data:
        there = Path("data/world-7").is_dir()
        yield ok("no data set is named (DATA=); the sample world " + ("is there" if there else "will be made on first use"))


def collections(asked: Asked) -> Iterator[Line]:
    from models.errors import UserError

    places = asked.collections or tuple(
        sorted({path.parent for pattern in ("*/current", "data/*/current", ".cache/*/current") for path in Path.cwd().glob(pattern)})
    )
    if not places:
        yield ok("no collection is named or found (--collection DIR)")
        return
    from pipeline.collection import Collection

    for folder in places:
        try:
            opened = Collection(folder)
            faults = opened.check()
        except UserError as error:
            yield refused(error, "build it again")
            continue
        for fault in faults:
            yield fail(f"{folder}: {fault}", "build it again with python -m pipeline index build")
        if not faults:
            yield ok(f"{folder}: {opened.card.documents} documents, {opened.card.chunks} chunks, every byte as its card says")


def encoders(asked: Asked) -> Iterator[Line]:
    rows, wrong = ask.python(["-c", _ENCODERS], 180.0)
    if rows and rows[0]["code"] == 0:
        yield ok("; ".join(" ".join(line.split()) for line in rows[0]["said"] if line.strip()))
    else:
        yield fail(
            f"the embedded encoders do not load: {wrong or 'see python -m pipeline index encoders'}",
            "make setup: they lie in packages of the lock",
        )
