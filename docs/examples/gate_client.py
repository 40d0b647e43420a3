"""Your agent's messages through Plumbline's gate: check, write again, send, hand in. Yours: PERSONA, RULES, CHANNEL, `write`, `send`.

PLUMBLINE_URL=http://localhost:8000 PLUMBLINE_TOKEN=… python gate_client.py; needs plumbline-client (docs/clients/python), and the
set-up of docs/reference/api.md.
"""

import json
import os
import sys
from datetime import UTC, datetime
from uuid import uuid4

from plumbline_client import Client, PlumblineError, Refused

PATIENCE = float(os.environ.get("PLUMBLINE_SECONDS", "10"))  # for checking one message, all its drafts together
PERSONA = {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."}
RULES = [{"id": "calm", "claim": "Ada is calm", "rule": {"contains_none": ["!"]}}]  # checked without a model, too
CHANNEL = "shop-floor"
HEARD = [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}]


def write(feedback: str) -> str:
    """Return the next draft; here your model reads the feedback."""
    return "Your file is in the second cabinet." if feedback else "Hooray, I found your file!!!"


client = Client.from_environment()
text, check = client.gate(
    write,
    seconds=PATIENCE,
    persona=PERSONA,
    trajectory=HEARD,
    dimensions=["adherence"],
    propositions=[
        {"dimension": "adherence", "level": "evaluation", "propositions": RULES}
    ],  # beside what a model is asked
)
# send: here your channel takes the text
sent_at = datetime.now(UTC).isoformat()
message = {
    "external_id": uuid4().hex,
    "outsider": "Ada",
    "text": text,
    "sent_at": sent_at,
    "tags": {"check": check.verdict},
}
refused = check.refused
received = 0
try:  # what fails is sent again with the next ones, for repeats are no-ops
    received = client.ingest([message], channel=CHANNEL, seconds=5)["received"]
except PlumblineError as error:
    refused = refused or isinstance(error, Refused)
    print(f"not handed in: {error}", file=sys.stderr)
print(json.dumps({"text": text, "check": check.verdict, "handed_in": received == 1}))
sys.exit(int(refused))  # yours: an alarm
