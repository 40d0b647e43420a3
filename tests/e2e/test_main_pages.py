"""The main pages hold what they promise to every reader: on a desk and a phone, in light and dark, by eye and by ear."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer
from pytest_django.plugin import DjangoDbBlocker

from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.main_pages import NAMES, main_pages

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def site(_plain_http: None, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A console with the demo's data, made once for all pages."""
    with django_db_blocker.unblock():
        server = LiveServer("localhost")
        server._live_server_modified_settings.enable()
        with override_settings(WORKER_THREADS=1, PROPOSITION_DIRS=[]):  # SQLite in memory: one connection at a time
            call_command("demo", stdout=StringIO())
        User.objects.create_superuser("reader")
        yield server.url
        server.stop()
        server._live_server_modified_settings.disable()
        call_command("flush", interactive=False, verbosity=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_main_page_fits_the_window_and_axe_finds_nothing_serious(name: str, visit: Callable[..., Visitor]) -> None:
    path, faults = main_pages()[name], []
    for width in (1440, 390):
        visitor = visit(width=width)
        visitor.enter(User.objects.get(username="reader"))
        visitor.open(path)
        visitor.page.wait_for_load_state("networkidle")
        if not visitor.fits:
            faults.append(f"{width} px: wider than the window")
        faults += [f"{width} px: {fault}" for fault in grave_faults(visitor.page)]
        visitor.dress("dark")
        faults += [f"{width} px, dark: {fault}" for fault in grave_faults(visitor.page, "color-contrast")]
    assert faults == []
