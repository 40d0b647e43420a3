"""Real Chromium in front of the console, served with the shipped security policy.

Whatever the browser complains about on the way fails the test: errors in its console, refused sources, failed requests,
requests to another host.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from shutil import which
from typing import Literal
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.e2e.axe import grave_faults

# The headless shell is Chromium without its windows: the tests take two thirds of the time.
CHROMIUM = os.environ.get("CHROMIUM") or which("chromium-headless-shell") or which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", event =>
    console.error("policy violation: " + event.violatedDirective + " " + event.blockedURI));
"""
DRAWN = "[...document.querySelectorAll('canvas')].every(canvas => window.Chart?.getChart(canvas))"
PASSWORD = "correct horse"
PATIENCE = 30_000  # milliseconds; the machine may be busy
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; its event loop would otherwise forbid the database to this thread."""
    if not CHROMIUM and os.environ.get("CI") != "true":
        pytest.skip(
            "needs Chromium: Debian's chromium-headless-shell or chromium, or its path in CHROMIUM (in CI this is a failure)"
        )
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def _plain_http() -> Iterator[None]:
    """The test server has no certificate, and hashing a password well takes a second; all else stays as it is shipped."""
    plain = {
        "SECURE_SSL_REDIRECT": False,
        "SESSION_COOKIE_SECURE": False,
        "CSRF_COOKIE_SECURE": False,
    }
    with override_settings(**plain, PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(scope="session")
def live_server(_plain_http: None, live_server: LiveServer) -> LiveServer:
    """pytest-django's server, started under the settings above: middleware reads them once."""
    return live_server


@dataclass
class Visitor:
    """A page in a window, and what went wrong in it so far."""

    page: Page
    home: str
    problems: list[str] = field(default_factory=list)
    unanswered: set[Request] = field(default_factory=set)

    def __post_init__(self) -> None:
        page = self.page
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", lambda said: self.note(f"{said.type}: {said.text}", when=said.type in ("error", "warning")))
        page.on("pageerror", lambda error: self.note(f"exception: {error}"))
        page.on("request", lambda asked: self.note(f"foreign request: {asked.url}", when=self.is_foreign(asked.url)))
        page.on("response", lambda got: self.note(f"{got.status}: {got.url}", when=got.status >= 400))
        page.on("request", lambda request: self.unanswered.add(request))
        page.on("requestfinished", lambda request: self.unanswered.discard(request))
        page.on("requestfailed", lambda request: self.unanswered.discard(request))

    def note(self, problem: str, *, when: bool = True) -> None:
        if when:
            self.problems.append(f"{urlsplit(self.page.url).path}: {problem}")

    def is_foreign(self, url: str) -> bool:
        return not url.startswith((self.home, "data:", "blob:"))

    @property
    def fits(self) -> bool:
        """Whether the page can be read without scrolling sideways, once its styles are there."""
        self.page.wait_for_load_state()
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    def faults(self) -> list[str]:
        """Return what is wrong with the page: too wide for the window, or what axe finds serious."""
        return [*([] if self.fits else ["wider than the window"]), *grave_faults(self.page)]

    def open(self, path: str) -> None:
        self.page.goto(self.home + path)

    def settle(self) -> None:
        """Wait until the page has drawn its charts, has nothing to do, and all it asked for has come."""
        self.page.wait_for_load_state()
        self.page.wait_for_function(DRAWN)
        self.page.evaluate("new Promise(done => requestIdleCallback(done, {timeout: 2000}))")
        until = time.monotonic() + 10
        while self.unanswered and time.monotonic() < until:
            self.page.wait_for_timeout(20)

    def dress(self, scheme: Literal["light", "dark"]) -> None:
        """Show the open page in a theme, as the console's own switch does."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", scheme == "dark")

    def enter(self, user: User) -> None:
        """Be signed in already."""
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self.page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": self.home}])

    def sign_in(self, user: User) -> None:
        """Sign in as people do; ends on the first page of the console."""
        self.open("/admin/")
        self.page.get_by_label("Username").fill(user.get_username())
        self.page.locator("[name=password]").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url("**/admin/")


@pytest.fixture
def site(live_server: LiveServer) -> str:
    """The address of the console; its data ends with the test."""
    return live_server.url


@pytest.fixture
def visit(chromium: Browser, site: str) -> Iterator[Callable[..., Visitor]]:
    """Opens a window: ``visit(user, path, width=390, scheme="dark")``. What it met must have been without fault in the end."""
    visitors: list[Visitor] = []

    def open_window(user: User | None = None, path: str = "", *, width: int = 1440, scheme: str = "light") -> Visitor:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        context.set_default_timeout(PATIENCE)
        visitor = Visitor(context.new_page(), site)
        visitors.append(visitor)
        if user is not None:
            visitor.enter(user)
            visitor.open(path)
        return visitor

    yield open_window
    for visitor in visitors:
        visitor.settle()  # what fails late fails the test, too
        visitor.page.context.close()
    assert [problem for visitor in visitors for problem in visitor.problems] == []


@pytest.fixture
def operator(live_server: LiveServer) -> User:
    """Somebody who may do everything."""
    return User.objects.create_superuser("operator", password=PASSWORD)
