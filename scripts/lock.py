"""Writes the locks from pyproject.toml: fully pinned, every file by its hash, for Python 3.11 to 3.13. Needs uv.

python3 scripts/lock.py            writes locks/*.txt
python3 scripts/lock.py --check    exit 1 when a direct dependency of pyproject.toml is not pinned in them
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
CUDA = re.compile(r"^(nvidia-|cuda-|triton==)")  # what only a CUDA build of torch needs
# The CPU build of this torch version that some machines hold; its hash differs from the registry's wheels.
CPU_BUILD = {"torch==2.13.0": ("sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",)}


def main() -> None:
    if "--check" in sys.argv:
        check()
        return
    blocks = compile_lock("--universal", "--python-version", "3.11", "--extra", "dev", "-c", "locks/constraints-cpu.in")
    torch = [block for block in blocks if block.startswith("torch==")]
    write("torch.txt", torch)
    write("torch-cpu.txt", [cpu_build(block) for block in torch])
    write("torch-cuda-runtime.txt", [block for block in blocks if CUDA.match(block)])
    write("cpu.txt", [block for block in blocks if not CUDA.match(block) and not block.startswith("torch==")])
    write(
        "vllm.txt",
        compile_lock("--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.11", "--extra", "vllm", "--extra", "ray"),
    )


def compile_lock(*options: str) -> list[str]:
    """One block of text per package: its pin, marker and hashes."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes", *options, "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return re.split(r"\n(?=\S)", done.stdout.strip())


def cpu_build(block: str) -> str:
    """The pin of the CPU build alone: pip prefers a registry's wheel to a local one, so that the two cannot share a lock."""
    name = block.split()[0]
    return " \\\n".join([f"{name}+cpu", *(f"    --hash={digest}" for digest in CPU_BUILD[name])])


def write(name: str, blocks: list[str]) -> None:
    LOCKS.mkdir(exist_ok=True)
    (LOCKS / name).write_text("# made by `make lock`; do not edit\n" + "\n".join(blocks) + "\n")


def check() -> None:
    """Every direct dependency is pinned in a lock, at a version that its range admits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned: dict[str, list[str]] = {}
    for lock in ("cpu.txt", "torch.txt"):
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", (LOCKS / lock).read_text(), re.M):
            pinned.setdefault(name.lower().replace("_", "-"), []).append(version)
    faults = []
    for requirement in wanted:
        name = re.split(r"[\[<>=! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        exact = re.search(r"==([^,;\s]+)", requirement)
        if name not in pinned:
            faults.append(f"{name} is in no lock")
        elif exact and exact[1] not in pinned[name]:
            faults.append(f"{name} is locked at {', '.join(pinned[name])}, pyproject asks for {exact[1]}")
    if faults:
        sys.exit("locks do not fit pyproject.toml: " + "; ".join(faults) + " — run make lock")


if __name__ == "__main__":
    main()
