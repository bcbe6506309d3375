"""Every error that this room raises on purpose.

    VideoError                 what came, where, what to do: one message, no traceback, exit code 2
    ├── OptionError            an option outside its menu
    ├── ClipError              a clip that cannot be used at all
    │   ├── ClipMissing          no such file, or a folder where a file was expected
    │   ├── OutsideData          a link that leaves the data folder
    │   ├── NotAClip             empty, text, damaged beyond its header, no index
    │   ├── NoVideo              sound only
    │   ├── NoTimestamps         a raw stream: no frame can be asked for by time
    │   └── NothingDecoded       a clip whose every wanted frame is missing
    ├── PictureError           a still picture that cannot be used
    ├── BudgetError            pictures that cannot be fitted to a model's limits
    ├── StoreError             the frame store cannot be written
    └── IsolationError         the child process that decoded this clip was lost
        ├── DecodeTimeout        it hung, or took longer than the clip's time limit
        └── DecoderCrashed       native code ended it

It knows nothing of the other rooms: their runners turn these into their own messages. Try: python -m video no_such_clip.mp4
"""

from __future__ import annotations


class VideoError(Exception):
    """Base: names the file (``where``), the cause (``what``) and the way out (``remedy``)."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__("".join([f"{where}: " if where else "", what, f" — {remedy}" if remedy else ""]))

    def to_json(self) -> dict[str, str | None]:
        """As plain data, so that a child process can hand an error to its parent without pickle."""
        return {"kind": type(self).__name__, "what": self.what, "where": self.where, "remedy": self.remedy}

    @staticmethod
    def from_json(data: dict[str, str | None]) -> VideoError:
        kinds = {kind.__name__: kind for kind in _family(VideoError)}
        kind = kinds.get(data["kind"] or "", VideoError)
        return kind(data["what"] or "unknown cause", where=data["where"], remedy=data["remedy"])


class OptionError(VideoError):
    """An option outside its menu."""


class ClipError(VideoError):
    """A clip that cannot be used."""


class ClipMissing(ClipError):
    """No such file, or a folder where a file was expected."""


class OutsideData(ClipError):
    """A link that leaves the data folder."""


class NotAClip(ClipError):
    """Not a video file, or damaged beyond its header."""


class NoVideo(ClipError):
    """A file without a video stream."""


class NoTimestamps(ClipError):
    """A raw stream without timestamps."""


class NothingDecoded(ClipError):
    """Every wanted frame is missing."""


class PictureError(VideoError):
    """A still picture that cannot be used."""


class BudgetError(VideoError):
    """Pictures that cannot be fitted to a model's limits."""


class StoreError(VideoError):
    """The frame store cannot be written."""


class IsolationError(VideoError):
    """The child process that decoded this clip was lost."""


class DecodeTimeout(IsolationError):
    """It hung, or took longer than its time limit."""


class DecoderCrashed(IsolationError):
    """Native code ended it."""


def _family(kind: type[VideoError]) -> list[type[VideoError]]:
    return [kind, *(descendant for child in kind.__subclasses__() for descendant in _family(child))]
