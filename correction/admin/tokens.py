"""What the page of a new API token offers: an example that has a draft checked, with the token in it."""

from __future__ import annotations

import json

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.models import ApiToken
from agents.models import Agent

SNIPPETS = ("curl", "Python", "TypeScript")


def example_of_check(request: HttpRequest, token: ApiToken) -> SafeString:
    """Ready to run; empty where the token's key is not known any more."""
    if not getattr(token, "key", ""):
        return SafeString("")
    agent = Agent.objects.in_use().order_by("pk").values_list("slug", flat=True).first()
    draft = {"agent": agent} if agent else {"persona": "You are Ada, a dry and careful clerk. You never cheer."}
    call = {
        "token": token,
        "url": request.build_absolute_uri(reverse("quality-check-list")),
        "body": json.dumps({**draft, "draft": "Hooray, I found your file!!!"}),
    }
    snippets = [(name, render_to_string(f"admin/correction/snippets/{name}.txt", call)) for name in SNIPPETS]
    context = {"snippets": snippets, "checks_url": display.list_url(ApiToken)}
    return render_to_string("admin/correction/token_try.html", context)
