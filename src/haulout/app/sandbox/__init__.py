"""The operator in a sandbox: `haulout run --sandbox`.

The sandbox is a distribution of its own and need not be installed. `interface` finds it and declares what we use of it.
No other module of the product imports it.
"""
