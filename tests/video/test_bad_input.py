"""Every kind of bad input ends in a typed error that names file, cause and remedy, or in a partial result that says what is doubtful."""

from __future__ import annotations

from pathlib import Path

import pytest

from video import pyav
from video.errors import ClipMissing, NotAClip, NothingDecoded, NoTimestamps, NoVideo, OutsideData, VideoError
from video.options import FrameOptions
from video.source import FrameSet, FrameStore

REFUSED = {
    "zero_byte.mp4": NotAClip,
    "text.mp4": NotAClip,
    "garbage.mp4": NotAClip,
    "no_moov.mp4": NotAClip,
    "zeroed_head.mp4": NotAClip,
    "audio_only.mp4": NoVideo,
    "raw.h264": NoTimestamps,
}


def sixtieths(frames: FrameSet, path: Path) -> list[int]:
    """The number that each record's picture must carry, by its timestamp: frame n of these clips is shown at n / 60 s."""
    index = pyav.scan(path)
    return [round(record.pts * index.time_base[0] * 60 / index.time_base[1]) for record in frames.records if record.pts is not None]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_clip_is_refused_by_name(store, bad_clips, name) -> None:
    with pytest.raises(REFUSED[name]) as caught:
        store.frames((), bad_clips[name])
    assert caught.value.where == str(bad_clips[name]) and caught.value.what and caught.value.remedy


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("truncated.mp4", "truncated: the header promises 150"),
        ("zeroed_tail.mp4", "frames missing, at"),
        ("corrupt_packets.mp4", "may be damaged, at"),
        ("dropped_packets.mp4", "5 frames are missing between others"),
        ("dropped_packets.mkv", "5 frames are missing between others"),
    ],
)
def test_damaged_clips_give_what_is_left_and_say_what_is_not(store, bad_clips, read_numbers, name, said) -> None:
    frames = store.frames((), bad_clips[name])
    assert said in " ".join(frames.notes)
    assert len(frames.paths) + len(frames.missing) == 10
    wanted = sixtieths(frames, bad_clips[name])
    for number, want, record in zip(read_numbers(frames.paths), wanted, frames.records, strict=True):
        assert number == want or "damaged" in record.flags


@pytest.mark.parametrize("name", ["dropped_packets.mp4", "dropped_packets.mkv", "corrupt_packets.mp4"])
def test_no_frame_of_a_damaged_clip_is_wrong_without_a_flag(bad_clips, tmp_path, read_numbers, name) -> None:
    with FrameStore(tmp_path, FrameOptions(strategy="uniform", frames=256, format="png"), workers=1) as store:
        frames = store.frames((), bad_clips[name])
    wanted = sixtieths(frames, bad_clips[name])
    found = read_numbers(frames.paths)
    wrong = {want for number, want in zip(found, wanted, strict=True) if number != want}
    flagged = {want for want, record in zip(wanted, frames.records, strict=True) if "damaged" in record.flags}
    assert wrong and wrong <= flagged  # the damage is real, and seen
    assert len(flagged) < len(found) / 2  # and not everything is doubted


@pytest.mark.parametrize("name", ["corrupt_packets.mp4", "corrupt_hevc.mp4", "dropped_packets.mp4"])
def test_the_pass_of_content_hq_flags_what_the_decoder_complained_of(bad_clips, tmp_path, read_numbers, name) -> None:
    """It decodes by itself: a picture that was patched up must not come out of it as sound."""
    wrong = flagged = kept = 0
    for count in (10, 40):
        with FrameStore(tmp_path, FrameOptions(strategy="content-hq", frames=count, format="png"), workers=1) as store:
            frames = store.frames((), bad_clips[name])
        for number, want, record in zip(read_numbers(frames.paths), sixtieths(frames, bad_clips[name]), frames.records, strict=True):
            assert number == want or "damaged" in record.flags, (number, want)
            wrong, flagged, kept = wrong + (number != want), flagged + bool(record.flags), kept + 1
    assert wrong and flagged < kept


def test_a_start_in_the_middle_of_a_group_loses_only_what_cannot_be_decoded(store, bad_clips, read_numbers) -> None:
    frames = store.frames((), bad_clips["mid_gop_start.ts"])
    found = read_numbers(frames.paths)
    assert "middle of a group" in " ".join(frames.notes) and not frames.missing
    assert found == [record.number + 30 for record in frames.records]  # the first keyframe that is left is frame 30


def test_a_wrong_rate_stretches_times_but_never_mixes_frames(store, bad_clips, read_numbers) -> None:
    frames = store.frames((), bad_clips["wrong_rate.mp4"])
    assert read_numbers(frames.paths) == [record.number for record in frames.records]


@pytest.mark.parametrize(("name", "count"), [("one_frame.mp4", 1), ("two_frames.mp4", 2)])
@pytest.mark.parametrize("strategy", ["equal", "uniform", "content", "content-hq", "fast", "human"])
def test_short_clips_give_each_frame_once(tmp_path_factory, bad_clips, read_numbers, name, count, strategy, short_stores) -> None:
    frames = short_stores(strategy).frames((), bad_clips[name])
    expected = 1 if strategy == "equal" else count
    assert read_numbers(frames.paths) == list(range(expected))


@pytest.fixture(scope="module")
def short_stores(tmp_path_factory):
    made: dict[str, FrameStore] = {}

    def of(strategy: str) -> FrameStore:
        if strategy not in made:
            made[strategy] = FrameStore(tmp_path_factory.mktemp("short"), FrameOptions(strategy=strategy), workers=1)
        return made[strategy]

    yield of
    for store in made.values():
        store.close()


def test_odd_sizes_come_out_even(store, bad_clips, read_numbers) -> None:
    frames = store.frames((), bad_clips["odd_size.mp4"])
    assert read_numbers(frames.paths) == [record.number for record in frames.records]
    assert {(record.width, record.height) for record in frames.records} == {(320, 180)}


def test_a_folder_and_a_missing_file_are_refused(store, tmp_path) -> None:
    with pytest.raises(ClipMissing, match="is a folder"):
        store.frames((), tmp_path)
    with pytest.raises(ClipMissing, match="no such file"):
        store.frames((), tmp_path / "absent.mp4")


def test_a_link_out_of_the_data_folder_is_refused(closed, tmp_path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "link.mp4").symlink_to(closed)
    with FrameStore(tmp_path / "store", FrameOptions(strategy="uniform"), data_root=data) as store:
        with pytest.raises(OutsideData, match="leaves the data folder"):
            store.frames((), data / "link.mp4")
        with pytest.raises(OutsideData):
            store.frames((), data / ".." / "elsewhere.mp4")


def test_one_bad_clip_costs_the_others_nothing(store, bad_clips, closed) -> None:
    seen: list[tuple[int, int]] = []
    jobs = [((), bad_clips["text.mp4"]), ((), closed), ((), bad_clips["zero_byte.mp4"]), ((), closed)]
    results = store.prepare(jobs, progress=lambda done, total: seen.append((done, total)))
    assert [isinstance(result, VideoError) for result in results] == [True, False, True, False]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_clip_whose_every_frame_is_lost_is_an_error(tmp_path, bad_clips) -> None:
    with FrameStore(tmp_path, FrameOptions(strategy="uniform", frames=1), workers=1) as store:
        data = bytearray(bad_clips["zeroed_tail.mp4"].read_bytes())
        start = len(data) // 4  # the one frame asked for, in the middle, is gone
        data[start:] = bytes(len(data) - start)
        broken = tmp_path / "broken.mp4"
        broken.write_bytes(data)
        with pytest.raises(NothingDecoded, match=r"none of the .* could be decoded"):
            store.frames((), broken)


def test_shared_clips(store, shared_clips, read_numbers) -> None:
    """Clips that another program made, at first hand: numbers in 16-pixel blocks of a 640-pixel picture."""
    for name, shift in {"good.mp4": 0, "hevc.mp4": 0, "midgop_start.ts": 60, "editlist_cut.mp4": 90}.items():
        frames = store.frames((), shared_clips / name)
        assert read_numbers(frames.paths) == [record.number + shift for record in frames.records], name
    for name, kind in {"zero.mp4": NotAClip, "text.mp4": NotAClip, "audio_only.mp4": NoVideo}.items():
        with pytest.raises(kind):
            store.frames((), shared_clips / name)
    frames = store.frames((), shared_clips / "corrupt_mid.mp4")
    doubtful = [record for number, record in zip(read_numbers(frames.paths), frames.records, strict=True) if number != record.number]
    assert doubtful and all("damaged" in record.flags for record in doubtful)
