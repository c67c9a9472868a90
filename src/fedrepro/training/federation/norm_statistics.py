"""Running statistics of normalisation: averaged over models, or measured again on examples."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.checksummed_files import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.networks.network import Network
from fedrepro.networks.user_torch_modules import ModuleNetwork
from fedrepro.training.training_examples import Arrays, Examples

if TYPE_CHECKING:
    import torch

TOGETHER = 500  # examples whose mean and variance a layer normalises by


def mean_buffers(network: Network, tensors: Arrays, share: np.ndarray) -> dict[str, np.ndarray]:
    """Average buffers of J models `tensors` by `share` (J,), counters by maximum: (1, *shape)."""
    held = np.flatnonzero(share)
    made = {}
    for name in network.buffers:
        value = tensors[name][held]
        whole = name in network.counts
        mean = value.max(axis=0) if whole else np.tensordot(share[held], value.astype(float), 1)
        made[name] = mean[None].astype(np.float32)
    return made


def require_norms(network: Network, who: str) -> None:
    """Raise FedreproError, naming the method `who`, unless the network has BatchNorm."""
    if not network.norms:
        said = f"{who} has a rule for running statistics, and this {network.kind} network"
        raise FedreproError(f"{said} keeps none: leave the rule out, or take one with BatchNorm")


def running_statistics(
    network: Network, tensors: Mapping[str, torch.Tensor], examples: Examples
) -> dict[str, np.ndarray]:
    """Measure a network's running statistics (means, variances of BatchNorm) again on examples.

    Returns float32 arrays (*shape) by tensor name, and the number of "examples". Each BatchNorm
    keeps the average of means and variances of batches of up to 500 examples; other buffers stay.
    Raises FedreproError without BatchNorm, or if it cannot compute variances, as of one example.
    Source: K. Jordan et al., REPAIR, ICLR 2023, section 4.
    """
    import torch

    assert isinstance(network, ModuleNetwork)
    module = copy.deepcopy(network.module).to(examples.inputs.device, examples.dtype)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    own = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not own:
        said = "only BatchNorm's statistics are measured again, and this network has no BatchNorm"
        raise FedreproError(f"{said}: take another rule of batchnorm")
    count = len(examples.targets)
    with torch.no_grad():
        for name, value in tensors.items():
            state[name].copy_(value)
        module.eval()
        for norm in own:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.train()
        try:
            for rows in np.array_split(np.arange(count), -(-count // TOGETHER)):
                module(examples.scaled(rows).view(-1, *network.shape))
        except ValueError as error:
            said = f"BatchNorm cannot be measured on {count} examples ({one_line(error)})"
            raise FedreproError(f"{said}: give each client more, or take average") from error
    measured = {name: state[name].cpu().numpy().astype(np.float32) for name in network.buffers}
    return {**measured, "examples": np.array([count])}


def pooled_statistics(answers: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Pool clients' `running_statistics`, weighted by numbers of examples: float32 (1, *shape)."""
    each = {k: np.stack([answer[k] for answer in answers]).astype(float) for k in answers[0]}
    counts = each.pop("examples")[:, 0]
    share, made = counts / counts.sum(), dict[str, np.ndarray]()
    for name, values in each.items():
        mean = np.tensordot(share, values, 1)
        mean_name = name.removesuffix("running_var") + "running_mean"
        if name.endswith("running_var") and mean_name in each:
            # the mean within clients, plus the variance of their means
            means = each[mean_name]
            mean += np.tensordot(share, (means - np.tensordot(share, means, 1)) ** 2, 1)
        made[name] = (mean if values.ndim > 1 else values.max(axis=0))[None].astype(np.float32)
    return made
