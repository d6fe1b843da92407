"""`python -m loci` is `loci`."""

import sys

from loci.cli import main

sys.exit(main())
