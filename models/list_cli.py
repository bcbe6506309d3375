"""`python -m models list`: the model cards with the GPUs that each needs, what of them lies here, and how to fetch the rest elsewhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import ConfigError, ModelError

HELP = "the model cards: sizes, GPUs needed, licences; which lie here, and how to fetch the others on a connected machine"
GPU_SIZES = (24, 48, 80, 141)  # GiB of common GPUs
PLACES = ("models", ".cache/models", "~/.cache/huggingface/hub")
OWNERS = {"qwen2.5-vl": "Qwen", "internvl2.5": "OpenGVLab", "internvl3": "OpenGVLab"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only cards whose name holds one of these")
    parser.add_argument(
        "--in", dest="places", type=Path, action="append", metavar="DIR", help=f"where model folders lie ({', '.join(PLACES)})"
    )
    parser.add_argument("--context", type=int, default=8192, metavar="TOKENS", help="prompt and reply of one call (8192)")
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="calls of that length that must have room at once (2)")
    parser.add_argument("--no-digests", action="store_true", help="do not read the weights")
    parser.add_argument("--again", action="store_true", help="read the weights again, whatever is remembered")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """0; 1 when something that was found is not whole or not what was published."""
    from models.found import search

    places = args.places or [path for path in map(Path, PLACES) if path.expanduser().is_dir()]
    rows = _cards(args.names, args.context, args.calls)
    found = [_row(one) for one in search([path.expanduser() for path in places])]
    if not args.no_digests:
        _digests(found, again=args.again)
    for row in rows:
        row["folders"] = [one["folder"] for one in found if row["name"] in one["cards"]]
    if args.json:
        print(json.dumps({"searched": [str(path) for path in places], "cards": rows, "found": found}, ensure_ascii=False))
    else:
        _print(rows, found, places)
    return 1 if any(one["faults"] for one in found) else 0


def _cards(names: Sequence[str], context: int, calls: int) -> list[dict[str, Any]]:
    from models.cards import cards
    from models.planner import GIB, MOST, Need, working_counts
    from models.shape import shape_of

    chosen = [card for card in cards().values() if not names or any(name.casefold() in card.name.casefold() for name in names)]
    if not chosen:
        raise ConfigError(f"no card's name holds {' or '.join(names)}", remedy=f"cards: {', '.join(cards())}")
    rows: list[dict[str, Any]] = []
    for card in chosen:
        shape = shape_of(card.config(card.forms[0]), round(card.parameters * 2), round(card.vision.parameters * 2))
        need = Need(min(context, card.context), calls)
        counts = {size: next(iter(working_counts(shape, size * GIB, need, MOST)), None) for size in GPU_SIZES}
        name = card.name + ("-hf" if card.family != "qwen2.5-vl" and "native" in card.forms else "")
        rows.append(
            {
                "name": card.name,
                "parameters": card.parameters,
                "gib": shape.weight_bytes / GIB,
                "context": card.context,
                "licence": card.licence,
                "gpus": counts,
                "forms": list(card.forms),
                "fetch": f"hf download {OWNERS[card.family]}/{name} --local-dir models/{name}",
            }
        )
    return rows


def _row(one: Any) -> dict[str, Any]:
    return {
        "folder": str(one.folder),
        "name": one.name,
        "cards": list(one.cards),
        "gib": one.bytes / 2**30,
        "shards": list(one.shards),
        "faults": list(one.faults),
        "digests": {},
        "published": 0,
    }


def _digests(found: Sequence[dict[str, Any]], *, again: bool) -> None:
    """Adds each shard's sha256, and what differs from what the folder itself says was published."""
    from models.digests import Digests, differing, published
    from models.progress import progress

    digests = Digests(again=again)
    todo = [(one, Path(one["folder"]) / name) for one in found for name in one["shards"]]
    sized = [(one, path, path.stat().st_size) for one, path in todo if path.is_file()]
    total = sum(size for _, path, size in sized if digests.known(path) is None)
    read = 0
    with progress("reading, MiB", total >> 20) as tell:
        for one, path, size in sized:

            def more(count: int, name: str = path.name) -> None:
                nonlocal read
                read += count
                tell(read >> 20, name)

            try:
                one["digests"][path.name] = digests.of(path, more)
            except (OSError, ModelError) as error:
                one["faults"].append(f"{path.name} ({size} bytes) cannot be read: {error}")
        for one in found:
            wanted = published(Path(one["folder"]))
            one["published"] = len(wanted)
            one["faults"] += [fault for fault in differing(Path(one["folder"]), wanted, digests) if fault not in one["faults"]]


def _print(rows: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], places: Sequence[Path]) -> None:
    heads = "".join(f"{size:>5}" for size in GPU_SIZES)
    print(f"{'model':<24}{'billion':>8}{'GiB':>7}{'context':>9}  GPUs of GiB{heads}  here  licence")
    for row in rows:
        counts = "".join(f"{row['gpus'][size] or '–':>5}" for size in GPU_SIZES)
        size = f"{row['parameters'] / 1e9:>8.1f}{row['gib']:>7.0f}{row['context']:>9,}"
        print(f"{row['name']:<24}{size}{'':>13}{counts}  {'yes ' if row['folders'] else '–   '}  {row['licence']}")
    where = ", ".join(map(str, places)) or "no folder is there"
    print(f"\nfound ({where}):" if found else f"\nfound nothing ({where}); --in DIR looks elsewhere")
    for one in found:
        kind = f" ({' or '.join(one['cards'])})" if one["cards"] and one["cards"] != [one["name"]] else ""
        kind = kind or ("" if one["cards"] else " (no card)")
        print(f"  {one['folder']}{kind}: {one['gib']:.2f} GiB in {len(one['shards'])} files{_state(one)}")
        print(*(f"    {name}  sha256 {digest}" for name, digest in one["digests"].items()), sep="\n", end="\n" if one["digests"] else "")
        print(*(f"    FAULT {fault} — copy it again" for fault in one["faults"]), sep="\n", end="\n" if one["faults"] else "")
    print("\nto fetch on a connected machine, then carry over (make bundle MODELS=…):")
    for row in rows:
        if not row["folders"]:
            print(f"  {row['fetch']}   # {row['gib']:.0f} GiB, {row['licence']}")
    from models.locate import FETCHABLE, HOME

    for name in FETCHABLE:
        if not (HOME / name).is_dir():
            print(f"  python -m models fetch {name}")


def _state(one: Mapping[str, Any]) -> str:
    if one["faults"]:
        return f", {len(one['faults'])} FAULTS"
    if one["published"]:
        return f", whole, {one['published']} files are as published"
    return ", whole; whether the bytes are the published ones could not be told" if one["digests"] else ", whole"
