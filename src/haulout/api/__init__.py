"""The kinds of objects that are Haulout's own: their shape, and what can be told from them alone.

Controllers do not import each other: they meet in these objects.
"""
