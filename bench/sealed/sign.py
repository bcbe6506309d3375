"""Signs a manifest with an Ed25519 key, through openssl: made for secrets, and on nearly every connected machine.

    openssl genpkey -algorithm ed25519 -out private.pem && openssl pkey -in private.pem -pubout -out public.pem

Checking needs none of this (bench/sealed/unpacker/ed25519.py).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from bench.sealed.unpacker.ed25519 import signature_fits
from models.errors import ConfigError

_PREFIX = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of Ed25519 (RFC 8410), before the 32 bytes


def public_of(private: Path) -> bytes:
    """The 32 bytes of the public key. Raises ConfigError when this is no private Ed25519 key."""
    der = _openssl("pkey", "-in", str(private), "-pubout", "-outform", "DER")
    if len(der) != 44 or not der.startswith(_PREFIX):
        raise ConfigError(f"{private} is no Ed25519 key", remedy="make one: openssl genpkey -algorithm ed25519 -out private.pem")
    return der[12:]


def sign(private: Path, message: bytes) -> bytes:
    """64 bytes, checked before they are handed out. Raises ConfigError."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(message)
        file.flush()
        signature = _openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(private), "-in", file.name)
    if not signature_fits(public_of(private), message, signature):
        raise ConfigError(f"openssl's signature with {private} does not check", remedy="is this openssl 3 or newer?")
    return signature


def _openssl(*words: str) -> bytes:
    try:
        done = subprocess.run(["openssl", *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError("a key was given and openssl is not installed", remedy="install openssl, or leave KEY out") from None
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[0]
        raise ConfigError(f"openssl cannot use this key: {last}", remedy="KEY is a private Ed25519 key in PEM")
    return done.stdout
