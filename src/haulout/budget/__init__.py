"""The budget: how many nodes may be unavailable at once, which ones are, and which controller may take the next one.

- `limits`: the limits of a budget (pure)
- `unavailable_nodes`: which nodes are unavailable, and why (pure)
- `budget_check`: whether one more node may become unavailable (pure)
- `slots`: slots, acquired by compare-and-swap in one ledger, and released with proof
- `cordon_copies`: copies of cordon annotations in a ConfigMap
"""
