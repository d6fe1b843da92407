"""`python -m loci` is `loci`."""

from loci.cli import run

run()
