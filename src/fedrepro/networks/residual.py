"""Residual networks. Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Norm = Literal["group", "batch", "none"]
GROUPS = 2  # of GroupNorm, as in Hsieh et al., ICML 2020


def norm_of(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(GROUPS, channels) if norm == "group" else nn.Identity()


class ResidualBlock(nn.Module):
    """A residual block, relu(s(x) + c(x)): c two 3×3 convolutions, s a 1×1 one or the identity.

    `channels` are those of the output; s and the first of c have the `stride`. `norm` follows each.
    """

    def __init__(self, inputs: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        bare = norm == "none"
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=bare)
        self.norm1 = norm_of(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bare)
        self.norm2 = norm_of(norm, channels)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != channels:
            projection = nn.Conv2d(inputs, channels, 1, stride, bias=bare)
            self.shortcut = nn.Sequential(projection, norm_of(norm, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A residual network for small images, such as ResNet-20: three stages of `blocks` blocks.

    Each stage after the first doubles the channels, at first `width`, and halves side lengths.
    Initial weights are He et al.'s; without normalisation each block's second kernel is zero.
    """

    def __init__(self, channels: int, classes: int, blocks: int, width: int, norm: Norm) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=norm == "none")
        self.norm = norm_of(norm, width)
        stages, inputs = [], width
        for stage in range(3):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                stages.append(ResidualBlock(inputs, width * 2**stage, stride, norm))
                inputs = width * 2**stage
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(part, ResidualBlock) and norm == "none":
                nn.init.zeros_(part.conv2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.blocks(torch.relu(self.norm(self.stem(x))))
        logits: torch.Tensor = self.head(out.mean((2, 3)))
        return logits
