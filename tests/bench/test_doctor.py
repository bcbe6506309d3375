"""The doctor: every line has its remedy, every check fails alone, and it needs nothing of what it examines."""

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.doctor import ask, graphics, holdings, machine, media, network, packages
from bench.doctor.rows import Asked, Check, Line, fail, ok
from bench.doctor.run import SIDE_BY_SIDE, examine
from bench.doctor.table import CHECKS
from models import gpus
from models.errors import ConfigError

ROOT = Path(__file__).parents[2]
TINY = ROOT / "models" / "tiny-qwen2.5-vl"


def states(lines: Sequence[Line]) -> list[str]:
    for line in lines:
        assert line.what and (line.state in ("ok", "unknown") or line.remedy), line
    return [line.state for line in lines]


def test_every_row_has_a_name_of_its_own() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    groups = [check.group for check in CHECKS]
    assert [group for i, group in enumerate(groups) if i == 0 or groups[i - 1] != group] == list(dict.fromkeys(groups))


@pytest.mark.parametrize(
    "name", ["python", "processor", "memory", "disk", "limits", "locale", "clock", "tools", "loopback", "ports", "variables"]
)
def test_this_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check = next(check for check in CHECKS if check.name == name)
    assert "fail" not in states(list(check.run(Asked()))), "the suite could hardly run here"
    assert not list(tmp_path.iterdir()), "a check leaves nothing behind"


def test_each_check_fails_alone() -> None:
    hold = threading.Event()

    def breaks(asked: Asked) -> Iterator[Line]:
        yield ok("so far")
        raise RuntimeError("broken driver")

    def hangs(asked: Asked) -> Iterator[Line]:
        yield ok("begun")
        hold.wait(60)
        yield fail("too late", "never shown")

    def lacks(asked: Asked) -> Iterator[Line]:
        raise ImportError("No module named 'pydantic'")
        yield ok("never")

    def refuses(asked: Asked) -> Iterator[Line]:
        raise ConfigError("not so", remedy="like this")
        yield ok("never")

    rows = [Check("a", "g", breaks), *(Check(f"h{i}", "g", hangs, 0.05) for i in range(SIDE_BY_SIDE + 1)), Check("l", "g", lacks)]
    rows += [Check("r", "g", refuses), Check("n", "g", lambda asked: ()), Check("z", "g", lambda asked: (ok("last"),))]
    found = {result.check.name: result.lines for result in examine(rows, Asked())}
    hold.set()
    assert list(found) == [row.name for row in rows]
    assert states(found["a"]) == ["ok", "unknown"] and "broken driver" in found["a"][1].what
    assert all(states(found[f"h{i}"]) == ["ok", "unknown"] for i in range(SIDE_BY_SIDE + 1))
    assert states(found["l"]) == ["unknown"] and "pydantic" in found["l"][0].what
    assert found["r"] == (Line("fail", "not so", "like this"),)
    assert states(found["n"]) == ["unknown"] and states(found["z"]) == ["ok"]


def test_a_library_that_crashes_hangs_or_raises_costs_its_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashes.py").write_text("import os\nos.abort()\n")
    (tmp_path / "raises.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "leaves.py").write_text("import os\nos._exit(0)\n")
    (tmp_path / "good.py").write_text("print('noise')\n__version__ = '1.2'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = {
        name: (version, wrong) for name, version, wrong in ask.imports(["good", "crashes", "raises", "exits", "leaves", "absent", "json"])
    }
    assert found["good"] == ("1.2", "") and found["json"][1] == ""
    assert "signal 6" in found["crashes"][1] and "libcudart" in found["raises"][1] and "SystemExit" in found["exits"][1]
    assert found["leaves"][1] == "ended without a word" and "ModuleNotFoundError" in found["absent"][1]
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    assert next(iter(ask.imports(["hangs"], 1.0)))[2] == "no answer within 1 s"


def test_a_broken_torch_is_said_to_be_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(packages, "NEEDED", {"numpy": "everything", "torch": "models", "yaml": "prompts"})
    lines = list(packages.importable(Asked()))
    assert states(lines) == ["fail", "ok"] and lines[0].what.startswith("torch: ended by signal 6") and "2 libraries" in lines[1].what


def test_it_needs_nothing_installed(tmp_path: Path) -> None:
    words = ["x", "doctor", "--json", "--only", "python,packages,data,models,fonts"]
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); sys.argv = {words!r}"
    code += "; runpy.run_module('bench', run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    told = {check["name"]: check["lines"] for check in json.loads(done.stdout)["checks"]}
    assert set(told) == {"python", "packages", "data", "models", "fonts"}
    assert told["models"][0]["state"] == "unknown" and "pydantic" in told["models"][0]["what"]


def test_packages_against_the_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert states(list(packages.locked(Asked())))[-1] in ("ok", "warn", "fail")
    text = 'a-b==1.0 \\\n    --hash=sha256:00\nc.d==2 ; python_version < "3" \\\n    --hash=sha256:00\n'
    text += 'e==3 ; sys_platform == "linux"\n# f==4\n'
    assert packages.pins(text) == {"a-b": "1.0", "e": "3"}
    for name in packages.locks({"torch": "2.13.0+cpu"}):
        (tmp_path / name).write_text("absent-package==1\npydantic==0.1\n" if name == "cpu.txt" else "")
    monkeypatch.setattr(packages, "LOCKS", tmp_path)
    lines = list(packages.locked(Asked()))
    assert states(lines) == ["fail", "warn"] and "absent-package" in lines[0].what and "(locked: 0.1)" in lines[1].what
    (tmp_path / "cpu.txt").unlink()
    assert states(list(packages.locked(Asked()))) == ["fail"]
    assert packages.locks({"vllm": "1", "torch": "2"}) == ("vllm.txt",) and packages.locks({"torch": "2"})[1] == "torch.txt"


@given(st.text(max_size=200))
def test_any_lock_can_be_read(text: str) -> None:
    packages.pins(text)


def card(index: int, gib: int, free: float = 1.0, capability: tuple[int, int] = (9, 0)) -> gpus.Gpu:
    return gpus.Gpu(index, "H200", gib * 2**30, int(gib * 2**30 * free), capability)


@pytest.mark.parametrize(
    ("found", "asked", "want", "words"),
    [
        ([], 0, ["ok"], "processor"),
        ([], 2, ["fail"], "no GPU is seen"),
        ([card(0, 141)], 1, ["ok"], "141 GiB"),
        ([card(0, 141)], 2, ["ok", "fail"], "GPU=2 is asked for, 1 can be used"),
        ([card(0, 141, 0.5)], 1, ["warn"], "70 free"),
        ([card(0, 141, 0.5)], 0, ["ok"], "70 free"),
        ([card(0, 16, 1.0, (6, 1))], 1, ["warn"], "compute capability 6.1"),
        ([card(0, 141), card(1, 80)], 2, ["ok", "ok", "warn"], "several kinds"),
    ],
)
def test_gpus(found: list[gpus.Gpu], asked: int, want: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")) and not found:
        pytest.skip("this machine has GPUs")
    monkeypatch.setattr(gpus, "gpus", lambda: found)
    lines = list(graphics.cards(Asked(gpus=asked)))
    assert states(lines) == want and words in " ".join(line.what for line in lines)


@pytest.mark.parametrize(
    ("told", "asked", "state", "words"),
    [
        (({"built": "13.0", "count": 2, "total": 32.0}, ""), 1, "ok", "computes on 2"),
        (({"built": "14.0", "count": 0, "total": 0.0}, ""), 1, "fail", "built for CUDA 14.0"),
        (({"built": "13.0", "count": 0, "total": 0.0}, ""), 1, "fail", "sees no GPU"),
        (({"built": "13.0", "count": 1, "total": 15.0}, ""), 1, "fail", "adds up wrongly"),
        (({"built": "", "count": 0, "total": 0.0}, ""), 0, "ok", "processors only"),
        (({"built": "", "count": 0, "total": 0.0}, ""), 1, "fail", "processors only"),
        ((None, "ended by signal 11"), 1, "fail", "signal 11"),
    ],
)
def test_drivers(told: tuple[object, str], asked: int, state: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "driver", lambda: gpus.Driver("590.1", (13, 1)))
    monkeypatch.setattr(ask, "python", lambda arguments, seconds: ([told[0]] if told[0] else [], told[1]))
    lines = list(graphics.driver(Asked(gpus=asked)))
    assert states(lines) == [state] and words in lines[0].what


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def lines_of(folder: Path) -> list[Line]:
    found = next(examine([Check("models", "holdings", holdings.models)], Asked(models=(str(folder),)))).lines
    states(found)
    return list(found)


def test_a_whole_model(model: Path) -> None:
    found = lines_of(model)
    assert [line.state for line in found] == ["ok", "unknown"] and "0.005" in found[0].what and "bytes" in found[1].what
    digest = subprocess.run(["sha256sum", "model.safetensors"], cwd=model, capture_output=True, text=True, check=True).stdout
    (model / "SHA256SUMS").write_text(digest)
    assert [line.state for line in lines_of(model)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer does not load"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-1]), "cut short"),
        (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
        (lambda f: (f / "SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n"), "not the published file"),
        (lambda f: (f / "SHA256SUMS").write_text(f"{'0' * 64}  extra.bin\n"), "extra.bin is missing"),
        (lambda f: [p.unlink() for p in f.glob("chat_template*")], "chat template"),
    ],
)
def test_a_spoiled_model(model: Path, spoil: object, words: str) -> None:
    assert callable(spoil)
    spoil(model)
    assert any(line.state == "fail" and words in line.what for line in lines_of(model)), lines_of(model)


def test_a_model_for_gpus_that_are_not_there(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM", sys.executable)
    monkeypatch.setattr(gpus, "gpus", lambda: [])
    found = list(holdings.models(Asked(models=(str(model),), gpus=2)))
    assert states(found) == ["fail", "unknown"] and "no GPU answers" in found[0].what
    monkeypatch.setattr(gpus, "gpus", lambda: [card(0, 24), card(1, 24)])
    found = list(holdings.models(Asked(models=(str(model),), gpus=2)))
    assert states(found) == ["ok", "unknown"] and "2 replicas of 1 GPU each" in found[0].what
    monkeypatch.setenv("VLLM", "/no/such/vllm")
    assert states(list(holdings.models(Asked(models=(str(model),), gpus=2)))) == ["fail", "unknown"]


def test_models_that_are_not_there() -> None:
    assert [line.state for line in lines_of(Path("/nowhere/at all"))] == ["fail"]


def test_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").mkdir()
    assert states(list(holdings.data(Asked(data=(tmp_path / "bad",))))) == ["fail"]
    assert states(list(holdings.data(Asked()))) == ["ok"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "current").write_text("gen-1")
    assert states(list(holdings.collections(Asked()))) == ["fail"], "found by itself, and its generation is gone"


def test_limits_that_are_too_low() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"
    code += "; from bench.__main__ import main; raise SystemExit(main(['doctor', '--only', 'limits']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "ulimit -n 4096" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 100


def test_a_clock_that_is_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine.time, "time", lambda: 1_000_000.0)
    assert states(list(machine.clock(Asked())))[0] == "fail"


def test_a_locale_that_is_no_utf8(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    code = "from bench.__main__ import main; raise SystemExit(main(['doctor', '--only', 'locale', '--json']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 1 and json.loads(done.stdout)["counts"] == {"fail": 1}, done.stderr


def test_a_disk_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine, "_write", full)
    assert "fail" in states(list(machine.disk(Asked())))


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example")
    lines = list(network.variables(Asked()))
    assert "warn" in states(lines) and "HF_HUB_OFFLINE=0" in lines[0].what and any("HF_ENDPOINT" in line.what for line in lines)


def test_a_clip_is_made_and_read_by_both_decoders() -> None:
    rows, ended = ask.python(["-m", "bench.doctor.probe", "libx264", "h264.mp4"], 120.0)
    assert rows == [{"made": True, "pyav": "", "decord": ""}], ended
    rows, _ = ask.python(["-m", "bench.doctor.probe", "no_such_codec", "x.mp4"], 120.0)
    assert rows[0]["made"] is False


def test_codecs_by_what_the_probe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "libx264": ([{"made": True, "pyav": "", "decord": ""}], ""),
        "libx265": ([{"made": True, "pyav": "", "decord": "decord was not believed"}], ""),
        "libvpx-vp9": ([{"made": True, "pyav": "frames [3] are not those that were asked for", "decord": ""}], ""),
        "libsvtav1": ([{"made": False, "error": "UnknownCodecError"}], ""),
        "mpeg4": ([], "ended by signal 11"),
    }
    monkeypatch.setattr(ask, "python", lambda arguments, seconds: said[arguments[2]])
    lines = list(media.codecs(Asked()))
    assert sorted(states(lines)) == ["fail", "fail", "ok", "unknown"]
    assert "H.264, HEVC (decord hands it to PyAV)" in lines[-1].what and "signal 11" in "".join(line.what for line in lines)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--only", "python,data", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["good"] and [check["name"] for check in told["checks"]] == ["python", "data"]
    assert main(["doctor", "--only", "data", "--data", str(tmp_path)]) == 1
    page = capsys.readouterr().out
    assert "FAIL data" in page and "→ " in page and "1 failed" in page
    for words in (["--only", ""], ["--only", " ,"], ["--context", "0"], ["--context", "-5"]):
        capsys.readouterr()
        assert main(["doctor", *words]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"error: {words[0]} ") and not said.out
    assert main(["doctor", "--only", "horoscope"]) == 2 and main(["doctor", "--gpu", "-1"]) == 2
