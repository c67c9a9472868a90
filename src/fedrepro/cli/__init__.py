"""The command line: stages for the workflow, commands for people."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def put_on_path() -> None:
    """Let jobs find the `fedrepro` command also where the environment is not activated."""
    own = str(Path(sys.executable).parent)
    if own not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ["PATH"]])
