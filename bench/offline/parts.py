"""What `make test-offline` runs, as rows: each part's commands in an empty folder, and the two plantings that prove the watches awake."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "models" / "tiny-qwen2.5-vl"
VLLM = ROOT / ".venv-vllm"


@dataclass(frozen=True)
class Part:
    """One part of the suite.

    Attributes:
        commands: builds the commands for (python, folder); the folder is empty and is where they run.
        why_not: says why the part cannot be run here; empty when it can.
        lenient: a command may end with exit code 2, one clear message: what is shown is that it asks nobody, not that it can.
        seconds: limit of all its commands.
    """

    name: str
    about: str
    commands: Callable[[str, Path], Sequence[Sequence[str]]]
    why_not: Callable[[], str] = lambda: ""
    lenient: bool = False
    seconds: float = 900.0


def _video(python: str, folder: Path) -> list[list[str]]:
    video = [python, "-m", "video"]
    clip = "clips/h264_closed.mp4"
    made = [[python, "-m", "bench.offline.clip", clip]]
    frames = [
        [*video, clip, "--strategy", name, "--frames", "4", "--out", f"frames-{name}"] for name in ("uniform", "content", "content-hq")
    ]
    return [*made, [*video, "index", clip], *frames, [*video, clip, "--decoder", "decord", "--strategy", "fast", "--out", "frames-decord"]]


def _bench(python: str, folder: Path) -> list[list[str]]:
    world = [python, "-m", "bench", "world", "--seed", "5", "--creatures", "3", "--clips", "140x84@30", "--workers", "1", "--out", "world"]
    run = [python, "-m", "bench", "run", "--data", "world", "--model", str(TINY), "--prompts", "compact", "--limit", "2"]
    return [world, [python, "-m", "kg", "check", "world"], run, [python, "-m", "bench", "report"]]


def _pipeline(python: str, folder: Path) -> list[list[str]]:
    texts = ("Bread is baked from flour, water and salt.", "A shock wave stands before a blunt body.", "The heron waits in shallow water.")
    rows = [{"id": f"d{i}", "title": text.split()[1], "text": text} for i, text in enumerate(texts)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = [python, "-m", "pipeline"]
    return [
        [*run, "index", "build", "docs.jsonl", "collection"],
        [*run, "index", "search", "collection", "how to bake"],
        [*run, "index", "check", "collection"],
        [*run, "safety", "score", "How do I bake bread?"],
        [*run, "ask", "How is bread baked?", "--collection", "collection", "--model", str(TINY), "--row", "enriched"],
    ]


def _vllm(python: str, folder: Path) -> list[list[str]]:
    world = [python, "-m", "bench", "world", "--seed", "5", "--creatures", "3", "--clips", "140x84@30", "--workers", "1", "--out", "world"]
    run = [python, "-m", "bench", "run", "--data", "world", "--model", str(TINY), "--prompts", "compact", "--limit", "1"]
    run += ["--engine", "vllm", "--served-on", "cpu", "--gpu", "1", "--judge", "exact", "--settings", "vanilla+,perceptive"]
    return [world, run]


def _doctor(python: str, folder: Path) -> list[list[str]]:
    doctor = [python, "-m", "bench", "doctor", "--only", "imports,loopback,ports,variables,models"]
    return [doctor, [python, "-m", "models", "list", "--in", str(TINY.parent)]]


def _no_vllm() -> str:
    return "" if (VLLM / "stamp").is_file() else "no .venv-vllm: scripts/make_vllm_venv.sh makes it (2.5 GB)"


def _tests(python: str, folder: Path) -> list[list[str]]:
    # from the root, as make test; without the tests of this very proof, whose planted attempts strace would rightly count
    return [["env", "-C", str(ROOT), python, "-m", "pytest", "-p", "no:cacheprovider", "--ignore", "tests/bench/test_offline.py"]]


PARTS: tuple[Part, ...] = (
    Part("video", "frames of a made clip by three strategies and both decoders", _video),
    Part("bench", "a made world, all six settings with the embedded model and judge, the report", _bench),
    Part("pipeline", "a collection built, searched and checked, the safety head, one question through the flow", _pipeline, lenient=True),
    Part("doctor", "every library imported, the embedded model looked over, the list of models", _doctor),
    Part("vllm", "two settings through a managed `vllm serve` of the CPU build", _vllm, _no_vllm, seconds=1500.0),
)
EXTRA: tuple[Part, ...] = (Part("tests", "the whole test suite (only when asked for: --parts tests)", _tests, seconds=7200.0),)

_PYTHON_STRAY = """
import contextlib, socket
for attempt in (lambda: socket.create_connection(("192.0.2.7", 443), 2), lambda: socket.gethostbyname("planted.invalid")):
    with contextlib.suppress(OSError):
        attempt()
"""
_NATIVE_STRAY = """
import ctypes, socket, struct
libc = ctypes.CDLL(None)
one = libc.socket(2, 1, 0)
libc.connect(one, struct.pack("=H", 2) + struct.pack("!H", 443) + socket.inet_aton("192.0.2.9") + bytes(8), 16)
libc.gethostbyname(b"planted-native.invalid")
"""


def planted(python: str, kind: str) -> list[list[str]]:
    """Commands that reach out on purpose: from Python's own sockets, or from C below its sight."""
    return [[python, "-c", _PYTHON_STRAY if kind == "python" else _NATIVE_STRAY]]


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names, the usual four without any. Raises KeyError with a name that is none."""
    known = {part.name: part for part in (*PARTS, *EXTRA)}
    return [known[name] for name in names] or list(PARTS)
