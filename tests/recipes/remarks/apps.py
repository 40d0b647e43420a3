from agents.kit import capability


class RemarksConfig(capability.Capability):
    name = "agents.remarks"
    verbose_name = "Remarks"
