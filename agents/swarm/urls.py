from django.urls import include, path
from rest_framework.routers import SimpleRouter

from agents.swarm.api import Dialogs, Swarms

router = SimpleRouter(use_regex_path=False)
router.register("swarms", Swarms)

urlpatterns = [
    path(
        "agents/<slug:slug>/dialogs/<slug:channel>/",
        Dialogs.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="agent-dialog",
    ),
    path("", include(router.urls)),
]
