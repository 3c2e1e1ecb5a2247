"""What profiles are made of: checks, triggers, notifications and schedules."""
