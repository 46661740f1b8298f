"""`python -m interplay.cli`."""

import sys

from interplay.cli import main

sys.exit(main())
