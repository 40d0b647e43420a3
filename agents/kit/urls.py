from django.urls import path

from agents.kit.api.root import Docs, Root, SchemaFile

urlpatterns = [
    path("", Root.as_view({"get": "retrieve"}), name="api-root"),
    path("schema/", SchemaFile.as_view({"get": "retrieve"}), name="schema"),
    path("docs/", Docs.as_view(), name="docs"),
]
