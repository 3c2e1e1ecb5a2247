"""Generators of reference pages. CI fails if a generated page is not up to date.

Each module writes one kind of page from the code: commands, plugins, custom resources, the HTTP API. `make reference`
runs all of them.
"""
