"""Every error that this project raises on purpose.

StackError
├── UserError        a mistake that the reader can mend: one message, no traceback, exit code 2
│   ├── DataError      a data set, a sheet, a clip
│   ├── ConfigError    an option, a setting, a config file, a prompt file
│   ├── ModelError     a model folder or an endpoint that cannot be used
│   └── RunError       a run folder: taken, read-only, full, of another configuration
└── CallFailed       one model call could not be completed: its sample is lost, counted, and the run goes on
"""

from __future__ import annotations


class StackError(Exception):
    """Base of every deliberate error."""


class UserError(StackError):
    """What came, what was allowed, what to do: printed without a traceback, exit code 2."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__("".join([f"{where}: " if where else "", what, f" — {remedy}" if remedy else ""]))


class DataError(UserError):
    """A data set cannot be used as it is."""


class ConfigError(UserError):
    """An option, setting, config or prompt file is wrong."""


class ModelError(UserError):
    """A model folder or an endpoint cannot be used."""


class RunError(UserError):
    """A run folder cannot be used."""


class CallFailed(StackError):
    """One call could not be completed.

    Args:
        reason: a short, countable kind (``timeout``, ``bad-image``, ``http-500``, ``repetition`` …).
        detail: the message of whoever refused it, for the report.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)
