"""Your agent's messages through Plumbline's gate: check, write again, send; then hand in what was said.

PLUMBLINE_URL=http://localhost:8000 PLUMBLINE_TOKEN=… python docs/examples/gate_client.py
Yours to replace: PERSONA, `write` (your model) and `send` (your channel). Needs Python 3.11 and nothing else.
"""

import json
import os
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any

URL, TOKEN = os.environ["PLUMBLINE_URL"].rstrip("/"), os.environ["PLUMBLINE_TOKEN"]
PATIENCE = float(os.environ.get("PLUMBLINE_SECONDS", "10"))  # for checking one message, all its attempts together
PERSONA = {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."}
DRAFTS = ["Hooray, I found your file!!!", "Your file is in the second cabinet."]
TRAJECTORY = [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}]
FAILURES = (OSError, HTTPException, ValueError, KeyError)  # no connection, too late, an error status, no JSON


def post(path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The answer, within so many seconds in all: a socket's own timeout counts every read anew."""
    headers = {
        "Authorization": f"Token {TOKEN}",
        "Content-Type": "application/json",
        "Idempotency-Key": uuid.uuid4().hex,
    }
    request, answer = urllib.request.Request(URL + path, json.dumps(body).encode(), headers), Future[dict[str, Any]]()

    def ask() -> None:
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                answer.set_result(json.load(response))
        except FAILURES as problem:
            answer.set_exception(problem)

    threading.Thread(target=ask, daemon=True).start()
    return answer.result(seconds)


def checked(write: Callable[[str], str]) -> tuple[str, str]:
    """What to say, and passed, rejected (no attempt passed: the best one), or unchecked (Plumbline is slow, down or unsure)."""
    until, drafts, feedback = time.monotonic() + PATIENCE, dict[int, str](), ""
    body: dict[str, Any] = {"persona": PERSONA, "trajectory": TRAJECTORY, "dimensions": ["adherence"]}
    while True:
        draft = write(feedback)
        try:
            left = max(0.1, until - time.monotonic())
            body |= {"draft": draft, "deadline_seconds": min(60, max(0.1, round(left - 0.5, 1)))}
            answer = post("/api/quality-checks/", body, left)
            drafts[answer["attempt"]] = draft
            if answer["verdict"] == "passed":
                return draft, "passed" if answer["fully_judged"] else "unchecked"
            if not answer["attempts_left"]:
                return drafts[answer["best_attempt"]], "rejected"
            body["session"], feedback = answer["session"], answer["feedback"]
        except FAILURES as problem:  # a message does not wait for its judge
            print(f"unchecked: {problem!r}", file=sys.stderr)
            return draft, "unchecked"


def hand_in(messages: list[dict[str, Any]]) -> bool:
    """Whether Plumbline has them now (at most 1,000). If not, send them again with the next ones: repeats are no-ops."""
    try:
        post("/api/messages/ingest/", {"channel": "shop-floor", "messages": messages}, 5)
    except FAILURES as problem:
        print(f"not handed in: {problem!r}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    model = iter(DRAFTS)
    text, check = checked(lambda feedback: next(model, DRAFTS[-1]))  # write: here your model reads the feedback
    said = {"external_id": uuid.uuid4().hex, "outsider": "Ada", "text": text, "tags": {"check": check}}
    said["sent_at"] = datetime.now(UTC).isoformat()  # send: here your channel takes the text
    print(json.dumps({"text": text, "check": check, "handed_in": hand_in([said])}))
