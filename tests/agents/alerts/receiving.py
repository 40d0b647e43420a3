"""Receivers on loopback: a webhook that answers as it is told, and a mail server that only takes connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """A webhook. `status` and `headers` are what it answers; it says nothing while `hangs`, and a byte at a time while it `trickles`."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.headers, self.hangs, self.trickles = 204, dict[str, str](), False, False
        self.came, self.over = threading.Event(), threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                hook.came.set()
                if hook.hangs:
                    hook.over.wait(60)
                    return
                if hook.trickles:
                    try:
                        while not hook.over.wait(0.05):
                            self.wfile.write(b"H")
                    except OSError:
                        return
                self.send_response(hook.status)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?token=s3cret"

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers, _ in self.requests]


@contextmanager
def listening() -> Iterator[Hook]:
    hook = Hook()
    thread = threading.Thread(target=hook.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.over.set()
        hook.server.shutdown()
        hook.server.server_close()


@contextmanager
def silent_mail_server() -> Iterator[int]:
    """The port of a mail server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
