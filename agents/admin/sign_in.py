"""Signing in to the console, where not many wrong passwords can be tried."""

from __future__ import annotations

from http import HTTPStatus

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse

from agents.api.problems import refused_for_now
from agents.api.requests import SignIns, SignInsOfUser


@login_not_required
def sign_in(request: HttpRequest) -> HttpResponse:
    """The admin site's own page; 429 after too many wrong passwords from one address or for one user name."""
    limits = [SignIns(), SignInsOfUser()] if request.method == "POST" else []
    for limit in limits:
        if not limit.allow_request(request):
            text = f"Too many attempts to sign in. Wait {limit.seconds()} seconds, then try again."
            return refused_for_now(request, HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=limit.seconds())
    response = admin.site.login(request)
    if response.status_code == HTTPStatus.FOUND:  # the password was right
        for limit in limits:
            limit.forgive()
    return response
