# `make` sets up the environment and draws the report at quick scale; `make help` lists the rest.
# Needed: Python 3.11 to 3.13, make, and a network for the packages.

PYTHON ?= python3
CORES ?= $(shell $(PYTHON) src/fedrepro/core/diagnostics/usable_cores.py)

# What writes into this folder runs under one lock: a second live run is refused, and a killed
# one leaves nothing behind. Snakemake's own lock survives a kill, so it is not used here.
LOCKED = $(PYTHON) src/fedrepro/core/command_under_lock.py .fedrepro/lock --
SNAKEMAKE = .venv/bin/snakemake --nolock --rerun-incomplete --cores $(CORES)
BARS = $$(test -t 2 && echo --logger rich)
REPORT = echo "The report is reports/$$(sed -n 's/^scale: *\([a-z]*\).*/\1/p' config/config.yaml)/index.html"

# A mark in .venv says for which Python and packages it is complete, and is made last; so what was
# killed halfway or no longer fits is set up anew. So is an environment that was moved or copied
# from another folder, because it names its own place.
PACKAGES := .venv/.packages-$(shell ($(PYTHON) --version; cat envs/requirements.txt) 2>&1 | cksum | cut -d ' ' -f 1)
READY := .venv/.fedrepro-$(shell cksum < pyproject.toml | cut -d ' ' -f 1)
MOVED := $(shell grep -qsF "$$(cd -P .venv 2>/dev/null && pwd -P)" .venv/bin/activate || echo FORCE)
# What jobs import is compiled once it is there, the rest when it is imported; to compile all of it
# takes half a minute. It has to be kept: where it may not be, every one of some hundred processes
# compiles anew, 3 to 7 s each time.
unexport PYTHONDONTWRITEBYTECODE
PIP = .venv/bin/python -P -m pip --disable-pip-version-check install --quiet --no-compile

.PHONY: quick all site env test nightly lint bench bench-peers clean help FORCE

quick: env
	@$(LOCKED) $(SNAKEMAKE) $(BARS)
	@$(REPORT)

all: env
	@$(LOCKED) $(SNAKEMAKE) $(BARS) --config exhibits=all
	@$(REPORT)

site: env
	@$(LOCKED) .venv/bin/fedrepro site

env: $(READY)

$(PACKAGES): $(MOVED)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
	  { echo "fedrepro needs Python 3.11, 3.12 or 3.13, which '$(PYTHON)' is not: name one, as in make PYTHON=python3.12" >&2; exit 2; }
	@$(LOCKED) sh -ec ' \
	  echo "Setting up .venv with the pinned packages: two to three minutes and 6 GB, once."; \
	  rm -rf .venv; \
	  $(PYTHON) -P -m venv .venv; \
	  $(PIP) -c envs/requirements.txt setuptools hatchling editables; \
	  $(PIP) --no-build-isolation -r envs/requirements.txt; \
	  touch $@'

$(READY): $(PACKAGES)
	@$(LOCKED) sh -ec 'rm -f .venv/.fedrepro-*; $(PIP) --no-build-isolation --no-deps -e .; \
	  .venv/bin/python -P -c "from fedrepro.cli.preload_server import load; load()"; touch $@'

# one worker more than cores, since tests of the workflow wait for most of their time; tests read
# files as UTF-8 in every locale
PYTEST = PYTHONUTF8=1 .venv/bin/python -P -m pytest -n $$(($(CORES) + 1)) --dist worksteal --durations 10

test: env
	@$(PYTEST) -m "not nightly" --lines 90

nightly: env
	@$(PYTEST) -m nightly --ignore-glob 'tests/unit/test_fuzz_*'
	@$(PYTEST) --hypothesis-profile nightly tests/unit/test_fuzz_*.py

lint: env
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/snakefmt --check Snakefile workflow
	@.venv/bin/snakemake --lint

bench: env
	@$(LOCKED) sh -c 'missed=0; for name in training steps matching gems memory checksums planning quick; do \
	  echo "== $$name"; .venv/bin/fedrepro bench $$name || missed=1; done; \
	  for name in fedavg-2nn rm-mlp rm-cifar; do \
	  echo "== rounds $$name"; .venv/bin/fedrepro bench rounds --workload $$name || missed=1; done; \
	  test ! -x .venv-peers/bin/python || for name in lr-mnist cifar-cnn; do \
	  .venv/bin/fedrepro bench rounds --workload $$name || missed=1; done; exit $$missed'

# PyTorch comes from .venv, at the end of the path, so that all compute with the same one.
bench-peers: env
	@$(LOCKED) sh -ec 'rm -rf .venv-peers; .venv/bin/python -P -m venv .venv-peers; \
	  .venv-peers/bin/python -P -m pip --disable-pip-version-check install --quiet -r benchmarks/peers/requirements.txt; \
	  .venv/bin/python -P -c "import sysconfig; print(sysconfig.get_path(\"purelib\"))" \
	    > "$$(.venv-peers/bin/python -P -c "import sysconfig; print(sysconfig.get_path(\"purelib\"))")/zz_project.pth"'

clean:
	@$(LOCKED) rm -rf results reports/quick reports/tiny reports/paper logs

help:
	@echo "make         environment, then the report at quick scale: reports/quick/index.html"
	@echo "make all     the same with every exhibit, not only the headline ones"
	@echo "make site    the pages of the record, from what is there alone: site/index.html"
	@echo "make env     the environment alone, in .venv"
	@echo "make test    the tests of every change; at least 90 % of the lines in src must be covered"
	@echo "make nightly the slow ones: SLURM, real data, a browser, other processors, more odd inputs"
	@echo "make lint    style, types and workflow checks"
	@echo "make bench   every benchmark against its target: benchmarks/results; an hour"
	@echo "make bench-peers  the frameworks to compare with, in .venv-peers"
	@echo "make clean   remove results and reports; the record, data sets and .venv stay"
	@echo "Settings: CORES=N (all that make may use), PYTHON=python3.12 (python3)"
