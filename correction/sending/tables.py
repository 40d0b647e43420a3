"""The tables of scores that are sent, as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.registry import Prune, Table
from correction.sending.models import ScoreDelivery, ScoreReceiver

TABLES = (
    Table(
        model=ScoreReceiver,
        order=2,
        tab_of="agents.Run",
        title="Receivers of scores",
        empty="The settings SCORES_OTLP_ENDPOINT and LANGFUSE_BASE_URL name them; one is listed from its first delivery on.",
        columns="name failures=failed_in_a_row retry_at=left_alone_until created_at=since",
        fields=(("", "name failures=failed_in_a_row retry_at=left_alone_until created_at=since"),),
    ),
    Table(
        model=ScoreDelivery,
        operator="change",
        order=1,
        tab_of="agents.Run",
        title="Scores sent",
        empty="Each evaluation, attempt at the gate and change makes one, once the settings name a receiver: see Send scores in the "
        "documents.",
        columns="pk receiver kind about status error sent rejected tries tried_at=last_try created_at=queued",
        filters="status receiver kind created_at",
        fields=(
            (
                "",
                "receiver kind about status error answer_code sent rejected tries tried_at=last_try since created_at=queued finished_at",
            ),
        ),
        no_speech="error parts",
        prune=Prune(
            rows=lambda before: ScoreDelivery.objects.filter(status__in=ScoreDelivery.FINAL, finished_at__lt=before)
        ),
    ),
)
