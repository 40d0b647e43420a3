from django.urls import path

from agents.api.agents import Agents, OneAgent, Version, Versions
from agents.api.channels import Channels, OneChannel
from agents.api.ingest import Ingest
from agents.api.messages import ChannelMessages, Messages, OneMessage
from agents.api.root import Docs, Root, SchemaFile
from agents.api.runs import CancelRun, LLMCalls, OneLLMCall, OneRun, Prompt, Runs, RunTrace, Turns
from agents.api.send import Send
from agents.api.transcripts import Transcripts

app_name = "agents"
urlpatterns = [
    path("", Root.as_view(), name="root"),
    path("schema/", SchemaFile.as_view(), name="schema"),
    path("docs/", Docs.as_view(), name="docs"),
    path("agents/", Agents.as_view(), name="agents"),
    path("agents/<slug:slug>/", OneAgent.as_view(), name="agent"),
    path("agents/<slug:slug>/prompt/", Prompt.as_view(), name="agent-prompt"),
    path("agents/<slug:slug>/turns/", Turns.as_view(), name="agent-turns"),
    path("agents/<slug:slug>/versions/", Versions.as_view(), name="agent-versions"),
    path("agents/<slug:slug>/versions/<int:number>/", Version.as_view(), name="agent-version"),
    path("channels/", Channels.as_view(), name="channels"),
    path("channels/<slug:slug>/", OneChannel.as_view(), name="channel"),
    path("channels/<slug:slug>/messages/", ChannelMessages.as_view(), name="channel-messages"),
    path("messages/", Messages.as_view(), name="messages"),
    path("messages/ingest/", Ingest.as_view(), name="ingest"),
    path("messages/send/", Send.as_view(), name="send"),
    path("messages/<int:pk>/", OneMessage.as_view(), name="message"),
    path("transcripts/", Transcripts.as_view(), name="transcripts"),
    path("runs/", Runs.as_view(), name="runs"),
    path("runs/<int:pk>/", OneRun.as_view(), name="run"),
    path("runs/<int:pk>/trace/", RunTrace.as_view(), name="run-trace"),
    path("runs/<int:pk>/cancel/", CancelRun.as_view(), name="run-cancel"),
    path("llm-calls/", LLMCalls.as_view(), name="llm-calls"),
    path("llm-calls/<int:pk>/", OneLLMCall.as_view(), name="llm-call"),
]
