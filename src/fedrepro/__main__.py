"""`python -m fedrepro`, where the console script is not on the path."""

import sys

from fedrepro.cli.main import main

sys.exit(main())
