from agents.kit import capability


class ChangeConfig(capability.Capability):
    name = "evaluation.change"
    verbose_name = "Change"
    alert_observers = {"drift": "evaluation.change.over_time.follow_alerts"}
