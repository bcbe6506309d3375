"""The classifier: equal to the published architecture, batched without changing a score, trainable, shippable."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import save_file
from tests_pipeline import Words
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from models.errors import DataError, ModelError
from pipeline.documents import Document, Notes
from pipeline.relevance import evaluate as judging
from pipeline.relevance.classifier import RelevanceClassifier, read_adapter
from pipeline.relevance.cranfield import Judged
from pipeline.relevance.data import Filter, Group, from_log, read_groups, write_groups
from pipeline.relevance.electra import Electra, Sizes, load
from pipeline.relevance.evaluate import Ranking, best_weight, blend, folds
from pipeline.relevance.folds import cross_validate
from pipeline.relevance.metrics import MRR, NDCG, mean
from pipeline.relevance.store import card_of, export_merged, save_adapter
from pipeline.relevance.train import Recipe, mrr, train

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghijklmnop"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in ELECTRA's layout with random weights, embedding size unlike hidden size, made by transformers itself."""
    from transformers import ElectraConfig, ElectraForSequenceClassification

    folder = tmp_path_factory.mktemp("electra")
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=len(WORDS), embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    network = ElectraForSequenceClassification(config)
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def pairs(count: int = 30) -> list[tuple[str, str]]:
    rng = Random(0)
    return [
        (" ".join(rng.choices(WORDS[4:], k=rng.randint(1, 5))), " ".join(rng.choices(WORDS[4:], k=rng.randint(0, 40))))
        for _ in range(count)
    ]


def test_it_is_the_published_architecture(base: Path) -> None:
    from transformers import ElectraForSequenceClassification

    theirs = ElectraForSequenceClassification.from_pretrained(base).eval()
    ours = RelevanceClassifier(base, dtype="float32", max_tokens=64)
    for query, passage in pairs(6):
        encoded = ours.tokenizer.tokenizer.encode(query, passage)
        assert ours.tokenizer.encode([(query, passage)]) == [(encoded.ids, encoded.type_ids.index(1))]
        with torch.no_grad():
            due = theirs(input_ids=torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids])).logits[0, 0]
        assert ours.logits([(query, passage)])[0] == pytest.approx(float(due), abs=1e-5)


def test_batches_change_no_score(base: Path) -> None:
    torch.set_num_threads(1)
    alone = RelevanceClassifier(base, dtype="float32", budget=1)
    together = RelevanceClassifier(base, dtype="float32", budget=500)
    assert together.logits(pairs(12)).tolist() == pytest.approx(alone.logits(pairs(12)).tolist(), abs=1e-5)
    assert together.scores([]) == [] and len(together.rank("a", ["a", "b", "c"])) == 3
    assert together.max_tokens == 64  # the network's own limit
    assert all(0 <= score <= 1 for score in together.scores([("", ""), ("a " * 20_000, "b " * 20_000)]))


def test_bf16_ranks_alike(base: Path) -> None:
    exact = RelevanceClassifier(base, dtype="float32").logits(pairs())
    rough = RelevanceClassifier(base, dtype="bfloat16").logits(pairs())
    assert float((exact - rough).abs().max()) < 0.05 * float(exact.std()) + 0.02


def groups(count: int) -> list[Group]:
    """A passage is relevant when it holds the query's letter."""
    rng, out = Random(1), []
    for _ in range(count):
        letter, *others = rng.sample(WORDS[4:], 6)
        out.append(Group(letter, (f"{others[0]} {letter}",), tuple(f"{a} {b}" for a, b in pairwise(others))))
    return out


def test_training_learns_exports_and_loads(base: Path, tmp_path: Path) -> None:
    recipe = Recipe(rank=8, rate=3e-3, warmup=5, steps=150, every=50, groups=8, dropout=0.0, max_tokens=32)
    tools = RelevanceClassifier(base, max_tokens=32, dtype="float32")
    evaluate = mrr(groups(40)[20:], tools)
    before = evaluate(tools.network)
    trained = train(groups(200), recipe, base, evaluate=evaluate)
    assert trained.score > max(0.8, before + 0.2)
    size = save_adapter(tmp_path / "a.safetensors", trained.adapter, card_of(trained, recipe, "", {"x": "y"}, {}))
    assert size == (tmp_path / "a.safetensors").stat().st_size
    (tmp_path / "card").write_text(json.dumps(read_adapter(tmp_path / "a.safetensors")[1]))
    adapter, card = read_adapter(tmp_path / "a.safetensors")
    card["base_digest"] = None
    save_adapter(tmp_path / "a.safetensors", adapter, card)
    merged = RelevanceClassifier(base, tmp_path / "a.safetensors", dtype="float32", max_tokens=32)
    assert evaluate(merged.network) == pytest.approx(trained.score, abs=0.05)
    export_merged(tmp_path / "out", merged)
    again = RelevanceClassifier(tmp_path / "out", dtype="float32", max_tokens=32)
    assert again.logits(pairs()).tolist() == pytest.approx(merged.logits(pairs()).tolist(), abs=1e-4)


def test_training_is_seeded(base: Path) -> None:
    recipe = Recipe(rank=2, steps=3, every=3, max_tokens=16)
    one, two = (train(groups(20), recipe, base).adapter for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_adapter_of_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    trained = train(groups(10), Recipe(rank=2, steps=1, every=1, max_tokens=16), base)
    save_adapter(tmp_path / "a", trained.adapter, {"base_digest": "f" * 64})
    with pytest.raises(ModelError, match="ffffffffffff"):
        RelevanceClassifier(base, tmp_path / "a")
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:50])
    with pytest.raises(ModelError, match="no adapter"):
        RelevanceClassifier(base, tmp_path / "b")
    with pytest.raises(DataError, match="3000000"):
        save_adapter(tmp_path / "c", {"x": torch.zeros(1_000_000)}, {})


def test_the_embedded_sizes_give_a_small_adapter() -> None:
    sizes = Sizes(30522, 384, 384, 6, 12, 1536, 512, 2, 1e-12)
    rank = Recipe().rank
    count = 6 * (4 * 2 * 384 + 2 * (384 + 1536)) * rank + 384 * 384 + 384 + 385
    assert 2 * count < 3_000_000 and sizes.hidden_size == 384


@pytest.mark.parametrize("change", [{"model_type": "gpt2"}, {"hidden_act": "relu"}, {"hidden_size": None}])
def test_a_folder_of_another_kind(base: Path, tmp_path: Path, change: dict[str, object]) -> None:
    config = json.loads((base / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    with pytest.raises(ModelError):
        load(tmp_path)


def test_bert_weights_load_by_name(base: Path, tmp_path: Path) -> None:
    sizes = Sizes(len(WORDS), 32, 32, 1, 2, 40, 16, 2, 1e-12)
    network = Electra(sizes)
    tensors = {k.removeprefix("electra."): v for k, v in network.state_dict().items() if k.startswith("electra.")}
    save_file({**tensors, "pooler.dense.weight": torch.zeros(32, 32)}, tmp_path / "model.safetensors")
    fields = {name: getattr(sizes, name) for name in Sizes.__dataclass_fields__ if name != "embedding_size"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu", **fields}))
    assert torch.equal(
        load(tmp_path).state_dict()["electra.embeddings.word_embeddings.weight"], tensors["embeddings.word_embeddings.weight"]
    )
    del tensors["embeddings.word_embeddings.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"lacks electra\.embeddings"):
        load(tmp_path)


def test_measures() -> None:
    gains = {"a": 4.0, "b": 1.0}
    assert NDCG(10)(["a", "b"], gains) == pytest.approx(1.0) and NDCG(10)(["x"], {}) is None and str(NDCG(10)) == "nDCG@10"
    assert MRR()(["x", "b"], gains) == 0.5 and MRR()([], gains) == 0.0 and mean([None]) is None


def test_blending_keeps_the_first_ranking_at_weight_0() -> None:
    ranking = Ranking(("a", "b", "c"), ("", "", ""), (3.0, 2.0, 1.0))
    assert blend(ranking, [0.0, 5.0, 9.0], 0.0) == ["a", "b", "c"] and blend(ranking, [0.0, 5.0, 9.0], 1.0) == ["c", "b", "a"]
    assert best_weight([ranking], [[0.0, 5.0, 9.0]], [{"a": 1.0}]) == 0.0
    assert best_weight([ranking], [[0.0, 5.0, 9.0]], [{"c": 1.0}]) > 0.0
    assert blend(Ranking((), (), ()), [], 0.5) == []
    parts = folds(11, 5, 0)
    assert sorted(i for part in parts for i in part) == list(range(11))


def test_groups_survive_a_file_and_faults_are_named(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    write_groups(groups(3), path)
    assert read_groups(path) == groups(3)
    for row in ({"query": "q"}, {"query": "", "positive": ["x"]}, {"query": "q", "positive": ["x"], "gains": [1, 2]}, []):
        path.write_text(json.dumps(row))
        with pytest.raises(DataError, match=r"groups\.jsonl:1"):
            read_groups(path)


def test_a_log_is_filtered_as_in_the_paper() -> None:
    sure = {"good": 0.95, "weak": 0.5, "n1": 0.1, "n2": 0.29, "n3": 0.3, "n4": 0.0, "n5": 0.0, "n6": 0.0}
    notes = Notes()
    log = [("q1", "good"), ("q2", "weak"), ("q3", "good")]
    hard = {"q1": ["n1", "n2", "n3", "good", "n4", "n5", "n6"], "q2": ["n1"], "q3": ["n3"]}
    made = list(from_log(log, hard.__getitem__, lambda ps: [sure[p] for _, p in ps], Filter(), notes))
    assert made == [Group("q1", ("good",), ("n1", "n2", "n4", "n5"))]
    assert dict(notes.counts) == {"snippets below the positive threshold": 1, "queries without a sure negative": 1}


def test_a_whole_cross_validation(base: Path, tmp_path: Path, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.relevance.folds.text_encoder", lambda: words)
    topics = [
        "wings stall at angles",
        "heat flows through plates",
        "shock waves of bodies",
        "layers with suction",
        "panels that flutter fast",
    ]
    documents = tuple(
        Document(f"{t}{i}", f"about {text} number {i}", " . ".join(f"{text} is told in part {j} of paper {i} once more" for j in range(5)))
        for t, text in enumerate(topics)
        for i in range(3)
    )
    judged = Judged(documents, tuple(topics), tuple({f"{t}0": 4.0, f"{t}1": 1.0} for t in range(5)))
    rankings = judging.first_stage(judged, words, depth=6, folder=tmp_path / "kept")
    told: list[str] = []
    recipe = Recipe(rank=2, steps=1, every=1, groups=2, negatives=2, hard=2.0, prior=2.0, max_tokens=32)
    made = cross_validate(judged, rankings, recipe, 5, 6, base, tmp_path / "kept", told.append)
    assert {f"nDCG@10 {name} re-ranked" for name in ("bm25", "dense", "fused")} <= made.keys()
    assert all(len(weights) == 5 for weights in made["weights"].values())  # type: ignore[attr-defined]
    assert 0 < float(str(made["nDCG@10 fused of these"])) <= 1 and any("groups without judged queries" in line for line in told)
