"""Names that look alike: what a person may have meant, and what the linter calls homonyms.

Try: python -c "from kg.names import fold; print(fold('Charging  phase') == fold('Charging Phase'))"
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_UNSEEN = frozenset({"Cf", "Cc"})


def fold(name: str) -> str:
    """Equal for names that differ only in case, spaces, Unicode form or characters that are not seen."""
    return "".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible(name)).casefold()).split())


def visible(name: str) -> str:
    """The name without characters that show nothing of their own: zero-width ones, marks of direction, soft hyphens, controls."""
    return "".join(c for c in name if c.isspace() or unicodedata.category(c) not in _UNSEEN) if unseen(name) else name


def unseen(name: str) -> bool:
    """Whether the name holds characters that show nothing of their own, line breaks and tabs among them."""
    return not name.isprintable() and any(unicodedata.category(c) in _UNSEEN for c in name)


def near(name: str, names: Iterable[str]) -> str:
    """`` (did you mean 'X'?)`` for a name that differs only in case, spaces or Unicode form; "" for none."""
    wanted = fold(name)
    found = next((n for n in names if fold(n) == wanted), None)
    return "" if found is None else f" (did you mean {found!r}?)"
