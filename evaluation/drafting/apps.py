from agents.kit import capability


class DraftingConfig(capability.Capability):
    name = "evaluation.drafting"
    verbose_name = "Drafting propositions"
    job_kinds = {"suggestions": "evaluation.drafting.jobs.suggest"}
