"""The house's rules, checked on the imports themselves: rooms import one way, heavy libraries live in few files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "models": set(),
    "video": set(),
    "kg": {"models", "video"},
    "pipeline": {"models", "video", "kg"},
    "bench": {"models", "video", "kg", "pipeline"},
}
# library → the files that may import it
HOMES = {
    "vllm": {"models/vllm_offline.py"},
    "ray": {"models/ray_fleet.py"},
    "decord": {"video/decord_reader.py"},
    "faiss": {"pipeline/vectors.py"},
    "pymilvus": {"pipeline/milvus_tables.py"},
    "spacy": {"bench/cuem/entities.py"},
    "nudenet": {"pipeline/safety/nudity.py"},
    "sentence_transformers": {"pipeline/encoders.py"},
    "python_calamine": {"kg/sheets.py"},
    "matplotlib": {"bench/figures.py"},
}

# file → why it may set variables of its process itself; the table is models/switches.py, set by models/environment.py's apply()
SETTERS = {
    "models/environment.py": "applies the table",
    "bench/sealed/unpacker/__main__.py": "starts itself once more in UTF-8, before any library of ours is there",
    "models/vllm_offline.py": "its plan's address and cache size: results of this run, no switches",
}


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def test_rooms_import_one_way() -> None:
    wrong = []
    for path in sources():
        room = path.relative_to(ROOT).parts[0]
        for other in imports(path) & set(ROOMS) - {room} - ROOMS[room]:
            wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_heavy_library_lives_in_one_file(library: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if library in imports(path)}
    assert users <= HOMES[library], f"{library} is imported in {sorted(users - HOMES[library])}"


def test_no_pickle_and_no_hub() -> None:
    wrong = [
        str(path.relative_to(ROOT)) for path in sources() if imports(path) & {"pickle", "dill", "joblib", "huggingface_hub", "requests"}
    ]
    assert not wrong


CHANGERS = {"environ.setdefault", "environ.update", "environ.__setitem__", "putenv"}


def sets_environment(tree: ast.AST) -> bool:
    """Whether code changes os.environ: by assignment, by one of its methods, or past it."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and _named(node.func) in CHANGERS:
            return True
        if any(_named(target.value if isinstance(target, ast.Subscript) else target) == "environ" for target in targets):
            return True
    return False


def _named(expression: ast.expr) -> str:
    return ast.unparse(expression).removeprefix("os.")


def test_only_the_table_switches_libraries() -> None:
    found = {str(path.relative_to(ROOT)) for path in sources() if sets_environment(ast.parse(path.read_text(encoding="utf-8")))}
    assert found == set(SETTERS), "call models/environment.py's apply() before the library is imported; its table is models/switches.py"


@pytest.mark.parametrize(
    "code",
    ["os.environ['A'] = 'b'", "environ['A'] = 'b'", "os.environ.setdefault('A', 'b')", "os.environ |= {'A': 'b'}", "os.putenv('A', 'b')"],
)
def test_every_way_to_set_a_variable_is_seen(code: str) -> None:
    assert sets_environment(ast.parse(code)) and not sets_environment(ast.parse("env = os.environ.get('A'); environment = {**os.environ}"))


def test_modules_stay_small_and_say_what_they_are_for() -> None:
    wrong = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > 350:
            wrong.append(f"{path.relative_to(ROOT)} has {len(text.splitlines())} lines")
        if not ast.get_docstring(ast.parse(text)):
            wrong.append(f"{path.relative_to(ROOT)} has no docstring")
    assert not wrong, "\n".join(wrong)


def test_tests_are_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py")), "a tests/kg/__init__.py would shadow kg"


def test_scripts_that_are_run_by_name_may_be_run() -> None:
    """A script without its mode is "Permission denied" in a fresh clone, and a target that forgives failures hides it."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/run"))
    by_name = set(re.findall(r"^\s*[@-]*\s*((?:scripts|\.ci)/[\w./-]+)", text, re.M))
    assert all((ROOT / name).stat().st_mode & 0o111 for name in by_name), by_name
