"""Named entities of a text by a local spaCy model (extra `ner`): the reference's, where no names were written down. Only file with spacy.

A model is a folder, as spaCy's `nlp.to_disk` writes it; nothing is fetched. The recall is Nan et al.'s of 2021 (entities of the reference
that the answer holds too, over all of the reference). Knows no run. Try: python -m bench cuem --ner FOLDER --judge exact
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from bench.cuem.texts import folded
from bench.folder import RunFolder
from bench.records import digest
from bench.shapes import misfit
from models.errors import ModelError, RunError
from models.files import sha256

KEPT = "entities.json"  # in the run's folder: the model's digest, and the entities of each reference
# Kinds that name nothing: a number or a date in another form is no lost entity.
LEFT_OUT = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
_REMEDY = "give a folder that spaCy wrote (config.cfg and meta.json in it); models are not fetched"


class Entities:
    """A local spaCy pipeline. Raises ModelError: the extra is not installed, no such folder, no model in it."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "config.cfg").is_file() or not (folder / "meta.json").is_file():
            raise ModelError("is no folder of a spaCy model", where=str(folder), remedy=_REMEDY)
        if importlib.util.find_spec("spacy") is None:
            raise ModelError("the package spacy is not installed", remedy="pip install 'untamed[ner]' (docs/pipeline.md)")
        self.folder = folder

    @cached_property
    def digest(self) -> str:
        """Changes with any byte of the model."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        told = "\n".join(f"{path.relative_to(self.folder).as_posix()} {sha256(path)}" for path in files)
        return hashlib.sha256(told.encode()).hexdigest()

    @cached_property
    def pipeline(self) -> Any:
        import spacy

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "trained with another version": what it finds is what counts
                found = spacy.load(self.folder)
        except Exception as error:  # spaCy's own, ValueError, KeyError, OSError: whatever a damaged folder makes of it
            raise ModelError(
                f"spaCy cannot open it: {' '.join(str(error).split())[:200]}", where=str(self.folder), remedy=_REMEDY
            ) from None
        if not {"ner", "entity_ruler", "span_ruler"} & set(found.pipe_names):
            raise ModelError(f"finds no entities: it holds {', '.join(found.pipe_names) or 'nothing'}", where=str(self.folder))
        return found

    def opened(self) -> Self:
        """Itself, loaded: faults come before a run."""
        assert self.pipeline is not None
        return self

    def of(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """The distinct entities of each text, in order, without numbers and dates."""
        out = []
        for document in self.pipeline.pipe(texts):
            names = {folded(e.text): e.text for e in document.ents if e.label_ not in LEFT_OUT and folded(e.text)}
            out.append(tuple(names.values()))
        return out


def keep(folder: RunFolder, model: Entities) -> None:
    """Writes the entities of the run's references into its folder, where the report finds them again."""
    golds = sorted({record.gold_answer for record in folder.records().values()})
    found = dict(zip(map(digest, golds), map(list, model.of(golds)), strict=True))
    folder.write(KEPT, json.dumps({"model": model.folder.name, "digest": model.digest, "entities": found}, ensure_ascii=False))


def kept(folder: RunFolder) -> tuple[str, dict[str, list[str]]]:
    """(the model's name and digest, reference's digest → entities); ("", {}) where no model looked. Raises RunError when it was edited."""
    path = folder.path / KEPT
    if not path.is_file():
        return "", {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path), remedy="remove it, and ask with --ner again") from None
    if wrong := misfit(found, {"model": str, "digest": str, "entities": {str: [str]}}):
        raise RunError(f"was changed: {wrong}", where=str(path), remedy="remove it, and ask with --ner again")
    return f"{found['model']}, {found['digest'][:12]}", found["entities"]
