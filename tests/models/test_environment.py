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
STARTERS = {
    "run",
    "Popen",
    "call",
    "check_call",
    "check_output",
    "ProcessPoolExecutor",
    "spawn",
    "fork",
    "Process",
    "system",
    "execv",
    "execve",
}
MODULES = {"subprocess", "os", "multiprocessing", "torch", ""}
# file → how its children get the switches: "given" hands out environment.environment(…); "inherited": the command that runs it has
# applied them to itself; "none": no library of the table is loaded there (held below), and video/ knows no other room
STARTS = {
    "models/server.py": "given",
    "models/watchdog.py": "inherited",  # itself a child of models/server.py
    "models/fetch.py": "inherited",
    "kg/cli_measure.py": "inherited",
    "video/workers.py": "none",
    "video/bench.py": "none",
    "bench/world/write.py": "inherited",
    "bench/tiny/train.py": "inherited",
    "bench/environment.py": "inherited",
    "bench/doctor/ask.py": "given",
    "bench/offline/run.py": "bare",  # on purpose: what keeps a library quiet there is what our own commands set
    "bench/offline/watch.py": "bare",
}


def starts(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in STARTERS:
            owner = function.value
            if isinstance(owner, ast.Name) and owner.id in MODULES:
                return True
        if isinstance(function, ast.Name) and function.id in {"Popen", "ProcessPoolExecutor", "spawn", "Process"}:
            return True
    return False


def test_every_start_of_a_process_is_known() -> None:
    found = {str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py") if starts(path)}
    assert found - set(STARTS) == set(), "say in STARTS how these children get the switches"


@pytest.mark.parametrize("file", [name for name, how in STARTS.items() if how == "given"])
def test_a_given_environment_comes_from_the_table(file: str) -> None:
    assert "environment.environment(" in (ROOT / file).read_text(encoding="utf-8")


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
