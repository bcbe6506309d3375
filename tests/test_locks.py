"""The locks agree with pyproject.toml, and a lock that does not is named by the check that CI runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "scripts/lock.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "locks", tmp_path / "locks")
    return tmp_path


def check(project: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(project / "scripts" / "lock.py"), "--check"], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_the_locks_fit(project: Path) -> None:
    assert check(project) == (0, "")


@pytest.mark.parametrize(
    "name,change,told",
    [
        ("locks/milvus.txt", lambda text: text.replace("pymilvus==3.0.2", "pymilvus==2.9.0"), "pymilvus is locked at 2.9.0 for milvus"),
        ("pyproject.toml", lambda text: text.replace("milvus-lite==3.2.2", "milvus-lite==4.0.0"), "milvus-lite is locked at 3.2.2"),
        ("pyproject.toml", lambda text: text.replace('milvus = ["', 'milvus = ["etcd3==1.0", "'), "etcd3 is in no lock of milvus"),
        ("locks/ner.txt", lambda text: text.replace("spacy==3.8.18", "spacy>=3.8"), "is not pinned"),
        (
            "locks/ner.txt",
            lambda text: f"{text}numpy==2.0.0 \\\n    --hash=sha256:00\n",
            "pins numpy, which the CPU environment has",
        ),
        ("locks/ner.txt", lambda text: "", "locks/ner.txt is missing or empty"),
    ],
)
def test_a_lock_that_does_not_fit_is_named(project: Path, name: str, change: Callable[[str], str], told: str) -> None:
    path = project / name
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before
    code, said = check(project)
    assert code == 1 and told in said
