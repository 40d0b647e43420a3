from django.urls import include, path
from rest_framework.routers import SimpleRouter

from agents.api.agents import Agents, Versions
from agents.api.alerts import Alerts
from agents.api.channels import Channels
from agents.api.debates import Debates
from agents.api.messages import ChannelMessages, Messages
from agents.api.root import Docs, Root, SchemaFile
from agents.api.runs import LLMCalls, Runs, Turns
from agents.api.swarms import Dialogs, Swarms
from agents.api.transcripts import Spans, Transcripts

router = SimpleRouter(use_regex_path=False)
router.register("agents", Agents)
router.register("channels", Channels)
router.register("alerts", Alerts)
router.register("messages", Messages)
router.register("runs", Runs)
router.register("debates", Debates)
router.register("swarms", Swarms)
router.register("llm-calls", LLMCalls)
router.register("transcripts", Transcripts, "transcript")

urlpatterns = [
    path("", Root.as_view({"get": "retrieve"}), name="api-root"),
    path("schema/", SchemaFile.as_view({"get": "retrieve"}), name="schema"),
    path("docs/", Docs.as_view(), name="docs"),
    path("agents/<slug:slug>/turns/", Turns.as_view({"get": "list", "post": "create"}), name="agent-turns"),
    path("agents/<slug:slug>/versions/", Versions.as_view({"get": "list"}), name="agent-versions"),
    path("agents/<slug:slug>/versions/<int:number>/", Versions.as_view({"get": "retrieve"}), name="agent-version"),
    path(
        "agents/<slug:slug>/dialogs/<slug:channel>/",
        Dialogs.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="agent-dialog",
    ),
    path("channels/<slug:slug>/messages/", ChannelMessages.as_view({"get": "list"}), name="channel-messages"),
    path("otlp/v1/traces", Spans.as_view({"post": "create"}), name="otlp-traces"),  # as exporters of OTLP call it
    path("", include(router.urls)),
]
