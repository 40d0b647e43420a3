from agents.kit import capability


class InterventionsConfig(capability.Capability):
    name = "correction.interventions"
    verbose_name = "Interventions"
    seed_removal_steps = ["correction.interventions.examples.remove_logs"]
