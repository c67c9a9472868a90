#!/usr/bin/env bash
# Snakemake runs this in the new conda environment, from the root of the repository.
set -euo pipefail
python -m pip install -c envs/requirements.txt setuptools hatchling editables
python -m pip install --no-build-isolation -r envs/requirements.txt
python -m pip install --no-build-isolation --no-deps -e .
