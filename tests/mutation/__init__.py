"""Mutation testing: changes one thing in the product, and checks whether a test fails.

    make mutants ARGS="--folders budget,drain --per-folder 60 --seed 1"

`mutants` finds what can be changed in a module, `line_coverage` records which tests run which lines, `trial` runs the
tests of a line on a copy of the product with the change, `equivalents` lists changes that no test can detect, and
`__main__` draws a sample and prints the table. The name of a mutant does not change when lines move, so the same seed
draws the same mutants as long as their code stays.

A run takes the better part of an hour, so CI does not include it. It changes nothing in the working tree.
"""
