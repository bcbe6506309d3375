"""The options of the unpacker, and how errors end: 0 done, 2 one message that says what to do, 130 Ctrl-C. See `__main__.py`."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.sealed.unpacker import machine, place
from bench.sealed.unpacker.check import require, verify, verify_unpacked
from bench.sealed.unpacker.copying import Copier
from bench.sealed.unpacker.errors import Refused
from bench.sealed.unpacker.manifest import Bundle, read_bundle, read_unpacked

REMEDIES = {  # what the system says → what to do; anything else is a disk that is full or may not be written
    errno.ENOENT: "it is not there any more: was a medium pulled out, or the folder where you are removed?",
    errno.ENOTDIR: "a file stands where a folder should be: give another folder (TO=)",
    errno.ENAMETOOLONG: "the name is too long for this file system: give a shorter one (TO=)",
    errno.ELOOP: "links that lead in a circle: give another folder (TO=)",
    errno.EIO: "the device cannot be read or written: try another one, or another copy of the bundle",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, for this command and its twins under `python -m bench`."""
    parser.add_argument(
        "--from", dest="source", default="", metavar="PLACE[:PLACE]", help="where the bundle lies; several media with colons"
    )
    parser.add_argument("--to", type=Path, default=None, metavar="FOLDER", help="what to make, outside the bundle [untamed-COMMIT here]")
    parser.add_argument(
        "--key", default="", metavar="PUBLIC.pem", help="the maker's public key, or its 64 hex digits; brought by another way"
    )
    parser.add_argument("--no-install", action="store_true", help="only check and copy")
    parser.add_argument("--verify", action="store_true", help="check only, write nothing; without --from, a tree that was unpacked")


def main(argv: Sequence[str]) -> int:
    """Parses, runs, and turns every mistake into one message."""
    parser = argparse.ArgumentParser(
        prog="unbundle.pyz", description="Check a bundle and unpack it, without a network.", allow_abbrev=False
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """0, 2 or 130."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a folder's name that this locale cannot show ends no run
    try:
        _verify(arguments) if arguments.verify else _unbundle(arguments)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        room = "make room or make it writable, then run the same command again: it goes on where it stopped"
        remedy = REMEDIES.get(error.errno or 0, room)
        print(f"error: {error.filename or 'disk'}: {error.strerror} — {remedy}", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:
        print(f"error: {error.object!a}: this locale has no such letters — set PYTHONUTF8=1", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _places(text: str) -> list[Path]:
    """Folders of a bundle: as given, or where the running unbundle.pyz lies."""
    me = Path(sys.argv[0]).absolute()
    words = [text] if text and Path(text).is_dir() else text.split(":")  # a folder's own name may have a colon
    named = [os.path.expanduser(one) for one in words if one]  # noqa: PTH111 (Path's own raises for a user who is not there)
    given = [Path(one) for one in named] or ([me.parent] if me.suffix == ".pyz" else [])
    if not given:
        raise Refused("where is the bundle? — give FROM=/media/usb (--from)")
    for one in given:
        if not one.is_dir():
            raise Refused(f"{one} is no folder — is the medium there and mounted?")
    return given


def _describe(bundle: Bundle, key: str) -> str:
    held = bundle.held
    signed = (
        f"signed by {held['signed_by']}" + (", as you asked" if key else ", NOT compared with a key of yours (KEY=)")
        if held["signed_by"]
        else "not signed"
    )
    total = sum(one["size"] for one in held["objects"].values())
    target = held["target"]
    return (
        f"bundle of {held['made']}, commit {held['project']['commit'][:12]}, {target['kind']} on {target['system']} {target['machine']} "
        f"with Python {target['python']}: {len(held['files']):,} files, {total / 1e9:.2f} GB; {signed}"
    )


def _verify(arguments: argparse.Namespace) -> None:
    copier = Copier()
    if not arguments.source and (arguments.to or Path(sys.argv[0]).suffix != ".pyz"):
        folder = arguments.to or Path()
        if arguments.key:
            what = "an unpacked folder keeps no signature to compare with a key"
            raise Refused(f"{what}: give FROM= as well, or leave KEY out")
        bundle = read_unpacked(folder)
        require(verify_unpacked(folder, bundle, copier), "What is listed was changed, or lost, after unpacking", "folder")
        print(f"{folder.absolute()}: every file is as it was unpacked. {_describe(bundle, '')}")
        return
    bundle = read_bundle(_places(arguments.source), arguments.key)
    require(verify(bundle, copier), "Nothing was used, and nothing is fetched to heal it: copy what is named from the maker again")
    print(f"the bundle is whole: {_describe(bundle, arguments.key)}")


def _unbundle(arguments: argparse.Namespace) -> None:
    bundle = read_bundle(_places(arguments.source), arguments.key)
    beside = Path().absolute().parent if Path("pyproject.toml").is_file() else Path()  # never inside another tree of the project
    to = (arguments.to or beside / f"untamed-{bundle.held['project']['commit'][:8]}").absolute()
    place.elsewhere(bundle, to)
    print(_describe(bundle, arguments.key), flush=True)
    if place.unpacked(bundle, to):
        wrong = [] if arguments.no_install else machine.misfits(bundle.held["target"])
        if wrong:
            raise Refused("this machine and the bundle do not fit:\n" + "\n".join(f"  {one}" for one in wrong))
        print(f"{to}: unpacked before, every digest was right then", flush=True)
    else:
        place.unpack(bundle, to, Copier(), install=not arguments.no_install)
        print(f"{to}: unpacked, every digest is right", flush=True)
    if not arguments.no_install:
        place.install(bundle, to)
    for note in machine.notes(bundle.held["system"]):
        print(f"note: {note}")
    print(f"next: cd {os.path.relpath(to)} && make bench")
