"""Azure as a source of notices: the Scheduled Events of the machine that an agent runs on.

- `metadata` asks the metadata service, `reading` says what its documents mean;
- `source` asks again and again, and keeps the notices of its node true;
- `together` tells whether all machines of an event are ready, so that it may begin before its time;
- `settings` are what can be set.
"""
