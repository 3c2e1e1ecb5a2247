"""The notifications, one per module, named after their type: `slackThread` is in `slack_thread`."""
