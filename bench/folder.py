"""A run folder ``runs/<utc>_<suite>_<model>_<hash8>/``: what stands in it, and how the same command finds it again.

    config.json        resolved options, rows, digests; the hash8 is of these
    environment.json   every start: versions, machine
    journal.sqlite     every call, written before its reply is used; its lock keeps a second process out
    samples.jsonl      one line per question and row
    scores/            one file per judge
    report.md, summary.json, *.svg

Knows nothing of models. Everything but samples.jsonl and the journal is written whole or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any

from bench.records import Record, Score, read_records
from bench.shapes import misfit
from models.errors import RunError
from models.files import replace

NEXT = "run the same command again: it goes on from here"


@dataclass(frozen=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def samples(self) -> Path:
        return self.path / "samples.jsonl"

    def manifest(self) -> dict[str, Any]:
        """What config.json says. Raises RunError when this is no run folder."""
        found: Any = _read(self.path / "config.json")
        if not isinstance(found, dict) or not found.keys() >= MANIFEST.keys():
            raise RunError("no run stands here: its config.json is another one", where=str(self.path), remedy=_GIVE)
        wrong = misfit(found, MANIFEST) or (misfit(found, _GRAPH_RUN) if found["suite"] in ("settings", "ablations") else "")
        if wrong:
            raise RunError(f"was changed: {wrong}", where=str(self.path / "config.json"), remedy=_RESTORE)
        return dict(found)

    def judges(self) -> list[str]:
        """The hashes of the judges that have judged this run."""
        return sorted(file.stem.rpartition("_")[2] for file in (self.path / "scores").glob("*.json"))

    def records(self) -> dict[str, Record]:
        """row|uid → record, the latest where a sample was asked again."""
        return read_records(self.samples)

    def environments(self) -> list[dict[str, Any]]:
        """Every start of this run. What is no start any more, because somebody edited the file, is left out: no figure depends on it."""
        path = self.path / "environment.json"
        try:
            found = _read(path) if path.exists() else []
        except RunError:
            found = []
        return [one for one in found if not misfit(one, ENVIRONMENT)] if isinstance(found, list) else []

    def started(self, environment: Mapping[str, Any]) -> None:
        """Notes one more start of this run."""
        self.write("environment.json", json.dumps([*self.environments(), environment], indent=1))

    def write(self, name: str, text: str) -> Path:
        """The file, whole or not at all. Raises RunError when the folder cannot be written."""
        path = self.path / name
        try:
            replace(path, text)
        except OSError as error:
            remedy = f"make it writable or make room, then {NEXT}"
            raise RunError(f"cannot be written: {error.strerror}", where=str(path), remedy=remedy) from None
        return path

    def scores(self, hash8: str | None = None) -> dict[str, Any] | None:
        """The latest judging, or that of one judge: ``judge`` and ``scores`` (key → Score). None when there is none."""
        files = sorted((self.path / "scores").glob(f"*_{hash8}.json" if hash8 else "*.json"))
        found = [(_judging(file), file) for file in files]
        if not found:
            return None
        latest, file = max(found, key=lambda one: str(one[0]["made"]))
        try:
            return {**latest, "scores": {raw["key"]: Score.from_dict(raw) for raw in latest["scores"]}}
        except ValueError as error:
            raise RunError(f"holds a score that is none: {error}", where=str(file), remedy=_JUDGE) from None


_GIVE = "give a folder that python -m bench run made"
_RESTORE = "restore the file, or move the folder away: the same command then makes another"
_JUDGE = "remove it and judge again: python -m bench score RUN; the judge's replies stand in the journal"
MANIFEST: Mapping[str, Any] = {
    "suite": str,
    "config": {"name": str, "tags": [str], "seed": int, "limit": (int, NoneType)},
    "rows": list,
    "data": dict,
    "models": dict,
    "prompts": dict,
    "predicting": dict,
}
# What the reports of the knowledge-graph suites count on besides.
_GRAPH_RUN: Mapping[str, Any] = {
    "rows": [{"label": str, "setting": str, "changes": dict, "questions": int}],
    "data": {"name": str, "folder": str, "digest": str, "tasks": [str], "warnings": int},
    "models": {str: {"model": str, "digest": str}},
    "prompts": {str: str},
    "not run": [str],
}
ENVIRONMENT: Mapping[str, Any] = {
    "started": str,
    "python": str,
    "packages": {str: str},
    "commit": str,
    "processor": str,
    "cores": (int, NoneType),
    "memory GiB": object,
    "gpus": [str],
}
JUDGING: Mapping[str, Any] = {
    "judge": {"label": str, "digest": str, "itself": bool, "exact": bool},
    "made": str,
    "scores": [{"key": str}],
}


def _judging(path: Path) -> dict[str, Any]:
    found: Any = _read(path, _JUDGE)
    if wrong := misfit(found, JUDGING):
        raise RunError(f"holds no judging: {wrong}", where=str(path), remedy=_JUDGE)
    return dict(found)


def _read(path: Path, remedy: str = _RESTORE) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError("no run stands here", where=str(path.parent), remedy=_GIVE) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path), remedy=remedy) from None


def hash8(manifest: Mapping[str, Any]) -> str:
    """Eight hex digits over the part of a manifest that decides what is predicted."""
    return hashlib.sha256(json.dumps(manifest["predicting"], sort_keys=True).encode()).hexdigest()[:8]


def slug(text: str) -> str:
    """Text as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.")[-40:] or "x"


def find_or_make(runs: Path, suite: str, model: str, manifest: Mapping[str, Any]) -> tuple[RunFolder, bool]:
    """The folder of the run that this manifest describes, and whether it was there already. Raises RunError."""
    digest = hash8(manifest)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with (runs / ".lock").open("w") as lock:  # two equal commands at once make one folder, not two
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = sorted(path for path in runs.glob(f"*_{digest}") if (path / "config.json").is_file())
            if known:
                return RunFolder(known[0]), True
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{slug(suite)}_{slug(Path(model).name or model)}_{digest}"
            fresh = RunFolder(runs / f".{name}.tmp")
            try:
                fresh.path.mkdir(exist_ok=True)
                fresh.write("config.json", json.dumps(manifest, indent=1))
                return RunFolder(fresh.path.rename(runs / name)), False
            except BaseException:
                shutil.rmtree(fresh.path, ignore_errors=True)
                raise
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror}", where=str(runs), remedy="give another place with --runs") from None


@contextmanager
def taken_away_unstarted(folder: RunFolder) -> Iterator[None]:
    """Takes the folder away again when an error ends a run that never started (no model could be opened) and left no server's log.

    Only for who holds the run's journal: another process may be loading its model here.
    """
    try:
        yield
    except BaseException:
        if not (folder.path / "environment.json").exists() and not any(folder.path.rglob("*.log")):
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def latest(runs: Path) -> RunFolder:
    """The run that was started last and has samples. Raises RunError when there is none."""
    found = sorted(path.parent for path in runs.glob("*/samples.jsonl") if not path.parent.name.startswith("."))
    if not found:
        raise RunError("no run stands here yet", where=str(runs), remedy="make one with python -m bench run")
    return RunFolder(found[-1])
