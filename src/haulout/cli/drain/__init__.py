"""`haulout drain`: drain several nodes at once, with live or plain output.

- flags: build a drain policy from the command line and a file
- drain_runner: runs the drains, stops them on a signal, and keeps the state of each, the source of all output
- plain_progress: kubectl's lines, for scripts and logs
- live_progress: a live view for a terminal
- json_output: JSON for programs
- execution: wires drains and dry runs, and summarizes an interrupted drain
"""
