"""Azure as a source of notices: the Scheduled Events of the machine that an agent runs on.

- `imds` asks the metadata service, `scheduled_events` says what its documents mean;
- `event_source` asks again and again, and keeps the notices of its node true;
- `early_start` tells whether all machines of an event are ready, so that it may begin before its time;
- `settings` are what can be set.
"""
