"""Speech Commands v0.02: spoken keywords of one second, as mel spectrograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from fedrepro.core.checksummed_files import corrupt_file_error
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.archive import unpack_archive
from fedrepro.data.prepared import SPLITS, Arrays
from fedrepro.data.stratified_samples_and_splits import split_groups

RATE = 16_000  # samples of a clip, and samples a second
BATCH = 256
SILENCE = 1e-10  # power; the smallest that a logarithm is taken of


@dataclass(frozen=True)
class Mel:
    """Parameters of a mel spectrogram: `bands` from `low` to `high` Hz, for every `hop` samples.

    `window` is the length of a window in samples; `floor` dB below a clip's loudest cell become 0.
    """

    bands: int
    window: int
    hop: int
    low: float
    high: float
    floor: float


def mel_spectrograms(clips: Sequence[Path], mel: Mel, archive: Path) -> np.ndarray:
    """Compute mel spectrograms of sound clips, float32 (N, bands, frames) from 0 to 1.

    1 is a clip's loudest cell. A frame is centred on every hop-th sample from 0 on. Raises
    FedreproError, naming the file `archive`, for a clip that is not 16-bit mono at 16 kHz.
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
    """Return the weight of each frequency in each mel band, float64 (bands, F); frequencies in Hz.

    Band b rises from corner b to 1 at corner b+1 and falls to corner b+2; the corners, from mel.low
    to mel.high, are equally spaced in mel = 2595·log10(1 + Hz/700).
    """
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (mel.low, mel.high))
    corners = 700 * (10 ** (np.linspace(low, high, mel.bands + 2) / 2595) - 1)
    left, top, right = (corners[i : i + mel.bands, None] for i in range(3))
    rising = (frequencies - left) / (top - left)
    falling = (right - frequencies) / (right - top)
    weights: np.ndarray = np.clip(np.minimum(rising, falling), 0, 1)
    return weights


def _samples(clip: Path, archive: Path) -> np.ndarray:
    """Read one second of a clip as samples from -1 to 1, silence at its end: float64 (RATE,)."""
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


FILE = "speech_commands_v0.02.tar"
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
SUBSET = (
    "{count:,} clips of {speakers} speakers from the test set of Speech Commands v0.02, "
    "split by speaker, stand in for the publisher's training, validation and test clips."
)


@register(
    "dataset",
    "speech_commands",
    version=1,
    files=(FILE,),
    title="Speech Commands (ten keywords)",
    licence="CC BY 4.0",
    citation="Warden: Speech Commands: a dataset for limited-vocabulary speech recognition. "
    "arXiv:1804.03209, 2018",
)
def speech_commands(
    raw: Path,
    *,
    mels: Annotated[int, Arg("number of mel bands", least=4)] = 32,
    window: Annotated[int, Arg("length of the Hann window", unit="samples", least=64)] = 1024,
    hop: Annotated[int, Arg("samples from window to window", unit="samples", least=16)] = 512,
    low: Annotated[float, Arg("lowest frequency", unit="Hz", least=0)] = 0.0,
    high: Annotated[float, Arg("highest frequency", unit="Hz", above=0, most=8000)] = 8000.0,
    floor: Annotated[float, Arg("what counts as 0, below the loudest cell", unit="dB", above=0)] = (
        80.0
    ),
) -> Arrays:
    """Read Speech Commands v0.02: ten keywords as mel spectrograms of 32×32, clips of one second.

    Source: RM, section 4 (keyword spotting), which states 32×32 and nothing else. The ten keywords
    are those of the publisher's own benchmark. Hann windows of 1024 samples (64 ms) every 512, and
    32 triangular bands from 0 to 8 kHz, are our choice. Powers are in decibels below the clip's
    loudest cell, from −80 dB (0) to 0 dB (1). Shorter clips are filled with silence. The
    publisher's archive is split by the publisher's lists. An archive without lists (a mirror's
    subset) is split by speaker, 80/10/10, with a fixed seed, and reported as other data than the
    paper's. Inputs are float32 (mels, frames); the natural group of an example is its speaker.
    `raw` is the folder of the downloaded file.
    """
    path = raw / FILE
    with unpack_archive("speech_commands", path, _wanted) as folder:
        clips = sorted(clip for word in KEYWORDS for clip in folder.rglob(f"{word}/*.wav"))
        if {clip.parent.name for clip in clips} != set(KEYWORDS):
            raise corrupt_file_error(path, "it does not hold clips of all ten keywords")
        x = mel_spectrograms(clips, Mel(mels, window, hop, low, high, floor), path)
        # clips of each list as keyword/file, where the lists are there
        lists = {
            split: set(path.read_text(encoding="utf-8").split())
            for split, name in LISTS.items()
            for path in sorted(folder.rglob(name))[:1]
        }
    published = len(lists) == len(LISTS) and all(lists.values())
    y = np.array([KEYWORDS.index(clip.parent.name) for clip in clips], np.int64)
    speakers, speaker = np.unique(
        [clip.name.partition("_nohash_")[0] for clip in clips], return_inverse=True
    )
    if published:
        names = [f"{clip.parent.name}/{clip.name}" for clip in clips]
        masks = {k: np.array([name in listed for name in names]) for k, listed in lists.items()}
        masks["train"] = ~(masks["validation"] | masks["test"])
        folds = {split: np.flatnonzero(mask) for split, mask in masks.items()}
    else:
        folds = split_groups(y, speaker, RngKey(0).stream("speech-commands-split"))
    stand_in = SUBSET.format(count=len(clips), speakers=speakers.size)
    return Arrays(
        x={split: x[folds[split]] for split in SPLITS},
        y={split: y[folds[split]] for split in SPLITS},
        scale=1.0,
        shape=x.shape[1:],
        classes=KEYWORDS,
        stand_in="" if published else stand_in,
        notes=(f"spectrograms of {RATE:,} samples a second",),
        kind="audio",
        groups={split: speaker[folds[split]].astype(np.int32) for split in SPLITS},
        group_names=tuple(map(str, speakers)),
    )


def _wanted(member: str) -> bool:
    path = Path(member)
    return path.name in LISTS.values() or (path.suffix == ".wav" and path.parent.name in KEYWORDS)
