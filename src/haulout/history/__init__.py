"""The history of each node: what happened, who or what did it, and why.

Stored in the API server, oldest entries dropped.
"""
