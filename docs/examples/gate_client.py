"""Your agent's messages through Plumbline's gate: check, write again, send, hand in. Yours: PERSONA, RULES, CHANNEL, `write`, `send`.

PLUMBLINE_URL=http://localhost:8000 PLUMBLINE_TOKEN=… python gate_client.py; needs Python 3.11, and the set-up of docs/reference/api.md.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

URL, TOKEN = os.environ["PLUMBLINE_URL"].rstrip("/"), os.environ["PLUMBLINE_TOKEN"]
PATIENCE = float(os.environ.get("PLUMBLINE_SECONDS", "10"))  # for checking one message, all its attempts together
PERSONA = {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."}
RULES = [{"id": "calm", "claim": "Ada is calm", "rule": {"contains_none": ["!"]}}]  # checked without a model, too
CHANNEL, DRAFTS = "shop-floor", ["Hooray, I found your file!!!", "Your file is in the second cabinet."]
HEARD = [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}]
FAILURES, ASKING = (OSError, HTTPException, ValueError, KeyError), ThreadPoolExecutor()
REFUSED: list[str] = []  # answers that no retry will change: a wrong token, address or body


def post(path: str, body: dict[str, Any], seconds: float) -> Any:
    """The answer, within so many seconds in all: a socket's own timeout counts each read by itself."""
    headers = {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json", "Idempotency-Key": uuid4().hex}
    request = Request(URL + path, json.dumps(body).encode(), headers)
    try:
        return ASKING.submit(lambda: json.load(urlopen(request, timeout=seconds))).result(seconds)
    except HTTPError as error:
        if 400 <= error.code < 429:
            REFUSED.append(f"PLUMBLINE REFUSED THIS, NOTHING IS CHECKED: {error.code} {error.read(300).decode()}")
        raise


def checked() -> tuple[str, str]:
    """What to say, and passed, rejected (no attempt passed: the best one), or unchecked (Plumbline is slow, down or has no model)."""
    body: dict[str, Any] = {"persona": PERSONA, "trajectory": HEARD, "dimensions": ["adherence"]}
    body["propositions"] = [{"dimension": "adherence", "level": "evaluation", "propositions": RULES}]
    until, drafts, feedback = time.monotonic() + PATIENCE, dict[int, str](), ""
    while True:
        draft, left = DRAFTS[bool(feedback)], max(0.1, until - time.monotonic())  # write: your model reads the feedback
        try:
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


text, check = checked()
said = {"external_id": uuid4().hex, "outsider": "Ada", "text": text, "tags": {"check": check}}
said["sent_at"] = datetime.now(UTC).isoformat()  # send: here your channel takes the text
stored = 0
try:  # at most 1,000 at a time; what fails is sent again with the next ones, for repeats are no-ops
    stored = post("/api/messages/ingest/", {"channel": CHANNEL, "messages": [said]}, 5)["received"]
except FAILURES as problem:
    print(f"not handed in: {problem!r}", file=sys.stderr)
print(json.dumps({"text": text, "check": check, "handed_in": stored == 1}))
sys.exit("\n".join(REFUSED) or 0)  # yours: an alarm
