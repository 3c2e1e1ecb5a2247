"""Mutation testing: changes one thing in the product, and sees whether a test notices.

    make mutants ARGS="--folders budget,drain --per-folder 60 --seed 1"

`mutants` finds what can be changed in a module, `line_coverage` notes which tests run which lines, `trial` runs the
tests of a line on a copy of the product with the change, `equivalents` names the changes that no test can notice, and
`__main__` draws a sample and prints the table. A mutant has a name that does not change when lines move, so the same
seed draws the same mutants as long as their code stays.

It takes the better part of an hour, so it is no part of CI. It changes nothing in the working tree.
"""
