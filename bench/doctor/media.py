"""Checks of codecs, by making, reading and looking at a clip of each; and of the fonts that figures need."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from bench.doctor import ask
from bench.doctor.rows import Asked, Line, fail, ok, unknown, warn

# encoder, file, how it is called. What is met in clips first.
CODECS = (
    ("libx264", "h264.mp4", "H.264"),
    ("libx265", "hevc.mp4", "HEVC"),
    ("libvpx-vp9", "vp9.webm", "VP9"),
    ("libsvtav1", "av1.mp4", "AV1"),
    ("mpeg4", "mpeg4.mp4", "MPEG-4"),
)
_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")
_CJK = ("cjk", "notosanssc", "notosansjp", "wqy", "wenquanyi", "droidsansfallback", "ipa", "takao", "sourcehan", "uming")


def codecs(asked: Asked) -> Iterator[Line]:
    def probe(row: tuple[str, str, str]) -> tuple[str, list[dict[str, object]], str]:
        return (row[2], *ask.python(["-m", "bench.doctor.probe", row[0], row[1]], 90.0))

    good: list[str] = []
    bad: dict[str, list[str]] = {}
    with ThreadPoolExecutor(2) as pool:
        for name, rows, ended in pool.map(probe, CODECS):
            told = rows[0] if rows else {}
            if told.get("made") is False:
                yield unknown(f"{name}: no encoder here to make a clip with ({told.get('error')})")
            elif told.get("pyav") == "":
                good.append(name if told.get("decord") == "" else f"{name} (decord hands it to PyAV)")
            else:
                bad.setdefault(str(told.get("pyav") or ended or "no word"), []).append(name)
    for why, names in bad.items():
        yield fail(
            f"{', '.join(names)} cannot be read: {why}",
            "make setup installs av and decord2 again; a crash: another build for this processor",
        )
    if good:
        yield ok(f"made, decoded and looked at: {', '.join(good)}")


def fonts(asked: Asked) -> Iterator[Line]:
    try:
        files = metadata.files("matplotlib") or []
    except metadata.PackageNotFoundError:
        yield fail("matplotlib is not installed: no figures", "make setup")
        return
    if not any(path.name == "DejaVuSans.ttf" and Path(str(path.locate())).is_file() for path in files):
        yield warn("matplotlib's own font DejaVu Sans is missing", "make setup installs matplotlib again")
        return
    names = [
        path.name.casefold().replace("-", "").replace("_", "")
        for place in _FONTS
        for path in Path(place).expanduser().glob("**/*.[to]t[fc]")
    ]
    if any(any(mark in name for mark in _CJK) for name in names):
        yield ok(f"DejaVu Sans, carried by matplotlib; {len(names)} system fonts, Chinese and Japanese among them")
    else:
        yield ok(
            f"DejaVu Sans, carried by matplotlib; {len(names)} system fonts, none for Chinese or Japanese: such labels would show as boxes"
        )
