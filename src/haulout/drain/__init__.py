"""Node drains: which pods leave, in which order, how they are evicted, what blocks them and why.

- `decision` is the pure function in the middle: observation, state and policy in, actions and progress out.
- `drainer` executes decisions for one node; `manager` runs the drainers of a process.
- `pod_filters` are kubectl's filters; `pod_selection` adds rules and the drain order; `escalation` times the steps.
- `cordon` is about the node itself: who keeps it cordoned, and its state before.
"""
