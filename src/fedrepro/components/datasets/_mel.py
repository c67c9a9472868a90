"""Mel spectrograms of short clips, with SciPy's short-time Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.core.artifacts import corrupt_file_error

RATE = 16_000  # samples of a clip, and samples a second
BATCH = 256
SILENCE = 1e-10  # power; the smallest that a logarithm is taken of


@dataclass(frozen=True)
class Mel:
    """Settings of a mel spectrogram; window and hop in samples, low and high in Hz, floor in dB."""

    bands: int
    window: int
    hop: int
    low: float
    high: float
    floor: float


def mel_spectrograms(clips: Sequence[Path], mel: Mel, archive: Path) -> np.ndarray:
    """Measure loudness by band and frame: 0 (floor and below) to 1 (a clip's loudest cell).

    Shape (N, bands, frames), float32, with a frame centred on every hop-th sample from 0 on.

    Raises:
        FedreproError: Naming the archive, for a clip that is not 16-bit mono at 16 kHz.
    """
    from scipy.signal import ShortTimeFFT
    from scipy.signal.windows import hann

    transform = ShortTimeFFT(hann(mel.window, sym=False), mel.hop, fs=RATE)
    filters = triangles(mel, transform.f)
    frames = -(-RATE // mel.hop)
    spectrograms = np.empty((len(clips), mel.bands, frames), np.float32)
    for first in range(0, len(clips), BATCH):
        batch = np.stack([_samples(clip, archive) for clip in clips[first : first + BATCH]])
        power = transform.spectrogram(batch, p0=0, p1=frames)
        decibels = 10 * np.log10(np.maximum(filters @ power, SILENCE))
        below = decibels - decibels.max(axis=(1, 2), keepdims=True)
        spectrograms[first : first + BATCH] = np.maximum(below / mel.floor + 1, 0)
    return spectrograms


def triangles(mel: Mel, frequencies: np.ndarray) -> np.ndarray:
    """Weights of each frequency in each band: float64 (bands, F); frequencies (F,) in Hz.

    Band b rises from corner b to 1 at corner b+1 and falls to corner b+2; the corners are equally
    spaced in mel = 2595·log10(1 + Hz/700).
    """
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (mel.low, mel.high))
    corners = 700 * (10 ** (np.linspace(low, high, mel.bands + 2) / 2595) - 1)
    left, top, right = (corners[i : i + mel.bands, None] for i in range(3))
    rising = (frequencies - left) / (top - left)
    falling = (right - frequencies) / (right - top)
    weights: np.ndarray = np.clip(np.minimum(rising, falling), 0, 1)
    return weights


def _samples(clip: Path, archive: Path) -> np.ndarray:
    """One second, −1 to 1, filled with silence at its end: float64 (RATE,)."""
    from scipy.io import wavfile

    try:
        rate, samples = wavfile.read(clip)
    except Exception as error:  # the reader of a damaged file can raise anything
        raise corrupt_file_error(archive, f"{clip.name} is not a wav file") from error
    if rate != RATE or samples.ndim != 1 or samples.dtype != np.int16:
        raise corrupt_file_error(
            archive, f"{clip.name} is not 16-bit mono at {RATE} samples a second"
        )
    padded = np.zeros(RATE)
    padded[: samples.size] = samples[:RATE] / 2**15
    return padded
