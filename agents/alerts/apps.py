from agents.kit import capability


class AlertsConfig(capability.Capability):
    name = "agents.alerts"
    verbose_name = "Alerts"
    work_queues = {"alerts": "agents.alerts.delivery.work_one"}
    chores = {"agents.alerts.judge.check_alerts": 60}
    alerting = {
        "raise_alert": "agents.alerts.raising.raise_alert_if_watched",
        "end_alerts": "agents.alerts.raising.end_alerts",
        "acknowledge_alerts": "agents.alerts.raising.acknowledge_alerts",
        "pages_with_alerts": "agents.alerts.raising.pages_with_alerts",
        "came_back": "agents.alerts.resolving.came_back",
        "alert_url": "agents.alerts.raising.alert_url",
    }
    seed_removal_steps = ["agents.alerts.raising.remove_alerts"]
