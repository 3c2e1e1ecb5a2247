"""`haulout drain`: several nodes at once, watched by a person or read by a script.

flags       from a command line and a file to a policy
conduct     runs the drains, and stops them when told to
records     what is known of each node: what all that is said is made from
plain       kubectl's lines, for scripts and logs
live        a view for a terminal
document    for programs
left        what an interrupted drain leaves behind, how to go on and how to undo it
rehearsed   dry runs
"""
