from django.urls import path

from correction.litellm.api import Guardrail

urlpatterns = [
    # Without a slash at its end: LiteLLM adds this path to the address that it is given.
    path("litellm/beta/litellm_basic_guardrail_api", Guardrail.as_view({"post": "create"}), name="litellm-guardrail"),
]
