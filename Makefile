# Plumbline. `make` alone lists what there is. Needs Python 3.11 or newer and a package index; nothing else.
PYTHON ?= python3
PORT   ?= 8000
VENV   := .venv
BIN    := $(VENV)/bin
MANAGE := $(BIN)/python manage.py
# The locks are whole, so nothing is resolved; modules are compiled when they are first imported: half the CPU time.
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps --no-compile

export PYTHONDONTWRITEBYTECODE := # else every process would compile all that it imports, which takes seconds

.DEFAULT_GOAL := help
.PHONY: help demo run test check check-lint check-types check-migrations check-propositions check-deploy coverage docs openapi fuzz chaos bench \
  validity screenshots e2e e2e-local audit lock clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.runtime ## set everything up, measure 16 example agents, say who drifted since when
	@$(MANAGE) demo

run: $(VENV)/.runtime ## start console and worker on this machine (PORT=8000), print address and login
	@DEBUG=1 exec $(MANAGE) serve --port $(PORT)

test: $(VENV)/.dev ## set everything up and run the tests but the slow ones and those in a browser (ARGS='-m ""' runs all)
	$(if $(findstring -m,$(ARGS)),,@echo "Without the slow tests and those in a browser; make test ARGS='-m \"\"' runs them too.")
	@$(BIN)/python -m pytest -n auto --dist worksteal -q -m "not slow and not e2e" $(ARGS)

e2e: $(VENV)/.dev ## only the tests in a real browser (Chromium)
	@$(BIN)/python -m pytest -q -m e2e $(ARGS)

check: check-lint check-types check-migrations check-propositions check-deploy ## lint, types, migrations, proposition files, production settings

check-lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

check-types: $(VENV)/.dev
	@DEBUG=1 $(BIN)/mypy .

check-migrations: $(VENV)/.dev
	@DEBUG=1 $(MANAGE) makemigrations --check --dry-run

check-propositions: $(VENV)/.dev
	@DEBUG=1 $(MANAGE) check_propositions > /dev/null && echo "proposition files are valid"

check-deploy: $(VENV)/.dev
	@SECRET_KEY=$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(64))') ALLOWED_HOSTS=plumbline.example.org \
	  ANTHROPIC_API_KEY=for-the-check CELERY_BROKER_URL=redis://127.0.0.1:6379/0 DATABASE_URL=sqlite:///:memory: \
	  $(MANAGE) check --deploy --fail-level WARNING

coverage: $(VENV)/.dev ## which lines the tests of `make test` enter (installs pytest-cov, which is in no lock)
	@$(BIN)/python -m pip install --quiet pytest-cov
	@$(BIN)/python -m pytest -n auto --dist worksteal -q -m "not slow and not e2e" --cov --cov-report=term:skip-covered $(ARGS)

docs: $(VENV)/.dev ## write the generated pages of docs/reference and build the site (ARGS=serve shows it while you write)
	@DEBUG=1 $(BIN)/python -m tests.reference > /dev/null
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build) && echo "site/index.html"

openapi: $(VENV)/.runtime ## renew docs/openapi.yaml from the routes of the API
	@DEBUG=1 $(MANAGE) spectacular --validate --fail-on-warn --file docs/openapi.yaml

fuzz: $(VENV)/.dev ## many generated examples: parsers, aggregation, every route (routes need DATABASE_URL of a PostgreSQL server)
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q -n auto $$(grep -lE '^(import|from) hypothesis' -r tests --include='test_*.py') $$(grep -l THOROUGH -r tests --include='test_*.py') $(ARGS)
	@FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-50} $(BIN)/python -m pytest -q -n 0 tests/api/test_contract.py $(ARGS)

chaos: $(VENV)/.dev ## five minutes of load while everything fails, then the invariants (needs PostgreSQL's and Redis's programs; ARGS="--seconds 60")
	@$(BIN)/python -m tests.chaos $(ARGS)

bench: $(VENV)/.dev ## measure speed against a stub model server on loopback
	@$(BIN)/python -m tests.bench $(ARGS)

validity: $(VENV)/.dev ## measure on data of others and in simulations, write the tables of docs/explanation/validity.md
	@DEBUG=1 $(MANAGE) dev validity --write docs/explanation/validity.md $(ARGS)

screenshots: $(VENV)/.dev ## photograph the main pages with the demo's data into docs/screenshots (needs Chromium)
	@$(BIN)/python -m tests.screenshots

e2e-local: $(VENV)/.dev ## measure one agent with a real small model on this machine (downloads about 200 MB)
	@$(BIN)/python -m tests.local_model

audit: $(VENV)/.dev ## ask OSV about every locked dependency (needs the network; OSV_URL=… for a mirror)
	@$(BIN)/python -m pip install --quiet pip-audit
	@$(BIN)/pip-audit --strict --requirement requirements.lock --require-hashes --disable-pip \
	  --vulnerability-service osv $(if $(OSV_URL),--osv-url $(OSV_URL))

lock: $(VENV)/.dev ## resolve the dependencies anew
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean: ## remove the virtual environment and the local database
	@rm -rf $(VENV) .local staticfiles site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Plumbline needs Python 3.11 or newer; this is %s. Say `make PYTHON=python3.12 …`." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "Creating the virtual environment …"
	@$(PYTHON) -m venv $(VENV) || (echo "venv is missing: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1)

$(VENV)/.runtime: requirements.lock | $(BIN)/python
	@echo "Installing locked dependencies …"
	@$(PIP) -r requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock | $(BIN)/python
	@echo "Installing locked dependencies for tests and checks …"
	@$(PIP) -r requirements-dev.lock
	@touch $@ $(VENV)/.runtime
