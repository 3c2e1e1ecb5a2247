"""Notifications by Slack, mail, Teams and webhooks: built, throttled and delivered."""
