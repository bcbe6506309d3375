"""A bundle made, carried and unpacked: the same files, each content once, nothing above a volume's size."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.sealed.items import Item
from bench.sealed.pack import Contents, write
from bench.sealed.unpacker.check import verify
from bench.sealed.unpacker.copying import Copier
from bench.sealed.unpacker.manifest import read_bundle
from bench.sealed.volumes import JOURNAL, Volumes, parse_size
from models.errors import ConfigError, DataError

VOLUME = 700_000


def _raw(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    files = [one for one in folder.rglob("*") if one.is_file() and ".venv" not in one.parts]
    return {one.relative_to(folder).as_posix(): (one.read_bytes(), os.access(one, os.X_OK)) for one in files}


def test_unpacked_is_what_was_packed(bundle: Path, contents: Contents, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", "--no-install", check=True)
    found = _tree(tmp_path / "there")
    assert found.pop("carried/manifest.json")[0] == (bundle / "manifest.json").read_bytes()
    assert found == {item.path: (_raw(item.source), item.executable) for item in contents.items}
    assert not [one.name for one in tmp_path.iterdir() if "unbundling" in one.name]


def test_installs_and_a_second_run_does_nothing(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", check=True)
    python = tmp_path / "there/.venv/bin/python"
    said = subprocess.run([str(python), "-c", "import torch, heron; print(torch.seed, heron.wings)"], capture_output=True, text=True)
    assert said.stdout == "0 2\n", said.stderr
    before = {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*") if one.is_file()}
    again = unbundle(bundle, "--to", "there", check=True)
    assert "unpacked before" in again.stdout
    after = {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*") if one.is_file()}
    changed = {one.name for one in after if before.get(one) != after[one]}
    assert changed <= {".ready"}


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_locale_without_unicode_and_a_folder_with_a_blank(bundle: Path, tmp_path: Path, locale: dict[str, str]) -> None:
    """The second stands for a Latin-1 locale, in which Python takes ASCII or Latin-1 for the names of files."""
    command = [sys.executable, str(bundle / "unbundle.pyz"), "--to", str(tmp_path / "my Flüsse/t")]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **locale}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my Flüsse/t/carried/data/Flüsse/Donau ≈ Дунай.csv").is_file()
    assert subprocess.run([tmp_path / "my Flüsse/t/.venv/bin/python", "-c", "import heron"], cwd=tmp_path).returncode == 0


def test_a_wheel_that_changed_after_unpacking_is_not_installed(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", "--no-install", check=True)
    wheel = next((tmp_path / "there/carried/wheels").glob("heron-*.whl"))
    raw = wheel.read_bytes()
    wheel.write_bytes(raw[:-30] + bytes(30))
    done = unbundle(bundle, "--to", "there")
    assert done.returncode == 2 and "heron" in done.stderr and "installing .venv failed (see above)" in done.stderr
    assert not (tmp_path / "there/.venv").exists(), "half an environment stayed"
    wheel.unlink()
    assert unbundle(bundle, "--to", "there").returncode == 2 and not (tmp_path / "there/.venv").exists()
    wheel.write_bytes(raw)
    unbundle(bundle, "--to", "there", check=True)


def test_two_at_once(bundle: Path, contents: Contents, unbundle: Any, tmp_path: Path) -> None:
    """The second is told, and spoils nothing of the first's."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()[:12]
    for folder, told in (
        (tmp_path / f".there.unbundling-{digest}", "another process is unpacking"),
        (bundle, "another process is writing"),
    ):
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if folder == bundle:
            with pytest.raises(ConfigError, match=told):
                write(contents, bundle, VOLUME)
        else:
            done = unbundle(bundle, "--to", "there", "--no-install")
            assert done.returncode == 2 and told in done.stderr
        os.close(handle)
    unbundle(bundle, "--to", "there", "--no-install", check=True)


def test_from_a_folder_with_a_colon_and_from_media_that_cannot_be_written(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    bundle.rename(tmp_path / "usb:1")
    unbundle(tmp_path / "usb:1", "--verify", "--from", str(tmp_path / "usb:1"), check=True)
    script = f"mount --bind '{tmp_path}/usb:1' {tmp_path}/m && mount -o remount,bind,ro {tmp_path}/m && touch {tmp_path}/m/x"
    (tmp_path / "m").mkdir()
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    if "Read-only file system" not in tried.stderr:
        pytest.skip("mount namespaces are not allowed here")
    command = f"{script}; {sys.executable} {tmp_path}/m/unbundle.pyz --to {tmp_path}/there --no-install"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "there/run.sh").is_file(), done.stderr


def test_verify_of_what_was_unpacked(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", "--no-install", check=True)
    unbundle(bundle, "--verify", "--to", "there", check=True)
    (tmp_path / "there/carried/models/heron/model-2.safetensors").write_bytes(b"other")
    done = unbundle(bundle, "--verify", "--to", "there")
    assert done.returncode == 2 and "carried/models/heron/model-2.safetensors is not as it was unpacked" in done.stderr
    assert "answers questions" in done.stderr


def test_each_content_once_and_nothing_above_the_size(bundle: Path) -> None:
    held = json.loads((bundle / "manifest.json").read_bytes())
    by_path = {row["path"]: row["sha256"] for row in held["files"]}
    assert by_path["carried/models/heron/copy.safetensors"] == by_path["carried/models/heron/model-2.safetensors"]
    split = held["objects"][by_path["carried/models/heron/model-2.safetensors"]]
    assert len(split["parts"]) > 1
    sizes: dict[str, int] = {}
    for path in bundle.glob("volume-*/*"):
        sizes[path.parent.name] = sizes.get(path.parent.name, 0) + path.stat().st_size
        assert path.name.isascii() and not set(path.name) & set('<>:"\\|?* ') and not path.name.endswith("."), "FAT32 keeps no such name"
    assert max(sizes.values()) <= VOLUME and len(sizes) >= 3
    assert sum(sizes.values()) == sum(one["size"] for one in held["objects"].values())


def test_volumes_on_several_media(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.move(bundle / "volume-002", other / "volume-002")
    lost = unbundle(bundle, "--verify")
    assert lost.returncode == 2 and "volume-002/" in lost.stderr
    unbundle(bundle, "--verify", "--from", f"{bundle}:{other}", check=True)
    unbundle(bundle, "--from", f"{bundle}:{other}", "--to", "there", "--no-install", check=True)


def test_made_again_writes_nothing_and_goes_on_after_a_kill(contents: Contents, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = write(contents, out, VOLUME)
    stamps = {one: one.stat().st_mtime_ns for one in out.glob("volume-*/*")}
    assert first.new and not write(contents, out, VOLUME).new
    assert stamps == {one: one.stat().st_mtime_ns for one in out.glob("volume-*/*")}
    lines = (out / JOURNAL).read_text().splitlines()
    for kept in (0, 1, len(lines) // 2):  # as kills leave it: a cut journal, a half-written file, no manifest
        (out / JOURNAL).write_text("\n".join(lines[:kept]) + "\n" + lines[kept][:20])
        (out / "volume-001/.half-0").write_bytes(b"half")
        (out / "manifest.json").unlink(missing_ok=True)
        write(contents, out, VOLUME)
        assert not list(out.glob("volume-*/.half*"))
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        assert _verified(out)


def _verified(out: Path) -> bool:
    return verify(read_bundle([out]), Copier()) == []


def test_a_smaller_bundle_in_the_same_place_leaves_nothing_behind(contents: Contents, tmp_path: Path) -> None:
    write(contents, tmp_path / "out", VOLUME)
    less = replace(contents, items=tuple(one for one in contents.items if "models" not in one.path))
    write(less, tmp_path / "out", VOLUME)
    assert _verified(tmp_path / "out")
    assert not list((tmp_path / "out").glob("volume-*/*safetensors*"))


@pytest.mark.parametrize("limit", [64_000, 100_000, 3_000_000])
def test_any_size_of_volume_holds(contents: Contents, tmp_path: Path, limit: int) -> None:
    """Also smaller than one file, whether it lies on the disk or comes out of git."""
    more = (*contents.items, Item("blob.bin", bytes(range(256)) * 2000, contents.root.id))
    write(replace(contents, items=more), tmp_path / "out", limit)
    sizes = [sum(one.stat().st_size for one in volume.iterdir()) for volume in (tmp_path / "out").glob("volume-*")]
    assert max(sizes) <= limit and _verified(tmp_path / "out")
    assert not write(replace(contents, items=more), tmp_path / "out", limit).new
    assert not list((tmp_path / "out").rglob(".half*"))


def test_made_again_for_smaller_media(contents: Contents, tmp_path: Path) -> None:
    write(contents, tmp_path / "out", 10**9)
    write(contents, tmp_path / "out", VOLUME)
    assert sorted(one.name for one in (tmp_path / "out").glob("volume-*"))[0] == "volume-001"
    sizes = {volume.name: sum(one.stat().st_size for one in volume.iterdir()) for volume in (tmp_path / "out").glob("volume-*")}
    assert max(sizes.values()) <= VOLUME and _verified(tmp_path / "out")


def test_a_source_that_changes_meanwhile(contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "growing.safetensors"
    source.write_bytes(bytes(600_000))
    pour = Copier.pour

    def touched(self: Copier, *words: Any, **named: Any) -> str:
        sha = pour(self, *words, **named)
        os.utime(source, ns=(1, 1))
        return sha

    monkeypatch.setattr(Copier, "pour", touched)
    with pytest.raises(DataError, match="changed while"):
        write(replace(contents, items=(Item("carried/data/x", source, "data:Flüsse"),)), tmp_path / "out", VOLUME)


@pytest.mark.parametrize("size", [10, 600_000])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_source_that_is_gone(contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, when: str) -> None:
    source = tmp_path / "away.bin"
    source.write_bytes(bytes(size))
    items = (*contents.items, Item("carried/data/x", source, "data:Flüsse"))
    write(replace(contents, items=items[:-1]), tmp_path / "out", VOLUME)
    if when == "before":
        source.unlink()
    else:
        add = Volumes.add
        monkeypatch.setattr(Volumes, "add", lambda self, item: (item.source == source and source.unlink(), add(self, item))[1])
    with pytest.raises(DataError, match=r"away\.bin.*cannot be read any more: No such file.*run the same command again"):
        write(replace(contents, items=items), tmp_path / "out", VOLUME)
    assert _verified(tmp_path / "out"), "the bundle of before is still whole"


@pytest.mark.parametrize(("text", "size"), [("4G", 4 * 10**9), ("4.7GB", 4_700_000_000), ("4GiB", 2**32), ("700m", 700 * 10**6)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4X", "-1G", "G", "10K", "1e9"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="volume size"):
        parse_size(text)
