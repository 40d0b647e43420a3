from django.urls import include, path
from rest_framework.routers import SimpleRouter

from agents.api.agents import Agents, Versions
from agents.api.channels import Channels
from agents.api.messages import ChannelMessages, Messages
from agents.api.runs import LLMCalls, Runs, Turns
from agents.api.transcripts import Spans, Transcripts

router = SimpleRouter(use_regex_path=False)
router.register("agents", Agents)
router.register("channels", Channels)
router.register("messages", Messages)
router.register("runs", Runs)
router.register("llm-calls", LLMCalls)
router.register("transcripts", Transcripts, "transcript")

urlpatterns = [
    path("agents/<slug:slug>/turns/", Turns.as_view({"get": "list", "post": "create"}), name="agent-turns"),
    path("agents/<slug:slug>/versions/", Versions.as_view({"get": "list"}), name="agent-versions"),
    path("agents/<slug:slug>/versions/<int:number>/", Versions.as_view({"get": "retrieve"}), name="agent-version"),
    path("channels/<slug:slug>/messages/", ChannelMessages.as_view({"get": "list"}), name="channel-messages"),
    path("otlp/v1/traces", Spans.as_view({"post": "create"}), name="otlp-traces"),  # as exporters of OTLP call it
    path("", include(router.urls)),
]
