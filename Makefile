# The two commands are `make demo` and `make test`; `make check` is what a change must pass before it is committed.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
WORKERS ?= 3
READY := $(VENV)/.tierd-ready

.PHONY: demo test check full chaos bench peers fuzz docs package clean

demo: $(READY)
	$(RUN) -m tierd demo --mib 256

# One worker more than two cores: most tests wait for a disk, a start or a clock half of their time. Python's own debug allocator,
# a part of -X dev, would watch over other people's C code for a sixth of the time. A test that fails is tried once more, at most five
# are, and both tracebacks are shown: real servers on a shared machine fail for reasons of their own, and a fault comes back.
test: check
	PYTHONMALLOC=default $(RUN) -X dev -m pytest -q -m "not full and not chaos" --tx "$(WORKERS)*popen//python=$(RUN) -X dev" \
		--dist loadfile --no-loadscope-reorder --reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(RUN) docs/generate.py --check
	$(RUN) -m pytest -q tests/docs/test_sizes.py

full: $(READY)
	$(RUN) -m pytest -q -m full --timeout 3600

chaos: $(READY)
	$(RUN) -m pytest -q -m chaos --timeout 0

bench: $(READY)
	$(RUN) -m bench

# ten million hostile requests into the parser, a million over sockets, from other dice than those of `make test`
fuzz: $(READY)
	$(RUN) -m pytest -q -m full --timeout 7200 tests/wire/test_mutations.py tests/broker/test_fuzz.py

# other clients' own test suites; their sources are looked for in the folder CHECKOUTS
peers: $(READY)
	PYTHONPATH=tests $(RUN) -m peers $(if $(CHECKOUTS),--checkouts $(CHECKOUTS)) $(SUITES)

docs: $(READY)
	$(RUN) docs/generate.py

# sdist, the wheel out of it, and that wheel at work in a venv of its own, far from the source
package: $(READY)
	$(RUN) .ci/package.py

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tierd needs Python 3.11 or newer: make PYTHON=...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "installing tierd and what it needs into $(VENV): a few minutes, once"
	if [ -t 1 ]; then quiet=; else quiet=-q; fi; $(RUN) -m pip install $$quiet -e '.[dev,demo]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info
