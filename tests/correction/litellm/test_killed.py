"""A process that dies in the middle of a stream: another one goes on with the row, and no text is doubled or changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from django.conf import settings

from tests import zygote
from tests.correction.litellm.gateway import judging
from tests.llm_server import LLMServer

FIRST = """
import django; django.setup()
from correction.config.configure import configure
from tests.api_client import program
from tests.console import superuser
from tests.correction.litellm.gateway import call
from tests.factories import make_agent
configure(agent=make_agent("ada"), changes={"gate_adherence_enabled": True})
stream = call(program(superuser()), agent="ada", call_id="killed")
stream.response("I filed it. Hoo")
print(stream.sent[0], flush=True)
stream.response("I filed it. Hooray! So")
"""
SECOND = """
import json, sys, django; django.setup()
from django.contrib.auth.models import User
from agents.models import Message
from correction.models import CorrectionLog
from tests.api_client import program
from tests.correction.litellm.gateway import call, end_replies
stream = call(program(User.objects.get()), announced=False, agent="ada", call_id="killed", sent={0: sys.argv[1]})
stream.response("I filed it. Hooray! So it is. And so on. And on.", is_last=True)
end_replies()
outcomes = list(CorrectionLog.objects.order_by("pk").values_list("outcome", flat=True))
texts = list(Message.objects.order_by("position").values_list("text", flat=True))
print(json.dumps([stream.sent[0], outcomes, texts]))
"""


@pytest.mark.slow
def test_a_process_killed_while_it_writes_again_is_followed_by_another(database_url: str) -> None:
    with LLMServer() as server:
        server.respond = judging(Hooray=1, actor=[{"hang": True}, "It is upstairs."])
        environment = os.environ | {
            "DATABASE_URL": database_url,
            "DEBUG": "1",
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "JUDGE_MODEL": "m",
            "ACTOR_MODEL": "m",
            "JUDGE_BASE_URL": server.url,
            "ACTOR_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "sk-test",
            "ALLOWED_HOSTS": "*",
            "SECRET_KEY": "the same in both processes",
        }
        dying = zygote.Popen(
            [sys.executable, "-c", FIRST], env=environment, cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True
        )
        assert dying.stdout is not None
        sent = dying.stdout.readline().removesuffix("\n")
        assert sent == "I filed it."
        assert server.wait_until(lambda: "output_config" not in server.bodies[-1], timeout=120), "it writes again"
        os.kill(dying.pid, signal.SIGKILL)
        dying.wait(10)

        done = zygote.run(
            [sys.executable, "-c", SECOND, sent],
            env=environment,
            cwd=settings.BASE_DIR,
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert done.returncode == 0, done.stderr
    said, outcomes, texts = json.loads(done.stdout)
    assert said == "I filed it. It is upstairs."
    assert outcomes == ["corrected", "corrected", "passed_after_retry"]
    assert texts == ["Well?", said]
