"""Random faults in a bundle: each is found before anything is used, and named with what it is for."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.sealed.pack import Contents, write
from bench.sealed.unpacker import place
from bench.sealed.unpacker.check import require, verify
from bench.sealed.unpacker.copying import Copier
from bench.sealed.unpacker.errors import Refused
from bench.sealed.unpacker.manifest import read_bundle

FAULTS = 200


def _flip(path: Path, draw: random.Random, bundle: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def _cut(path: Path, draw: random.Random, bundle: Path) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def _grow(path: Path, draw: random.Random, bundle: Path) -> None:
    path.write_bytes(path.read_bytes() + draw.randbytes(draw.randrange(1, 100)))


def _remove(path: Path, draw: random.Random, bundle: Path) -> None:
    path.unlink()


def _rename(path: Path, draw: random.Random, bundle: Path) -> None:
    path.rename(path.with_name(path.name + draw.choice((".bak", "~", " (1)"))))


def _swap(path: Path, draw: random.Random, bundle: Path) -> None:
    """Two files of the volumes exchanged, as two shards of one size might be."""
    other = draw.choice([one for one in _files(bundle) if one != path and one.parent != bundle])
    if other.read_bytes() == path.read_bytes():
        return _flip(path, draw, bundle)
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def _link(path: Path, draw: random.Random, bundle: Path) -> None:
    away = bundle.parent / "away"
    shutil.move(path, away)  # the right bytes, behind a link
    path.symlink_to(away)


def _extra(path: Path, draw: random.Random, bundle: Path) -> None:
    path.with_name(draw.choice(("json.py", "hashlib.py", "extra.whl", "ünïcode"))).write_bytes(draw.randbytes(9))


def _zero(path: Path, draw: random.Random, bundle: Path) -> None:
    """A block of zeros, as a stick that was pulled out leaves it."""
    raw = bytearray(path.read_bytes())
    at = draw.randrange(len(raw))
    raw[at : at + 4096] = bytes(len(raw[at : at + 4096]))
    if bytes(raw) == path.read_bytes():
        return _flip(path, draw, bundle)
    path.write_bytes(raw)


KINDS: tuple[Callable[[Path, random.Random, Path], None], ...] = (_flip, _flip, _cut, _grow, _remove, _rename, _swap, _link, _extra, _zero)


def _files(bundle: Path) -> list[Path]:
    return sorted(one for one in bundle.rglob("*") if one.is_file() and one.stat().st_size and one.name != ".bundle-journal.jsonl")


def test_every_one_of_200_random_faults_is_found_before_use_and_named(
    made: tuple[Path, Contents], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the check and by the unpacker alike; nothing stands under the target's name; the message names the file."""
    monkeypatch.setattr(place, "settle", lambda folder: None)  # waits for the disk, which shows nothing here
    copier = Copier()
    assert verify(read_bundle([made[0]]), copier) == []
    missed = []
    for number in range(FAULTS):
        draw = random.Random(number)
        bundle = tmp_path / "bundle"
        shutil.copytree(made[0], bundle)
        kind = KINDS[number % len(KINDS)]
        path = draw.choice([one for one in _files(bundle) if kind is not _swap or one.parent != bundle])
        before = {one.name for one in bundle.rglob("*")}
        kind(path, draw, bundle)
        new = {one.name for one in bundle.rglob("*")} - before
        names = new if kind is _extra else {path.name}
        for check in (_check, _unpack):
            try:
                check(bundle, tmp_path / "there", copier)
                missed.append(f"{number}: {kind.__name__} of {path.name} went through {check.__name__}")
            except Refused as error:
                if not any(name in str(error) for name in names):
                    missed.append(f"{number}: {kind.__name__} of {path.name} is not named: {error}")
                if "wheel" in path.name and path.suffix == ".whl" and "carried/wheels" not in str(error):
                    missed.append(f"{number}: what {path.name} is for is not said: {error}")
            if (tmp_path / "there").exists():
                missed.append(f"{number}: something was installed")
        for one in tmp_path.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    assert not missed, "\n".join(missed)


def _check(bundle: Path, to: Path, copier: Copier) -> None:
    require(verify(read_bundle([bundle]), copier), "")


def _unpack(bundle: Path, to: Path, copier: Copier) -> None:
    place.unpack(read_bundle([bundle]), to, copier, install=False)


def test_a_fault_says_what_the_file_is_for(bundle: Path, unbundle: Callable[..., object]) -> None:
    next(bundle.glob("volume-*/*-torch-9.0_cpu-py3-none-any.whl"), None)
    shard = sorted(bundle.glob("volume-*/*-model-3.safetensors*"))[0]
    shard.unlink()
    done = unbundle(bundle, "--to", "there")
    assert done.returncode == 2  # type: ignore[attr-defined]
    for part in (shard.name, "is missing", "carried/models/heron/model-3.safetensors", "model heron: answers questions"):
        assert part in done.stderr  # type: ignore[attr-defined]


def test_brought_later_the_missing_file_completes_it(bundle: Path, unbundle: Callable[..., object], tmp_path: Path) -> None:
    shard = sorted(bundle.glob("volume-*/*-model-3.safetensors*"))[0]
    shutil.move(shard, tmp_path / "kept")
    assert unbundle(bundle, "--to", "there", "--no-install").returncode == 2  # type: ignore[attr-defined]
    waiting = next(tmp_path.glob(".there.unbundling-*"))
    (waiting / "carried/models/heron/model-1.safetensors").write_bytes(b"tampered while waiting")
    (waiting / "carried/models/heron/planted.py").write_bytes(b"not of the bundle")
    shutil.move(tmp_path / "kept", shard)
    assert unbundle(bundle, "--to", "there", "--no-install").returncode == 0  # type: ignore[attr-defined]
    assert not (tmp_path / "there/carried/models/heron/planted.py").exists()
    assert unbundle(bundle, "--verify", "--to", "there").returncode == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["System Volume Information", ".Trash-1000", "._volume-001", ".DS_Store"])
def test_what_systems_put_onto_media_is_no_fault(bundle: Path, unbundle: Callable[..., object], name: str) -> None:
    (bundle / name).mkdir()
    (bundle / name / "x").write_bytes(b"x")
    assert unbundle(bundle, "--verify").returncode == 0  # type: ignore[attr-defined]


def test_a_bundle_made_twice_is_the_same(made: tuple[Path, Contents], tmp_path: Path) -> None:
    write(made[1], tmp_path / "other", 700_000)
    ours = {one.relative_to(made[0]).as_posix() for one in made[0].glob("volume-*/*")}
    assert ours == {one.relative_to(tmp_path / "other").as_posix() for one in (tmp_path / "other").glob("volume-*/*")}
