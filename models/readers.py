"""A reader of standard output that has left (`… | head`), told apart from other pipes that break. For the rooms' command lines.

Try: python -m models list | head -1
"""

from __future__ import annotations

import os
import select
import sys


def nobody_reads() -> bool:
    """Whether it is standard output that broke; what is left in it then goes nowhere, so that leaving says nothing either."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # no file of the system
        return False
    broken = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return broken
