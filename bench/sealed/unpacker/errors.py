"""What can be wrong with a bundle or a machine. Of its own, not models/errors.py: the unpacker runs where nothing is installed yet."""

from __future__ import annotations


class Refused(Exception):
    """The bundle or the machine is not fit: what came, what was allowed, what to do. One message, exit code 2."""


class BadPart(Exception):
    """A part of an object cannot be read from the medium: missing, cut short, a link, an error of the device."""
