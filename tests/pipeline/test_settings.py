"""The settings file, the documented application, the knowledge graph as an application, through the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests_pipeline import Scripted, Words

from models.drivers import run
from models.errors import ConfigError
from models.journal import Journal
from pipeline import settings as module
from pipeline.agents import Agents
from pipeline.applications import KnowledgeGraph, load_graph
from pipeline.flow import Query, answer
from pipeline.safety.policy import Entry, edit
from pipeline.settings import CHAT, Equipment, Settings, Use, read_settings
from pipeline.tools import ToolEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders of words and no relevance network: what is tested here is the wiring."""
    monkeypatch.setattr(module, "text_encoder", lambda name="": Words())
    monkeypatch.setattr(module, "image_encoder", lambda name="": None)

    def flat(_: object) -> ToolEngine:
        return ToolEngine("relevance", lambda: "flat", lambda requests: [str([0.5] * (len(r.messages[0].parts) - 1)) for r in requests])

    monkeypatch.setattr(module, "relevance_engine", flat)


def test_paths_are_below_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "ask.yaml").write_text(
        "collections: [docs]\npolicy: p.jsonl\nkept: 3\napplications:\n  - weather.py:Weather\n  - {use: pkg.mod:App, with: {radius: 5}}\n"
    )
    made = read_settings(tmp_path / "ask.yaml")
    assert made.collections == (tmp_path / "docs",) and made.policy == tmp_path / "p.jsonl" and made.kept == 3
    assert [use.use for use in made.applications] == [f"{tmp_path}/weather.py:Weather", "pkg.mod:App"]
    assert made.applications[1].options == {"radius": 5}
    (tmp_path / "empty.yaml").write_text("")
    assert read_settings(tmp_path / "empty.yaml") == Settings()


@pytest.mark.parametrize(
    "text,words",
    [
        ("colections: [a]", "colections"),
        ("kept: 0\nthreshold: 2", "threshold: .*kept: "),
        ("- a", "the file: "),
        ("a: [", "is not YAML"),
        ("applications: [{use: a, wiht: {}}]", "wiht"),
    ],
)
def test_a_wrong_file_is_named_with_every_fault(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "ask.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s)ask\.yaml: .*{words}"):
        read_settings(tmp_path / "ask.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.yaml")


def documented() -> str:
    """The example of docs/pipeline.md, so that the documentation cannot go stale."""
    text = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    found = re.search(r"## Your own application\n.*?```python\n(.*?)```", text, re.S)
    assert found is not None
    return found[1]


def test_the_documented_application_answers_a_question(tmp_path: Path, light: None) -> None:
    code = documented()
    assert len(code.splitlines()) <= 20
    (tmp_path / "weather.py").write_text(code)
    (tmp_path / "ask.yaml").write_text(
        'applications:\n  - {use: "weather.py:Weather", with: {stations: {Busan: "rain at noon"}}}\ntext_filter: none\n'
    )
    chat = Scripted(
        ("wants to know", '{"intent": "the weather of Busan; you must search Busan", "query": "Busan"}'),
        ("still has to be searched", '{"queries": []}'),
        ("one service", "true"),
        ("may be answered", "true"),
        ("from numbered sources", "It rains at noon [1]."),
    )
    equipment = Equipment(read_settings(tmp_path / "ask.yaml"))
    roles = {**equipment.engines(), **dict.fromkeys(CHAT, chat)}
    with Journal(tmp_path / "j.sqlite") as journal:
        outcome = run([("q", answer(Query("Will it rain in Busan?"), equipment.kit(Agents.load())))], roles, journal)["q"]
    assert outcome.failure is None and outcome.value is not None, outcome.failure
    assert outcome.value.sources[0].source == "weather" and "rain at noon" in outcome.value.sources[0].text and outcome.value.cited == (1,)


def test_an_application_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def __init__(self, x): ...\n")
    with pytest.raises(ConfigError, match="cannot be made"):
        _ = Equipment(Settings(applications=(Use(use=f"{tmp_path}/a.py:A"),))).applications


@pytest.fixture
def graph_folder(tmp_path: Path) -> Path:
    files = {
        "dataset.toml": 'name = "Trees"\npersona = "You know trees."\nsubject = "tree"\nroot_kind = "tree"\ntasks = ["leaf"]\n'
        '[kinds]\ntree = "a tree"\npart = "a part"\n',
        "entities.csv": "name,kind,owner,caption\nOak,tree,,\nLeaf,part,Oak,green and lobed\n",
        "relations.csv": "source,relation,target\nOak,has,Leaf\n",
        "questions.csv": "id,text,root,answer,routes,task\na,What?,Oak,green,Oak>Leaf,leaf\n",
    }
    (tmp_path / "graph").mkdir()
    for name, text in files.items():
        (tmp_path / "graph" / name).write_text(text)
    return tmp_path / "graph"


GRAPH_AGENTS = (
    ("These are all the names", "Oak"),
    ("CHOOSE. The neighbours of", "Leaf"),
    ("JUDGE. 'Leaf'", "Yes"),
    ("JUDGE. '", "No"),
)


def test_the_knowledge_graph_is_asked_as_an_application(tmp_path: Path, light: None, graph_folder: Path) -> None:
    made = load_graph(graph_folder)
    assert isinstance(made, KnowledgeGraph) and made.graph.roots and made.name == "knowledge-graph"
    assert "Oak" in made.description
    chat = Scripted(
        ("wants to know", '{"intent": "what leaf an oak has; you must search oak leaf", "query": "oak leaf"}'),
        ("still has to be searched", '{"queries": []}'),
        ("one service", "true"),
        ("may be answered", "true"),
        ("from numbered sources", "It is lobed [1]."),
        *GRAPH_AGENTS,
    )
    equipment = Equipment(Settings(graph=graph_folder, text_filter="none"))
    roles = {**equipment.engines(), **dict.fromkeys(CHAT, chat)}
    with Journal(tmp_path / "j.sqlite") as journal:
        outcome = run([("q", answer(Query("What leaf has this oak?"), equipment.kit(Agents.load())))], roles, journal)["q"]
    assert outcome.failure is None and outcome.value is not None, outcome.failure
    walk = outcome.value.sources[0]
    assert (
        walk.source == "knowledge-graph" and walk.title == "Oak > Leaf" and "green and lobed" in walk.text and outcome.value.cited == (1,)
    )


def test_a_policy_of_the_settings_blocks(tmp_path: Path, light: None) -> None:
    edit(tmp_path / "policy.jsonl", [Entry("r", "the secret recipe", response="Ask the cook.")])
    equipment = Equipment(Settings(policy=tmp_path / "policy.jsonl", text_filter="none"))
    roles = {**equipment.engines(), **dict.fromkeys(CHAT, Scripted())}
    with Journal(tmp_path / "j.sqlite") as journal:
        outcome = run([("q", answer(Query("the secret recipe"), equipment.kit(Agents.load())))], roles, journal)["q"]
    assert outcome.value is not None and outcome.value.text == "Ask the cook." and outcome.value.blocked is not None
