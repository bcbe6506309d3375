"""The verified decoder: PyAV, one seek per group of pictures, every frame checked by its exact timestamp.

It decodes from the keyframe to the last wanted packet of a group, leaves out non-reference pictures that nobody asked for, and scales
inside the decoder's own scaler. A frame that does not come back under its own timestamp is looked for once more from the start of the
file; what is still missing is reported and never replaced. Knows nothing of strategies or of the store. Try: python -m video index CLIP
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np

from video.complaints import Complaints, complaints
from video.decoders import Beat, Emit, Outcome, Pixels
from video.errors import ClipMissing, NotAClip, NoTimestamps, NoVideo
from video.geometry import Fit
from video.index import CORRUPT, DISCARD, KEY, ClipIndex, Span, soundness

NEWER = 64  # packets read in search of a first picture
THREADS = 2
BT601, BT709, UNSPECIFIED = 5, 1, 2


@contextmanager
def _opened(path: Path, threads: int = THREADS) -> Iterator[tuple[Any, Any]]:
    """The container and its first real video stream, other streams switched off."""
    try:
        container = av.open(str(path), metadata_errors="replace")
    except IsADirectoryError as error:
        raise ClipMissing("is a folder", where=str(path), remedy="give one video file") from error
    except FileNotFoundError as error:
        raise ClipMissing("no such file", where=str(path), remedy="check the path") from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise NotAClip(f"cannot be opened as a video ({_words(error)})", where=str(path), remedy="copy or record the clip again") from error
    with container:
        streams = [stream for stream in container.streams.video if not stream.disposition & av.stream.Disposition.attached_pic]
        if not streams:
            raise NoVideo("has no video stream", where=str(path), remedy="give the file that holds the pictures")
        stream = streams[0]
        if stream.codec_context is None:
            raise NotAClip("its video codec is not known", where=str(path), remedy="convert it to H.264 in an mp4 file")
        for other in container.streams:
            if other is not stream:
                other.discard = av.stream.Discard.all
        stream.thread_type, stream.thread_count = "AUTO", threads
        yield container, stream


def scan(path: Path, beat: Beat = lambda: None) -> ClipIndex:
    """Read every packet once, and one picture for its format.

    Raises:
        ClipMissing, NotAClip, NoVideo, NoTimestamps: each names the file, the cause and the remedy.
    """
    pts, dts, size, flags, problems = [], [], [], [], []
    layers = False
    with _opened(path, threads=1) as (container, stream):
        codec = stream.codec_context.name
        try:
            for packet in container.demux(stream):
                beat()
                if packet.size == 0:
                    continue
                pts.append(packet.pts)
                dts.append(packet.dts)
                size.append(packet.size)
                flags.append(KEY * packet.is_keyframe | DISCARD * packet.is_discard | CORRUPT * packet.is_corrupt)
                layers = layers or (codec == "hevc" and _temporal_id(memoryview(packet)) > 0)
        except av.FFmpegError as error:
            problems.append(f"reading stopped after {len(pts)} frames ({_words(error)})")
        index = ClipIndex(
            container=container.format.name, codec=codec, pixel_format=stream.pix_fmt or "",
            width=stream.width, height=stream.height, aspect=_ratio(stream.sample_aspect_ratio, (1, 1)), rotation=0,
            time_base=_ratio(stream.time_base, (1, 1)), promised=stream.frames,
            pts=tuple(pts), dts=tuple(dts), size=tuple(size), flags=tuple(flags), temporal_layers=layers,
        )  # fmt: skip
    if not pts:
        raise NotAClip("holds no video packets", where=str(path), remedy="copy or record the clip again")
    if sum(stamp is not None for stamp in pts) * 2 < len(pts):
        remedy = "put it into a container: ffmpeg -i IN -c copy OUT.mp4"
        raise NoTimestamps("is a raw stream without timestamps", where=str(path), remedy=remedy)
    if not index.frames:
        raise NotAClip("has no decodable keyframe", where=str(path), remedy="record the clip again, or cut it at a keyframe")
    first = _first_picture(path, index)
    if first is None:
        problems.append("no picture near the start could be decoded: rotation and size are the header's")
    else:
        index = replace(index, rotation=first.rotation, width=first.width, height=first.height, pixel_format=first.format.name)
    return replace(index, problems=(*problems, *soundness(index)))


def decode(path: Path, index: ClipIndex, targets: Sequence[int], fit: Fit, emit: Emit, beat: Beat = lambda: None) -> Outcome:
    """Hand each wanted frame to ``emit``, upright and scaled; never another frame in its place.

    Args:
        targets: timestamps from ``index.frames``.
        emit: called once per frame, in decode order, with pixels of shape (height, width, 3), uint8 RGB.
        beat: called for every packet, so that a watcher can tell slow from stuck.
    """
    _loud()
    with complaints(_opens(index)) as heard:
        return _decode(path, index, targets, fit, emit, beat, heard)


def _decode(path: Path, index: ClipIndex, targets: Sequence[int], fit: Fit, emit: Emit, beat: Beat, heard: Complaints) -> Outcome:
    outcome = Outcome()
    doubtful: dict[int, Pixels] = {}
    with _opened(path) as (container, stream):
        for span in index.spans(targets):
            held: dict[int, Pixels] = {}
            trouble = False
            for frame, damaged in _span(container, stream, index, span, beat, outcome, heard):
                trouble = damaged
                if frame is not None and frame.pts not in outcome.found and frame.pts not in doubtful:
                    held[frame.pts] = picture(frame, fit)
            if trouble:  # a threaded decoder tells of an error late: the whole group is kept aside, a run from the start may show it whole
                doubtful |= held
                continue
            for pts, pixels in held.items():
                outcome.found.add(pts)
                emit(pts, pixels, False)
    again = set(targets) - outcome.found
    if again:
        outcome.notes.append(f"{len(again)} frames looked for again from the start of the file")
        with _opened(path, threads=1) as (container, stream):  # an error is told with its own packet
            for frame, damaged in _from_start(container, stream, index, again, beat, heard):
                if frame.pts in outcome.found:
                    continue
                outcome.found.add(frame.pts)
                doubtful.pop(frame.pts, None)
                outcome.damaged |= {frame.pts} if damaged else set()
                emit(frame.pts, picture(frame, fit), damaged)
        for pts, pixels in doubtful.items():
            outcome.found.add(pts)
            outcome.damaged.add(pts)
            emit(pts, pixels, True)
    return outcome


def reference_frames(path: Path, index: ClipIndex, beat: Beat = lambda: None, tainted: set[int] | None = None) -> Iterator[Any]:
    """One pass over the clip, non-reference pictures left out: the decoder's own frames, for ``survey``.

    Into ``tainted`` go the keyframes (decode positions) of the groups in which the decoder refused a packet, marked one, or complained:
    the packet's own, and that of the last one that a decoding thread may still have been at. It is complete when the pass has ended.
    """
    bad = set() if tainted is None else tainted
    _loud()
    with complaints(_opens(index)) as heard, _opened(path) as (container, stream):
        context = stream.codec_context
        context.skip_frame = "NONREF" if index.skips else "DEFAULT"
        for place, packet in enumerate(_packets(container, stream, len(index.pts))):
            beat()
            frames, failed = _fed(context, packet)
            if heard.new() or failed or (place < len(index.flags) and index.flags[place] & CORRUPT):
                bad.update(_group(index, at) for at in (place, place - THREADS))
            yield from frames


def groups_only(path: Path, index: ClipIndex, targets: Sequence[int]) -> int:
    """The benchmark's floor: decode the groups that hold ``targets``, non-reference pictures skipped, and keep nothing.

    Returns the number of pictures decoded.
    """
    count = 0
    with _opened(path) as (container, stream):
        stream.codec_context.skip_frame = "NONREF"
        for span in index.spans(targets):
            packets = _at_key(container, stream, index, span.first) or iter(())
            for packet in [*islice(packets, span.last - span.first + 1), None]:
                count += len(_fed(stream.codec_context, packet)[0])
            stream.codec_context.flush_buffers()
    return count


def picture(frame: Any, fit: Fit) -> Pixels:
    """One frame scaled, turned and in RGB: (height, width, 3) uint8. The full-size RGB picture never exists."""
    source = frame.colorspace
    if source == UNSPECIFIED:  # players take HD material without a label for BT.709; the scaler would take BT.601
        source = BT709 if frame.height >= 720 else BT601
    small = frame.reformat(*fit.scaled, format="rgb24", src_colorspace=source, interpolation="AREA")
    pixels = np.asarray(small.to_ndarray(), dtype=np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, fit.quarter_turns)) if fit.quarter_turns else pixels


def _span(
    container: Any, stream: Any, index: ClipIndex, span: Span, beat: Beat, outcome: Outcome, heard: Complaints
) -> Iterator[tuple[Any, bool]]:
    """Decode one group up to its last wanted packet. Yields wanted frames, and whether anything went wrong so far; last (None, that)."""
    context = stream.codec_context
    packets = _at_key(container, stream, index, span.first)
    if packets is None:
        outcome.notes.append(f"could not seek to the keyframe at {index.seconds(index.pts[span.first] or 0):.3f} s")
        return
    trouble = False
    for place, packet in enumerate(islice(packets, span.last - span.first + 1), span.first):
        beat()
        wanted = packet.pts in span.targets
        context.skip_frame = "NONREF" if index.skips and not wanted else "DEFAULT"
        trouble = trouble or bool(index.flags[place] & CORRUPT)
        frames, failed = _fed(context, packet)
        trouble = heard.new() or trouble or failed
        for frame in frames:
            trouble = trouble or frame.is_corrupt
            if frame.pts in span.targets:
                yield frame, trouble
    for frame in _fed(context, None)[0]:
        trouble = trouble or frame.is_corrupt
        if frame.pts in span.targets:
            yield frame, trouble
    yield None, heard.new() or trouble
    context.flush_buffers()


def _at_key(container: Any, stream: Any, index: ClipIndex, key: int) -> Iterator[Any] | None:
    """Packets from the keyframe at decode position ``key`` on, or None where no seek leads there.

    A container may land late (it compares decode timestamps) or early (sparse seek tables): late is tried again from further back, early
    packets are read past without decoding.
    """
    earlier = index.keys[max(index.keys.index(key) - 1, 0)]
    for stamp in (index.pts[key], index.dts[key], index.dts[earlier], index.dts[0]):
        if stamp is None:
            continue
        try:
            container.seek(stamp, stream=stream)
            packets = container.demux(stream)
            for _ in range(key + 2):
                packet = next(packets, None)
                place = None if packet is None or packet.pts is None else index.position.get(packet.pts)
                if packet is None or (place is not None and place > key):
                    break
                if place == key:
                    return _chain(packet, packets)
        except av.FFmpegError:
            continue
    return None


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    try:
        yield from (packet for packet in rest if packet.size)
    except av.FFmpegError:
        return  # the file ends here; what is missing is counted by the caller


def _from_start(
    container: Any, stream: Any, index: ClipIndex, wanted: set[int], beat: Beat, heard: Complaints
) -> Iterator[tuple[Any, bool]]:
    """Every picture from the first packet on, until the last wanted one has come; an error taints the rest of its group."""
    waiting, tainted = set(wanted), set[int]()
    for place, packet in enumerate(_packets(container, stream, len(index.pts))):
        beat()
        frames, failed = _fed(stream.codec_context, packet)
        if heard.new() or failed or (place < len(index.flags) and index.flags[place] & CORRUPT):
            tainted.add(_group(index, place))
        for frame in frames:
            home = index.home(frame.pts) if frame.pts in index.position else -1
            if frame.is_corrupt:
                tainted.add(home)
            if frame.pts in waiting:
                waiting.discard(frame.pts)
                yield frame, home in tainted
        if not waiting:
            return


def _group(index: ClipIndex, place: int) -> int:
    """The last keyframe up to this decode position."""
    return index.keys[max(bisect_right(index.keys, place) - 1, 0)]


def _opens(index: ClipIndex) -> bool:
    return index.codec == "h264" and not index.closed


def _loud() -> None:
    """Lets the decoders write their errors to standard error, where ``complaints`` hears them."""
    av.logging.restore_default_callback()
    av.logging.set_libav_level(av.logging.ERROR)


def _packets(container: Any, stream: Any, most: int) -> Iterator[Any]:
    """At most ``most`` packets, then None to drain the decoder."""
    with suppress(av.FFmpegError):
        yield from islice((packet for packet in container.demux(stream) if packet.size), most)
    yield None


def _fed(context: Any, packet: Any) -> tuple[list[Any], bool]:
    """Frames that the decoder gives back for one packet (None drains it), and whether it refused the packet."""
    try:
        return list(context.decode(packet)), False
    except av.FFmpegError:
        return [], True


def _first_picture(path: Path, index: ClipIndex) -> Any:
    with _opened(path, threads=1) as (container, stream):
        for packet in _packets(container, stream, index.keys[0] + NEWER):
            frames, _ = _fed(stream.codec_context, packet)
            if frames:
                return frames[0]
            if packet is not None and packet.is_keyframe and (frames := _fed(stream.codec_context, None)[0]):
                return frames[0]
            if packet is not None and packet.is_keyframe:
                stream.codec_context.flush_buffers()
    return None


def _temporal_id(data: Any) -> int:
    """Temporal layer of an HEVC packet's first picture slice (ITU-T H.265, 7.3.1.2); 0 where it cannot be told."""
    at = 0
    while at + 6 <= len(data):
        if bytes(data[at : at + 4]) == b"\0\0\0\1":  # byte-stream form: the parameter sets before a slice are short, so look no further
            return max(0, int(data[at + 5] & 7) - 1) if (data[at + 4] >> 1) & 63 < 32 else 0
        if (data[at + 4] >> 1) & 63 < 32:
            return max(0, int(data[at + 5] & 7) - 1)
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return 0


def _ratio(value: Any, otherwise: tuple[int, int]) -> tuple[int, int]:
    return (int(value.numerator), int(value.denominator)) if value else otherwise


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
