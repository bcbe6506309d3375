"""The managed server's life, on a stand-in `vllm` that this test writes: it starts slowly, runs out of memory, crashes, hangs."""

import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from models import log_hints, processes
from models.errors import ConfigError, ModelError
from models.fleet import Fleet, find_vllm, serve
from models.placement import Placement
from models.vllm_flags import ServeOptions, split_args

CPU = Placement(device="cpu", context=4096)
FAKE = Path(__file__).with_name("fake_vllm.py")


@pytest.fixture
def vllm(tmp_path: Path) -> str:
    path = tmp_path / "bin" / "vllm"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The least folder that passes the pre-flight checks."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 32768,
        "vision_config": {"depth": 2, "hidden_size": 32},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text(json.dumps({"patch_size": 14, "merge_size": 2, "max_pixels": 100_352}))
    (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    behave(folder)
    return folder


def behave(folder: Path, **how: object) -> None:
    (folder / "behaviour.json").write_text(json.dumps(how))


def fleet_of(model: Path, vllm: str, log_folder: Path, replicas: int = 1, **more: object) -> Fleet:
    made = serve(model, replace(CPU, replicas=replicas), log_folder=log_folder, vllm=vllm, **more)  # type: ignore[arg-type]
    for server in made.servers:
        server._grace = 0.2  # the stand-in's workers are deaf to SIGTERM
    return made


def pids_of(model: Path) -> list[int]:
    until(lambda: (model / "pids").exists() and len((model / "pids").read_text().split()) == 3)
    return [int(pid) for pid in (model / "pids").read_text().split()]


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if processes.started(pid) is not None]


def until(done: "object", seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def status(url: str, key: str = "") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"}), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_start_use_and_end(model: Path, vllm: str, tmp_path: Path) -> None:
    told: list[str] = []
    behave(model, delay=0.6)
    with fleet_of(model, vllm, tmp_path / "logs", tell=told.append) as fleet:
        pids = pids_of(model)
        assert len(living(pids)) == 3
        assert os.getpgid(pids[0]) == pids[0] != os.getpgid(0)
        assert status(fleet.urls[0] + "/models", fleet.key) == 200
        assert status(fleet.urls[0] + "/models", "guess") == 401
        assert [one.owner for one in processes.servers() if pids[0] in one.pids] == [os.getpid()]
        spec = fleet.spec()
        assert (spec.kind, spec.urls, spec.key) == ("openai", fleet.urls, fleet.key)
    assert living(pids) == []
    assert any("loading weights" in line for line in told) and "ready after" in told[-1]
    assert "Starting to load model" in (tmp_path / "logs" / "vllm-0.log").read_text()


def test_what_the_server_is_given(model: Path, vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    media = tmp_path / "frames"
    media.mkdir()
    options = ServeOptions(
        "tiny", pictures=4, media=media, max_pixels=50_176, extra=split_args("--max-num-seqs 7 --no-enable-prefix-caching")
    )
    with fleet_of(model, vllm, tmp_path / "logs", options=options) as fleet:
        argv, env = json.loads((model / "argv.json").read_text()), json.loads((model / "env.json").read_text())
        assert fleet.key not in " ".join(argv) and env["VLLM_API_KEY"] == fleet.key and len(fleet.key) >= 24
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--allowed-local-media-path") + 1] == str(media.resolve())
    assert json.loads(argv[argv.index("--limit-mm-per-prompt") + 1]) == {"image": 4, "video": 0}
    assert json.loads(argv[argv.index("--mm-processor-kwargs") + 1]) == {"max_pixels": 50_176}
    assert argv.count("--max-num-seqs") == 1 and argv[argv.index("--max-num-seqs") + 1] == "7"
    assert "--enable-prefix-caching" not in argv and "--no-enable-prefix-caching" in argv
    assert (env["HF_HUB_OFFLINE"], env["VLLM_NO_USAGE_STATS"], env["DO_NOT_TRACK"]) == ("1", "1", "1")
    assert "HF_TOKEN" not in env
    assert fleet.spec().picture_urls == "file"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "--max-pixels"),
        ("ValueError: No available memory for the cache blocks.", "--context"),
        ("ValueError: Free memory on device (3/24 GiB) on startup is less than desired GPU memory utilization", "nvidia-smi"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "copy the folder again"),
        ("api_server.py: error: unrecognized arguments: --nonsense", "--vllm-args"),
        ("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error", "NCCL_P2P_DISABLE"),
        ("something nobody has seen", ""),
    ],
)
def test_a_failed_start_gives_the_last_words_and_a_hint(model: Path, vllm: str, tmp_path: Path, words: str, advice: str) -> None:
    behave(model, die=words)
    with pytest.raises(ModelError) as error, fleet_of(model, vllm, tmp_path / "logs"):
        pass
    assert words in str(error.value) and "exit code 1" in str(error.value) and "vllm-0.log" in str(error.value)
    assert advice in (error.value.remedy or "")
    assert living(pids_of(model)) == []


LOG = """\
(APIServer pid=7) INFO 11-29 21:29:31 [api_utils.py:286] non-default args: {'trust_remote_code': False, 'chat_template': None}
(EngineCore pid=8) INFO 11-29 21:31:16 [base.py:280] Multi-modal warmup completed in 0.698s
(EngineCore pid=8) ERROR 11-29 21:32:55 [core.py:901] EngineCore failed to start.
(EngineCore pid=8) ERROR 11-29 21:32:55 [core.py:901] Traceback (most recent call last):
(EngineCore pid=8) ERROR 11-29 21:32:55 [core.py:901]   File "/venv/vllm/v1/engine/core.py", line 892, in run_engine_core
(EngineCore pid=8) ERROR 11-29 21:32:55 [core.py:901]     engine_core = EngineCoreProc(*args)
(EngineCore pid=8) ERROR 11-29 21:32:55 [core.py:901] ValueError: No available memory for the cache blocks. Try it so.
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/venv/bin/vllm", line 8, in <module>
(APIServer pid=7)     ^^^^^^^^^^^^^^^^^^^^^
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""


def test_the_root_cause_is_found_among_several_processes() -> None:
    words = log_hints.last_words(LOG)
    assert words.splitlines() == [
        "EngineCore failed to start.",
        "ValueError: No available memory for the cache blocks. Try it so.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
    ]
    assert "lower --context" in log_hints.hint(LOG)
    long = LOG + "(APIServer pid=7) something else\n" * 30
    assert "ValueError: No available memory" in log_hints.last_words(long)
    assert log_hints.hint("\n".join(LOG.splitlines()[:2])) == ""  # printed settings are no complaint


def test_not_ready_in_time(model: Path, vllm: str, tmp_path: Path) -> None:
    behave(model, delay=600)
    with pytest.raises(ModelError, match="not ready after"), fleet_of(model, vllm, tmp_path / "logs", ready_seconds=0.5):
        pass
    assert processes_of(os.getpid()) == []


def test_deaf_to_sigterm(model: Path, vllm: str, tmp_path: Path) -> None:
    behave(model, ignore_term=True)
    with fleet_of(model, vllm, tmp_path / "logs"):
        pids = pids_of(model)
    assert living(pids) == []


def test_a_taken_port_means_another(model: Path, vllm: str, tmp_path: Path) -> None:
    with fleet_of(model, vllm, tmp_path / "logs") as first:
        taken = first.servers[0].port
        other = tmp_path / "other"
        other.mkdir()
        for path in model.glob("*.*"):
            (other / path.name).write_bytes(path.read_bytes())
        with fleet_of(other, vllm, tmp_path / "logs2", port=taken) as second:
            assert second.servers[0].port != taken
            assert status(second.urls[0] + "/models", second.key) == 200


def test_a_port_that_is_taken_meanwhile(model: Path, vllm: str, tmp_path: Path) -> None:
    behave(model, steal=True)
    with fleet_of(model, vllm, tmp_path / "logs") as fleet:
        assert status(fleet.urls[0] + "/models", fleet.key) == 200
    assert (model / "starts").read_text() == "xx"


def test_another_program_on_the_port_is_not_taken_for_ours(model: Path, vllm: str, tmp_path: Path) -> None:
    behave(model, name="somebody-else")
    with pytest.raises(ModelError, match="not as the model 'model'"), fleet_of(model, vllm, tmp_path / "logs"):
        pass
    assert living(pids_of(model)) == []


def test_restart_once_after_a_crash_on_the_same_port(model: Path, vllm: str, tmp_path: Path) -> None:
    told: list[str] = []
    with fleet_of(model, vllm, tmp_path / "logs", tell=told.append) as fleet:
        server, first = fleet.servers[0], pids_of(model)
        port = server.port
        (model / "crash").touch()
        until(lambda: server.restarted == 1)
        assert server.port == port and status(fleet.urls[0] + "/models", fleet.key) == 200
        assert living(first) == [] and set(pids_of(model)).isdisjoint(first)
        fleet.check()
        assert any("signal 9" in line and "--max-pixels" in line for line in told)
        (model / "crash").touch()  # a second crash is the end
        until(lambda: server.failure is not None)
        with pytest.raises(ModelError, match="while it was in use"):
            fleet.check()
        assert living(pids_of(model)) == []
    assert (model / "starts").read_text() == "xx"


def test_a_server_that_hangs_is_started_again(model: Path, vllm: str, tmp_path: Path) -> None:
    fleet = fleet_of(model, vllm, tmp_path / "logs")
    server = fleet.servers[0]
    server._hang = 1.0
    with fleet:
        (model / "hang").touch()
        until(lambda: (model / "starts").read_text() == "xx")
        (model / "hang").unlink()
        until(lambda: server.restarted == 1)
    assert living(pids_of(model)) == []


def test_two_replicas(model: Path, vllm: str, tmp_path: Path) -> None:
    with fleet_of(model, vllm, tmp_path / "logs", replicas=2) as fleet:
        assert len(set(fleet.urls)) == 2
        assert [status(url + "/models", fleet.key) for url in fleet.urls] == [200, 200]
        assert {path.name for path in (tmp_path / "logs").iterdir()} == {"vllm-0.log", "vllm-1.log"}
    assert processes_of(os.getpid()) == []


def processes_of(owner: int) -> list[int]:
    return [pid for one in processes.servers() if one.owner == owner for pid in one.pids]


OWNER = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, and that inherited
from pathlib import Path
from models.fleet import serve
from models.placement import Placement
with serve(Path({model!r}), Placement(device="cpu", context=4096), log_folder=Path({logs!r}), vllm={vllm!r}) as fleet:
    Path({ready!r}).write_text(str(fleet.servers[0]._watchdog.pid))
    time.sleep(600)
"""


def owner(model: Path, vllm: str, tmp_path: Path, session: bool = False) -> tuple["subprocess.Popen[bytes]", int]:
    """A process that holds a server, ready; and the watchdog's process id."""
    ready = tmp_path / "ready"
    code = textwrap.dedent(OWNER).format(model=str(model), logs=str(tmp_path / "logs"), vllm=vllm, ready=str(ready))
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=session
    )
    until(lambda: (ready.exists() and ready.read_text()) or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0].decode()
    return process, int(ready.read_text())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_survives_the_owner(model: Path, vllm: str, tmp_path: Path, number: signal.Signals) -> None:
    process, watchdog = owner(model, vllm, tmp_path)
    pids = pids_of(model)
    assert len(living(pids)) == 3
    process.send_signal(number)
    process.communicate(timeout=60)
    until(lambda: not living([*pids, watchdog]), 40)


def test_ctrl_c_to_the_whole_group_still_ends_in_order(model: Path, vllm: str, tmp_path: Path) -> None:
    process, watchdog = owner(model, vllm, tmp_path, session=True)
    pids = pids_of(model)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    output = process.communicate(timeout=60)[0].decode()
    assert "KeyboardInterrupt" in output
    assert living([*pids, watchdog]) == []  # ended before the owner was


def test_killed_watchdog(model: Path, vllm: str, tmp_path: Path) -> None:
    with fleet_of(model, vllm, tmp_path / "logs") as fleet:
        pids, server = pids_of(model), fleet.servers[0]
        assert server._watchdog is not None
        server._watchdog.kill()
        until(lambda: server.restarted == 1)
        assert living(pids) == []
    assert processes_of(os.getpid()) == []


def test_a_stale_server_is_found_and_ended(model: Path, vllm: str, tmp_path: Path) -> None:
    process, watchdog = owner(model, vllm, tmp_path)
    pids = pids_of(model)
    os.kill(watchdog, signal.SIGSTOP)  # so that it cannot do its work
    process.kill()
    os.kill(watchdog, signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: any(one.stale and pids[1] in one.pids for one in processes.servers()))
    with pytest.raises(ModelError, match=r"left behind on port .*--end-stale"):
        serve(model, CPU, log_folder=tmp_path / "logs2", vllm=vllm)
    ended = processes.end_stale(grace=0.3)
    assert any(pids[1] in one.pids for one in ended)
    assert living(pids) == []


def test_a_server_of_a_living_owner_is_left_alone(model: Path, vllm: str, tmp_path: Path) -> None:
    with fleet_of(model, vllm, tmp_path / "logs"):
        assert not any(one.owner == os.getpid() for one in processes.end_stale(grace=0.1))
        assert len(living(pids_of(model))) == 3


def test_stop_from_another_thread_while_it_starts(model: Path, vllm: str, tmp_path: Path) -> None:
    behave(model, delay=600)
    fleet = fleet_of(model, vllm, tmp_path / "logs")
    timer = threading.Timer(0.7, fleet.servers[0].stop)
    timer.start()
    with pytest.raises(ModelError), fleet:
        pass
    timer.join()
    assert processes_of(os.getpid()) == []


def test_no_executable(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no executable .*absent"):
        find_vllm(str(tmp_path / "absent"))


def test_vllm_args_may_not_open_the_server() -> None:
    for text in ("--host 0.0.0.0", "--api-key=x"):
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
            split_args(text)
    with pytest.raises(ConfigError, match="quotation"):
        split_args("--served-model-name 'a")
    with pytest.raises(ConfigError, match="takes flags"):
        split_args("32")
