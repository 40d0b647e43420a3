"""A program in front of the API: a client with somebody's token, over HTTPS, that speaks JSON."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient


class Program(APIClient):
    """A client that comes over HTTPS: the shipped settings redirect everything else."""

    def request(self, **request: Any) -> Any:
        return super().request(**{**request, "wsgi.url_scheme": "https"})


def program(user: User | None = None) -> Program:
    """A client with the user's token; anonymous without one."""
    client = Program()
    if user is not None:
        client.credentials(HTTP_AUTHORIZATION=f"Token {Token.objects.get_or_create(user=user)[0].key}")
    return client
