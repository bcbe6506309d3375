"""Makes a virtual environment from the locks: every file by its hash, nothing resolved. Standard library only.

    python3 scripts/install.py [.venv]              the CPU locks
    python3 scripts/install.py .venv-gpu vllm       the lock of the vLLM extra (x86_64 Linux with NVIDIA GPUs)
    python3 scripts/install.py .venv "" --wheelhouse carried/wheels     from these wheels alone, without a network (docs/airgapped.md)

torch has two builds of one version: a CPU build, taken where the machine's own package sources hold it (PIP_FIND_LINKS, pip's
configuration), and the registry's, which needs the CUDA run time beside it. Both are locked. With uv where it is installed, with pip
elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
OLDEST, NEWEST = (3, 11), (3, 13)


def main(folder: Path, extra: str = "", wheelhouse: Path | None = None) -> None:
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"Python {found} is not supported: 3.11 to 3.13 are — run make with PYTHON=python3.11")
    ready = folder / ".ready"
    wanted = digest(extra)
    if ready.exists() and ready.read_text().strip() == wanted:  # only the files' times were new
        ready.touch()
        return
    started = time.monotonic()
    if wheelhouse:
        from_wheelhouse(folder, extra, wheelhouse.resolve())
        ready.write_text(wanted + "\n")
        print(f"{folder} is ready after {time.monotonic() - started:.0f} s", flush=True)
        return
    uv = shutil.which("uv")
    print(f"Making {folder} with {'uv' if uv else 'pip'} from {LOCKS.name}/ (once, a few minutes) …", flush=True)
    run(
        [uv, "venv", "--quiet", "--python", sys.executable, "--allow-existing", str(folder)]
        if uv
        else [sys.executable, "-m", "venv", str(folder)]
    )
    python = folder / "bin" / "python"
    if extra:
        install(uv, python, LOCKS / f"{extra}.txt")
    else:
        if not install(uv, python, LOCKS / "torch-cpu.txt", needed=False):  # no CPU build within reach
            install(uv, python, LOCKS / "torch.txt")
            install(uv, python, LOCKS / "torch-cuda-runtime.txt")
        install(uv, python, LOCKS / "cpu.txt")
    ready.write_text(wanted + "\n")
    print(f"{folder} is ready after {time.monotonic() - started:.0f} s", flush=True)


def from_wheelhouse(folder: Path, extra: str, wheels: Path) -> None:
    """An environment from a folder of wheels, nothing fetched. One that a kill left half-made is made anew; a failed one does not stay.

    pip itself is among the wheels, and runs out of its wheel: distributions leave ensurepip out.
    """
    print(f"Making {folder} from {wheels} (once, about a minute) …", flush=True)
    pip = next(iter(sorted(wheels.glob("pip-*.whl"))), None)
    if pip is None:
        sys.exit(f"failed: no wheel of pip in {wheels}")
    if folder.exists():
        shutil.rmtree(folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    env.update(PIP_CONFIG_FILE=os.devnull, PYTHONUTF8="1")  # names in wheels are UTF-8, whatever the locale
    command = [str(folder / "bin" / "python"), str(pip / "pip"), "install", "--quiet", "--no-index", "--find-links", str(wheels)]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    locks = [f"{extra}.txt"] if extra else ["cpu.txt", "torch-cpu.txt"]
    if not extra and not any(wheels.glob("torch-*+cpu-*.whl")):
        locks = ["torch.txt", "torch-cuda-runtime.txt", "cpu.txt"]
    try:
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)], env)
        run([*command, *(word for lock in ("pip.txt", *locks) for word in ("-r", str(LOCKS / lock)))], env)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def digest(extra: str) -> str:
    """sha256 over the locks that this environment is made from."""
    names = [f"{extra}.txt"] if extra else ["cpu.txt", "torch-cpu.txt", "torch.txt", "torch-cuda-runtime.txt"]
    return hashlib.sha256(b"".join((LOCKS / name).read_bytes() for name in names)).hexdigest()


def install(uv: str | None, python: Path, lock: Path, *, needed: bool = True) -> bool:
    """Exactly what the lock lists; a wheel whose hash is not in it is refused. Tells whether it could be done."""
    env = dict(os.environ)
    if uv:
        if "PIP_FIND_LINKS" in env:
            env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
        command = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "-r", str(lock)]
    if needed:
        run(command, env)
        return True
    return subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def run(command: list[str | None], env: dict[str, str] | None = None) -> None:
    if subprocess.run([str(part) for part in command], env=env).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    words = sys.argv[1:]
    house = Path(words.pop(words.index("--wheelhouse") + 1)) if "--wheelhouse" in words[:-1] else None
    words = [word for word in words if word != "--wheelhouse"]
    main(Path(words[0] if words else ".venv"), *words[1:2], wheelhouse=house)
