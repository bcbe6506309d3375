"""Ed25519 in plain integers against RFC 8032's own vectors and against openssl; and what keys may and may not do."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.sealed.pack import Contents, write
from bench.sealed.sign import public_of, sign
from bench.sealed.unpacker.ed25519 import signature_fits
from models.errors import ConfigError

# RFC 8032, section 7.1, tests 1 to 3: public key, message, signature
VECTORS = (
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.mark.parametrize(("public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc(public: str, message: str, signature: str) -> None:
    key, said, mark = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
    assert signature_fits(key, said, mark)
    draw = random.Random(public)
    for _ in range(12):
        at, bit = draw.randrange(64), 1 << draw.randrange(8)
        assert not signature_fits(key, said, mark[:at] + bytes([mark[at] ^ bit]) + mark[at + 1 :])
    assert not signature_fits(key, said + b"x", mark)
    order = 2**252 + 27742317777372353535851937790883648493
    other = (int.from_bytes(mark[32:], "little") + order).to_bytes(32, "little")
    assert not signature_fits(key, said, mark[:32] + other), "a second form of the same signature must not pass"
    assert not signature_fits(key[:31], said, mark) and not signature_fits(key, said, mark[:63])


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private)], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)], check=True, capture_output=True)
    return private, public


@needs_openssl
def test_what_openssl_signs_we_check(keys: tuple[Path, Path]) -> None:
    for message in (b"x", b"x" * 100_000):
        assert signature_fits(public_of(keys[0]), message, sign(keys[0], message))


@needs_openssl
def test_a_signed_bundle_and_its_keys(keys: tuple[Path, Path], contents: Contents, unbundle: Any, tmp_path: Path) -> None:
    out = tmp_path / "signed"
    written = write(contents, out, 700_000, keys[0])
    for key in (str(keys[1]), written.public):
        assert unbundle(out, "--verify", "--key", key, check=True).stdout.strip().endswith("as you asked")
    assert "NOT compared with a key of yours" in unbundle(out, "--verify", check=True).stdout
    other = unbundle(out, "--verify", "--key", VECTORS[0][0])
    assert other.returncode == 2 and written.public in other.stderr and VECTORS[0][0] in other.stderr
    (out / "manifest.sig").write_bytes((out / "manifest.sig").read_bytes()[:-3] + b"0\n")
    assert "manifest.sig is missing, damaged" in unbundle(out, "--verify").stderr
    (out / "manifest.sig").unlink()
    assert unbundle(out, "--to", "there").returncode == 2 and not (tmp_path / "there").exists()


@needs_openssl
def test_a_tampered_manifest_with_a_fresh_digest_fails_the_signature(
    keys: tuple[Path, Path], contents: Contents, unbundle: Any, tmp_path: Path
) -> None:
    import hashlib

    out = tmp_path / "signed"
    write(contents, out, 700_000, keys[0])
    raw = (out / "manifest.json").read_bytes().replace(b"answers questions", b"answers anything!")
    (out / "manifest.json").write_bytes(raw)
    (out / "manifest.sha256").write_text(hashlib.sha256(raw).hexdigest() + "  manifest.json\n")
    assert "no signature of this manifest" in unbundle(out, "--verify").stderr
    unsigned = raw.replace(public_of(keys[0]).hex().encode(), b"")
    (out / "manifest.json").write_bytes(unsigned)
    (out / "manifest.sha256").write_text(hashlib.sha256(unsigned).hexdigest() + "  manifest.json\n")
    assert "not signed, and a key was asked for" in unbundle(out, "--verify", "--key", str(keys[1])).stderr


@pytest.mark.parametrize("key", ["absent.pem", "README.txt", "ab" * 31, "a" * 5000, "/dev/zero", "."])
def test_a_key_that_is_none(bundle: Path, unbundle: Any, key: str) -> None:
    (bundle.parent / "README.txt").write_text("no key")
    done = unbundle(bundle, "--verify", "--key", key)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and len(done.stderr) < 300


@needs_openssl
def test_only_an_ed25519_key_signs_and_it_is_told_before_anything_is_written(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no key")
    subprocess.run(["openssl", "genrsa", "-out", str(tmp_path / "rsa.pem"), "1024"], check=True, capture_output=True)
    for name in ("bad.pem", "rsa.pem", "absent.pem"):
        with pytest.raises(ConfigError, match="Ed25519"):
            write(contents, tmp_path / "out", 700_000, tmp_path / name)
    assert not (tmp_path / "out").exists()
