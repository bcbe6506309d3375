"""The table of environment switches: complete on every process that this project starts, and one with the Makefile's exports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from models import environment
from models.switches import SWITCHES
from models.switches_cli import MAKEFILE, makefile

ROOT = Path(__file__).parents[2]
ROOMS = ("models", "video", "kg", "pipeline", "bench")
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "spawnv", "spawnve", "execve", "execvpe"}
# Files that hand their children an environment of another making, and why that is right.
OTHERWISE = {
    "video/workers.py": "video knows no other room, and no library of the table is loaded there (held below)",
    "video/bench.py": "the same",
    "bench/offline/run.py": "bare on purpose: what keeps a library quiet there is what our own commands set",
    "bench/sealed/unpacker/place.py": "runs without an environment of ours, and starts pip with --no-index",
}


def given_environments(path: Path) -> bool:
    """Whether the file starts a process with an environment of its own making; without one a child inherits what its command applied."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in STARTERS and any(word.arg == "env" for word in node.keywords):
                return True
    return False


def test_every_process_that_is_given_an_environment_gets_the_table() -> None:
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if given_environments(path)]
    assert {ROOT / "models" / "server.py", ROOT / "bench" / "doctor" / "ask.py"} <= set(found)
    wrong = [
        name
        for path in found
        if (name := str(path.relative_to(ROOT))) not in OTHERWISE and "environment.environment(" not in path.read_text(encoding="utf-8")
    ]
    assert not wrong, "take models/environment.py's environment(), or say in OTHERWISE why not"


@pytest.mark.parametrize("room", ["models", "kg", "pipeline", "bench"])
def test_a_command_applies_the_switches_first(room: str) -> None:
    tree = ast.parse((ROOT / room / "__main__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "__name__ == '__main__'" and ast.unparse(block.body[0]) == "environment.apply()"


def test_the_frame_workers_load_no_library_of_the_table() -> None:
    code = "import sys, video.worker, video.build, video.store, video.pyav; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {one.library for one in SWITCHES} & set(loaded) == set()


def test_a_process_of_ours_gets_all_switches_and_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in environment.WITHHELD:
        monkeypatch.setenv(name, "secret")
    for one in SWITCHES:
        monkeypatch.delenv(one.name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # no preference: overruled
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")  # a preference: kept
    monkeypatch.setenv("NO_PROXY", "intranet.example,localhost")
    made = environment.environment({"EXTRA": "1"})
    assert {one.name for one in SWITCHES} <= set(made) and made["EXTRA"] == "1" and "secret" not in made.values()
    assert made["HF_HUB_OFFLINE"] == "1" and made["GLOO_SOCKET_IFNAME"] == "eth7" and made["VLLM_NO_USAGE_STATS"] == "1"
    assert made["NO_PROXY"] == "127.0.0.1,localhost,::1,intranet.example"
    assert made["MPLCONFIGDIR"] == str(tmp_path / ".cache" / "matplotlib")


def test_a_guard_goes_on_to_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.delenv(environment.GUARD, raising=False)  # the whole suite runs under one, in `make test-offline`
    assert "PYTHONPATH" not in environment.environment()
    monkeypatch.setenv(environment.GUARD, "/guard")
    assert environment.environment()["PYTHONPATH"] == "/guard"


def test_the_makefile_exports_the_table() -> None:
    assert (ROOT / MAKEFILE).read_text(encoding="utf-8") == makefile(), f"run python -m models switches --make > {MAKEFILE}"
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"include {MAKEFILE}" in text and "export" not in text.replace(f"include {MAKEFILE}", "")


def test_make_hands_them_on() -> None:
    command = ["make", "--no-print-directory", "--eval=show: ; @env", "show"]
    given = {"PATH": "/usr/bin:/bin", "no_proxy": "intranet.example"}
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=given).stdout
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    wrong = {one.name for one in SWITCHES if found.get(one.name) != one.value} - {"no_proxy"}
    assert not wrong and found["no_proxy"].endswith("::1,intranet.example")


def test_names_are_not_written_twice_in_the_code() -> None:
    rows = [one.name for one in SWITCHES]
    assert len(rows) == len(set(rows))
