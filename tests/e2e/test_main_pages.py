"""The main pages hold what they promise to every reader: on a desk and a phone, in light and dark, by eye and by ear."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import override_settings
from django.urls import reverse
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer
from pytest_django.plugin import DjangoDbBlocker

from agents.kit.console import display
from agents.models import Agent
from correction.config.settings import resolve_config
from tests.console import tab_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.main_pages import NAMES, main_pages, other_pages

pytestmark = [pytest.mark.e2e, pytest.mark.long_setup]


@pytest.fixture(scope="module")
def site(_plain_http: None, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A console with the demo's data, made once for all pages."""
    with django_db_blocker.unblock():
        server = LiveServer("localhost")
        server._live_server_modified_settings.enable()
        with override_settings(WORKER_THREADS=1, PROPOSITION_DIRS=[]):  # SQLite in memory: one connection at a time
            call_command("demo", stdout=StringIO())
            call_command("demo", "--scene", "all", stdout=StringIO())
        User.objects.create_superuser("reader")
        yield server.url
        server.stop()
        server._live_server_modified_settings.disable()
        call_command("flush", interactive=False, verbosity=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_main_page_fits_the_window_and_axe_finds_nothing_serious(name: str, visit: Callable[..., Visitor]) -> None:
    desk, phone = visit(width=1440), visit(width=390)
    for visitor in (desk, phone):
        visitor.enter(User.objects.get(username="reader"))
        visitor.open(main_pages()[name])
        visitor.settle()
    faults = [f"on a desk: {fault}" for fault in grave_faults(desk.page)]
    faults += [f"on a phone: {fault}" for fault in grave_faults(phone.page, without=["color-contrast"])]
    desk.dress("dark")
    faults += [f"in the dark: {fault}" for fault in grave_faults(desk.page, "color-contrast")]
    faults += [f"{visitor.page.viewport_size}: wider than the window" for visitor in (desk, phone) if not visitor.fits]
    assert faults == []


def test_the_other_pages_fit_a_phone(visit: Callable[..., Visitor]) -> None:
    visitor = visit(width=390, scheme="dark")
    visitor.enter(User.objects.get(username="reader"))
    wide = []
    for path in other_pages():
        visitor.open(path)
        if not visitor.fits:
            wide.append(path)
    assert wide == []


COUNT = "addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1, true)"


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_from_home_to_a_gate_that_observes_takes_five_clicks_at_most(
    width: int, scheme: str, visit: Callable[..., Visitor]
) -> None:
    """Michael sounds like a chatbot: since when, what would the gate have sent back, and have it watch him."""
    visitor = visit(width=width, scheme=scheme)
    page = visitor.page
    page.add_init_script(COUNT)
    visitor.enter(User.objects.get(username="reader"))
    visitor.open(reverse("admin:index"))
    drift = page.locator("#drift")
    expect(drift).to_contain_text(re.compile(r"since build 41\. From \d+ \w+ \d{4}"))

    drift.get_by_role("listitem").filter(has_text="Michael").get_by_role("link", name="Read").click()
    page.get_by_role("link", name="Observe it at the gate").click()
    expect(page.locator("#threshold-adherence")).to_contain_text("scored messages would have been sent back")
    assert visitor.fits
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Messages are sent at once and judged for")).to_be_visible()
    assert int(page.evaluate("sessionStorage.clicks")) <= 5
    michael = Agent.objects.get(slug="michael")
    assert (resolve_config(michael).gate_mode, resolve_config(michael).gate_dimensions) == ("observe", ("adherence",))

    page.locator("#changes").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("everything is as before")).to_be_visible()
    assert resolve_config(michael).gate_is_off


def test_home_says_who_drifted_since_when(visit: Callable[..., Visitor], site: str) -> None:
    page = visit(User.objects.get(username="reader"), "/admin/").page
    now = page.locator("#drift")
    expect(now).to_have_attribute("data-drifted", "6")
    expect(now).to_have_attribute("data-agents", "16")
    expect(now.locator("[data-examples]")).to_be_visible()
    names = ("Stanley Hudson", "Dwight Schrute", "Michael Scott", "Angela Martin", "Kevin Malone", "Jim Halpert")
    expect(now.get_by_role("listitem")).to_have_count(len(names))
    for name in names:
        row = now.get_by_role("listitem").filter(has_text=name)
        expect(row).to_contain_text(re.compile(r"since build 41\. From \d+ \w+ \d{4}"))
        expect(row.get_by_role("link", name="Read")).to_have_attribute("href", re.compile("#change$"))
        expect(row.get_by_role("link", name="Set the gate")).to_be_visible()


def test_an_agents_overview_says_what_happened_within_three_screens(visit: Callable[..., Visitor], site: str) -> None:
    visitor = visit(width=390)
    visitor.enter(User.objects.get(username="reader"))
    high = {}
    for agent in Agent.objects.listed():
        visitor.open(display.page_url(agent))
        visitor.settle()
        first = visitor.page.locator("#change .pl-overview-sentence")
        expect(first).to_be_in_viewport(ratio=1)
        high[agent.slug] = visitor.page.evaluate("document.documentElement.scrollHeight / 844")
    assert {slug: screens for slug, screens in high.items() if screens > 3} == {}


def test_a_link_to_a_part_leads_to_the_tab_that_has_it(visit: Callable[..., Visitor], site: str) -> None:
    michael = Agent.objects.get(slug="michael")
    visitor = visit(User.objects.get(username="reader"), f"{display.page_url(michael)}#costs")
    page = visitor.page
    page.wait_for_url(f"**{tab_of(michael, 'history')}#costs")
    expect(page.locator("#costs")).to_be_attached()

    visitor.open(f"{display.page_url(michael)}#change")
    expect(page.locator("#change")).to_be_in_viewport()
    page.locator("summary", has_text="More").press("Enter")
    page.get_by_role("link", name="Prompt preview").press("Enter")
    page.wait_for_url("**/prompt/")


def test_a_point_of_a_chart_opens_its_message(visit: Callable[..., Visitor], site: str) -> None:
    michael = Agent.objects.get(slug="michael")
    visitor = visit(User.objects.get(username="reader"), f"{tab_of(michael, 'history')}#drift")
    page = visitor.page
    visitor.settle()
    points = page.evaluate("""() => {
        const chart = Chart.getChart(document.querySelector('#drift canvas')), place = chart.canvas.getBoundingClientRect();
        return chart.data.datasets.flatMap(({data}) => data).filter(({url}) => url).map(({x, y, url}) =>
            [x, place.x + chart.scales.x.getPixelForValue(x), place.y + chart.scales.y.getPixelForValue(y), url]);
    }""")
    assert len({x for x, *_ in points}) > 20, "each message has its own time"
    *_, across, down, url = min(points, key=lambda point: (point[0] < points[0][0] + 19 * 86_400, -point[2]))
    page.mouse.click(across, down)
    page.wait_for_url("**/transcript/**")
    expect(page.locator(f"#{page.url.split('#')[1]}")).to_be_in_viewport()
    assert url.partition("?")[0] in page.url


def test_the_first_tab_leads_past_the_sidebar(visit: Callable[..., Visitor], site: str) -> None:
    page = visit(User.objects.get(username="reader"), reverse("admin:evaluation_drift_overview")).page
    for key in ("Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    assert page.evaluate("document.querySelector('#content').contains(document.activeElement)")
