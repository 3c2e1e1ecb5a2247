"""The plugins of profiles: checks, triggers, notifications and schedules."""
