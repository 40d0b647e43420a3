"""A person in front of the console: users with permissions, and the pages they open."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

HOSTILE = "<script>alert('x')</script>"


class Browser(Client):
    """A client that comes over HTTPS: the shipped settings redirect everything else."""

    def request(self, **request: Any) -> Any:
        return super().request(**{**request, "wsgi.url_scheme": "https"})


def superuser(username: str = "root") -> User:
    return User.objects.create_superuser(username)


def staff(*permissions: str, username: str = "staff") -> User:
    """Somebody who may enter the console and has these permissions, written ``app.codename``."""
    user = User.objects.create_user(username, is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return user


def viewer(username: str = "viewer") -> User:
    """Somebody who may view everything and change nothing."""
    user = User.objects.create_user(username, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return user


def in_group(name: str) -> User:
    """Return a new user of this group, named after it, who may enter the console."""
    user = User.objects.create_user(name.lower(), is_staff=True)
    user.groups.add(Group.objects.get(name=name))
    return user


def signed_in(user: User) -> Client:
    client = Browser()
    client.force_login(user)
    return client


def list_of(model: type[Model], query: str = "") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") + query


def page_of(row: Model, view: str = "change") -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{view}", args=[row.pk])


def tab_of(row: Model, tab: str) -> str:
    """The address of a tab of the row's page."""
    return f"{page_of(row)}?tab={tab}"


def read(client: Client, url: str) -> str:
    """The page's HTML, which must be there."""
    response = client.get(url)
    assert response.status_code == 200, f"{url} answered {response.status_code}"
    return response.content.decode()


def plain(html: str) -> str:
    """The text of a page as a person reads it."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def row_about(html: str, *texts: str) -> str:
    """The text of the one row of a table or list that has all of these texts."""
    rows = [plain(row) for row in re.findall(r"<tr\b.*?</tr>|<li\b.*?</li>", html, flags=re.S)]
    (row,) = [row for row in rows if all(text in row for text in texts)]
    return row


def figures(text: str) -> list[str]:
    """The numbers in a text, smaller ones first."""
    return sorted(re.findall(r"\d[\d,]*(?:\.\d+)?", text), key=lambda figure: float(figure.replace(",", "")))


def drawn(html: str) -> list[dict[str, Any]]:
    """What the charts of a page are drawn from."""
    return [json.loads(unescape(data)) for data in re.findall(r'<canvas [^>]*data-value="([^"]*)"', html)]


def queries(client: Client, url: str) -> list[str]:
    """The SQL that a page needs once caches such as content types and permissions are warm."""
    read(client, url)
    with CaptureQueriesContext(connection) as captured:
        read(client, url)
    return [query["sql"] for query in captured.captured_queries]


def confirm(client: Client, url: str, **chosen: Any) -> Any:
    """Choose on a page that asks first, look at what it takes, and press its button; the answer, or the page that refused."""
    page = client.post(url, chosen)
    seen = re.search(r'name="seen" value="(\w+)"', page.content.decode())
    return client.post(url, {**chosen, "seen": seen[1]}) if seen else page
