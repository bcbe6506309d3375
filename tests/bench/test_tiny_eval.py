"""The evaluation's parts: what they count, what they print from figures alone, and that a card never tells of other weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.config import EMBEDDED_MODEL
from bench.settings import SETTINGS
from bench.tiny import (
    architecture,
    calibration,
    card,
    endtoend,
    evaluate,
    options,
    parts,
    regression,
    robustness,
    smoke,
    speed,
    targets,
    tokenizer,
)
from bench.tiny.clips import LABELS
from bench.tiny.data import Encoder
from bench.world import lexicon as lx
from bench.world.creatures import make_world
from models.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]
MODEL = ROOT / EMBEDDED_MODEL
QWEN = architecture.FAMILIES["qwen2.5-vl"]


# ---- calibration -----------------------------------------------------------------------------------------------------
def test_reliability_of_known_pairs() -> None:
    found = calibration.reliability([(0.95, True), (0.95, False), (0.25, False), (0.25, False), (1.0, True)])
    assert [(b["low"], b["n"], b["right"]) for b in found["bins"]] == [(0.2, 2, 0), (0.9, 3, 2)]
    # bins: |0 - 0.5| and |2 - 2.9| over 5; squares: 0.0025 + 0.9025 + 2 · 0.0625 + 0 over 5
    assert found["ece"] == pytest.approx((0.5 + 0.9) / 5)
    assert found["brier"] == pytest.approx((0.0025 + 0.9025 + 0.125) / 5)


def test_nothing_to_average_is_no_zero() -> None:
    assert calibration.reliability([]) == {"n": 0, "ece": None, "brier": None, "bins": []}
    assert "–" in calibration.table({"need": {"word": "true", "elsewhere": None, "failed": 3, **calibration.reliability([])}})


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_errors_stay_within_their_bounds(pairs: list[tuple[float, bool]]) -> None:
    found = calibration.reliability(pairs)
    assert 0 <= found["ece"] <= 1 and 0 <= found["brier"] <= 1
    assert sum(b["n"] for b in found["bins"]) == len(pairs)
    sure = calibration.reliability([(float(so), so) for _, so in pairs])
    assert sure["ece"] == sure["brier"] == 0


def test_probabilities_come_from_the_engine() -> None:
    agents = [agent for agent in calibration.AGENTS if agent.name in ("validator", "caption_judge")]
    facts = calibration.measure(MODEL, 12, 5, agents)
    assert list(facts) == ["validator", "caption_judge"]
    for one in facts.values():
        assert one["n"] + one["failed"] == 12 and one["failed"] == 0
        assert one["elsewhere"] < 0.1  # a trained agent says one of its words
    drawn = calibration.diagram(facts)
    assert drawn.startswith("<?xml") and "caption_judge (Yes)" in drawn
    assert drawn == calibration.diagram(facts)


# ---- robustness ------------------------------------------------------------------------------------------------------
class Saying:
    """A speaker whose every reply is made by a function of the reply's number."""

    def __init__(self, say: Any) -> None:
        self.say, self.encoder, self.frames = say, self, set[int]()

    def prompt(self, request: Any, frames: int | None = None) -> list[int]:
        return [frames or 0]

    def reply(self, prompts: Sequence[Sequence[int]], clips: Sequence[Any]) -> list[str]:
        assert [len(clip) for clip in clips] == [prompt[0] for prompt in prompts]
        self.frames |= {len(clip) for clip in clips}
        return [self.say(k) for k in range(len(prompts))]


def test_robustness_counts_motion_and_element_apart() -> None:
    sees = Saying(lambda k: lx.caption(*LABELS[k % len(LABELS)]))
    rows = robustness.measure(sees, 2, 1)["rows"]  # type: ignore[arg-type]
    assert {(row["right"], row["motion"], row["element"]) for row in rows} == {(2, 2, 2)}
    assert sees.frames == {1, 2, 3, 4}
    assert [row["value"] for row in rows if row["what"] == "weather"] == ["mist", "dusk", "thicket"]
    blind = robustness._right(Saying(lambda k: "?"), robustness.USUAL, 3, robustness.Random(1))  # type: ignore[arg-type]
    assert blind == {"right": 0, "motion": 0, "element": 0}
    motion = robustness._right(Saying(lambda k: lx.caption(LABELS[k][0], "fire")), robustness.USUAL, 4, robustness.Random(1))  # type: ignore[arg-type]
    assert motion["motion"] == 4 and motion["element"] == sum(element == "fire" for _, element in LABELS[:4])


@pytest.mark.parametrize("what", sorted(robustness.VARIED))
def test_a_condition_changes_the_picture(what: str) -> None:
    look = make_world(3, 1).creatures[0].look
    usual = robustness.draw_under(robustness.USUAL, look, "charge", "fire", 5)
    for condition in robustness.VARIED[what].values():
        shown = robustness.draw_under(condition, look, "charge", "fire", 5)
        assert shown.shape == (condition.frames, 84, 140, 3)
        same = shown.shape == usual.shape and bool((shown == usual).all())
        assert same == (condition == robustness.USUAL)


# ---- end to end and the expected figures -----------------------------------------------------------------------------
def test_worlds_are_just_large_enough() -> None:
    worlds = endtoend.Worlds.asking(500, (1, 2, 3))
    assert sum(endtoend.default_counts(worlds.creatures)) * 3 >= 500 > sum(endtoend.default_counts(worlds.creatures - 1)) * 3
    for questions, seeds in ((0, (1,)), (5, ()), (5, (1, 1))):
        with pytest.raises(ConfigError):
            endtoend.Worlds.asking(questions, seeds)


def cells(right: int, recall: float | None) -> dict[str, Any]:
    mean = None if recall is None else {"mean": recall, "low": recall - 0.1, "high": recall + 0.1, "n": 40}
    return {"settings": {"perceptive": {"acc": {"right": right, "total": 40}, "pre": None, "rec": mean, "topic": None, "failed": {}}}}


def test_what_leaves_its_interval_is_told() -> None:
    assert regression.outside(cells(34, 0.8), cells(33, 0.85)) == []
    assert regression.outside(cells(34, 0.8), cells(20, 0.8)) == ["perceptive: acc is 0.500, outside of [0.709, 0.929] around 0.850"]
    assert regression.outside(cells(34, 0.8), cells(40, 0.8)), "too good is no longer this checkpoint"
    assert regression.outside(cells(34, 1.0), cells(34, 0.95)) == [], "two of forty"
    assert "rec is 0.850" in regression.outside(cells(34, 1.0), cells(34, 0.85))[0]
    assert "rec is measured no more" in regression.outside(cells(34, 0.8), cells(34, None))[0]
    lost = cells(34, 0.8)
    lost["settings"]["perceptive"]["failed"] = {"summarizer: too-long": 1}
    assert regression.outside(cells(34, 0.8), lost) == ["perceptive: samples failed: {'summarizer: too-long': 1}"]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"weights": "1"}', '{"format": 1, "model": {"family": "x", "weights": ""}, "parts": {"speed": {}}}']
)
def test_a_damaged_file_of_figures_says_how_to_make_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(DataError, match="eval-tiny --expected"):
        regression.read(tmp_path / "f.json")
    with pytest.raises(DataError, match="eval-tiny --all --json"):
        parts.read(tmp_path / "f.json")


def test_the_table_of_settings_says_what_was_missed() -> None:
    facts = {"worlds": [{"seed": 1, "creatures": 3, "questions": 40}], "questions": 40, **cells(31, 0.95)}
    text = endtoend.table(facts)
    assert "| perceptive | 0.775 [0.625, 0.877] | ≥ 0.8, missed |" in text
    assert "≥ 0.9, met" in text and "(≥ 500, missed)" in text
    assert {setting for setting, _ in targets.END_TO_END} == set(SETTINGS)


# ---- speed and smoke -------------------------------------------------------------------------------------------------
def test_speed_is_of_calls_with_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BATCH", 2)
    monkeypatch.setattr(speed, "WARM_UP", 1)
    facts = speed.measure(MODEL, tmp_path, 1, threads=1, batches=2)
    assert facts["batches"] == 2 and facts["slowest"] <= facts["calls_per_s"] <= facts["fastest"]
    assert len(list(tmp_path.glob("*.png"))) == 6 * 3 and "calls a second" in speed.table(facts)


def test_chance_is_beaten_by_a_whole_interval() -> None:
    good, lucky = evaluate.Score(70, 100), evaluate.Score(55, 100)
    scores = dict.fromkeys(smoke.CHANCE, good) | {"caption_judge": lucky, "copy": evaluate.Score(0, 100)}
    assert smoke.beaten(scores) == ["topic", "equal", "say"]
    good_at_no = {**scores, "caption_judge": good, "caption_judge/No": evaluate.Score(65, 65), "caption_judge/Yes": evaluate.Score(5, 35)}
    assert "caption_judge" not in smoke.beaten(good_at_no), "a constant No would get 0.65"


# ---- all parts, and the card -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model, exported and evaluated on a little."""
    folder = tmp_path_factory.mktemp("evaluated")
    words = tokenizer.build(["the", "creature", "names"], lx.FIRST, lx.NEXT)
    model = architecture.build(QWEN, words, 3)
    text = f"# Tiny\n{card.BEGIN.format('')}\nnothing yet\n{card.END.format('')}\ntail\n"
    architecture.export(model, words, QWEN, folder / "model", text)
    options = arguments(folder, "--json", str(folder / "e.json"), "--skills", "--n", "2")
    speaker = evaluate.Speaker(architecture.load(folder / "model"), Encoder(words, QWEN), QWEN)
    parts.run(options, speaker, folder / "model", {"judge": 1.0})
    return folder


def arguments(folder: Path, *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    for name, default in (("n", 2), ("seed", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=folder / "report.txt")
    return parser.parse_args(list(given))


def test_flags_choose_parts() -> None:
    assert arguments(Path()).parts == []
    assert arguments(Path(), "--speed", "--robustness").parts == ["speed", "robustness"]
    assert set(arguments(Path(), "--all").parts) == set(parts.PARTS)


def test_figures_are_kept_and_printed_from_what_is_kept(evaluated: Path) -> None:
    facts = parts.read(evaluated / "e.json")
    assert facts["model"]["parameters"] < 8e6 and facts["parts"].keys() == {"skills"}
    assert facts["parts"]["skills"]["figures"]["scores"]["judge"] == {"right": 0, "total": 2}
    assert parts.shown("skills", facts["parts"]["skills"]) in (evaluated / "report.txt").read_text()


def test_parts_are_kept_only_of_the_same_weights(evaluated: Path, tmp_path: Path) -> None:
    words = tokenizer.with_vocabulary_of((evaluated / "model" / "tokenizer.json").read_text())
    speaker = evaluate.Speaker(architecture.load(evaluated / "model"), Encoder(words, QWEN), QWEN)
    facts = parts.read(evaluated / "e.json")
    facts["parts"]["robustness"] = {"seed": 1, "n": 1, "figures": {"rows": []}}
    (tmp_path / "e.json").write_text(json.dumps(facts))
    options = arguments(tmp_path, "--json", str(tmp_path / "e.json"), "--keep", "--n", "1")
    assert parts.run(options, speaker, evaluated / "model", {"judge": 1.0})["parts"].keys() == {"skills", "robustness"}
    facts["model"]["weights"] = "0" * 64
    (tmp_path / "e.json").write_text(json.dumps(facts))
    assert parts.run(options, speaker, None, {"judge": 1.0})["parts"].keys() == {"skills"}
    again = parts.read(tmp_path / "e.json")["model"]["weights"]
    assert again == regression.weights_digest(evaluated / "model"), "an export in memory is the folder's"


def test_the_card_is_filled_between_its_markers(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs.md"
    docs.write_text(f"before\n{card.BEGIN.format('')}\nold\n{card.END.format('')}\nafter\n")
    facts = parts.read(evaluated / "e.json")
    one = {"word": "true", "elsewhere": 0.0, "failed": 0, **calibration.reliability([(0.9, True), (0.2, False)])}
    calibrated = {**facts, "parts": {**facts["parts"], "calibration": {"seed": 1, "n": 2, "figures": {"need": one}}}}
    drawing = tmp_path / "docs-reliability.svg"
    assert card.fill(calibrated, evaluated / "model", docs) == [evaluated / "model" / "README.md", drawing, docs]
    assert "(docs-reliability.svg)" in docs.read_text() and "need (true)" in drawing.read_text()
    assert card.fill(facts, evaluated / "model", docs) == [evaluated / "model" / "README.md", docs]
    once = (evaluated / "model" / "README.md").read_text()
    assert "nothing yet" not in once and once.startswith("# Tiny\n") and once.endswith("tail\n")
    assert "| judge | 0.000 (0/2;" in once and "≥ 0.95, missed" in once
    assert "Not measured: end-to-end, robustness, calibration, speed." in once
    assert docs.read_text().startswith("before\n") and docs.read_text().endswith("after\n") and "old" not in docs.read_text()
    monkeypatch.chdir(tmp_path)
    assert main(["train-tiny", "--card", str(evaluated / "e.json"), "--out", str(evaluated / "model")]) == 0
    assert (evaluated / "model" / "README.md").read_text() == once


def test_no_card_tells_of_other_weights(evaluated: Path, tmp_path: Path) -> None:
    facts = parts.read(evaluated / "e.json")
    before = (evaluated / "model" / "README.md").read_text()
    other = {**facts, "model": {**facts["model"], "weights": "0" * 64}}
    with pytest.raises(ConfigError, match="of other weights"):
        card.fill(other, evaluated / "model", tmp_path / "none.md")
    with pytest.raises(ConfigError, match="no model folder"):
        card.fill(facts, tmp_path, tmp_path / "none.md")
    unmarked = tmp_path / "docs.md"
    unmarked.write_text(card.BEGIN.format(""))
    with pytest.raises(ConfigError, match="has no lines"):
        card.fill(facts, evaluated / "model", unmarked)
    assert (evaluated / "model" / "README.md").read_text() == before


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--svg draws the calibration"):
        parts.check(arguments(tmp_path, "--svg", str(tmp_path / "x.svg"), "--speed"))
    with pytest.raises(ConfigError, match="at least one sample"):
        parts.check(arguments(tmp_path, "--n", "0"))
    with pytest.raises(ConfigError):
        parts.check(arguments(tmp_path, "--json", str(tmp_path)))
    with pytest.raises(ConfigError, match="no list of whole numbers"):
        parts.worlds_of(arguments(tmp_path, "--worlds", "7,a"))
    assert parts.worlds_of(arguments(tmp_path, "--worlds", "7,9")).seeds == (7, 9)
    assert parts.worlds_of(arguments(tmp_path)).seeds == (5, 6, 7)


def test_the_shipped_card_tells_of_the_shipped_weights() -> None:
    digest = regression.weights_digest(MODEL)
    assert f"sha256 {digest[:16]}…" in (MODEL / "README.md").read_text(), card.COMMANDS
    assert f"sha256 {digest[:16]}…" in (ROOT / "docs" / "tiny.md").read_text(), card.COMMANDS
    assert json.loads((ROOT / "tests" / "bench" / "embedded.json").read_text())["weights"] == digest, regression.COMMAND
