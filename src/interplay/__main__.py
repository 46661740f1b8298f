"""`python -m interplay`, the same as `interplay`."""

import sys

from interplay.cli import main

sys.exit(main())
