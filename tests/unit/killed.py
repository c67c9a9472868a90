"""Runs that are killed while they go: as by Ctrl-C, right after a checkpoint is whole."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from fedrepro.core.state_and_model_files import save_state
from fedrepro.stages import trial_rounds


@contextmanager
def killed_after(saves):
    """Within it, writing so many checkpoints ends a run; gives the paths of those written."""
    written: list[Path] = []

    def stop(path, state):
        save_state(path, state)
        written.append(path)
        if len(written) == saves:
            raise KeyboardInterrupt

    with mock.patch.object(trial_rounds, "save_state", stop):
        yield written
