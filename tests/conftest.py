"""Fixtures for every test."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sentry_sdk
from django.core.cache import cache, caches
from django.db import connection
from django.test import Client, TransactionTestCase
from django.test.utils import override_settings, setup_databases, teardown_databases
from django.urls import get_resolver
from pytest_django import Settings
from pytest_django.plugin import DjangoDbBlocker

from agents.kit.llm import endpoints, ledger, prices, runtime
from agents.kit.llm.providers.base import is_installed
from tests.console import signed_in, superuser
from tests.database_file import migrated_in
from tests.llm_server import LLMServer
from tests.machinery import missing
from tests.tracing import Caught

get_resolver().url_patterns  # noqa: B018 (registers the pages of the console, of which tests are made)

# Every process that a test starts would compile all that it imports anew, which takes longer than most of these tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# In one thread work goes through the test's own transaction, in the order of its rows. Tests of threads ask for them.
os.environ["WORKER_THREADS"] = "1"

DEVELOPERS_OWN = connection.settings_dict["NAME"]

# A shell starts background jobs with SIGINT ignored, and the processes that tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine an example may take long; that is no defect of what is tested. `make fuzz` loads "thorough".
for profile, examples in {"quick": 25, "thorough": 1000}.items():
    hypothesis.settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector what lives as long as the process: all modules, and thousands of collected tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what differs between databases (tests with processes, threads or real transactions of their own), and deal the items."""
    for item in items:
        database = item.get_closest_marker("django_db")
        fixtures = {"migrated_file", "database_url", "transactional_db"} & set(getattr(item, "fixturenames", ()))
        if fixtures or (database and database.kwargs.get("transaction")):
            item.add_marker("databases_differ")
    yield  # others take out what was not asked for
    items[:] = _dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order the items so that the part of the list that each worker gets begins with its share of the slow ones.

    xdist cuts the list into one part for each worker; whoever has ended takes items from the end of another's part. Modules stay
    together, for their fixtures.
    """
    modules: dict[tuple[int, str], list[pytest.Item]] = {}
    for item in items:
        modules.setdefault((_rank(item), str(item.path)), []).append(item)
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    quick: list[pytest.Item] = []
    for rank, module in sorted(modules, key=lambda key: key[0]):  # stable: in the order of their collection
        if rank == QUICK:
            quick += modules[rank, module]
        else:
            min(hands, key=len).extend(modules[rank, module])
    dealt: list[pytest.Item] = []
    for number, hand in enumerate(hands):
        missing = (len(items) - len(dealt)) // (workers - number) - len(hand)  # as xdist cuts
        taken = max(0, missing)
        dealt += [*hand, *quick[:taken]]
        del quick[:taken]
    return [*dealt, *quick]


QUICK = 3


def _rank(item: pytest.Item) -> int:
    """Return how early an item is run: 0 first."""
    if item.get_closest_marker("long_setup"):
        return 0
    if item.get_closest_marker("slow"):
        return 1
    if any(map(item.get_closest_marker, ("e2e", "service", "databases_differ"))):
        return 2
    return QUICK


SEEDED = ("auth_group", "auth_group_permissions", "auth_permission", "django_content_type", "model_prices")


def _seeds() -> list[Any]:
    """Return what tells whether the rows that a migration makes are as they were."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            digest = "select md5(string_agg(t::text, ',' order by t::text)) from {} t"
            cursor.execute(" union all ".join(map(digest.format, SEEDED)))
            return list(cursor.fetchall())
        rows: list[Any] = []
        for name in SEEDED:
            cursor.execute(f"select * from {name} order by 1")  # noqa: S608 (ours)
            rows += cursor.fetchall()
        return rows


def _delete_rows(names: Iterable[str]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(" union all ".join(f"(select '{name}' from {name} limit 1)" for name in names))  # noqa: S608
            filled = [f"delete from {name};" for (name,) in cursor.fetchall()]  # noqa: S608 (ours)
            cursor.execute(f"set session_replication_role = replica; {' '.join(filled)} reset session_replication_role")
            return
        cursor.execute("pragma foreign_keys = off")
        for name in names:
            cursor.execute(f'delete from "{name}"')  # noqa: S608 (ours)
        cursor.execute("pragma foreign_keys = on")


@pytest.fixture(scope="session", autouse=True)
def _flush_what_was_filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Empty tables, but leave the seeds where a test left them as they were: making them again takes 0.15 s."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        names = sorted(set(connection.introspection.table_names(cursor)) - {*SEEDED, "django_migrations"})
        seeds = _seeds()
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

    def empty(case: TransactionTestCase) -> None:
        if _seeds() != seeds:
            flush(case)
        else:
            _delete_rows(names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty)
        yield
    if connection.vendor != "postgresql":
        return
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        # Threads of a live server may hold some: no database is dropped then.
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database, also where no test is marked to need one: pytest-django then leaves the developer's own in place."""
    if connection.settings_dict["NAME"] != DEVELOPERS_OWN:
        yield
        return
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session", autouse=True)
def _settings_of_tests() -> Iterator[None]:
    """What all tests have in common, set once: each change of a setting takes time, and there are thousands of tests."""
    with override_settings(
        PROPOSITION_DIRS=[],  # not a developer's own files
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # a good hash takes a second
        WHITENOISE_AUTOREFRESH=True,  # else each client looks for all static files first
        WORKER_THREADS=1,  # other threads do not see what a test wrote inside its transaction
    ):
        yield


@pytest.fixture(autouse=True)
def _nothing_remembered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process remembers of servers and prices must not pass from one test to the next."""
    monkeypatch.delenv("COLUMNS", raising=False)
    cache.clear()
    if "redis" in settings.CACHES["throttles"].get("LOCATION", ""):  # it would count for all tests at the same time
        settings.CACHES = {"default": settings.CACHES["default"], "throttles": settings.CACHES["default"]}
    caches["throttles"].clear()  # how often somebody asked for what costs money
    endpoints.forget()
    runtime.forget()
    ledger.forget_late()
    prices.forget_prices()


@pytest.fixture(autouse=True)
def _few_judgements_make_a_score(settings: Settings, request: pytest.FixtureRequest) -> None:
    """Most tests judge a message or two. Those of what a score needs are marked `usual_minimum`."""
    if request.node.get_closest_marker("usual_minimum") is None:
        settings.SCORE_MIN_JUDGEMENTS, settings.SCORE_MIN_COVERAGE = 1, 0.0


@pytest.fixture
def llm_server(settings: Settings) -> Iterator[LLMServer]:
    """A loopback server that speaks the Messages API; judge and actor are set to use it."""
    with LLMServer() as server:
        settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = server.url
        settings.JUDGE_MODEL = settings.ACTOR_MODEL = "test-model"
        settings.ANTHROPIC_API_KEY = "sk-test-secret"
        yield server


@pytest.fixture
def chat_server(llm_server: LLMServer, settings: Settings) -> LLMServer:
    """The same server, but judge and actor ask it over OpenAI's Chat Completions."""
    if not is_installed("openai"):
        missing("openai")
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = f"{llm_server.url}/v1"
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = "openai:test-model"
    settings.OPENAI_API_KEY, settings.ANTHROPIC_API_KEY = "sk-test-secret", ""
    return llm_server


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file: not to be written to, but copied. Migrating takes seconds; all workers share one."""
    own = tmp_path_factory.getbasetemp()
    return migrated_in(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture
def database_file(migrated_file: Path, tmp_path: Path) -> Path:
    """A migrated SQLite file of this test's own."""
    return Path(shutil.copy(migrated_file, tmp_path / "db.sqlite3"))


@pytest.fixture
def database_url(request: pytest.FixtureRequest, transactional_db: None) -> str:
    """The address of a database of the configured kind that other processes can use, too."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{request.getfixturevalue('database_file')}"
    own = connection.settings_dict
    return f"postgres://{own['USER']}:{own['PASSWORD']}@{own['HOST']}:{own['PORT']}/{own['NAME']}"


@pytest.fixture
def root(db: None) -> Client:
    """The browser of somebody who may do everything in the console."""
    return signed_in(superuser())


@pytest.fixture
def sentry() -> Iterator[Caught]:
    """Sentry as the settings start it, but for the transport; put back as it was afterwards."""
    before, caught = sentry_sdk.get_client(), Caught()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=caught,
        traces_sample_rate=1.0,
        include_local_variables=False,
        default_integrations=False,  # they patch other libraries for good
        auto_enabling_integrations=False,
    )
    yield caught
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before if before.is_active() else None)
