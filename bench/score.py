"""Judge what a run predicted: accuracy by a judge model (Table 14) or by exact words, caption similarity (Table 15).

Never predicts. A score carries the digest of the answer that it judged, so that a new judge, or a changed answer, is judged anew and
nothing else is. A reply that is empty, cut, failed or no verdict is unscored with a reason, never a No.
Try: python -m bench score RUN --judge exact
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from bench.folder import RunFolder, slug
from bench.metrics import exact
from bench.records import Record, Score, digest
from kg.agents import Agents
from kg.graph import Graph
from kg.replies import Verdict
from models.agents import Call, Episode, ask
from models.drivers import Outcome, run
from models.engines import Engine
from models.journal import Journal
from models.progress import progress


class Asking(Protocol):
    """Whoever words a judge's calls; kg's agents do."""

    def judge_answer(self, question: str, gold: str, predicted: str) -> Call[Verdict]: ...
    def judge_caption(self, gold: str, generated: str) -> Call[Verdict]: ...


def same_words(record: Record) -> bool:
    """The rule of the exact judge of the knowledge-graph benchmark."""
    return exact(record.gold_answer, record.answer, record.root)


def unsettled(record: Record) -> bool | None:
    """No verdict stands before the judge is asked."""
    return None


@dataclass(frozen=True)
class Judge:
    """Who judges.

    Attributes:
        label: for people. digest: of the model and its prompts; names the score file. itself: whether it is the judged model.
        engine, agents: None for `exact`; the engine is opened when something is left to judge.
        exactly: the verdict of `exact`. settled: a verdict that needs no judge (an exact match, a refusal), else None.
    """

    label: str
    digest: str
    itself: bool = False
    engine: Callable[[], Engine] | None = None
    agents: Asking | None = None
    similarity: bool = True
    exactly: Callable[[Record], bool] = same_words
    settled: Callable[[Record], bool | None] = unsettled

    @property
    def hash8(self) -> str:
        return self.digest[:8]

    def described(self) -> dict[str, Any]:
        return {"label": self.label, "digest": self.digest, "itself": self.itself, "exact": self.engine is None}


def exact_judge() -> Judge:
    """The same words, after case, outer punctuation, list order and the root's name in front are taken away."""
    return Judge("exact", digest("exact 1"))


def model_judge(engine: Callable[[], Engine], identity: str, agents: Agents, *, label: str, itself: bool, similarity: bool = True) -> Judge:
    """A model as judge, with the prompts `judge` and `caption_judge` of a set."""
    prompts = [agents.rows[name].prompt.model_dump_json() for name in ("judge", "caption_judge")]
    return Judge(label, digest("\n".join([identity, str(similarity), *prompts])), itself, engine, agents, similarity)


def judge_run(folder: RunFolder, records: Mapping[str, Record], judge: Judge, graph: Graph | None, journal: Journal) -> dict[str, Score]:
    """Judges what this judge has not judged yet, writes the judge's score file, and returns all its scores."""
    known = _still_valid(folder, records, judge)
    todo = [record for key, record in records.items() if key not in known]
    made = known | (_exactly(todo, judge) if judge.engine is None else _by_model(todo, judge, graph, journal))
    scores = {key: made[key] for key in records if key in made}
    if todo or folder.scores(judge.hash8) is None:
        body = {
            "judge": judge.described(),
            "made": datetime.now(UTC).isoformat(),
            "scores": [asdict(score) for score in scores.values()],
        }
        folder.write(f"scores/{slug(judge.label)}_{judge.hash8}.json", json.dumps(body, indent=0))
    return scores


def _still_valid(folder: RunFolder, records: Mapping[str, Record], judge: Judge) -> dict[str, Score]:
    before = folder.scores(judge.hash8)
    if before is None:
        return {}
    return {k: s for k, s in before["scores"].items() if k in records and s.answer_digest == records[k].answer_digest}


def _exactly(records: Sequence[Record], judge: Judge) -> dict[str, Score]:
    return {r.key: _unasked(r, judge) or Score(r.key, r.answer_digest, judge.exactly(r)) for r in records}


def _unasked(record: Record, judge: Judge) -> Score | None:
    """The score of a record for which no judge needs to be asked."""
    if not record.ok:
        return Score(record.key, record.answer_digest, None, f"no answer: {record.stage} {record.reason}".strip())
    settled = judge.settled(record)
    if settled is not None:
        return Score(record.key, record.answer_digest, settled)
    if not record.answer.strip():
        return Score(record.key, record.answer_digest, False, "the answer is empty")
    return None


def _by_model(records: Sequence[Record], judge: Judge, graph: Graph | None, journal: Journal) -> dict[str, Score]:
    assert judge.engine is not None
    scores: dict[str, Score] = {}
    asked: dict[str, Record] = {}
    for record in records:
        score = _unasked(record, judge)
        if score is not None:
            scores[record.key] = score
        else:
            asked[record.key] = record
    captions = {record.key: _human_captions(record, graph, judge) for record in asked.values()}
    verdicts: dict[tuple[str, int | None], tuple[bool | None, str]] = {}
    names: dict[str, tuple[str, int | None]] = {}

    def episodes() -> Iterator[tuple[str, Episode[tuple[bool | None, str]]]]:
        """One episode a verdict: they do not wait for one another, and a failed one loses nothing but itself."""
        assert judge.agents is not None
        for key, record in asked.items():
            names[name := f"judge|{judge.hash8}|{key}"] = (key, None)
            yield name, verdict(judge.agents.judge_answer(record.question, record.gold_answer, record.answer))
            for index, text in captions[key].items():
                names[name := f"judge|{judge.hash8}|{key}|{index}"] = (key, index)
                yield name, verdict(judge.agents.judge_caption(text, record.captions[index]))

    def done(name: str, outcome: Outcome[tuple[bool | None, str]]) -> None:
        failure = outcome.failure
        lost = None, f"judge's reply failed ({failure.reason})" if failure else "judge's reply is missing"
        verdicts[names[name]] = outcome.value if outcome.value is not None else lost

    engines = {"judge": judge.engine()} if asked else {}
    with progress(f"judge ({judge.label})", len(asked) + sum(map(len, captions.values()))) as tell:
        run(episodes(), engines, journal, on_done=done, progress=lambda p: tell(p.done, f"{p.calls} calls"), keep=False)
    for key, record in asked.items():
        value, reason = verdicts[key, None]
        scores[key] = Score(key, record.answer_digest, value, reason, {i: verdicts[key, i][0] for i in captions[key]})
    return scores


def verdict(call: Call[Verdict]) -> Episode[tuple[bool | None, str]]:
    """One verdict and, where there is none, why not. A failed or cut call ends it with CallFailed."""
    (reply,) = yield from ask([call])
    return reply.value, "" if reply.value is not None else "judge's reply is no verdict"


def _human_captions(record: Record, graph: Graph | None, judge: Judge) -> dict[int, str]:
    """Entities whose generated caption can be held against a human one."""
    if graph is None or not judge.similarity:
        return {}
    found = {index: graph.entity(index).caption for index in record.captions}
    return {index: caption for index, caption in found.items() if caption}
