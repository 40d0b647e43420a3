from agents.kit import capability


class InterventionsConfig(capability.Capability):
    name = "correction.interventions"
    verbose_name = "Interventions"
