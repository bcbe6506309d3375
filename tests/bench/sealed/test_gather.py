"""What may go into a bundle: licences, model folders, data sets, links, names, and the pins of the real locks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.sealed import sources, wheels
from bench.sealed.cli import gather
from bench.sealed.items import Component, Item, apart
from bench.sealed.licences import gate, of_folder, of_wheel, parse_accepted
from bench.sealed.pack import Contents
from bench.sealed.sbom import sbom
from models.errors import ConfigError, DataError, ModelError

ROOT = Path(__file__).parents[3]
TINY = ROOT / "models/tiny-qwen2.5-vl"


@pytest.mark.parametrize(
    ("name", "text", "licence"),
    [
        ("LICENSE", "Apache License\n   Version 2.0, January 2004\n", "Apache-2.0"),
        ("LICENCE.txt", "MIT License\n\nCopyright", "MIT"),
        ("LICENSE", "Qwen RESEARCH LICENSE AGREEMENT\n", "Qwen Research License"),
        ("LICENSE", "Our own terms\nmore", "Our own terms"),
        ("README.md", "---\nlicense: apache-2.0\n---\n# A model", "apache-2.0"),
        ("README.md", "---\nlicense: other\nlicense_name: qwen\n---\n", "qwen"),
        ("README.md", "SmolLM2-135M-Instruct, Apache-2.0\nfrom a package\n", "Apache-2.0"),
        ("README.md", "# A model\nlicense: none is stated in the front matter\n", ""),
        ("world.json", "{}", "Apache-2.0"),
        ("weights.txt", "MIT License", ""),
        ("LICENSE", "   \n", ""),
    ],
)
def test_licences_of_folders(tmp_path: Path, name: str, text: str, licence: str) -> None:
    (tmp_path / name).write_text(text)
    assert of_folder(tmp_path)[0] == licence


def test_a_published_model_without_a_licence_file_has_its_cards(tmp_path: Path) -> None:
    (tmp_path / "Qwen2.5-VL-7B-Instruct").mkdir()
    licence, where = of_folder(tmp_path / "Qwen2.5-VL-7B-Instruct")
    assert licence and "cards.toml" in where


def test_the_gate_names_all_that_have_none_and_records_what_is_accepted() -> None:
    bare = [Component("model", "m", "", "", "", ""), Component("data", "d", "", "", "", ""), Component("package", "p", "1", "", "", "")]
    with pytest.raises(ConfigError, match=r"m, d.*--accept-licence"):
        gate(bare, {})
    with pytest.raises(ConfigError, match="names other"):
        gate(bare, {"other": "MIT"})
    kept = gate(bare, parse_accepted(["m=ours, by letter", "d=CC0"]))
    assert [one.licence for one in kept] == ["ours, by letter", "CC0", ""] and "accepted" in kept[0].licence_from
    for wrong in ("m", "=x", "m="):
        with pytest.raises(ConfigError, match="NAME=TEXT"):
            parse_accepted([wrong])


def test_a_real_model_folder(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "tiny"))
    (folder / "pytorch_model.bin").write_bytes(b"\x80never")
    (folder / ".cache").mkdir()
    (folder / ".cache/x").write_text("x")
    items, (one,) = sources.models(f"{folder}:judge={folder}")
    names = {item.path for item in items}
    assert "carried/models/tiny/model.safetensors" in names and not [name for name in names if ".bin" in name or ".cache" in name]
    assert one.use == "answers questions; judges answers" and one.licence == "apache-2.0" and len(one.facts["digest"]) == 64


@pytest.mark.parametrize("fault", ["no such folder", "unknown role", "cut weights", "no template", "pickles only"])
def test_model_folders_that_are_refused(tmp_path: Path, fault: str) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "tiny"))
    given = f"unicorn={folder}" if fault == "unknown role" else str(folder)
    weights = folder / "model.safetensors"
    if fault == "no such folder":
        given = str(tmp_path / "absent")
    elif fault == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif fault == "no template":
        (folder / "chat_template.jinja").unlink()
    elif fault == "pickles only":
        weights.rename(folder / "pytorch_model.bin")
    with pytest.raises((ModelError, ConfigError)):
        sources.models(given)


def test_a_hubs_cache_is_carried_under_the_models_name(tmp_path: Path) -> None:
    blobs, revision = tmp_path / "models--Q--Tiny/blobs", tmp_path / "models--Q--Tiny/snapshots/abc123"
    blobs.mkdir(parents=True)
    revision.mkdir(parents=True)
    for number, path in enumerate(sorted(TINY.iterdir())):
        shutil.copy(path, blobs / str(number))
        (revision / path.name).symlink_to(f"../../blobs/{number}")
    items, (one,) = sources.models(str(revision))
    assert one.name == "Tiny" and {item.path for item in items} >= {"carried/models/Tiny/config.json"}
    assert all(isinstance(item.source, Path) and not item.source.is_symlink() for item in items)


@pytest.mark.parametrize("kind", ["outside", "nothing", "folder", "loop", "pipe"])
def test_links_that_are_not_carried(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    if kind == "pipe":
        os.mkfifo(folder / "odd")
    else:
        target = {"outside": "../secret", "nothing": "absent", "folder": str(tmp_path), "loop": "odd"}[kind]
        (folder / "odd").symlink_to(target)
    with pytest.raises(DataError, match="odd is"):
        sources.files(folder, "carried/data/data", "data:data")


def test_a_link_inside_is_carried_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert len(sources.files(tmp_path, "p", "c")) == 2


def test_what_cannot_be_read_is_told_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it to one who may not: tests may run as root, who may everything."""
    (tmp_path / "set/shut").mkdir(parents=True)
    (tmp_path / "set/secret").write_text("x")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch, pytest.raises(DataError, match=r"shut cannot be read \(Permission denied\).*readable"):
        patch.setattr(os, "scandir", refuse)
        sources.files(tmp_path / "set", "p", "c")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    with pytest.raises(DataError, match=r"secret cannot be read \(Permission denied\)"):
        sources.files(tmp_path / "set", "p", "c")
    with pytest.raises(DataError, match="is not there"):
        sources.data("files=~nobody-of-this-name/x")


def test_a_bundle_inside_what_it_carries_or_the_other_way_round(tmp_path: Path) -> None:
    for name in ("set/a/1.txt", "set/b/2.txt", "usb/own.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("set/a")
    items = sources.files(tmp_path / "set", "p", "data:set")
    for out in ("set", "set/a", "set/new/usb", "link/usb"):
        with pytest.raises(ConfigError, match=r"lies inside set, which is carried"):
            apart(items, tmp_path / out)
    with pytest.raises(ConfigError, match=r"own\.txt is to be carried and lies inside OUT="):
        apart(sources.data(f"files={tmp_path}/usb/own.txt")[0], tmp_path / "usb")
    with pytest.raises(ConfigError, match="lies inside OUT="):
        apart(items, tmp_path)
    for out in ("usb", "settle", "absent/usb"):
        apart([*items, Item("x", b"x", "project:untamed")], tmp_path / out)


def test_data_go_as_they_are_and_models_without_pickles(tmp_path: Path) -> None:
    """A data set's own `*.bin`, and names that the unpacker has for itself elsewhere, are nobody's business but the data set's."""
    names = (
        ".half",
        ".half-0",
        "a.half",
        "carried/manifest.json",
        "model.safetensors",
        "sensor.bin",
        "x.pt",
        ".venv/x",
        "y.lock",
        ".git/z",
    )
    for name in names:
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "set" / name).write_text(name)
    items, _ = sources.data(f"files={tmp_path}/set")
    assert sorted(item.path.removeprefix("carried/data/set/") for item in items) == sorted(names)
    left = {item.path for item in sources.files(tmp_path / "set", "p", "c", sources.LEFT_OUT)}
    assert left == {f"p/{name}" for name in (*names[:5], ".venv/x")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".half", "made when the bundle is unpacked"),
        (".half/x", "made when the bundle is unpacked"),
        (".venv/bin/python", "made when the bundle is unpacked"),
        (".venv-gpu", "made when the bundle is unpacked"),
        ("carried/manifest.json", "carried/ is where a bundle's models and data go"),
        ("carried", "carried/ is where a bundle's models and data go"),
        ("good.half", ""),
        ("docs/.half", ""),
        (".venvs.md", ""),
    ],
)
def test_a_commit_that_holds_what_the_unpacker_makes(tmp_path: Path, name: str, said: str) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for path in ("locks/pip.txt", name):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("")
    for words in (["init", "-q"], ["add", "-f", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    if said:
        with pytest.raises((ConfigError, DataError), match=said):
            sources.project(tmp_path)
    else:
        assert {item.path for item in sources.project(tmp_path)[0]} == {"locks/pip.txt", name}


def test_names_that_cannot_be_carried(tmp_path: Path) -> None:
    (tmp_path / "a\\b").write_text("x")
    with pytest.raises(DataError, match="rename"):
        sources.files(tmp_path, "p", "c")
    (tmp_path / "a\\b").unlink()
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT))
    with pytest.raises(DataError, match="rename"):
        sources.files(tmp_path, "p", "c")


def test_data_is_linted_first(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        sources.data(str(tmp_path / "absent"))
    with pytest.raises(DataError):
        sources.data(str(tmp_path))
    (tmp_path / "notes.txt").write_text("x")
    items, one = sources.data(f"files={tmp_path}")
    assert [item.path for item in items] == [f"carried/data/{tmp_path.name}/notes.txt"] and one.kind == "files"
    with pytest.raises(ConfigError, match="files=PATH"):
        sources.data(f"other={tmp_path}")
    (tmp_path / "empty/deep").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no file to be carried"):
        sources.data(f"files={tmp_path}/empty")


@pytest.mark.parametrize(("given", "of"), [("files=", sources.data), ("judge=", sources.models), ("judge=:answer=", sources.models)])
def test_an_empty_path_is_not_the_working_folder(given: str, of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TINY)
    with pytest.raises(ConfigError, match="without a"):
        of(given)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_locks_by_marker(python: str) -> None:
    pins = {pin.name: pin.version for pin in wheels.read_lock((ROOT / "locks/cpu.txt").read_text(), python)}
    assert "colorama" not in pins and "httpx2-jsfetch" not in pins, "Windows and the browser are no targets"
    text = (ROOT / "locks/cpu.txt").read_text()
    assert f"numpy=={pins['numpy']} ; python_full_version {'<' if python == '3.11' else '>='} '3.12'" in text


@pytest.mark.parametrize("target", sorted(wheels.TARGETS))
def test_where_torch_is_setuptools_is_pinned(target: str) -> None:
    """torch imports it; with ensurepip it comes unasked, in an environment that pip fills out of its own wheel it does not."""
    for names in (wheels.CPU_LOCKS, *((name,) for name in wheels.TARGETS[target].locks)):
        assert "setuptools" in {pin.name for name in names for pin in wheels.read_lock((ROOT / "locks" / name).read_text(), "3.11")}, names


def test_a_lock_that_is_not_pinned() -> None:
    for text in ("numpy>=2 \\\n    --hash=sha256:" + "0" * 64, "numpy==2", "-e ."):
        with pytest.raises(ConfigError, match="not pinned"):
            wheels.read_lock(text, "3.11")


def test_platforms_and_c_libraries() -> None:
    tags = wheels.platforms("2.28")
    assert tags.index("manylinux2014_x86_64") < tags.index("manylinux_2_28_x86_64") and "manylinux_2_31_x86_64" not in tags
    assert "manylinux_2_18_x86_64" in tags, "nvidia-nccl-cu13 names this one alone"
    for name, minor in (
        ("a-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", 27),
        ("a-1-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", 17),
        ("a-1-py3-none-any.whl", 0),
    ):
        assert wheels.glibc_of(Path(name)) == minor
    assert wheels.cuda_of([wheels.Pin("nvidia-cuda-runtime", "13.0.96", frozenset("0"))]) == ("13.0.96", "580.65.06")


def test_wheels_of_other_targets_are_taken_and_those_of_other_machines_are_not(tmp_path: Path) -> None:
    """A lock allows the wheels of all platforms: one that was fetched for another Python, or a newer C library, fits no older one."""
    names = {
        "cpu-3.12": "heron-1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "cpu-3.11": "heron-1.0-cp311-cp311-manylinux_2_34_x86_64.whl",
        "cuda-3.11": "heron-1.0-cp39-abi3-manylinux_2_28_x86_64.whl",
    }
    for folder, name in names.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(name.encode())
    pin = wheels.Pin("heron", "1.0", frozenset(hashlib.sha256(name.encode()).hexdigest() for name in names.values()))
    here = tmp_path / "cpu-3.11"
    for glibc, folder in (("2.42", "cuda-3.11"), ("2.28", "cuda-3.11"), ("2.27", "")):
        found = wheels.have([pin], here, "3.11", glibc)
        assert found == ({pin: tmp_path / folder / names[folder]} if folder else {}), glibc
    (tmp_path / "cuda-3.11" / names["cuda-3.11"]).write_bytes(b"damaged")
    assert wheels.have([pin], here, "3.11", "2.42") == {pin: here / names["cpu-3.11"]}, "a damaged one is none, whatever it is called"
    assert not wheels.have([wheels.Pin("heron", "1.1", pin.hashes)], here, "3.11", "2.42")


def test_a_target_that_is_not_locked_for_this_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cuda is locked for Python 3\.11"):
        wheels.fetch({}, "cuda", "3.12", "2.28", tmp_path)


def test_licences_of_wheels_and_the_bill_of_materials(contents: Contents, made: tuple[Path, Contents]) -> None:
    wheel = next(item.source for item in contents.items if item.path.endswith("heron-1.0-py3-none-any.whl"))
    assert isinstance(wheel, Path) and of_wheel(wheel) == ("MIT", "License")
    held = json.loads((made[0] / "sbom.cdx.json").read_bytes())
    assert held["bomFormat"] == "CycloneDX" and held["specVersion"] == "1.6"
    by_name = {one["name"]: one for one in held["components"]}
    assert by_name["heron"]["type"] == "machine-learning-model" and by_name["heron"]["licenses"] == [{"license": {"name": "MIT"}}]
    assert by_name["torch"]["purl"] == "pkg:pypi/torch@9.0%2Bcpu"
    assert all(one["hashes"][0]["alg"] == "SHA-256" for one in held["components"])
    assert sbom(contents.root, contents.components, {}, "x") == sbom(contents.root, contents.components[::-1], {}, "x")


@pytest.mark.parametrize(
    ("metadata", "name", "text", "licence"),
    [
        ("", "licenses/LICENSE", "   Apache License\n   Version 2.0, January 2004\n", ("Apache-2.0", "LICENSE")),
        ("", "COPYING.txt", "Our own terms\n", ("Our own terms", "COPYING.txt")),
        ("", "licenses/vendor/NOTICE", "MIT License", ("", "")),
        ("License: UNKNOWN\n", "LICENSE", "MIT License", ("MIT", "LICENSE")),
        ("License-Expression: BSD-3-Clause\n", "LICENSE", "MIT License", ("BSD-3-Clause", "License-Expression")),
        ("Classifier: License :: OSI Approved :: MIT License\n", "LICENSE", "", ("MIT License", "classifiers")),
        ("", "LICENSE", " \n", ("", "")),
    ],
)
def test_a_wheels_licence_is_its_metadatas_else_its_files(
    tmp_path: Path, metadata: str, name: str, text: str, licence: tuple[str, str]
) -> None:
    with zipfile.ZipFile(tmp_path / "x-1-py3-none-any.whl", "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{metadata}")
        archive.writestr(f"x-1.dist-info/{name}", text)
        archive.writestr("x/LICENSE", "GPL")
    assert of_wheel(tmp_path / "x-1-py3-none-any.whl") == licence


def test_the_command_refuses_before_it_fetches(tmp_path: Path) -> None:
    """A clone of this very commit; a data set without a licence is told before pip is asked for anything."""
    data = tmp_path / "rivers"
    data.mkdir()
    (data / "x.txt").write_text("x")
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode:
        pytest.skip("not a git clone")
    command = [sys.executable, "-m", "bench", "bundle", "--out", str(tmp_path / "out"), "--wheels", str(tmp_path / "w")]
    done = subprocess.run([*command, "--data", f"files={data}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "no licence is stated in rivers" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "w").exists() and not (tmp_path / "out").exists()
    done = subprocess.run([*command, "--volume", "tiny"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "volume size" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((("--glibc", one), "is no version of glibc") for one in ("x", "2", "2.x", "", "3.1", "2.28\n", "2." + "9" * 5000)),
        (("--wheels", "taken"), "taken is no folder"),
        (("--wheels", "taken/below"), "taken is no folder"),
        (("--wheels", "n" * 300), "File name too long"),
        (("--out", "n" * 300), "File name too long"),
        (("--key", "absent.pem"), "openssl"),
        (("--out", "taken"), "OUT=taken is a file"),
        (("--out", "taken/below"), "taken is no folder"),
        (("--out", "foreign"), "is not empty (holiday.jpg"),
        (("--data", "files=/nope"), "is not there"),
        (("--python", "2.7"), "is locked for Python"),
    ],
)
def test_what_can_be_told_at_once_is(
    words: tuple[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused without pip, and nothing written."""
    monkeypatch.setattr(wheels, "_pip_download", lambda *_: pytest.fail("pip was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "holiday.jpg").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert main(["bundle", *(() if "--out" in words else ("--out", "out")), *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.startswith("error: ") and sorted(tmp_path.rglob("*")) == before


def test_no_git_clone(tmp_path: Path) -> None:
    import argparse

    given = argparse.Namespace(accept_licence=[], models="", data="", wheels=tmp_path / "w", target="cpu", python="3.11", glibc="2.42")
    with pytest.raises(ConfigError, match="git"):
        gather(given, tmp_path)
