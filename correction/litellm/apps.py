from agents.kit import capability


class LiteLLMConfig(capability.Capability):
    name = "correction.litellm"
    verbose_name = "LiteLLM"
    offline_responders = {"continue_reply": "correction.litellm.rewriting.offline"}
    work_queues = {"gated replies": "correction.litellm.ending.work_one"}
