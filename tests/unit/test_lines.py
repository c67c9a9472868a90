"""Counting lines leaves alone what Numba compiles."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fedrepro

lines = pytest.importorskip("lines", reason="SlipCover is not installed here")
Dispatcher = pytest.importorskip("numba.core.registry").CPUDispatcher


def test_no_function_that_numba_compiles_has_probes_in_it():
    found = set()
    for folder in ("networks", "core.portable_ops", "training", "training.federation", "methods"):
        package = importlib.import_module(f"{fedrepro.__name__}.{folder}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Dispatcher):
                    found.add(value.py_func.__code__.co_filename)
    assert found
    assert found <= set(lines.OMIT)
