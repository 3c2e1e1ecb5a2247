"""The controllers: each reconciles one kind of object, in a folder of its own.

A folder has `controller` (the wiring), `observation` (what a decision is made from), `decision` (pure), `actions` and
`executor` (the writes that follow), `status`, `permissions` and `settings`, as far as the controller has them.
"""
