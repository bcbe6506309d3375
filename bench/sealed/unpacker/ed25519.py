"""Ed25519 signatures, checked in plain integers (RFC 8032, section 5.1.7): a sealed machine needs no library and no openssl for it.

Checks only. It never signs: plain integers take time that depends on the secret (bench/sealed/sign.py asks openssl).
Try: python -c "from bench.sealed.unpacker.ed25519 import read_public_key; print(read_public_key('public.pem').hex())"
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bench.sealed.unpacker.errors import Refused

MOST = 10_000  # bytes of a key's file that are read
_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
if TYPE_CHECKING:  # Python 3.8 knows no tuple[…] outside of annotations
    _Point = tuple[int, int, int, int]


def _add(a: _Point, b: _Point) -> _Point:
    e, f = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    c, d = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    h, k, m, n = f - e, d - c, d + c, f + e
    return h * k % _P, m * n % _P, k * m % _P, h * n % _P


def _times(n: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while n:
        total, point, n = (_add(total, point) if n & 1 else total), _add(point, point), n >> 1
    return total


def _point(raw: bytes) -> _Point | None:
    y, odd = int.from_bytes(raw, "little") & ((1 << 255) - 1), raw[31] >> 7
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    x = x if (x * x - square) % _P == 0 else x * pow(2, (_P - 1) // 4, _P) % _P
    if y >= _P or (x * x - square) % _P or (x == 0 and odd):
        return None
    x = _P - x if x & 1 != odd else x
    return x, y, 1, x * y % _P


def signature_fits(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the holder of this public key (32 bytes) signed this message (64 bytes)."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, r, s = _point(public), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    base = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    if key is None or r is None or base is None or s >= _L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    left, right = _times(s, base), _add(r, _times(k, key))
    return (left[0] * right[2] - right[0] * left[2]) % _P == 0 and (left[1] * right[2] - right[1] * left[2]) % _P == 0


def read_public_key(key: str) -> bytes:
    """32 bytes from a PEM file as openssl writes it, or from 64 hexadecimal digits. Raises Refused."""
    if re.fullmatch("[0-9a-fA-F]{64}", key):
        return bytes.fromhex(key)
    shown = key if len(key) <= 200 else f"{key[:80]} …"
    try:
        with Path(key).open("rb") as file:  # also a pipe; what never ends is not read to its end
            text = file.read(MOST)
        found = re.search(rb"-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----", text)
        der = base64.b64decode(found[1]) if found else b""
    except (OSError, ValueError) as error:
        raise Refused(f"the key {shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(der) != 44 or not der.startswith(bytes.fromhex("302a300506032b6570032100")):
        remedy = "`openssl pkey -in private.pem -pubout` writes it; or give its 64 hex digits"
        raise Refused(f"{shown} is no public Ed25519 key in PEM: {remedy}")
    return der[12:]
