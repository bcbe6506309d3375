"""Before a run: does the server do what the run will ask? A few one-token calls find a picture limit or an ignored constraint early."""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from models.engines import Workload
from models.errors import CallFailed, ModelError
from models.requests import Completion, Decoding, Picture, Request, user

_WORD = "qzx7"  # nothing that a model would say of itself
# What a server says of a request that it has understood; anything else says something of the server.
_REFUSALS = frozenset(
    {"too-many-pictures", "bad-image", "too-long", "no-tokenizer", "http-400", "http-413", "http-415", "http-422", "http-501"}
)
_REMEDIES = {
    "http-429": "it asks for patience: try again later, or lower --slots",
    "timeout": "it takes longer than the run's --timeout for one call: is it still loading, or overloaded?",
    "unreachable": "start the server, or correct the address",
}


def _remedy(error: CallFailed) -> str:
    return _REMEDIES.get(error.reason, "see the server's own log, then try again")


async def try_out(complete: Callable[[Request], Awaitable[Completion]], work: Workload, url: str) -> None:
    """Raises ModelError naming what failed and the flag to change."""
    if work.pictures or work.constraints:  # so that what fails below fails for what it adds
        try:
            await complete(user("Reply with one word.", decoding=Decoding(max_tokens=1)))
        except CallFailed as error:
            raise ModelError(f"does not answer a short text: {error}", where=url, remedy=_remedy(error)) from None
    if work.pictures:
        with tempfile.TemporaryDirectory() as folder:
            pictures = [_square(Path(folder) / f"{i}.png", 40 + i) for i in range(work.pictures)]
            try:
                await complete(user(*pictures, "Reply with one word.", decoding=Decoding(max_tokens=1)))
            except CallFailed as error:
                said, remedy = f"cannot do a call of {work.pictures} pictures: {error}", _remedy(error)
                if error.reason in _REFUSALS:
                    said = f"refuses {work.pictures} pictures in a call: {error}"
                    remedy = f"the run shows up to {work.pictures} pictures a call: start the server with "
                    remedy += f"""--limit-mm-per-prompt '{{"image":{work.pictures}}}', or show fewer"""
                raise ModelError(said, where=url, remedy=remedy) from None
    for kind, decoding in (
        ("choices", Decoding(max_tokens=16, choices=(_WORD,))),
        ("pattern", Decoding(max_tokens=16, pattern=_WORD)),
        ("probe", Decoding(max_tokens=1, probe=("Yes", "No"))),
    ):
        if kind in work.constraints:
            try:
                reply = await complete(user("Say hello.", decoding=decoding))
            except CallFailed as error:
                remedy = "run without constrained decoding" if error.reason in _REFUSALS else _remedy(error)
                raise ModelError(f"does not do {kind}: {error}", where=url, remedy=remedy) from None
            if kind != "probe" and reply.text.strip() != _WORD:
                remedy = "it ignores structured_outputs; run without constrained decoding, or on a server that honours it"
                raise ModelError(f"was told to answer {_WORD!r} and said {reply.text[:60]!r}", where=url, remedy=remedy)


def _square(path: Path, grey: int, side: int = 64) -> Picture:
    """A grey PNG, written by hand: no picture library needed here."""
    rows = (b"\0" + bytes([grey]) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = [struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(packed)
    path.write_bytes(data)
    return Picture(path, hashlib.sha256(data).hexdigest())
