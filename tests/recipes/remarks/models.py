"""What people noticed about an agent."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from agents.models import Agent


class Remark(models.Model):
    """A remark about an agent."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="remarks")
    text = models.TextField(help_text="what was noticed")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"about {self.agent}"
