from agents.kit import capability


class CiConfig(capability.Capability):
    name = "evaluation.ci"
    verbose_name = "Verdicts for builds"
