from agents.kit import capability


class LiteLLMConfig(capability.Capability):
    name = "correction.litellm"
    verbose_name = "LiteLLM"
    work_queues = {"gated replies": "correction.litellm.ending.work_one"}
