"""Checks of the machine itself: Python, processor, memory, disk, limits, locale, clock. Reads files and the standard library only."""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.doctor.ask import ROOT
from bench.doctor.rows import Asked, Line, fail, ok, unknown, warn

GIB = 2**30
OLDEST, NEWEST = (3, 11), (3, 13)
_STEADY = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"}


def interpreter(asked: Asked) -> Iterator[Line]:
    found = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        yield fail(found, "make a new environment with Python 3.11 to 3.13: make setup PYTHON=python3.11")
    elif sys.maxsize < 2**40:
        yield fail(f"{found}: 32 bits", "take a 64-bit Python")
    else:
        yield ok(found)
    if platform.system() != "Linux":
        yield warn(f"{platform.system()} is not Linux", "most works on a CPU; servers, GPUs and the offline proof need Linux")
    if sys.prefix == sys.base_prefix:
        yield warn("not in a virtual environment", "make setup builds .venv from the locks; make doctor then uses it")


def processor(asked: Asked) -> Iterator[Line]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    allowed = _quota()
    said = f"{cores} cores" + (f", {allowed:g} of them by the container's quota" if allowed and allowed < cores else "")
    flags = set(_first("/proc/cpuinfo", ("flags", "Features")).split())
    if not flags:
        yield unknown(f"{said}; what the processor can do is not told")
        return
    fast = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16") if name in flags]
    if platform.machine() == "x86_64" and "avx2" not in flags:
        yield fail(f"{said}, no AVX2", "torch's and faiss's builds need a processor with AVX2 (2013 or newer)")
    else:
        yield ok(f"{said}, {' '.join(fast)}")
    if allowed and allowed < cores / 2:
        yield warn(
            f"the quota is {allowed:g} of {cores} cores",
            f"export OMP_NUM_THREADS={max(1, int(allowed))}, or threads will wait for one another",
        )


def memory(asked: Asked) -> Iterator[Line]:
    free, total = _meminfo("MemAvailable"), _meminfo("MemTotal")
    if free is None or total is None:
        yield unknown("how much memory is free is not told (/proc/meminfo)")
        return
    limit = _cgroup("memory.max", "memory/memory.limit_in_bytes")
    used = _cgroup("memory.current", "memory/memory.usage_in_bytes") or 0
    if limit is not None and limit < total:
        total, free = limit, min(free, max(0, limit - used))
    said = f"{free / GIB:.1f} of {total / GIB:.1f} GiB of memory are free"
    if free < 1.5 * GIB:
        yield fail(said, "end other programs: the embedded model with its frames takes 1.5 GiB")
    elif free < 4 * GIB:
        yield warn(said, "4 GiB leave room for larger pictures and the parallel steps")
    else:
        yield ok(said)
    if asked.gpus > 1:
        shared = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
        if shared is None or shared.free < GIB:
            yield warn(
                f"{shared.free / GIB if shared else 0:.2f} GiB in /dev/shm", "several GPUs talk through it: give a container --shm-size=8g"
            )


def disk(asked: Asked) -> Iterator[Line]:
    seen = set[int]()
    for what, place in (("the project", ROOT), ("here (.cache, runs)", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        try:
            device = place.stat().st_dev
            free, nodes = shutil.disk_usage(place).free, os.statvfs(place)
            if what != "the project":
                _write(place)
        except OSError as error:
            remedy = "TMPDIR=folder names another place" if what.startswith("temp") else "make it writable, or work in a copy elsewhere"
            yield fail(f"{what}: {place} cannot be written: {error.strerror}", remedy)
            continue
        if device in seen:
            continue
        seen.add(device)
        said = f"{what}: {free / GIB:.1f} GiB free on {place}"
        if free < GIB // 2:
            yield fail(said, "make room: half a GiB is the least for a run")
        elif free < 5 * GIB:
            yield warn(said, "5 GiB leave room for environments, frames and runs")
        else:
            yield ok(said)
        if nodes.f_files and nodes.f_favail < 10_000:
            yield warn(f"{nodes.f_favail} files can still be made on {place}", "frames and runs are many small files: remove some")
        if nodes.f_flag & getattr(os, "ST_NOEXEC", 0):
            yield warn(f"{place} is mounted noexec", "compiled kernels cannot be loaded from there: mount it with exec, or set TMPDIR")


def _write(place: Path) -> None:
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(bytes(65536))
        file.flush()
        os.fsync(file.fileno())


def limits(asked: Asked) -> Iterator[Line]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"{_count(soft)} open files a process ({_count(hard)} at most)"
    if 0 <= soft < 256:
        yield fail(said, "ulimit -n 4096")
    elif 0 <= soft < 1024 or (asked.gpus and 0 <= soft < 4096):
        yield warn(said, f"ulimit -n {min(65536, hard) if hard > 0 else 65536}: servers hold a socket for every call")
    else:
        yield ok(said)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if 0 <= processes < 1024:
        yield warn(f"{processes} processes and threads", "ulimit -u 4096: each library starts a thread a core")
    for what, kind in (("address space", resource.RLIMIT_AS), ("file size", resource.RLIMIT_FSIZE)):
        bound = resource.getrlimit(kind)[0]
        if 0 <= bound < 64 * GIB:
            yield warn(f"{what} is limited to {bound / GIB:.1f} GiB", "ulimit -v unlimited, ulimit -f unlimited: weights are mapped whole")


def language(asked: Asked) -> Iterator[Line]:
    names, text = sys.getfilesystemencoding(), locale.getpreferredencoding(False)
    if text.lower().replace("-", "") != "utf8" or names.lower().replace("-", "") != "utf8":
        yield fail(f"text is {text}, file names are {names}", "export LC_ALL=C.UTF-8 (or PYTHONUTF8=1)")
        return
    try:
        place = tempfile.TemporaryDirectory(dir=Path.cwd())
    except OSError as error:
        yield unknown(f"text is UTF-8; names on this disk could not be tried: {error.strerror}", "work in a folder that can be written")
        return
    with place as folder:
        made = Path(folder) / "Zoë 怪物 \u0301"
        try:
            made.touch()
            kept = next(Path(folder).iterdir()).name == made.name
        except OSError as error:
            remedy = "mount the disk with utf8 (vfat: iocharset=utf8), or move to another"
            yield fail(f"a file name in Unicode is refused here: {error.strerror}", remedy)
            return
    if kept:
        yield ok(f"UTF-8 for text, file names and names on this disk (LANG={os.environ.get('LANG', '')})")
    else:
        yield warn("this disk changes the Unicode form of file names", "media whose names are not plain ASCII may count as missing here")


def clock(asked: Asked) -> Iterator[Line]:
    now = time.time()
    newest = max((path.stat().st_mtime for path in (ROOT / "bench").glob("*.py")), default=0.0)
    said = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
    if now < newest - 86_400:
        behind = (newest - now) / 86_400
        yield fail(
            f"{said} is {behind:.0f} days before the project's own files",
            "set the clock (date -s): runs are named by it, and make compares it with files",
        )
    else:
        yield ok(f"{said} UTC")
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            apart = abs(Path(file.name).stat().st_mtime - time.time())
        if apart > 2:
            yield warn(
                f"this disk's clock is {apart:.0f} s apart from the machine's",
                "set both by one time server: make may build again and again",
            )
    except OSError:
        yield unknown("the disk's clock could not be compared: nothing can be written here")
    source = _first("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source and source not in _STEADY:
        yield warn(
            f"the kernel's clock source is {source}", "reading it is slow and coarse: latencies below a millisecond mean little here"
        )


def _first(file: str, fields: tuple[str, ...] = ()) -> str:
    with contextlib.suppress(OSError):
        for line in Path(file).read_text(encoding="utf-8", errors="replace").splitlines():
            if not fields:
                return line.strip()
            name, _, value = line.partition(":")
            if name.strip() in fields:
                return value.strip()
    return ""


def _meminfo(field: str) -> int | None:
    words = _first("/proc/meminfo", (field,)).split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def _cgroup(*names: str) -> int | None:
    for name in names:
        text = _first(f"/sys/fs/cgroup/{name}")
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return None


def _quota() -> float | None:
    words = _first("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and int(words[1]):
        return round(int(words[0]) / int(words[1]), 1)
    return None


def _count(limit: int) -> str:
    return "any number of" if limit < 0 or limit > 2**40 else f"{limit:,}"
