# Wraps `python -m <room> …` and nothing else: every variable has a command-line twin (make help).
.DEFAULT_GOAL := help
.PHONY: help setup bench test test-vllm report world check lint format lock clean ask serve plan profile speed train-tiny eval-tiny caption video-bench \
        models doctor test-offline

KNOWN := GPU ENGINE MODEL DATA JUDGE ENDPOINT JUDGE_ENDPOINT SETTINGS LIMIT SUITE PROMPTS K ORDER KEYFRAMES RUN SET CONFIG ARGS PYTHON \
         SEED CREATURES CLIPS OUT Q IMAGE IN FROM TO MODELS TARGET VOLUME KEY GLIBC SHELL MAKEFLAGS
$(foreach v,$(.VARIABLES),$(if $(filter command%line,$(subst $() ,%,$(origin $v))),$(if $(filter $v,$(KNOWN)),,\
  $(error unknown variable $v: make knows $(filter-out SHELL MAKEFLAGS,$(KNOWN)), see `make help`))))

# what each target takes besides ARGS, PYTHON and GPU (which chooses the environment): a variable that would do nothing is an error too
RUNS := CONFIG DATA MODEL ENGINE ENDPOINT JUDGE JUDGE_ENDPOINT SETTINGS LIMIT PROMPTS K ORDER KEYFRAMES SEED SET
USES.bench := SUITE $(RUNS)
USES.profile := RUN $(RUNS)
USES.report := RUN
USES.world := SEED CREATURES CLIPS OUT
USES.check := DATA
USES.caption := DATA MODEL OUT
USES.serve := MODEL
USES.plan := MODEL
USES.models := IN
USES.ask := Q IMAGE MODEL
USES.speed := DATA LIMIT PROMPTS
USES.bundle := OUT MODELS DATA TARGET GLIBC VOLUME KEY
USES.unbundle := FROM TO KEY
USES.verify := FROM TO KEY
USES.doctor := MODEL JUDGE DATA
GOALS := $(or $(MAKECMDGOALS),help)
$(foreach v,$(filter-out ARGS PYTHON GPU SHELL MAKEFLAGS,$(KNOWN)),$(if $(filter command%line,$(subst $() ,%,$(origin $v))),\
  $(if $(filter $v,$(foreach g,$(GOALS),$(USES.$g))),,$(error make $(GOALS) does not take $v=: it takes $(or $(strip $(foreach g,$(GOALS),$(USES.$g))),no variable of its own)))))

PYTHON ?= python3
# PYTHON=3.12 names a version: of the sealed machine for `make bundle`, of the interpreter elsewhere
VERSION := $(filter 3.%,$(PYTHON))
ifneq ($(VERSION),)
override PYTHON := $(or $(shell python$(VERSION) -c 'print("python$(VERSION)")' 2>/dev/null),python3)
endif
# GPUs are served by vLLM, whose torch is another one: a virtual environment of its own, from a lock of its own.
EXTRA := $(if $(filter-out 0,$(GPU)),vllm)
VENV := $(if $(EXTRA),.venv-gpu,.venv)
LOCKS := $(if $(EXTRA),locks/vllm.txt,locks/cpu.txt locks/torch-cpu.txt locks/torch.txt locks/torch-cuda-runtime.txt)
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
include scripts/environment.mk

# one flag per variable that was given; nothing for the others
flag = $(if $($(1)),$(2) '$(subst ','\'',$($(1)))')
need = $(if $($(1)),$(call flag,$(1),),$(if $(ARGS),,$(error make $@ needs $(1)=…, see `make help`)))
BENCH_FLAGS = $(call flag,CONFIG,--config) $(call flag,DATA,--data) $(call flag,MODEL,--model) $(call flag,GPU,--gpu) $(call flag,ENGINE,--engine) \
  $(call flag,ENDPOINT,--endpoint) $(call flag,JUDGE,--judge) $(call flag,JUDGE_ENDPOINT,--judge-endpoint) $(call flag,SETTINGS,--settings) \
  $(call flag,LIMIT,--limit) $(call flag,PROMPTS,--prompts) $(call flag,K,--k) $(call flag,ORDER,--order) $(call flag,KEYFRAMES,--keyframes) \
  $(call flag,SEED,--seed) $(call flag,SET,--set) $(ARGS)
SUITES := ablations cuem evqa injections mmsafety refine relevance
ifneq ($(SUITE),)
ifeq ($(filter $(SUITE),mh $(SUITES)),)
$(error unknown SUITE=$(SUITE): mh (default), $(SUITES))
endif
endif

help:
	@echo "make bench          the knowledge-graph benchmark: six settings on the sample world with the embedded model"
	@echo "make test           the whole test suite"
	@echo "make report         the last run's report again, or RUN=runs/…"
	@echo "make world          a sample world (SEED= CREATURES= CLIPS=640x360@30, in OUT=)"
	@echo "make check DATA=…   lint a data set      make caption DATA=… MODEL=…   its offline captions"
	@echo "make train-tiny     train the embedded model from nothing      make eval-tiny   score it"
	@echo "make video-bench    the keyframe sampler on 4K60 clips, measured here"
	@echo "make ask Q=… IMAGE=…    a question about a picture, over the sample world or your own collections (docs/pipeline.md)"
	@echo "make serve|plan     vLLM on this machine's GPUs: MODEL= GPU=      make profile     latency of a setting's agent rounds"
	@echo "make speed          what a run costs beside its model: the stack's own ratios, each beside its target"
	@echo "make models         the model cards, GPUs needed, what lies here (IN=folder) and how to fetch the rest on a connected machine"
	@echo "make doctor         what works on this machine and what does not, each line with its remedy: MODEL= JUDGE= DATA= GPU="
	@echo "make test-offline   everything with loopback only, watched: proof that nothing leaves (ARGS='--parts bench,video')"
	@echo "make bundle OUT=…       everything for a machine without a network: MODELS= DATA= TARGET= PYTHON=3.11 VOLUME=4G KEY= (docs/airgapped.md)"
	@echo "make unbundle FROM=…    there: check, copy, install, into TO= (KEY=)      make verify FROM=…   check only"
	@echo "make test-vllm      real vllm serve (its CPU build, in a venv of its own) with tiny models"
	@echo "make lint | format | lock | clean | setup"
	@echo
	@echo "variable        twin                what"
	@echo "DATA=           --data              a data set folder (default: the sample world, made on first use)"
	@echo "MODEL=          --model             a model folder, a registered name (smollm2-135m), or a served name"
	@echo "GPU=            --gpu               number of GPUs for a model folder (default 0: CPU)"
	@echo "ENGINE=         --engine            transformers, vllm, vllm-offline, vllm-ray (default: vllm where GPU= is given)"
	@echo "ENDPOINT=       --endpoint          an OpenAI-compatible server, http://127.0.0.1:8000/v1"
	@echo "JUDGE=          --judge             judge model; exact for string equality (default: the judged model, said so)"
	@echo "JUDGE_ENDPOINT= --judge-endpoint    where the judge is served"
	@echo "SETTINGS=       --settings          vanilla,vanilla+,knowledgeable,perceptive,unaided-offline,unaided-online"
	@echo "LIMIT=          --limit             the first N questions"
	@echo "SUITE=          bench SUITE         mh (default), ablations, cuem, evqa, injections, mmsafety, relevance; refine (ARGS='RAW OUT')"
	@echo "PROMPTS=        --prompts           full, compact, or a folder"
	@echo "K= ORDER= KEYFRAMES= SEED=          --k --order --keyframes --seed"
	@echo "CONFIG= SET=    --config --set      a YAML file of options; one option as key=value"
	@echo "RUN=            report RUN          a run folder     CREATURES= CLIPS= OUT=   of make world"
	@echo "Q= IMAGE=       ask                 a question about a picture"
	@echo "IN=             models list --in    a folder that holds model folders"
	@echo "ARGS=           (as it is)          anything else, passed on"
	@echo "OUT= MODELS= TARGET= PYTHON= VOLUME= KEY= GLIBC=    --out --models --target --python --volume --key --glibc of bench bundle"
	@echo "FROM= TO= KEY=  --from --to --key   of bench unbundle and bench verify"
	@echo "PYTHON=         (interpreter)       Python 3.11 to 3.13 for a new .venv"

setup: $(READY)
$(READY): $(LOCKS) scripts/install.py
	@$(PYTHON) scripts/install.py $(VENV) $(EXTRA)

bench: $(READY)
	@$(PY) -m bench $(if $(filter $(SUITES),$(SUITE)),$(SUITE),run) $(BENCH_FLAGS)

report: $(READY)
	@$(PY) -m bench report $(RUN) $(ARGS)

world: $(READY)
	@$(PY) -m bench world $(call flag,SEED,--seed) $(call flag,CREATURES,--creatures) $(call flag,CLIPS,--clips) $(call flag,OUT,--out) $(ARGS)

check: $(READY)
	@$(PY) -m kg check $(call need,DATA) $(ARGS)

caption: $(READY)
	@$(PY) -m kg caption $(call need,DATA) $(call flag,MODEL,--model) $(call flag,OUT,--out) $(ARGS)

serve plan: $(READY)
	@$(PY) -m models $@ $(call need,MODEL) $(call flag,GPU,--gpus) $(ARGS)

models: $(READY)
	@$(PY) -m models list $(call flag,IN,--in) $(ARGS)

train-tiny eval-tiny: $(READY)
	@$(PY) -m bench $@ $(ARGS)

video-bench: $(READY)
	@$(PY) -m video bench $(ARGS)

ask: $(READY)
	@$(PY) -m bench ask $(call need,Q) $(call flag,IMAGE,--image) $(call flag,MODEL,--model) $(ARGS)

profile: $(READY)
	@$(PY) -m bench profile $(call flag,RUN,--replay) $(BENCH_FLAGS)

speed: $(READY)
	@$(PY) -m bench speed $(call flag,DATA,--data) $(call flag,LIMIT,--limit) $(call flag,PROMPTS,--prompts) $(call flag,GPU,--gpu) $(ARGS)

bundle: $(READY)
	@$(PY) -m bench bundle $(call flag,OUT,--out) $(call flag,MODELS,--models) $(call flag,DATA,--data) $(call flag,TARGET,--target) \
	  $(call flag,VERSION,--python) $(call flag,GLIBC,--glibc) $(call flag,VOLUME,--volume) $(call flag,KEY,--key) $(ARGS)

# the unpacker needs no environment: the standard library of any Python does
unbundle:
	@$(PYTHON) -m bench.sealed.unpacker $(call flag,FROM,--from) $(call flag,TO,--to) $(call flag,KEY,--key) $(ARGS)

verify:
	@$(PYTHON) -m bench.sealed.unpacker --verify $(call flag,FROM,--from) $(call flag,TO,--to) $(call flag,KEY,--key) $(ARGS)

# the doctor comes before the environment too: what is missing is what it tells
doctor:
	@$(if $(wildcard $(PY)),$(PY),$(PYTHON)) -m bench doctor $(call flag,MODEL,--model) $(call flag,JUDGE,--judge) $(call flag,DATA,--data) \
	  $(call flag,GPU,--gpu) $(ARGS)

test-offline: $(READY)
	@$(PY) -m bench test-offline $(ARGS)

test: $(READY)
	@scripts/offline.sh $(PY) -m pytest $(ARGS)

test-vllm: $(READY)
	@sh scripts/make_vllm_venv.sh || true # a machine that cannot build it skips, with the reason
	@$(PY) -m pytest -m vllm -rs $(ARGS)

lint: $(READY)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(READY)
	@$(PY) -m ruff check --fix . ; $(PY) -m ruff format .

lock:
	@$(PYTHON) scripts/lock.py $(ARGS)

clean:
	rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
