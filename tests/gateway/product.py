"""Plumbline under gunicorn with one agent whose gate is on, and a judge that sends back what is planted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.evaluation.judging import entry, tail_of
from tests.gateway.planted import MARK
from tests.gateway.proxy import HOST
from tests.llm_server import LLMServer
from tests.machinery import Plumbline, free_port, wait_until

AGENT = "angela"
PERSONA = "You are Angela, a dry and careful clerk."
SET_UP = f"""
from django.contrib.auth.models import Group, User
from agents.kit.models import ApiToken
from agents.models import Agent
from agents.personas.persona import save_persona
from correction.models import AgentEvaluationConfig
user = User.objects.create_user("gateway")
user.groups.add(Group.objects.get(name="Operator"))
agent = Agent(slug="{AGENT}", display_name="Angela", system_prompt="{PERSONA}")
save_persona(agent=agent, note="gateway")
AgentEvaluationConfig.objects.create(agent=agent, gate_mode="enforce", gate_adherence_enabled=True)
AgentEvaluationConfig.objects.update_or_create(is_defaults=True, defaults={{"gate_mode": "enforce", "gate_adherence_enabled": True}})
print(ApiToken.make(user=user, name="gateway", expires_at=None)[1])
"""

ALL_ARE_OVER = """
from django.utils import timezone
from correction.litellm.models import GatedReply
GatedReply.objects.filter(status="pending").update(lease_expires_at=timezone.now())
"""
MESSAGES = """
import json
from agents.models import Message
rows = Message.objects.order_by("channel", "position").values("channel__slug", "agent__slug", "outsider", "text")
print(json.dumps(list(rows)))
"""


class Judge(LLMServer):
    """A judge: 2 for a draft with a planted sentence, else 8.

    Attributes:
        latency: Seconds before it answers.
        hangs: Whether it never answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latency = 0.0
        self.hangs = False
        self.respond = self._judge

    def _judge(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.hangs:
            return {"hang": True}
        answer = entry(2, reasoning="It cheers.") if MARK in tail_of(body) else entry(8)
        if "flaws" in str(body.get("output_config", "")):
            answer["flaws"] = []
        return {"json": answer, "latency": self.latency}


class Product:
    """gunicorn inside a ``with`` block, on an empty database with all tables."""

    def __init__(self, folder: Path, database_url: str, judge: Judge, **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/api/litellm"
        environment = {
            "DATABASE_URL": database_url,
            "WEB_BIND": f"127.0.0.1:{self.port}",
            "DEBUG": "false",  # as in production: another host name or plain http is refused
            "PRODUCTION": "false",
            "ALLOWED_HOSTS": HOST,
            "TRUST_PROXY_HEADERS": "true",
            "SECRET_KEY": "of-a-test" * 8,
            "WEB_PROCESSES": "1",
            "WEB_THREADS": "64",
            "CELERY_BROKER_URL": "",
            "JUDGE_BASE_URL": judge.url,
            "JUDGE_MODEL": "test-model",
            "ACTOR_MODEL": "angela-rewriter",
            "ANTHROPIC_API_KEY": "sk-of-the-proxy",
            "PROPOSITION_DIRS": "",
            "SENTRY_DSN": "",
            **settings,
        }
        self.plumbline = Plumbline(folder, environment)
        self.token = self.plumbline.manage("shell", "-v", "0", "-c", SET_UP).split()[-1]
        self.web: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.web = self.plumbline.start("web", "-m", "gunicorn", "-c", "python:project.gunicorn", "project.wsgi")
        wait_until(self._answers, timeout=120, what="gunicorn answers")
        return self

    def __exit__(self, *_: object) -> None:
        self.plumbline.stop()

    def workers(self) -> list[int]:
        """Return the process ids of gunicorn's workers."""
        assert self.web is not None
        children = Path(f"/proc/{self.web.pid}/task/{self.web.pid}/children").read_text().split()
        return [int(pid) for pid in children]

    def kill_workers(self) -> list[int]:
        """End gunicorn's workers as when the machine dies, and return which; its master starts others."""
        workers = self.workers()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        return workers

    def cpu_seconds(self) -> float:
        """Return the processor time that gunicorn's workers have used."""
        ticks = 0
        for pid in self.workers():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def store_replies(self) -> list[dict[str, Any]]:
        """Let a worker store the replies so far, as if they had been over for a minute; return all messages."""
        self.plumbline.manage("shell", "-v", "0", "-c", ALL_ARE_OVER)
        self.plumbline.manage("work", "--once")
        messages: list[dict[str, Any]] = json.loads(self.plumbline.manage("shell", "-v", "0", "-c", MESSAGES))
        return messages

    def _answers(self) -> bool:
        assert self.web is not None
        assert self.web.poll() is None, self.plumbline.log_of("web")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True
