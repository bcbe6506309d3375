"""The journal of a run: SQLite (WAL), one row per completed call, written before the reply is used.

A killed run goes on from it: `find` answers a call that was completed before. Rows are durable against the death of the process
at any instant; after a power cut the last few calls may be asked again (synchronous=NORMAL). Failures stand in a table of their
own, for the report; they are asked again. `uses` tells which call each sample made at which step, also those answered from here.
Knows no engine. Try: python -m models journal RUN/journal.sqlite
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from models.errors import CallFailed, RunError
from models.requests import Completion, Finish, Picture, Request

VERSION = 2
_SCHEMA = """
CREATE TABLE calls (
    key TEXT PRIMARY KEY, engine TEXT NOT NULL, role TEXT NOT NULL, stage TEXT NOT NULL, sample TEXT NOT NULL, round INTEGER NOT NULL,
    started REAL NOT NULL, seconds REAL NOT NULL, first_token_seconds REAL, prompt_tokens INTEGER, output_tokens INTEGER,
    cached_tokens INTEGER, finish TEXT NOT NULL, probs TEXT NOT NULL, text TEXT NOT NULL, request TEXT NOT NULL,
    waited REAL NOT NULL DEFAULT 0);
CREATE TABLE failures (
    key TEXT NOT NULL, engine TEXT NOT NULL, role TEXT NOT NULL, stage TEXT NOT NULL, sample TEXT NOT NULL, round INTEGER NOT NULL,
    started REAL NOT NULL, seconds REAL NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE uses (
    sample TEXT NOT NULL, step INTEGER NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sample, step, position));
"""
_FROM_1 = "ALTER TABLE calls ADD COLUMN waited REAL NOT NULL DEFAULT 0;"
_FOLD = 10_000  # pages (40 MB) of the write-ahead log until it is folded into the file: each time the run stands still for the disk
_INSERT_CALL = f"INSERT OR IGNORE INTO calls VALUES ({', '.join('?' * 17)})"
_CALL_COLUMNS = (
    "key, engine, role, stage, sample, round, started, seconds, first_token_seconds, prompt_tokens, output_tokens, cached_tokens,"
    " finish, probs, text, {waited}"
)


@dataclass(frozen=True, slots=True)
class Record:
    """One call that came back: who asked, when it was sent (`started`, seconds since the epoch), and the reply or the failure.

    `waited`: seconds between asking and sending, for a slot of the engine (0 where not known: failures, journals of layout 1).
    """

    key: str
    engine: str
    role: str
    stage: str
    sample: str
    round: int
    started: float
    seconds: float
    result: Completion | CallFailed
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """A sample made this call at its `step`-th round trip, as the `position`-th of that trip; the call may be shared."""

    sample: str
    step: int
    position: int
    key: str


class Journal:
    """The journal at `path`, made when it is not there.

    Raises RunError when another process writes it, when the disk is full or read-only, or when the file is something else.
    With `writable=False` it is only read, also while a run goes on.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.path = path
        self._waited = "waited"
        self._lock: IO[str] | None = None
        if writable:
            self._lock = _take(path.with_name(path.name + ".lock"))
        elif not path.is_file():
            raise RunError("no journal here", where=str(path), remedy="give the folder of a run")
        try:
            mode = "rwc" if writable else "ro"
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10)
            if writable:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute(f"PRAGMA wal_autocheckpoint={_FOLD}")
            self._prepare(writable)
        except sqlite3.Error as error:
            self._release()
            raise self._said(error) from None
        except RunError:
            self._release()
            raise

    def _prepare(self, writable: bool) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0 and writable:
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        elif version == 1 and writable:
            self._db.executescript(f"BEGIN IMMEDIATE; {_FROM_1} PRAGMA user_version={VERSION}; COMMIT;")
        elif version == 1:
            self._waited = "0"
        elif version != VERSION:
            raise RunError(
                f"journal of layout {version}, this program writes {VERSION}", where=str(self.path), remedy="start a new run folder"
            )

    def find(self, key: str) -> Completion | None:
        """The reply that was journalled under this key."""
        try:
            row = self._db.execute(
                "SELECT text, finish, prompt_tokens, output_tokens, cached_tokens, seconds, first_token_seconds, probs"
                " FROM calls WHERE key = ?",
                (key,),
            ).fetchone()
        except sqlite3.Error as error:
            raise self._said(error) from None
        if row is None:
            return None
        text, finish, prompt, output, cached, seconds, first, probs = row
        return Completion(text, finish, prompt, output, cached, seconds, first, _pairs(probs))

    def record(self, done: Sequence[tuple[Record, Request]], uses: Sequence[Use] = ()) -> None:
        """Writes all of it in one transaction; when this returns, the rows survive a kill. Raises RunError."""
        if not done and not uses:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for record, request in done:
                    self._insert(record, request)
                if uses:
                    self._db.executemany(
                        "INSERT OR REPLACE INTO uses VALUES (?, ?, ?, ?)", [(u.sample, u.step, u.position, u.key) for u in uses]
                    )
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._said(error) from None

    def _insert(self, record: Record, request: Request) -> None:
        head = (record.key, record.engine, record.role, record.stage, record.sample, record.round, record.started, record.seconds)
        got = record.result
        if isinstance(got, CallFailed):
            values: tuple[object, ...] = (*head, got.reason, _clean(got.detail))
            self._db.execute("INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            return
        tokens = (got.prompt_tokens, got.output_tokens, got.cached_tokens)
        probs = json.dumps(got.probs) if got.probs else "[]"
        values = (*head, got.first_token_seconds, *tokens, got.finish, probs, _clean(got.text), describe(request))
        self._db.execute(_INSERT_CALL, (*values, record.waited))

    def calls(self) -> Iterator[Record]:
        """Every completed call, in the order of completion."""
        for row in self._rows(f"SELECT {_CALL_COLUMNS.format(waited=self._waited)} FROM calls ORDER BY rowid"):
            first, prompt, output, cached, finish, probs, text, waited = row[8:]
            yield _row(row, Completion(text, cast(Finish, finish), prompt, output, cached, row[7], first, _pairs(probs)), waited)

    def failures(self) -> Iterator[Record]:
        """Every failed attempt, in the order of failing; a call that succeeded later also stands in `calls`."""
        for row in self._rows("SELECT * FROM failures ORDER BY rowid"):
            yield _row(row, CallFailed(*row[8:]))

    def uses(self) -> Iterator[Use]:
        """Who made which call, by sample, step and position."""
        for row in self._rows("SELECT * FROM uses ORDER BY sample, step, position"):
            yield Use(*row)

    def request(self, key: str) -> dict[str, Any] | None:
        """What was sent, as `describe` wrote it."""
        for (text,) in self._rows("SELECT request FROM calls WHERE key = ?", key):
            return cast("dict[str, Any]", json.loads(text))
        return None

    def _rows(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise self._said(error) from None

    def close(self) -> None:
        """Folds the write-ahead log into the file and lets go of the lock."""
        self._db.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _said(self, error: sqlite3.Error) -> RunError:
        text = str(error)
        remedy = "see that the folder is whole and can be written"
        if "full" in text:
            remedy = "make room on the disk, then run the same command again: it goes on from here"
        elif "readonly" in text or "read-only" in text or "unable to open" in text:
            remedy = "make the run folder writable, or give another one"
        elif "not a database" in text or "malformed" in text:
            remedy = "the file is damaged or no journal: move it away; the calls it held will be asked again"
        return RunError(f"the journal cannot be used: {text}", where=str(self.path), remedy=remedy)


def _row(row: tuple[Any, ...], result: Completion | CallFailed, waited: float = 0.0) -> Record:
    key, engine, role, stage, sample, round_, started, seconds = row[:8]
    return Record(key, engine, role, stage, sample, round_, started, seconds, result, waited)


def _pairs(probs: str) -> tuple[tuple[str, float], ...]:
    return tuple((word, p) for word, p in json.loads(probs))


def describe(request: Request) -> str:
    """A request as JSON, pictures as path and digest: what a replay needs."""
    d = request.decoding
    turns = [
        [m.role, [p if isinstance(p, str) else {"picture": str(p.path), "digest": p.digest} for p in m.parts]] for m in request.messages
    ]
    decoding = {name: getattr(d, name) for name in d.__slots__}
    return json.dumps({"messages": turns, "decoding": decoding})  # ASCII: lone surrogates stay storable


def restore(described: dict[str, Any]) -> Request:
    """The request that `describe` wrote."""
    from models.requests import Decoding, Message

    turns = tuple(
        Message(role, tuple(p if isinstance(p, str) else Picture(Path(p["picture"]), p["digest"]) for p in parts))
        for role, parts in described["messages"]
    )
    fixed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in described["decoding"].items()}
    return Request(turns, Decoding(**fixed))


def _clean(text: str) -> str:
    """SQLite stores UTF-8: half a surrogate pair, which a server's JSON can hold, becomes U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def _take(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="utf-8")
    except OSError as error:
        remedy = "make the run folder writable, or give another one"
        raise RunError(f"cannot be written: {error.strerror}", where=str(path.parent), remedy=remedy) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        who = lock.read(20).strip()
        lock.close()
        said = f"another run is using this folder{f' (process {who})' if who else ''}"
        raise RunError(said, where=str(path.parent), remedy="wait for it or stop it, or give another folder") from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    try:
        lock.flush()
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror}", where=str(path.parent), remedy="make room on the disk") from None
    return lock
