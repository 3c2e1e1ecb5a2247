"""One budget for all who take nodes out of service: how many may be out at once, who is, and who has leave to go.

limits     what a budget says (pure)
away       who is out of service, and why (pure)
room       whether there is room for one more, and who takes it (pure)
line       who waits for room on a person's order
slots      leave, by compare-and-swap in one ledger; given back with proof
"""
