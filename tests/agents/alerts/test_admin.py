"""Alerts and receivers in the console: who sees and does what, and that hostile titles stay text."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import acknowledge, raise_alert
from agents.alerts.webhook import secret_of
from tests.console import HOSTILE, in_group, list_of, page_of, plain, read, signed_in, staff, viewer
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

HOOK = "https://hooks.example.com/services/T0KEN"


@pytest.fixture
def hook() -> Receiver:
    return Receiver.objects.create(name="pager", channel="webhook", address=HOOK)


def test_the_bell_counts_what_nobody_acknowledged_on_every_page(root: Client) -> None:
    for number in range(7):
        raise_alert(kind="budget", about=f"{number}", title=f"{HOSTILE} item-{number}")
    acknowledge(Alert.objects.filter(about="6"), user=None)

    for page in ("/admin/", list_of(Receiver), "/admin/help/"):
        html = read(root, page)
        assert 'aria-label="6 alerts to acknowledge"' in html
        assert HOSTILE not in html
        bell = html.partition('class="pl-bell-list"')[2].partition("</details>")[0]
        assert [f"item-{number}" in plain(bell) for number in range(7)] == [False, *[True] * 5, False]


def test_who_may_not_view_alerts_has_no_bell() -> None:
    assert "pl-bell" not in read(signed_in(staff("agents.view_agent")), "/admin/")


def test_an_operator_acknowledges_with_a_note_and_takes_it_back() -> None:
    alert = raise_alert(kind="judge_down", about="x", title="The judge is down", lasts=True)
    client = signed_in(in_group("Operator"))

    client.post(page_of(alert, "acknowledge_one"), {"note": f"restarting {HOSTILE}"})
    html = read(client, page_of(alert))
    assert "restarting" in html
    assert HOSTILE not in html
    assert "acknowledged, lasts" in plain(read(client, list_of(Alert)))

    client.post(page_of(alert, "take_back_one"))
    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.acknowledged_by, alert.note) == (None, None, "")


def test_an_alert_names_what_it_is_about_and_where_the_change_is(root: Client) -> None:
    ada = make_agent("ada")
    fell = raise_alert(kind="drift", about="a", title="Adherence fell", agent=ada, page=ada)
    bare = raise_alert(kind="budget", about="b", title="It is used up", agent=ada)

    html = read(root, page_of(fell))
    assert f'href="{page_of(ada)}"' in html
    assert re.search(rf'href="{page_of(ada)}#change"[^>]*>what changed in Ada', html)
    assert "what changed in" not in read(root, page_of(bare))
    shown = plain(read(root, "/admin/review/?kind=alerts"))
    assert "what changed in Ada" in shown or "It is used up" in shown
    assert "Lasts" not in shown


@pytest.mark.parametrize(
    ("channel", "address", "shown"),
    [
        ("webhook", HOOK, "hooks.example.com"),
        ("service", "https://discord.com/api/webhooks/4174216298/T0KEN", "discord.com"),
        ("service", "pagerduty://T0KEN@s3cret", "pagerduty"),
    ],
)
def test_only_those_who_may_change_a_webhook_see_its_address_and_secret(
    hook: Receiver, channel: str, address: str, shown: str
) -> None:
    hook.channel, hook.address = channel, address
    hook.save()
    secret = secret_of(hook.salt.hex)

    for client in (signed_in(viewer()), signed_in(in_group("Operator"))):
        pages = read(client, page_of(hook)) + read(client, list_of(Receiver))
        assert shown in pages
        assert "T0KEN" not in pages
        assert "s3cret" not in pages
        assert secret not in pages
    html = read(signed_in(in_group("Editor")), page_of(hook))
    assert address in html
    assert (secret in plain(html)) is (channel == "webhook")


def test_a_test_is_queued_only_for_an_active_receiver(hook: Receiver, root: Client) -> None:
    root.post(page_of(hook, "test"))
    assert Delivery.objects.get().status == "pending"
    assert "waiting" in plain(read(root, list_of(Delivery)))

    Receiver.objects.update(is_active=False)
    assert "it is not active" in plain(root.post(page_of(hook, "test"), follow=True).content.decode())
    assert Delivery.objects.count() == 1


def test_acknowledging_many_asks_for_a_note_first(root: Client) -> None:
    for about in "ab":
        raise_alert(kind="budget", about=about, title="It is used up")
    chosen = {"action": "acknowledge", "_selected_action": list(Alert.objects.values_list("pk", flat=True))}

    assert "Acknowledge: 2 alerts" in plain(root.post(list_of(Alert), chosen).content.decode())
    assert not Alert.objects.exclude(acknowledged_at=None).exists()
    root.post(list_of(Alert), {**chosen, "confirmed": "1", "note": "known"})
    assert list(Alert.objects.values_list("note", flat=True)) == ["known", "known"]


def test_alerts_of_examples_are_not_listed_beside_a_team_s_own(root: Client) -> None:
    kelly = make_agent("kelly", origin="seed")
    raise_alert(kind="drift", about="k", title="Of Kelly", agent=kelly)
    raise_alert(kind="judge_down", about="j", title="Of nobody")
    assert "Of Kelly" in plain(read(root, list_of(Alert)))

    raise_alert(kind="drift", about="a", title="Of Ada", agent=make_agent("ada"))
    shown = plain(read(root, list_of(Alert)))
    assert "Of Ada" in shown
    assert "Of nobody" in shown
    assert "Of Kelly" not in shown
    assert "Of Kelly" in plain(read(root, f"{list_of(Alert)}?agent__id__exact={kelly.pk}"))


def test_a_list_that_leaves_out_only_alerts_of_examples_says_so_and_links_to_them(root: Client) -> None:
    kelly = make_agent("kelly", origin="seed")
    raise_alert(kind="drift", about="k", title="Of Kelly", agent=kelly)
    make_agent("ada")

    page = read(root, list_of(Alert))

    assert "No alerts yet" not in plain(page)
    by_agent = f"?agent__id__exact={kelly.pk}"
    assert f'href="{by_agent}"' in page
    assert "Of Kelly" in plain(read(root, list_of(Alert) + by_agent))
