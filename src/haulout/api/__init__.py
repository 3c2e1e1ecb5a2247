"""The types of Haulout's own objects and of those that it reads, and what can be derived from them alone.

Controllers do not import each other. They communicate through these objects.
"""
