"""`python -m haulout` is `haulout`."""

from haulout.cli import main

main()
