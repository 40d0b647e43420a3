from agents.kit import capability


class DemoConfig(capability.Capability):
    name = "correction.demo"
    verbose_name = "Demonstration"
    seed_removal_steps = ["correction.demo.examples.remove_named"]
