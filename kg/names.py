"""Names that look alike: what a person may have meant, and what the linter calls homonyms.

Try: python -c "from kg.names import fold; print(fold('Charging  phase') == fold('Charging Phase'))"
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def fold(name: str) -> str:
    """Equal for names that differ only in case, spaces or Unicode form."""
    return "".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


def near(name: str, names: Iterable[str]) -> str:
    """`` (did you mean 'X'?)`` for a name that differs only in case, spaces or Unicode form; "" for none."""
    wanted = fold(name)
    found = next((n for n in names if fold(n) == wanted), None)
    return "" if found is None else f" (did you mean {found!r}?)"
