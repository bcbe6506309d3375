"""What is wrong with a manifest, a machine, a target or a medium: one clear message, exit code 2, nothing half-installed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.sealed.pack import Contents, write
from bench.sealed.unpacker import machine
from bench.sealed.unpacker.errors import Refused
from bench.sealed.unpacker.manifest import check_name, parse
from models.errors import ConfigError


def rewrite(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A manifest changed by someone who knows to renew its digest."""
    held = json.loads((bundle / "manifest.json").read_bytes())
    change(held)
    raw = json.dumps(held).encode()
    (bundle / "manifest.json").write_bytes(raw)
    (bundle / "manifest.sha256").write_text(f"{hashlib.sha256(raw).hexdigest()}  manifest.json\n")


def _path(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda held: held["files"][0].update(path=name)


def _medium(name: str) -> Callable[[dict[str, Any]], None]:
    def change(held: dict[str, Any]) -> None:
        held["media"][name] = 4
        next(iter(held["objects"].values())).update(size=4, parts=[[name, 0, 4]])

    return change


def _target(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda held: held["target"].update(fields)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "newer version": (lambda held: held.update(version=2), "reads version 1 of the format, the bundle has 2"),
    "no version": (lambda held: held.pop("version"), "make the bundle again"),
    "another format": (lambda held: held.update(format="zip"), "not in order"),
    "path above": (_path("../evil"), "leaves its folder"),
    "path from the root": (_path("/etc/passwd"), "leaves its folder"),
    "path in the middle": (_path("carried/../../evil"), "leaves its folder"),
    "path with a backslash": (_path("carried\\evil"), "leaves its folder"),
    "path with a newline": (_path("carried/a\nb"), "leaves its folder"),
    "empty path": (_path(""), "leaves its folder"),
    "the unpacker's own half": (_path(".half"), "is made when the bundle is unpacked"),
    "the unpacker's own record": (_path("carried/manifest.json"), "is made when the bundle is unpacked"),
    "in the environment": (_path(".venv/bin/python"), "is made when the bundle is unpacked"),
    "file and folder": (_path("carried"), "is a file and a folder"),
    "listed twice": (_path("scripts/install.py"), "listed twice"),
    "medium above": (_medium("../../etc/hostname"), "leaves its folder"),
    "medium from the root": (_medium("/etc/hostname"), "leaves its folder"),
    "negative size": (lambda held: held["media"].update({next(iter(held["media"])): -1}), "no count of bytes"),
    "no objects": (lambda held: held.update(objects=[]), "not in order"),
    "environment elsewhere": (lambda held: held["environments"][0].update(folder="../venv"), "environment"),
    "unknown extra": (lambda held: held["environments"][0].update(extra="rm -rf"), "environment"),
    "component without a name": (lambda held: held["components"][0].pop("name"), "not in order"),
    "a component's name with an escape": (lambda held: held["components"][0].update(name="a\x1b[2J"), "no line of text"),
    "beside without a digest": (lambda held: held["beside"]["README.txt"].pop("sha256"), "not in order"),
    "made unprintable": (lambda held: held.update(made="\ud800"), "no line of text"),
    "made of numbers": (lambda held: held.update(made=7), "no line of text"),
    "commit that names a folder": (lambda held: held["project"].update(commit="/../../evil"), "is no commit"),
    "sizes beyond any disk": (lambda held: held["target"].update(install_bytes=10**400), "no count of bytes"),
    "another Python": (_target(python="3.99"), "the wheels are for CPython 3.99"),
    "another platform": (_target(machine="sparc64"), "the bundle is for Linux sparc64"),
    "newer glibc": (_target(glibc="9.9"), "the wheels need 9.9 or newer"),
    "another CPU": (_target(cpu=["avx4096"]), "it lacks avx4096"),
    "no driver": (_target(driver="9999.1", cuda="99.0"), "CUDA 99.0 needs 9999.1 or newer"),
    "too large": (_target(install_bytes=10**18), "GB are needed"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_manifest_or_another_machine(bundle: Path, unbundle: Any, tmp_path: Path, name: str) -> None:
    change, said = CHANGES[name]
    rewrite(bundle, change)
    done = unbundle(bundle, "--to", "there")
    assert done.returncode == 2 and said in done.stderr and done.stderr.startswith("error: ")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bundle", "home"], "something was written"


def test_inside_the_bundle_nothing_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(bundle)
    before = sorted(bundle.rglob("*"))
    for cwd, words in ((bundle, ()), (bundle, ("--to", "volume-001/x")), (tmp_path, ("--to", "bundle")), (tmp_path, ("--to", "other/a/b"))):
        done = subprocess.run([sys.executable, str(bundle / "unbundle.pyz"), *words], capture_output=True, text=True, cwd=cwd)
        assert done.returncode == 2 and "lies inside the bundle: give a folder elsewhere (--to " in done.stderr, done.stderr
        assert sorted(bundle.rglob("*")) == before and not done.stdout
    done = subprocess.run([sys.executable, "bundle/unbundle.pyz", "--no-install"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "untamed-01234567").is_dir(), done.stderr


@pytest.mark.parametrize("kind", ["pipe", "huge", "folder"])
def test_a_file_beside_that_is_no_such_file_is_not_read(bundle: Path, unbundle: Any, kind: str) -> None:
    (bundle / "README.txt").unlink()
    if kind == "pipe":
        os.mkfifo(bundle / "README.txt")
    elif kind == "folder":
        (bundle / "README.txt").mkdir()
    else:
        with (bundle / "README.txt").open("wb") as file:
            file.truncate(1 << 40)
    done = unbundle(bundle, "--verify")
    assert done.returncode == 2 and "README.txt is damaged or was exchanged" in done.stderr


def test_a_pipe_in_an_unpacked_folder_is_not_waited_for(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", "--no-install", check=True)
    (tmp_path / "there/empty.txt").unlink()
    os.mkfifo(tmp_path / "there/empty.txt")
    done = unbundle(bundle, "--verify", "--to", "there")
    assert done.returncode == 2 and "the folder is not whole" in done.stderr and "empty.txt is missing or cannot be read" in done.stderr
    done = unbundle(bundle, "--verify", "--to", "there", "--key", "ab" * 32)
    assert done.returncode == 2 and "keeps no signature to compare with a key" in done.stderr


def test_a_volume_that_is_a_link(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    (bundle / "volume-002").rename(tmp_path / "elsewhere")
    (bundle / "volume-002").symlink_to(tmp_path / "elsewhere")
    done = unbundle(bundle, "--verify")
    assert done.returncode == 2 and "volume-002 is a link or a file" in done.stderr and "take it away" not in done.stderr


def test_all_misfits_are_told_at_once(bundle: Path, unbundle: Any) -> None:
    rewrite(bundle, _target(python="3.99", glibc="9.9", cpu=["avx4096"], driver="9999.1", cuda="99.0", install_bytes=10**18))
    said = unbundle(bundle, "--to", "there").stderr
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == ["Python", "C library", "CPU", "NVIDIA driver", "disk"]
    assert all(" — " in line for line in said.splitlines()[1:]), "a misfit without its remedy"


def test_copied_only_it_may_be_another_machine(bundle: Path, unbundle: Any) -> None:
    rewrite(bundle, _target(python="3.99"))
    assert unbundle(bundle, "--to", "there", "--no-install").returncode == 0


def test_two_bundles_are_not_unpacked_over_one_another(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    unbundle(bundle, "--to", "there", "--no-install", check=True)
    rewrite(bundle, lambda held: held.update(made="another day"))
    before = (tmp_path / "there/carried/manifest.json").read_bytes()
    done = unbundle(bundle, "--to", "there", "--no-install")
    assert done.returncode == 2 and "holds another bundle" in done.stderr and "TO=" in done.stderr
    assert (tmp_path / "there/carried/manifest.json").read_bytes() == before


@pytest.mark.parametrize("kind", ["full folder", "file", "below a file", "long name", "link", "read-only parent"])
def test_targets_that_cannot_be(bundle: Path, unbundle: Any, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    if kind == "full folder":
        there.mkdir()
        (there / "mine").write_text("mine")
    elif kind == "file":
        there.write_text("mine")
    elif kind == "below a file":
        there.write_text("mine")
        there = there / "x"
    elif kind == "long name":
        there = tmp_path / ("n" * 250)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        there.symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "shut").mkdir(mode=0o500)
        there = tmp_path / "shut/there"
        if os.access(tmp_path / "shut", os.W_OK):
            pytest.skip("this user may write everywhere")
    done = unbundle(bundle, "--to", str(there), "--no-install")
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and str(there.parent) in done.stderr
    said = {"below a file": "a file stands where a folder should be", "long name": "the name is too long"}
    assert said.get(kind, "") in done.stderr and ("make room" in done.stderr) == (kind == "read-only parent")
    assert not (tmp_path / "elsewhere/carried").exists()


def test_an_empty_folder_is_a_good_target(bundle: Path, unbundle: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert unbundle(bundle, "--to", "there", "--no-install").returncode == 0


def test_a_full_disk_is_one_message_and_the_same_command_goes_on(bundle: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk: a write fails in the middle of a large file."""
    command = [sys.executable, str(bundle / "unbundle.pyz"), "--to", str(tmp_path / "there"), "--no-install"]
    limited = f"ulimit -f 1000; trap '' XFSZ; exec {' '.join(command)}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "run the same command again" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "there").exists()
    assert subprocess.run(command, capture_output=True, cwd=tmp_path).returncode == 0


def test_the_folder_where_one_is_is_not_replaced_under_ones_feet(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    command = [sys.executable, str(bundle / "unbundle.pyz"), "--no-install", "--to"]
    for to in (".", "", "../here"):
        done = subprocess.run([*command, to], capture_output=True, text=True, cwd=tmp_path / "here")
        assert done.returncode == 2 and "here is where you are" in done.stderr, done.stderr
        assert not list((tmp_path / "here").iterdir()) and sorted(one.name for one in tmp_path.iterdir()) == ["bundle", "here"]
    assert subprocess.run([*command, "here"], capture_output=True, cwd=tmp_path).returncode == 0
    again = subprocess.run([*command, "."], capture_output=True, text=True, cwd=tmp_path / "here")
    assert again.returncode == 0 and "unpacked before" in again.stdout, "asking for the same again does nothing, wherever one is"


def test_a_working_folder_that_is_gone(bundle: Path, tmp_path: Path) -> None:
    script = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} {bundle}/unbundle.pyz --to x --no-install"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "the folder where you are removed?" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_no_bundle_there(unbundle: Any, bundle: Path, tmp_path: Path) -> None:
    for place, said in ((tmp_path / "absent", "is no folder"), (tmp_path, "no bundle at"), ("~nobody-of-this-name/x", "is no folder")):
        done = unbundle(bundle, "--from", str(place))
        assert done.returncode == 2 and said in done.stderr


@pytest.mark.parametrize("kind", ["file", "somebody's folder", "read-only"])
def test_where_a_bundle_cannot_be_written(contents: Contents, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "holiday.jpg").write_text("mine")
    if kind == "read-only":
        (out / "holiday.jpg").unlink()
        out.chmod(0o500)
        if os.access(out, os.W_OK):
            pytest.skip("this user may write everywhere")
    with pytest.raises(ConfigError, match="OUT="):
        write(contents, out, 700_000)
    if kind == "somebody's folder":
        assert [one.name for one in out.iterdir()] == ["holiday.jpg"]


def test_a_file_of_the_medium_called_like_a_module_is_not_imported(bundle: Path, unbundle: Any) -> None:
    for name in ("json", "hashlib", "argparse"):
        (bundle / f"{name}.py").write_text("raise SystemExit('imported from the medium')")
    done = unbundle(bundle, "--verify")
    assert done.returncode == 2 and "json.py does not belong to the bundle" in done.stderr and "imported" not in done.stderr


@given(st.text(max_size=40))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_name_leaves_its_folder(name: str) -> None:
    try:
        check_name(name)
    except (ValueError, UnicodeEncodeError):
        return
    assert not Path(name).is_absolute() and not os.path.relpath(os.path.normpath(name)).startswith("..")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=9), x)
    )
)
@settings(deadline=None)
def test_any_json_is_a_manifest_or_one_message(value: Any) -> None:
    for held in (value, {"format": "untamed-bundle", "version": 1, "media": value, "objects": value, "files": value, "beside": value}):
        with pytest.raises(Refused, match=r"manifest\.json"):
            parse(json.dumps(held).encode())


def test_what_is_no_json_or_says_a_thing_twice() -> None:
    for raw in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": "untamed-bundle", "format": "x"}'):
        with pytest.raises(Refused, match="not in order"):
            parse(raw)


def test_processor_and_driver_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx2\n")
    assert machine.cpu_flags(tmp_path / "cpuinfo") == {"fpu", "sse4_2", "avx2"}
    assert machine.cpu_flags(tmp_path / "absent") == set()
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\n")
    assert "570.86.15" in machine._driver("580.65.06", "13.0", version)[0]
    assert machine._driver("525.60.13", "12.8", version) == []
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n")
    assert machine._driver("580.65.06", "13.0", version) == []


@pytest.mark.parametrize(
    ("mount", "said"),
    [("size=16m,ro", "Read-only file system"), ("size=300k", "make room"), ("size=4m", "make room")],
)
@pytest.mark.parametrize("command", ["bundle", "unbundle"])
def test_real_file_systems_that_are_full_or_read_only(
    bundle: Path, contents: Contents, tmp_path: Path, mount: str, said: str, command: str
) -> None:
    """A tmpfs in a mount namespace of its own."""
    where = tmp_path / "disk"
    where.mkdir()
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", str(where)], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")
    data = tmp_path / "data"
    data.mkdir()
    for number in range(6):
        (data / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    words = {
        "unbundle": f"{bundle}/unbundle.pyz --to {where}/there --no-install",
        "bundle": f"{Path(__file__).with_name('write_target.py')} {where}/out {data}",
    }[command]
    script = f"mount -t tmpfs -o {mount} x {where} && {sys.executable} {words}; code=$?; ls -A {where}; exit $code"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert said in done.stderr or "GB are free" in done.stderr
    assert "there" not in done.stdout.split()
