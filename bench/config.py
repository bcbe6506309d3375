"""What a run is asked to do: one typed set of options, from a YAML file, ``--set key=value`` and flags, in that order.

Unknown keys are rejected with the list of keys; every fault is told at once, before a model is loaded. Knows no engine and no data set.
Try: python -m bench run --help
"""

from __future__ import annotations

import argparse
import difflib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bench.settings import SETTINGS
from models.errors import ConfigError
from video.options import STRATEGIES

EMBEDDED_MODEL = "models/tiny-qwen2.5-vl"
TINY = frozenset({"tiny-qwen2.5-vl", "tiny-internvl"})  # folder names of the models that read the compact prompts only
SAMPLE_WORLD = "data/world-7"
ROLES = ("agent", "perceiver", "topic", "expander", "validator", "summarizer", "captioner", "answer", "judge")
EXACT = "exact"


class Backend(BaseModel):
    """A model and where it runs: a folder or registered name, or a name at an endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    endpoint: str | None = None


def _backend(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


def _listed(value: object) -> object:
    """A comma-separated text is a list; a YAML list arrives as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _one(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Role = Annotated[Backend, BeforeValidator(_backend)]


def _field(default: Any, text: str, **more: Any) -> Any:
    return Field(default=default, description=text, **more)


class RunConfig(BaseModel):
    """Every option of ``python -m bench run``; the same names in a config file, after ``--set`` and as flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = _field(SAMPLE_WORLD, "data set folder; the sample world is made when it is missing")
    model: str = _field(EMBEDDED_MODEL, "model folder, registered name, or the name that an endpoint serves")
    endpoint: str | None = _field(None, "an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
    gpu: int = _field(0, "number of GPUs for a model folder; 0 runs it on the CPU", ge=0)
    engine: Literal["transformers", "vllm", "vllm-offline", "vllm-ray"] | None = _field(
        None, "what runs a model folder: transformers, vllm (servers of ours), vllm-offline (no port), vllm-ray; vllm where --gpu is given"
    )
    ray: str = _field("auto", "the Ray cluster of vllm-ray: auto, the head's host:port, or local; --gpu then counts a node's GPUs")
    served_on: Literal["cuda", "cpu"] = _field("cuda", "what --gpu counts: GPUs, or servers of vLLM's CPU build (for tests)")
    context: int | None = _field(None, "tokens of one call of a vLLM of ours; what the frames need without it", ge=256)
    max_pixels: int | None = _field(None, "most pixels that the model sees of a picture (Qwen2.5-VL); its own without it", ge=784)
    max_tiles: int | None = _field(None, "most tiles of one picture (InternVL under vLLM); its own without it", ge=1, le=64)
    trust_local_code: bool = _field(False, "vLLM may run the Python code in the model's folder (OpenGVLab's form of InternVL)")
    vllm_args: str = _field("", "flags for vllm serve, which win over ours: --vllm-args '--max-num-seqs 32'")
    roles: dict[str, Role] = _field({}, f"a different model for a role ({', '.join(ROLES)}): --set roles.validator=FOLDER")
    judge: str | None = _field(None, "judge model (folder or name), or 'exact'; the judged model itself without it, said in the report")
    judge_endpoint: str | None = _field(None, "server of the judge; without it a judge that is no folder is asked at --endpoint")
    settings: Names = _field(tuple(SETTINGS), f"comma-separated, of {', '.join(SETTINGS)}")
    limit: int | None = _field(None, "only the first N questions", ge=1)
    tasks: Names = _field((), "only these sub-tasks, by name or number from 1; all when empty")
    seed: int = _field(0, "of the bootstrap and of decoding", ge=0)
    k: Annotated[int, Field(ge=1)] | Literal["all"] = _field(5, "number of retrieved paths that the answer is given (Figure 6a), or 'all'")
    order: Literal["bfs", "dfs"] = _field("bfs", "breadth or depth first (Figure 6b)")
    visited: Literal["node", "path"] = _field("node", "an entity is explored once (equation 9), or once per path (the published code)")
    paths: Literal["validated", "leaves"] = _field("validated", "which walks count as retrieved")
    max_rounds: int | None = _field(None, "stop a search after so many rounds; the search's own limit without it", ge=1)
    max_calls: int | None = _field(None, "stop a search after so many calls; the search's own limit without it", ge=1)
    constrained: bool = _field(False, "names and verdicts as constrained choices where the engine can")
    keyframes: str = _field("human", f"how frames of a clip are chosen (Table 5: human, equal): {', '.join(STRATEGIES)}")
    max_frames: int = _field(10, "at most so many frames of a clip", ge=1, le=256)
    max_side: int = _field(1024, "longer side of a frame in pixels, at most", ge=28, le=8192)
    ask_name: bool = _field(True, "the question names its root (Table 17)")
    ask_extra: bool = _field(True, "the question carries its additional information (Table 17)")
    prompts: str | None = _field(None, "'full', 'compact' or a folder of templates; compact for the tiny models, else full")
    captions: str | None = _field(None, "JSON with offline captions made elsewhere (entity → text)")
    similarity: bool = _field(True, "judge generated captions against human ones (Table 4)")
    temperature: float = _field(0.0, "of every call but the judge's", ge=0, le=10)
    slots: int = _field(0, "calls in flight at a server, at most; 0: as many as our own takes, else grown while throughput grows", ge=0)
    batch: int = _field(32, "calls in one forward pass of a model in this process, at most", ge=1)
    timeout: float = _field(600.0, "seconds that one call may take", gt=0, le=604800)
    deadline: float | None = _field(None, "seconds that predicting may take in all; what is not done then counts as failed", gt=0)
    retry: bool = _field(False, "ask again what failed before; without it a finished run stays as it is")
    runs: str = _field("runs", "where run folders are made")
    name: str = _field("", "a label for the report, any text")
    tags: Annotated[tuple[str, ...], BeforeValidator(_one)] = _field((), "labels for the report, a YAML list")

    @property
    def prompt_set(self) -> str:
        """The prompt set in words, the default resolved."""
        return self.prompts or ("compact" if Path(self.model).name in TINY else "full")

    def engine_of(self, backend: Backend) -> str:
        """The row of models.engines.ENGINES that runs this backend."""
        return "openai" if backend.endpoint is not None else self.engine or ("vllm" if self.gpu else "transformers")

    @property
    def backends(self) -> dict[str, Backend]:
        """role → backend for predicting: `agent` and the roles that differ from it."""
        return {"agent": Backend(model=self.model, endpoint=self.endpoint), **{r: b for r, b in self.roles.items() if r != "judge"}}

    @property
    def judge_backend(self) -> Backend | None:
        """The judge's backend: None for 'exact'."""
        if self.judge == EXACT:
            return None
        if self.judge is not None:
            endpoint = self.judge_endpoint or (None if Path(self.judge).is_dir() else self.endpoint)
            return Backend(model=self.judge, endpoint=endpoint)
        return self.roles.get("judge", Backend(model=self.model, endpoint=self.endpoint))

    @property
    def judges_itself(self) -> bool:
        """Whether the judge is the model whose answers it judges."""
        judge = self.judge_backend
        return judge is not None and judge in (self.backends.get(role, self.backends["agent"]) for role in ("answer", "summarizer"))

    def predicting(self) -> dict[str, Any]:
        """The options that change what is predicted: these, and no others, name a run."""
        return self.model_dump(mode="json", exclude=set(NOT_PREDICTING))


PATHS = ("data", "runs", "captions", "prompts")
NOT_PREDICTING = frozenset(
    {
        "judge",
        "judge_endpoint",
        "similarity",
        "slots",
        "batch",
        "timeout",
        "deadline",
        "context",
        "runs",
        "name",
        "tags",
        "gpu",
        "engine",
        "ray",
        "served_on",
        "retry",
    }
)


def parse_set(text: str) -> tuple[list[str], Any]:
    """``a.b=value`` → (["a", "b"], value). The first ``=`` splits; the value is YAML, or the text itself where YAML cannot read it."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r} has no key=value", remedy="for example --set k=3 or --set roles.validator=FOLDER")
    try:
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError):
        parsed = value
    return key.strip().replace("-", "_").split("."), parsed if _plain(parsed) else value


def _plain(value: object) -> bool:
    """Dates and other things that no option takes stay the text that they were."""
    if isinstance(value, dict):
        return all(_plain(v) for v in value.values())
    if isinstance(value, list):
        return all(_plain(v) for v in value)
    return value is None or isinstance(value, str | int | float | bool)


def _takes_text(name: str) -> bool:
    field = RunConfig.model_fields.get(name)
    if field is None:
        return False
    hint = field.annotation
    return hint is str or (get_origin(hint) in (Union, types.UnionType) and str in get_args(hint))


def _as_text(raw: str, parsed: Any) -> str | None:
    """What a text option gets: the words as they stand, unless they are quoted as YAML or say null."""
    if parsed is None and raw.strip() in ("null", "~"):
        return None
    return parsed if isinstance(parsed, str) and raw.lstrip()[:1] in ("'", '"') else raw


def read_file(path: Path) -> dict[str, Any]:
    """The options in a YAML file; raises ConfigError naming the file."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path), remedy="give a YAML file of options") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(" ".join(f"is not YAML: {error}".split()), where=str(path)) from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"holds a {type(raw).__name__}", where=str(path), remedy="a config file is a mapping of options")
    return {str(key).replace("-", "_"): value for key, value in raw.items()}


def resolve(*, file: Path | None = None, sets: Sequence[str] = (), flags: Mapping[str, Any] | None = None) -> RunConfig:
    """File, then ``--set``, then flags; later ones win. Raises ConfigError with all faults at once."""
    merged: dict[str, Any] = read_file(file) if file else {}
    for text in sets:
        keys, value = parse_set(text)
        if len(keys) == 1 and _takes_text(keys[0]):
            value = _as_text(text.partition("=")[2], value)
        place = merged
        for key in keys[:-1]:
            inner = place.setdefault(key, {})
            if isinstance(inner, str):
                inner = place[key] = {"model": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {text!r}: {key} is no group of options", remedy="see python -m bench run --help")
            place = inner
        place[keys[-1]] = value
    merged.update(flags or {})
    return validate(merged, where=str(file) if file else None)


def validate(options: Mapping[str, Any], where: str | None = None) -> RunConfig:
    """A RunConfig; raises ConfigError naming every option that is unknown or out of range."""
    faults: list[str] = []
    config: RunConfig | None = None
    switches = [name for name, value in options.items() if isinstance(value, bool) and not _is_switch(name)]
    faults += [f"option {name!r} came as {options[name]}, and it is no switch: give its value" for name in switches]
    try:
        config = RunConfig.model_validate({name: value for name, value in options.items() if name not in switches})
    except ValidationError as error:
        faults += _faults(error.errors())
    roles = options.get("roles")
    for role in roles if isinstance(roles, Mapping) else ():
        if role not in ROLES:
            faults.append(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
    settings = config.settings if config else ()
    faults += [f"unknown setting {s!r}{_near(s, SETTINGS)}; settings are {', '.join(SETTINGS)}" for s in settings if s not in SETTINGS]
    if config and not settings:
        faults.append(f"no settings; choose of {', '.join(SETTINGS)}")
    if len(set(settings)) != len(settings):
        faults.append(f"a setting is listed twice: {', '.join(settings)}")
    if config and (config.engine or "").startswith("vllm") and not config.gpu:
        faults.append(f"--engine {config.engine} needs a number of GPUs: --gpu 1")
    if config and config.judge is not None and not config.judge.strip():
        faults.append("the judge is empty; name a model, or 'exact', or leave it out: then the judged model judges itself")
    if config and config.judge is None and config.judge_endpoint is not None:
        faults.append("--judge-endpoint is where a judge is served, and none is named: give --judge with the name that it is served under")
    if config and config.vllm_args and not config.gpu:
        faults.append("--vllm-args are for a vLLM of ours, and none is started: give --gpu 1, or leave them out")
    if config:
        empty = [name for name in PATHS if (value := getattr(config, name)) is not None and not value.strip()]
        faults += [f"--{name} is empty; give a path, or leave it out" for name in empty]
    if config and config.keyframes not in STRATEGIES:
        faults.append(f"unknown keyframes {config.keyframes!r}{_near(config.keyframes, STRATEGIES)}; one of {', '.join(STRATEGIES)}")
    if faults or config is None:
        raise ConfigError("; ".join(faults), where=where, remedy="see python -m bench run --help")
    return config


def _is_switch(name: str) -> bool:
    """Whether yes or no is a value of this option. What is not known, pydantic refuses better; it would take them for 1 and 0 elsewhere."""
    field = RunConfig.model_fields.get(name)
    return field is None or field.annotation is bool


def _faults(errors: Sequence[Any]) -> list[str]:
    """One fault a place: of an option that takes one of several kinds of values, all that it takes are told together."""
    places: dict[str, list[Any]] = {}
    for error in errors:
        loc = error["loc"] if error["loc"][0] == "roles" else error["loc"][:1]
        places.setdefault(".".join(map(str, loc)), []).append(error)
    return [fault for place, found in places.items() for fault in ([_either(place, found)] if len(found) > 1 else map(_fault, found))]


def _either(place: str, errors: Sequence[Any]) -> str:
    takes = list(dict.fromkeys(e["msg"].partition(",")[0].removeprefix("Input should be ") for e in errors))
    return f"option {place!r} came as {str(errors[0]['input'])[:80]!r}: input should be {' or '.join(takes)}"


def _fault(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = RunConfig.model_fields if len(error["loc"]) == 1 else Backend.model_fields
        return f"unknown option {place!r}{_near(place, known)}; options are {', '.join(known)}"
    return f"option {place!r} came as {str(error['input'])[:80]!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _near(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def add_arguments(parser: argparse.ArgumentParser, skip: Sequence[str] = ()) -> None:
    """One flag per option; a flag that is not given leaves no trace, so that the file's value stands."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of options")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="any option, as YAML; repeatable")
    for name, field in RunConfig.model_fields.items():
        if name in skip or name in ("roles", "tags"):
            continue
        flag = "--" + name.replace("_", "-")
        text = (field.description or "").replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
            continue
        shown = f" [{field.default}]" if field.default not in (None, (), "", tuple(SETTINGS)) else ""
        parser.add_argument(flag, default=argparse.SUPPRESS, metavar=name.upper(), help=text + shown)


def from_arguments(arguments: argparse.Namespace) -> RunConfig:
    """The config that parsed flags, ``--set`` and ``--config`` make together."""
    flags = {name: value for name, value in vars(arguments).items() if name in RunConfig.model_fields}
    return resolve(file=arguments.config, sets=arguments.sets, flags=flags)
