"""Requests to an installation, as programs and people send them: ``python -m tests.hosts.load URL TOKEN REQUESTS_A_SECOND``.

Prints a line of JSON for each: when it was sent, what it was, the status (0: no answer) and the seconds. Ends on SIGTERM, after the
requests under way. Each request has a connection of its own and is sent once.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode, urlsplit

# Ten requests in their order.
KINDS = ("read", "ingest", "check", "read", "page", "ingest", "read", "check", "read", "ingest")
READS = itertools.cycle(("/api/agents/", "/api/evaluations/?page_size=20", "/api/messages/?channel=office"))
PAGES = itertools.cycle(("/admin/", "/admin/agents/agent/", "/admin/evaluation/evaluationrun/"))
CHECK = {
    "persona": {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk."},
    "trajectory": [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}],
    "draft": "In the second cabinet.",
    "dimensions": ["adherence"],
}


class Client:
    def __init__(self, url: str, token: str) -> None:
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port
        self.token, self.cookies = token, ""
        self.numbers = itertools.count(1)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, Any, bytes]:
        sent = {"Host": "plumbline.example.org", "X-Forwarded-Proto": "https", "Connection": "close", **headers}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=130)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def log_in(self, name: str, password: str) -> None:
        _, headers, page = self.ask("GET", "/admin/login/", {})
        [cookie] = re.findall(r"csrftoken=\w+", str(headers["Set-Cookie"]))
        [value] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.decode())
        form = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": value}).encode()
        sent = {"Content-Type": "application/x-www-form-urlencoded", "Referer": "https://plumbline.example.org/"}
        status, answered, _ = self.ask("POST", "/admin/login/?next=/admin/", {**sent, "Cookie": cookie}, form)
        assert status == 302, status
        self.cookies = "; ".join(re.findall(r"(?:sessionid|csrftoken)=\w+", "".join(answered.get_all("Set-Cookie"))))

    def send(self, kind: str) -> int:
        if kind == "page":
            return self.ask("GET", next(PAGES), {"Cookie": self.cookies})[0]
        known = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        if kind == "read":
            return self.ask("GET", next(READS), known)[0]
        if kind == "check":
            return self.ask("POST", "/api/quality-checks/", known, json.dumps(CHECK).encode())[0]
        number = next(self.numbers)
        message = {"external_id": f"load-{number}", "outsider": "Bob", "text": f"Message {number}."}
        body = {"channel": "load", "messages": [message]}
        return self.ask("POST", "/api/messages/ingest/", known, json.dumps(body).encode())[0]


def main() -> None:
    url, token, rate = sys.argv[1:]
    client = Client(url, token)
    client.log_in("ada", "pass-for-trials")
    stop, lock = threading.Event(), threading.Lock()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def one(kind: str) -> None:
        at, status = time.time(), 0
        try:
            status = client.send(kind)
        except (OSError, http.client.HTTPException) as error:
            kind += f": {error!r}"
        with lock:
            sys.stdout.write(json.dumps([at, kind, status, round(time.time() - at, 3)]) + "\n")
            sys.stdout.flush()

    with ThreadPoolExecutor(90) as threads:  # nginx allows an address 100 at a time
        begun = time.monotonic()
        for number, kind in enumerate(itertools.cycle(KINDS)):
            if stop.wait(max(0.0, begun + number / float(rate) - time.monotonic())):
                break
            threads.submit(one, kind)


if __name__ == "__main__":
    main()
