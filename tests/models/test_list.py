"""What lies on disk against the cards, and digests that are computed once."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.__main__ import main
from models.cards import card_named, cards
from models.digests import Digests, differing, published
from models.errors import ModelError
from models.found import fitting, search
from models.shape import shape_of


def model(folder: Path, name: str = "Qwen2.5-VL-7B-Instruct") -> Path:
    """A folder with a card's config and weights of a few bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(card_named(name).config()))
    header = json.dumps({"visual.x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return folder


@pytest.mark.parametrize("name", sorted(cards()))
def test_every_card_is_known_by_its_shape(name: str) -> None:
    card = cards()[name]
    for form in card.forms:
        shape = shape_of(card.config(form), 1)
        assert name in fitting(shape) and fitting(shape, name) == (name,)
        assert fitting(shape, f"{name}-hf") == (name,)


def test_folders_are_found_once_and_named(tmp_path: Path) -> None:
    model(tmp_path / "deep" / "down" / "renamed")
    snapshot = model(tmp_path / "hub" / "models--Qwen--Qwen2.5-VL-3B-Instruct" / "snapshots" / "abc", "Qwen2.5-VL-3B-Instruct")
    (tmp_path / "again").symlink_to(tmp_path / "deep")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    (tmp_path / ".hidden").mkdir()
    model(tmp_path / ".hidden" / "x")
    broken = model(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    encoder = model(tmp_path / "encoder")
    (encoder / "config.json").write_text('{"hidden_size": 4}')
    found = {one.name: one for one in search([tmp_path, tmp_path / "deep"])}
    assert set(found) == {"renamed", "Qwen2.5-VL-3B-Instruct", "broken", "encoder"}
    assert found["renamed"].cards == ("Qwen2.5-VL-7B-Instruct",) and found["renamed"].faults == ()
    assert found["Qwen2.5-VL-3B-Instruct"].folder == snapshot
    assert "config.json" in found["broken"].faults[0]
    assert found["encoder"].shape is None and found["encoder"].faults == ()
    with pytest.raises(ModelError, match="no such folder"):
        search([tmp_path / "not there"])


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    file, kept, reads = tmp_path / "w.safetensors", tmp_path / "kept" / "digests.jsonl", []
    file.write_bytes(b"a" * 9_000_000)
    want = hashlib.sha256(b"a" * 9_000_000).hexdigest()
    assert Digests(kept).of(file, reads.append) == want and sum(reads) == 9_000_000 and len(reads) == 3
    assert Digests(kept).known(file) == want and Digests(kept).of(file, reads.append) == want and len(reads) == 3
    assert Digests(kept, again=True).of(file, reads.append) == want and len(reads) == 6
    with kept.open("ab") as cut:
        cut.write(b'\n["torn')  # a run that was killed
    seen = file.stat()
    file.write_bytes(b"b" * 9_000_000)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))
    assert Digests(kept).of(file) == hashlib.sha256(b"b" * 9_000_000).hexdigest()
    assert Digests(kept).known(file) is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=200))
def test_what_was_kept_may_be_anything(tmp_path: Path, junk: bytes) -> None:
    kept, file = tmp_path / "digests.jsonl", tmp_path / "f"
    file.write_bytes(b"x")
    kept.write_bytes(junk)
    assert Digests(kept).of(file) == hashlib.sha256(b"x").hexdigest()
    assert Digests(kept).known(file) is not None


def test_a_place_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x")
    assert Digests(file / "below a file").of(file) == hashlib.sha256(b"x").hexdigest()


def test_what_the_folder_says_of_its_files(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    config, weights = (folder / "config.json").read_bytes(), (folder / "model.safetensors").read_bytes()
    notes = folder / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    sha1 = hashlib.sha1(b"blob %d\0" % len(config) + config).hexdigest()
    (notes / "config.json.metadata").write_text(f"commit\n{sha1}\n17.0\n")
    (notes / "model.safetensors.metadata").write_text(f'commit\n"{hashlib.sha256(weights).hexdigest()}"\n17.0\n')
    (notes / "odd.metadata").write_text("one line")
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(config).hexdigest()}  ./extra.json\nnonsense\n")
    wanted = published(folder)
    assert set(wanted) == {"config.json", "model.safetensors", "extra.json"}
    assert differing(folder, wanted, Digests(tmp_path / "d")) == ["extra.json is missing"]
    swapped = bytearray(weights)
    swapped[-1] ^= 1  # the header and the length are as they were
    (folder / "model.safetensors").write_bytes(swapped)
    (folder / "config.json").write_bytes(config + b" ")
    faults = differing(folder, wanted, Digests(tmp_path / "e"))
    assert [fault.split()[0] for fault in faults] == ["config.json", "extra.json", "model.safetensors"]


def test_blobs_of_a_hub_cache(tmp_path: Path) -> None:
    folder = model(tmp_path / "snapshots" / "abc")
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    data = (folder / "model.safetensors").read_bytes()
    blob = blobs / hashlib.sha256(data).hexdigest()
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(blob)
    assert published(folder) == {"model.safetensors": blob.name}
    assert differing(folder, published(folder), Digests(tmp_path / "d")) == []
    blob.write_bytes(data[:-1] + b"\xff")
    assert len(differing(folder, published(folder), Digests(tmp_path / "e"))) == 1


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    folder = model(tmp_path / "m" / "Qwen2.5-VL-7B-Instruct")
    assert main(["list", "--in", "m"]) == 0
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("Qwen2.5-VL-72B-Instruct"))
    assert row.split()[4:8] == ["8", "4", "4", "2"] and "Qwen License" in row  # GPUs of 24, 48, 80, 141 GiB, as the planner says
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() in said
    fetch = [line.split()[2] for line in said.splitlines() if line.startswith("  hf download")]
    assert "Qwen/Qwen2.5-VL-7B-Instruct" not in fetch and {"Qwen/Qwen2.5-VL-3B-Instruct", "OpenGVLab/InternVL3-78B-hf"} <= set(fetch)
    (folder / "model.safetensors").write_bytes(b"cut")
    assert main(["list", "--in", "m", "--json", "qwen"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert len(told["cards"]) == 4 and "not a safetensors file" in told["found"][0]["faults"][0]
    assert main(["list", "no such"]) == 2 and main(["list", "--in", "nowhere"]) == 2
