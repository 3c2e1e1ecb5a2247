"""The controllers. Each package reconciles one kind of object.

A package has `controller` (informers, work queue, wiring), `observation` (the input of a decision), `decision` (pure
functions), `actions` and `executor` (the writes that follow), `status`, `permissions` and `settings`, as far as the
controller needs them.
"""
