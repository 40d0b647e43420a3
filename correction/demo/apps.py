from agents.kit import capability


class DemoConfig(capability.Capability):
    name = "correction.demo"
    verbose_name = "Demonstration"
