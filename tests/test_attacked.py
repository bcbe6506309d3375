"""Faults that an attacker found, each as a test of its kind: exit code 2 and one message, or a finding, and nothing spoiled."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import bench.__main__
import kg.__main__
from kg.check import check
from models.checkpoint import inspect
from models.errors import ModelError

ROOT = Path(__file__).parents[1]
TINY = ROOT / "models" / "tiny-qwen2.5-vl"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    folder = tmp_path / "trees"
    folder.mkdir()
    (folder / "dataset.toml").write_text(
        'name = "Trees"\npersona = "You know trees."\nroot_kind = "tree"\ntasks = ["One"]\n[kinds]\ntree = "a tree"\nevent = "an event"\n'
    )
    (folder / "entities.csv").write_text("name,kind,owner\nOak,tree,\nBud Break,event,Oak\n")
    (folder / "relations.csv").write_text("source,relation,target\nOak,goes through,Bud Break\n")
    (folder / "questions.csv").write_text("id,text,root,answer,routes,task\nq1,What is with{}?,Oak,Bud Break,Oak>Bud Break,0\n")
    return folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = bench.__main__.main(arguments)
    text = capsys.readouterr().err
    assert code == 2 and text.startswith("error: ") and "Traceback" not in text, text
    return text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--k", "0"], "k"),
        (["--k", "-1"], "k"),
        (["--temperature", "inf"], "temperature"),
        (["--tasks", "²"], "no sub-task"),
        (["--endpoint", "http://[::1/v1", "--model", "m"], "not the address"),
    ],
)
def test_options(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    base = ["run", "--data", str(trees), "--runs", str(tmp_path / "runs"), "--settings", "knowledgeable", "--prompts", "compact"]
    if "--model" not in options:
        base += ["--model", str(TINY)]
    assert words in refused(capsys, *base, *options)


@pytest.mark.parametrize("files", [(), ("anwser.yaml",)])
def test_a_prompt_folder_with_nothing_known_in_it(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], files: tuple[str, ...]
) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("reply: text\nbody: hello\n")
    said = refused(capsys, "run", "--data", str(trees), "--settings", "knowledgeable", "--model", str(TINY), "--prompts", str(folder))
    assert "anwser" in said if files else "no prompt file" in said


def test_a_weight_under_another_name_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    weights = load_file(folder / "model.safetensors")
    name = "model.language_model.embed_tokens.weight"
    name = name if name in weights else next(key for key in weights if "embed_tokens" in key)
    weights[name + "x"] = weights.pop(name)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    from models.hf_engine import TransformersEngine

    assert inspect(folder)
    with pytest.raises(ModelError, match="lack"):
        TransformersEngine(folder, device="cpu")


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"architectures": ["X"]}'])
def test_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert "no run stands here" in refused(capsys, "report", str(tmp_path))
    assert "no run stands here" in refused(capsys, "score", str(tmp_path), "--judge", "exact")


def test_an_unknown_judge_leaves_the_report_alone(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--data", str(trees), "--runs", str(tmp_path / "runs"), "--settings", "knowledgeable", "--prompts", "compact"]
    assert bench.__main__.main(["run", *base, "--model", str(TINY), "--judge", "exact"]) == 0
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    before = (run / "report.md").read_text()
    capsys.readouterr()
    assert "no judge 'zzzz'" in refused(capsys, "report", str(run), "--judge", "zzzz")
    assert (run / "report.md").read_text() == before
    assert "--seed" in refused(capsys, "compare", str(run), str(run), "--seed", "-1")


def test_numbers_of_thousands_of_digits_and_deep_nesting_are_findings(trees: Path) -> None:
    (trees / "entities.csv").unlink()
    lines = [json.dumps({"name": "Oak", "kind": "tree"}), '{"name": ' + "9" * 5000 + ', "kind": "tree"}', "[" * 100_000]
    (trees / "entities.jsonl").write_text("\n".join(lines) + "\n")
    assert [f.code for f in check(trees).findings].count("not-json") == 2


def test_kg_refuses_what_video_refuses(trees: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trees / "a.png").write_bytes((ROOT / "README.md").read_bytes())
    (trees / "entities.csv").write_text("name,kind,owner,images\nOak,tree,,a.png\n")
    (trees / "relations.csv").write_text("source,relation,target\n")
    (trees / "questions.csv").unlink()
    code = kg.__main__.main(["caption", str(trees), "--model", str(TINY), "--frames", "0"])
    said = capsys.readouterr().err
    assert code == 2 and "frames is 0" in said


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "3\n"])
def test_a_prompt_file_that_is_no_mapping_says_so(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "judge.yaml").write_text(text)
    said = refused(capsys, "run", "--data", str(trees), "--settings", "knowledgeable", "--model", str(TINY), "--prompts", str(tmp_path))
    assert "judge.yaml" in said and "mapping" in said


def test_a_wrong_key_is_named(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "judge.yaml").write_text("reply: verdict\nbody: hello\nsurprise: 1\n")
    assert "surprise" in refused(
        capsys, "run", "--data", str(trees), "--settings", "knowledgeable", "--model", str(TINY), "--prompts", str(tmp_path)
    )


def test_captions_that_are_not_there_are_told_whoever_needs_them(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["run", "--data", str(trees), "--runs", str(tmp_path / "runs"), "--settings", "knowledgeable", "--model", str(TINY)]
    said = refused(capsys, *base, "--captions", str(tmp_path / "nope"))
    assert "nope: cannot be read" in said and said.count("\n") == 1 and not (tmp_path / "runs").exists()
