"""Settings and credentials of cloud platforms whose address is the loopback server's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pytest_django import Settings

from agents.kit.llm.providers.base import is_installed
from tests.machinery import missing

MODEL = "us.anthropic.claude-haiku-5-5-v1:0"
SECRETS = {"bedrock": "bedrock-api-key", "vertex": "google-token", "foundry": "foundry-key"}
PATHS = {"bedrock": "", "vertex": "/v1", "foundry": "/anthropic"}


def needs(*modules: str) -> None:
    """Skip the test where one of the modules is not installed; except in CI."""
    if not is_installed(*modules):
        missing(modules[0])


def platform(name: str, url: str, settings: Settings) -> None:
    """Have judge and actor be a model of a platform at `url`; empty: its usual address."""
    set_accounts(settings)
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = f"{name}:{MODEL}"
    setattr(settings, f"ANTHROPIC_{name.upper()}_BASE_URL", url and url + PATHS[name])


def set_accounts(settings: Settings) -> None:
    """Set an account at each platform, and no other key or server."""
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = settings.ANTHROPIC_API_KEY = ""
    settings.AWS_REGION = "eu-west-3"
    settings.AWS_BEARER_TOKEN_BEDROCK = SECRETS["bedrock"]
    settings.CLOUD_ML_REGION = "europe-west1"
    settings.ANTHROPIC_VERTEX_PROJECT_ID = "a-project"
    settings.ANTHROPIC_FOUNDRY_RESOURCE = "a-resource"
    settings.ANTHROPIC_FOUNDRY_API_KEY = SECRETS["foundry"]


class _Tokens(BaseHTTPRequestHandler):
    """Gives everyone who asks the token of `SECRETS`."""

    def do_POST(self) -> None:
        answer = json.dumps({"access_token": SECRETS["vertex"], "expires_in": 3600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def google_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have google-auth find a service account whose tokens come from a server of this machine; skip where it is not installed."""
    needs("google.auth", "cryptography")
    server = HTTPServer(("127.0.0.1", 0), _Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    account = service_account(f"http://127.0.0.1:{server.server_port}/token")
    path = folder / "google.json"
    path.write_text(json.dumps(account), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    yield
    server.shutdown()
    server.server_close()
    thread.join(5)


@contextmanager
def hanging_credentials(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a platform's credentials come from a server of this machine that takes connections and answers none until the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if name == "bedrock":
            for setting in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
                monkeypatch.delenv(setting, raising=False)
            monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "absent"))
            monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "absent"))
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/token")
        else:
            account = service_account(f"{address}/token")
            path = folder / "hanging.json"
            path.write_text(json.dumps(account), encoding="utf-8")
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        yield


def service_account(token_uri: str) -> dict[str, str]:
    """Return the file of a service account of Google's whose tokens come from an address."""
    return {
        "type": "service_account",
        "project_id": "another-project",
        "private_key_id": "1",
        "private_key": _private_key(),
        "client_email": "judge@another-project.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }


@cache
def _private_key() -> str:
    """Return an RSA key, in PEM; making one takes a tenth of a second."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem.decode()
