"""The journal: what is in it survives kill -9; what it cannot do is said."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import CallFailed, RunError
from models.journal import Journal, Record, Use, describe, restore
from models.requests import Completion, Decoding, Message, Picture, Request, user

ROOT = Path(__file__).resolve().parent.parent.parent


def record(key, result=None, sample="s"):
    return Record(key, "engine", "agent", "stage", sample, 1, 100.0, 0.25, result or Completion("text", seconds=0.25))


def test_a_call_is_found_again_whole(tmp_path):
    reply = Completion("ä\x00한\n" * 9000, "length", 10, 20, 5, 0.25, 0.1, (("Yes", 0.75), ("No", 0.125)))
    with Journal(tmp_path / "j") as journal:
        journal.record([(record("k", reply), user("q")), (record("f", CallFailed("timeout", "late")), user("q"))], [Use("s", 1, 0, "k")])
    with Journal(tmp_path / "j") as journal:
        assert journal.find("k") == reply and journal.find("f") is None
        (kept,) = journal.calls()
        assert kept == record("k", reply)
        (failed,) = journal.failures()
        assert (failed.key, failed.result.reason, failed.result.detail) == ("f", "timeout", "late")
        assert list(journal.uses()) == [Use("s", 1, 0, "k")]
        assert restore(journal.request("k")) == user("q") and journal.request("none") is None


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(codec=None)),
    choices=st.none() | st.lists(st.text(), min_size=1).map(tuple),
    temperature=st.floats(0, 2),
    path=st.text(st.characters(codec="utf-8", exclude_characters="/\x00"), min_size=1),
)
def test_any_request_can_be_written_down(text, choices, temperature, path):
    request = Request(
        (Message("system", (text,)), Message("user", (text, Picture(Path("/f") / path, "d"), text))),
        Decoding(5, temperature, choices=choices, probe=("Yes",)),
    )
    again = restore(json.loads(describe(request)))
    assert again.key("m") == request.key("m") and again.decoding == request.decoding


def test_any_changed_byte_is_another_call():
    base = user("q", decoding=Decoding(seed=1))
    others = [
        user("q "),
        user("q", system="s"),
        base.with_decoding(seed=2),
        base.with_decoding(choices=("a",)),
        base.with_decoding(max_tokens=1),
    ]
    pictures = [user(Picture(Path("a"), "1"), "q"), user(Picture(Path("a"), "2"), "q"), user("q", Picture(Path("a"), "1"))]
    keys = [r.key("m") for r in (base, *others, *pictures)] + [base.key("m2")]
    assert len(set(keys)) == len(keys)
    assert user(Picture(Path("a"), "1"), "q").key("m") == user(Picture(Path("renamed"), "1"), "q").key("m")


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    with Journal(tmp_path / "j") as journal:
        journal.record([(record("k"), user("q"))])
        with pytest.raises(RunError, match=rf"another run is using this folder \(process {os.getpid()}\)"):
            Journal(tmp_path / "j")
        code = "import sys; from pathlib import Path; from models.journal import Journal; Journal(Path(sys.argv[1]))"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path / "j")], cwd=ROOT, capture_output=True, text=True)
        assert other.returncode and "another run is using this folder" in other.stderr
        with Journal(tmp_path / "j", writable=False) as reader:  # reading along is allowed
            assert reader.find("k").text == "text"
    Journal(tmp_path / "j").close()


def test_a_full_disk_is_said_and_nothing_is_half_written(tmp_path):
    with Journal(tmp_path / "j") as journal:
        journal.record([(record("k1"), user("q"))])
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count={pages + 2}")
        big = Completion("x" * 100_000)
        with pytest.raises(RunError, match=r"full.*make room on the disk"):
            journal.record([(record("k2"), user("q")), (record("k3", big), user("q"))])
    with Journal(tmp_path / "j") as journal:
        assert [r.key for r in journal.calls()] == ["k1"]


def test_a_read_only_journal_is_said(tmp_path):
    Journal(tmp_path / "j").close()
    with Journal(tmp_path / "j") as journal:
        journal._db.execute("PRAGMA query_only=1")  # root, who runs the tests in CI, may write files that others may not
        with pytest.raises(RunError, match=r"readonly.*make the run folder writable"):
            journal.record([(record("k"), user("q"))])


def test_folders_that_cannot_hold_one(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="cannot be written"):
        Journal(tmp_path / "file" / "j")
    with pytest.raises(RunError, match="no journal here"):
        Journal(tmp_path / "j", writable=False)
    (tmp_path / "text").write_text("not a database at all " * 100)
    with pytest.raises(RunError, match="not a database"):
        Journal(tmp_path / "text")
    with sqlite3.connect(tmp_path / "newer") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(RunError, match="layout 99"):
        Journal(tmp_path / "newer")


def test_kill_9_loses_nothing_doubles_nothing_repeats_nothing(tmp_path, server):
    """Killed again and again at random moments: no call that is in the journal is ever asked again, and the result is whole."""
    server.seconds = 0.01
    path, samples, rng = tmp_path / "j", 20, random.Random(5)
    command = [sys.executable, str(Path(__file__).with_name("kill_run.py")), str(path), server.url, str(samples)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    kills = 0
    for attempt in range(30):
        finished = {restore(json.loads(text)).text for text in rows(path)}
        before = dict(server.seen)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        if attempt < 9:
            while sum(server.seen.values()) < sum(before.values()) + rng.randint(1, 24) and process.poll() is None:
                time.sleep(0.002)
            time.sleep(rng.random() * 0.02)
            process.kill()
            kills += process.wait() == -9
        out, err = process.communicate(timeout=60)
        again = {text for text in finished if server.seen[text] != before[text]}
        assert not again
        if process.returncode == 0:
            break
    assert (process.returncode, out.split()) == (0, [str(samples), str(samples)]), err
    assert kills >= 4
    texts = [restore(json.loads(text)).text for text in rows(path)]
    assert len(texts) == len(set(texts)) == samples * 6


def rows(path):
    if not path.exists():
        return []
    with Journal(path, writable=False) as journal:
        return [text for (text,) in journal._rows("SELECT request FROM calls")]


def test_a_journal_of_layout_1_is_read_and_goes_on(tmp_path):
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.record([(record("k"), user("q"))])
    with sqlite3.connect(path) as db:  # as the program before wrote it
        db.execute("ALTER TABLE calls DROP COLUMN waited")
        db.execute("PRAGMA user_version=1")
    db.close()
    with Journal(path, writable=False) as journal:
        assert [r.waited for r in journal.calls()] == [0.0]
    with Journal(path) as journal:
        assert journal.find("k") is not None
        journal.record([(replace(record("new"), waited=1.5), user("r"))])
        assert [r.waited for r in journal.calls()] == [0.0, 1.5]
