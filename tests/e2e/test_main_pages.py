"""The main pages hold what they promise to everybody who reads them: on a desk and a phone, in light and dark, by eye and by ear."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from pytest_django.live_server_helper import LiveServer

from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.main_pages import main_pages

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

WINDOWS = [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")]


def test_the_main_pages_fit_the_window_and_axe_finds_nothing_serious(
    visit: Callable[..., Visitor], live_server: LiveServer, operator: User
) -> None:
    call_command("demo", stdout=StringIO())
    faults = []
    for width, scheme in WINDOWS:
        visitor = visit(width=width, scheme=scheme)
        visitor.enter(operator)
        for name, path in main_pages().items():
            visitor.open(path)
            visitor.page.wait_for_load_state("networkidle")
            window = f"{name} at {width} px, {scheme}"
            faults += [f"{window}: {fault}" for fault in grave_faults(visitor.page)]
            if not visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                faults.append(f"{window}: wider than the window")
    assert faults == []
