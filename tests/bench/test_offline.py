"""The offline proof: what each watch takes for a stray, and that a planted one is seen, from Python and from C."""

import contextlib
import ipaddress
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.offline import cli, netns, traced
from bench.offline import run as running
from bench.offline.parts import EXTRA, PARTS, Part, chosen
from bench.offline.run import Seen, Watches, available, bare, run_part, self_test
from models.errors import ConfigError

ROOT = Path(__file__).parents[2]
GUARD = Path(running.__file__).parent / "guard" / "sitecustomize.py"
guard = runpy.run_path(str(GUARD), run_name="guard")
HERE = available()
needs_a_native_watch = pytest.mark.skipif(not (HERE.namespace or HERE.strace), reason="neither namespaces nor strace here")
needs_a_namespace = pytest.mark.skipif(not HERE.namespace, reason="network namespaces are not allowed here")


class Sock:
    def __init__(self, family: int) -> None:
        self.family = family


@pytest.mark.parametrize(
    ("event", "args", "stray"),
    [
        ("socket.connect", (Sock(2), ("127.0.0.1", 80)), False),
        ("socket.connect", (Sock(2), ("127.8.9.1", 80)), False),
        ("socket.connect", (Sock(2), ("localhost", 80)), False),
        ("socket.connect", (Sock(2), ("0.0.0.0", 80)), False),
        ("socket.connect", (Sock(10), ("::1", 80, 0, 0)), False),
        ("socket.connect", (Sock(10), ("::ffff:127.0.0.1", 80, 0, 0)), False),
        ("socket.connect", (Sock(10), ("::ffff:192.0.2.1", 80, 0, 0)), True),
        ("socket.connect", (Sock(10), ("fe80::1%eth0", 80, 0, 2)), True),
        ("socket.connect", (Sock(2), ("192.0.2.1", 80)), True),
        ("socket.connect", (Sock(2), ("10.0.0.1", 80)), True),
        ("socket.connect", (Sock(2), ("example.org", 80)), True),
        ("socket.connect", (Sock(2), ("localhost.example.org", 80)), True),
        ("socket.connect", (Sock(2), ("127.0.0.53", 53)), True),
        ("socket.connect", (Sock(1), "/run/x"), False),
        ("socket.connect", (Sock(16), (0, 0)), False),
        ("socket.connect", (Sock(40), (2, 1234)), True),
        ("socket.sendto", (Sock(2), ("192.0.2.1", 9)), True),
        ("socket.sendmsg", (Sock(2), None), False),
        ("socket.getaddrinfo", ("localhost", 80, 0, 0, 0), False),
        ("socket.getaddrinfo", (None, 80, 0, 0, 0), False),
        ("socket.getaddrinfo", (b"192.0.2.1", 80, 0, 0, 0), False),
        ("socket.getaddrinfo", ("example.org", 80, 0, 0, 0), True),
        ("socket.gethostbyname", ("host-of-mine",), True),
        ("socket.gethostbyaddr", ("127.0.0.1",), False),
        ("socket.getnameinfo", (("192.0.2.1", 80),), True),
        ("socket.bind", (Sock(2), ("0.0.0.0", 80)), False),
    ],
)
def test_the_hook_judges(event: str, args: tuple[object, ...], stray: bool) -> None:
    assert bool(guard["judge"](event, args)) is stray


@given(
    st.sampled_from(["socket.connect", "socket.getaddrinfo", "socket.sendto"]), st.one_of(st.none(), st.text(), st.binary(), st.integers())
)
def test_the_hook_never_breaks(event: str, host: object) -> None:
    guard["judge"](event, (Sock(2), (host, 1)) if event != "socket.getaddrinfo" else (host, 1))


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ('7 connect(4, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0', None),
        ('connect(4, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.7")}, 16) = -1 E', "connect 192.0.2.7:443"),
        (
            '7 connect(4, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.53")}, 16 <unfinished ...>',
            "connect 127.0.0.53:53",
        ),
        (
            '7 connect(4, {sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", '
            "&sin6_addr), sin6_scope_id=0}, 28) = 0",
            "connect 2001:db8::1:80",
        ),
        ('7 connect(4, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr)}, 28) = 0', None),
        ('7 connect(3, {sa_family=AF_UNIX, sun_path="/run/x"}, 110) = 0', None),
        ('7 connect(3, {sa_family=AF_UNSPEC, sa_data="x"}, 16) = 0', None),
        ("7 connect(3, {sa_family=AF_VSOCK, svm_cid=2, svm_port=1}, 16) = 0", "connect of AF_VSOCK"),
        ('7 sendto(3, ""..., 9, 0, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("10.1.1.1")}, 16) = 9', "sendto 10.1.1.1:9"),
        ('7 sendto(3, ""..., 9, MSG_NOSIGNAL, NULL, 0) = 9', None),
        (
            '7 sendmsg(3, {msg_name={sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("10.1.1.1")}, msg_namelen=16}, 0) = 9',
            "sendmsg 10.1.1.1:9",
        ),
        ("7 +++ exited with 0 +++", None),
    ],
)
def test_what_strace_writes(line: str, want: str | None) -> None:
    _, found = traced.strays([line])
    assert (not found) if want is None else any(said.startswith(want) for said in found), found


@given(st.lists(st.text(max_size=80), max_size=5))
def test_any_trace_can_be_read(lines: list[str]) -> None:
    traced.strays([*lines, *("7 connect(" + line for line in lines)])


def ipv4(target: str, protocol: int, rest: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0, bytes(4), ipaddress.ip_address(target).packed)
    return head + rest


def ipv6(target: str, protocol: int, rest: bytes) -> bytes:
    return struct.pack("!IHBB16s16s", 0x60000000, len(rest), protocol, 64, bytes(16), ipaddress.ip_address(target).packed) + rest


def tcp(port: int, flags: int = 0x02) -> bytes:
    return struct.pack("!HHIIBBHHH", 40000, port, 0, 0, 0x50, flags, 0, 0, 0)


def udp(port: int, body: bytes = b"") -> bytes:
    return struct.pack("!HHHH", 40000, port, 8 + len(body), 0) + body


DNS = bytes(12) + b"\x07planted\x07invalid\x00" + bytes(4)
PACKETS = [
    (ipv4("127.0.0.1", 6, tcp(80)), ""),
    (ipv4("192.0.2.1", 6, tcp(443)), "TCP to 192.0.2.1 port 443"),
    (ipv4("192.0.2.1", 6, tcp(443, 0x14)), ""),  # the refusal of somebody's attempt
    (ipv4("192.0.2.1", 17, udp(53, DNS)), "UDP to 192.0.2.1 port 53, asks for planted.invalid"),
    (ipv4("127.0.0.53", 17, udp(53, DNS)), "UDP to 127.0.0.53 port 53, asks for planted.invalid"),
    (ipv4("224.0.0.251", 17, udp(5353)), "UDP to 224.0.0.251 port 5353"),
    (ipv4("192.0.2.1", 1, b"\x08\x00"), "ICMP to 192.0.2.1"),
    (ipv4("192.0.2.1", 1, b"\x03\x03"), ""),
    (ipv6("::1", 6, tcp(80)), ""),
    (ipv6("2001:db8::1", 6, tcp(80)), "TCP to 2001:db8::1 port 80"),
]


@pytest.mark.parametrize(("packet", "want"), PACKETS)
def test_what_a_packet_is_called(packet: bytes, want: str) -> None:
    assert netns.describe(packet) == want


@given(st.binary(max_size=120))
def test_any_packet_can_be_described(packet: bytes) -> None:
    netns.describe(packet)
    netns.question(packet)


def runs(packet: bytes) -> bool:
    """The kernel's part, run here: whether the filter lets the packet through."""
    accumulator = index = at = 0
    while True:
        code, true, false, k = netns.FILTER[at]
        at += 1
        if code == netns._RET:
            return k > 0
        if code == netns._LD_B:
            accumulator = packet[k]
        elif code == netns._LD_H:
            accumulator = int.from_bytes(packet[k : k + 2], "big")
        elif code == netns._LD_W:
            accumulator = int.from_bytes(packet[k : k + 4], "big")
        elif code == netns._LDX_MSH:
            index = 4 * (packet[k] & 15)
        elif code == netns._LD_H_X:
            accumulator = int.from_bytes(packet[index + k : index + k + 2], "big")
        elif code == netns._AND:
            accumulator &= k
        else:
            assert code == netns._JEQ
            at += true if accumulator == k else false


@pytest.mark.parametrize(("packet", "want"), PACKETS)
def test_the_kernels_filter_keeps_every_stray(packet: bytes, want: str) -> None:
    passes = runs(packet)
    assert passes or not want
    if want == "" and packet[0] >> 4 == 4 and packet[16] == 127:
        assert not passes, "loopback's own traffic must not reach us: it would fill the buffer"


@needs_a_native_watch
def test_planted_attempts_are_seen() -> None:
    found = self_test(HERE)
    assert len(found) == 6 and False not in found.values(), found
    assert (found["native connect, by strace"] is None) is not HERE.strace
    assert (found["native connect, by its packets"] is None) is not bool(HERE.namespace)


def quick(code: str, **more: object) -> Part:
    return Part("quick", "a test", lambda python, folder: [[python, "-c", code]], seconds=60.0, **more)  # type: ignore[arg-type]


SERVES = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    child = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).sendall(b'x')"
    subprocess.run([sys.executable, "-c", child], check=True)
assert not os.listdir(os.environ["HOME"]) and "HF_HUB_OFFLINE" not in os.environ
"""


@needs_a_native_watch
def test_loopback_is_let_through_and_children_are_watched() -> None:
    seen = run_part(quick(SERVES), HERE)
    assert (seen.failed, seen.strays, seen.codes, seen.processes, seen.home) == ("", 0, [0], 2, ())
    assert not HERE.namespace or seen.carried > 0


ISOLATED = "import socket; socket.socket(2, 2).sendto(b'x', ('192.0.2.34', 9))"  # a Python that the hook does not reach


@needs_a_namespace
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import subprocess; subprocess.run(['bash', '-c', 'echo > /dev/udp/192.0.2.33/123'])", "192.0.2.33"),
        ("import subprocess; subprocess.run(['bash', '-c', 'echo > /dev/tcp/2001:db8::5/80'], stderr=-3)", "2001:db8::5"),
        (f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {ISOLATED!r}])", "192.0.2.34"),
    ],
)
@pytest.mark.parametrize("strace", [True, False])
def test_strays_of_children_are_seen(code: str, words: str, strace: bool) -> None:
    if strace and not HERE.strace:
        pytest.skip("no strace here")
    seen = run_part(quick(code), Watches(HERE.namespace, strace))
    assert any(words in what for what in seen.packets or {}), seen
    assert (seen.calls is None) is not strace and (not strace or any(words in what for what in seen.calls or {}))
    assert not cli.verdict(HERE, {"Python": True, "native": True}, [seen])


def test_without_any_native_watch_nothing_is_proven() -> None:
    seen = run_part(
        quick("import socket, contextlib\nwith contextlib.suppress(OSError): socket.create_connection(('192.0.2.1', 9))"),
        Watches((), False),
    )
    assert seen.packets is None and seen.calls is None and seen.strays == 1
    where = next(iter(seen.python or {}))
    assert where.startswith("socket.connect 192.0.2.1:9")
    assert not cli.verdict(Watches((), False), {"Python": True, "native": None}, [Seen("x", [0], 1, {})])


def test_a_part_that_fails_or_hangs_or_cannot_run() -> None:
    assert "exit code 3" in run_part(quick("raise SystemExit(3)"), Watches((), False)).failed
    assert "exit code 2" in run_part(quick("raise SystemExit(2)"), Watches((), False)).failed
    assert run_part(quick("raise SystemExit(2)", lenient=True), Watches((), False)).failed == ""
    slow = Part("slow", "", lambda python, folder: [[python, "-c", "import time; time.sleep(60)"]], seconds=1.0)
    assert "exit code 124" in run_part(slow, Watches((), False)).failed
    absent = Part("absent", "", lambda python, folder: [["/no/such/program"]])
    assert "exit code 127" in run_part(absent, Watches((), False)).failed
    skipped = run_part(quick("", why_not=lambda: "no GPU"), HERE)
    assert skipped.skipped == "no GPU" and not skipped.failed


LEAVES = "import subprocess, time; subprocess.Popen(['sleep', '300'], start_new_session=True); print('begun', flush=True); time.sleep(300)"
RUNNER = """
import sys
from pathlib import Path
from bench.offline.parts import Part
from bench.offline.run import available, run_part
run_part(Part("x", "", lambda python, folder: [[python, "-c", sys.argv[1]]]), available(), Path(sys.argv[2]))
"""


@pytest.mark.skipif("--kill-child" not in HERE.namespace, reason="no namespace of processes here")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_runner_that_is_killed(tmp_path: Path, number: int) -> None:
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, LEAVES, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    log = tmp_path / "x" / "notes" / "log"
    wait_until(lambda: log.is_file() and b"begun" in log.read_bytes())
    assert below(tmp_path)
    runner.send_signal(number)
    runner.wait(60)
    wait_until(lambda: not below(tmp_path))


def below(folder: Path) -> list[int]:
    """Processes whose environment names this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={folder}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.05)


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    notes = tmp_path / "notes"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{GUARD.parent}{os.pathsep}{tmp_path}", "UNTAMED_GUARD_FILE": str(notes)}
    code = "import socket; socket.gethostbyname('planted.invalid')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout == "theirs\n" and "only loopback is allowed" in done.stderr
    rows = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [row["event"] for row in rows] == ["start", "socket.gethostbyname"] and rows[1]["stack"]
    del env["UNTAMED_GUARD_FILE"]
    assert subprocess.run([sys.executable, "-c", "1"], capture_output=True, text=True, env=env).stdout == "theirs\n"


def test_a_kept_folder_is_begun_anew_and_nobodys_else(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_part(quick("1"), Watches((), False), tmp_path).processes == 1
    (tmp_path / "quick" / "notes" / "orders.json").unlink()
    with pytest.raises(ConfigError, match="not empty"):
        run_part(quick("1"), Watches((), False), tmp_path)
    assert (tmp_path / "quick" / "notes" / "log").is_file()


def test_a_part_gets_nothing_of_the_callers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "HTTP_PROXY", "SECRET"):
        monkeypatch.setenv(name, "x")
    made = bare(tmp_path)
    assert not {"HF_HOME", "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "HTTP_PROXY", "SECRET"} & set(made)
    assert made["HOME"] == str(tmp_path / "home") and made["PYTHONPATH"].startswith(str(GUARD.parent))


def good(name: str = "x") -> Seen:
    return Seen(name, [0], 3, {}, {}, {}, 5, 7)


@pytest.mark.parametrize(
    ("awake", "results", "want"),
    [
        ({"Python": True, "native": True}, [good()], True),
        ({"Python": True, "native": True, "native 2": None}, [good()], True),
        ({"Python": False, "native": True}, [good()], False),
        ({"Python": True, "native": False}, [good()], False),
        ({"Python": True, "native": None}, [good()], False),
        ({"Python": True, "native": True}, [], False),
        ({"Python": True, "native": True}, [Seen("x", skipped="why")], False),
        ({"Python": True, "native": True}, [good(), Seen("x", [0], 1, {}, {"connect 192.0.2.1:1": 1}, {})], False),
        ({"Python": True, "native": True}, [Seen("x", [1], 1, {}, {}, {}, failed="exit code 1")], False),
        ({"Python": True, "native": True}, [Seen("x", [0], 0, None, {}, {})], False),  # no Python was watched at all
    ],
)
def test_the_verdict(awake: dict[str, bool | None], results: Sequence[Seen], want: bool) -> None:
    assert cli.verdict(Watches(("unshare",), True), awake, results) is want
    assert cli.lines(Watches((), False), awake, results)


def test_parts_and_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [part.name for part in chosen([])] == ["video", "bench", "pipeline", "doctor", "vllm"] and chosen(["tests"]) == list(EXTRA)
    assert main(["test-offline", "--parts", "video,moon"]) == 2 and "no part 'moon'" in capsys.readouterr().err
    monkeypatch.setattr(cli, "available", lambda: Watches(("unshare",), True))
    monkeypatch.setattr(cli, "self_test", lambda watches: {"Python": True, "native": True})
    monkeypatch.setattr(cli, "run_part", lambda part, watches, keep: good(part.name))
    assert main(["test-offline", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["good"] and Counter(one["name"] for one in told["parts"]) == Counter(part.name for part in PARTS)
    monkeypatch.setattr(cli, "run_part", lambda part, watches, keep: Seen(part.name, [0], 1, {"socket.connect 192.0.2.1:9": 2}, {}, {}))
    assert main(["test-offline", "--parts", "video"]) == 1
    said = capsys.readouterr().out
    assert "STRAY, hook: socket.connect 192.0.2.1:9 (2×)" in said and "NOT PROVEN" in said


@needs_a_namespace
def test_a_whole_part_stays_silent() -> None:
    """The video path itself, under all watches that are here."""
    seen = run_part(chosen(["video"])[0], HERE)
    assert (seen.failed, seen.strays) == ("", 0) and seen.processes >= 8


def test_loopback_can_be_bound_as_the_suite_needs_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("taken", "is a file"),
        ("taken/x", "is no folder"),
        ("mine", "no earlier proof's"),
        ("/proc/x", "cannot be made"),
        ("n" * 300, "too long"),
    ],
)
def test_where_notes_cannot_be_kept_is_told_before_anything_runs(
    keep: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "self_test", lambda watches: pytest.fail("the watches were set up"))
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "mine/doctor").mkdir(parents=True)
    (tmp_path / "mine/doctor/letter").write_text("mine")
    assert main(["test-offline", "--parts", "video,doctor", "--keep", keep]) == 2
    assert said in capsys.readouterr().err and (tmp_path / "mine/doctor/letter").read_text() == "mine"
