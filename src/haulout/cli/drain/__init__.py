"""`haulout drain`: drain several nodes at once, with live or plain output.

- flags: build a drain policy from the command line and a file
- drain_runner: runs the drains, and stops them on a signal
- node_drain: the state of each node's drain, the source of all output
- plain_progress: kubectl's lines, for scripts and logs
- live_progress: a live view for a terminal
- json_output: JSON for programs
- execution: wires a drain, and summarizes an interrupted one
- dry_run_execution: dry runs
"""
