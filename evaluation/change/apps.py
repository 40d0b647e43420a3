from agents.kit import capability


class ChangeConfig(capability.Capability):
    name = "evaluation.change"
    verbose_name = "Change"
