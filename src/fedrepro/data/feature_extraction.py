"""Features that replace pixels: a parameter of every data set of images.

The extractor is named, with parameters as `.key-value`: mnist+features~centred,
ham10000+features~convnet.epochs-20. Features are stored as one more prepared data set.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import numpy as np

from fedrepro.core.registry import parse_token
from fedrepro.core.spec import Arg, Spec
from fedrepro.data.prepared import SPLITS, Arrays

Features = Annotated[
    str, Arg("inputs in place of the pixels: pixels, centred, convnet, lite0, or .parameter-value")
]


def feature_spec(text: str) -> Spec:
    """Return the feature extractor that `text` names: convnet.epochs-20 is convnet, epochs = 20."""
    name, *pairs = re.split(r"\.(?=[a-z])", text)  # and not at the point of a number
    return parse_token("feature", "+".join([name, *(p.replace("-", "~", 1) for p in pairs)]))


def resolved_features(dataset: Spec) -> str:
    """Return a data set's feature extractor with all parameters as text; "" if there is none."""
    text = dataset.values.get("features")
    return feature_spec(text).resolved if isinstance(text, str) else ""


def always_on_cpu(dataset: Spec) -> bool:
    """Return whether a data set's features are computed on the CPU even if there is a GPU."""
    text = dataset.values.get("features")
    return not isinstance(text, str) or feature_spec(text).component.meta.get("device") == "cpu"


def represent(images: Arrays, features: str) -> Arrays:
    """Replace the inputs of `images` by extracted features: float32 (N, *shape) or (N, D).

    `features` names the extractor, such as convnet.epochs-20; "pixels" leaves images unchanged.
    """
    spec = feature_spec(features)
    if spec.name == "pixels":
        return images
    extracted: dict[str, np.ndarray] = spec.component.make(dict, images, **spec.values)
    x = {split: np.ascontiguousarray(extracted[split], np.float32) for split in SPLITS}
    shape = x["train"].shape[1:]
    if shape == images.shape:
        return replace(images, x=x, scale=1.0, notes=(*images.notes, f"pixels by {spec.resolved}"))
    notes = *images.notes, f"{shape[0]} features by {spec.resolved} in the place of the pixels"
    return replace(images, x=x, scale=1.0, shape=shape, kind="features", notes=notes)
