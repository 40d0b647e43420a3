"""What the page of a new API token offers: an example that has a draft checked, with the token in it."""

from __future__ import annotations

import json

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.models import ApiToken
from agents.models import Agent

SNIPPETS = ("curl", "Python", "TypeScript")


def example_of_check(request: HttpRequest, token: ApiToken) -> SafeString:
    """Show an example that has a draft checked, ready to run with the token; nothing where the token's key is not known any more.

    It names an agent in use, or a persona of its own where there is none.
    """
    if not getattr(token, "key", ""):
        return SafeString("")
    agent = Agent.objects.in_use().order_by("pk").values_list("slug", flat=True).first()
    body = {"agent": agent} if agent else {"persona": "You are Ada, a dry and careful clerk. You never cheer."}
    body["draft"] = "Hooray, I found your file!!!"
    call = {
        "token": token,
        "url": request.build_absolute_uri(reverse("quality-check-list")),
        "body": json.dumps(body),
    }
    snippets = [(name, render_to_string(f"admin/correction/snippets/{name}.txt", call)) for name in SNIPPETS]
    return render_to_string("admin/correction/token_try.html", {"snippets": snippets})
