"""Steps on a GPU, played from CUDA graphs, against the same steps asked for kernel by kernel.

    .venv/bin/fedrepro bench graphs

Ten clients with minibatches of 64 train the LeNet of NIID-Bench on made-up CIFAR-10, crops and
mirror images included. What comes out must be the same to the byte. A played step is to take at
most half the time.
"""

from __future__ import annotations

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from fedrepro.core.errors import FedreproError  # noqa: E402
from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import Rng  # noqa: E402
from fedrepro.federation.clients import own_starts  # noqa: E402
from fedrepro.networks.predict import network_of  # noqa: E402
from fedrepro.stages.devices import device_of  # noqa: E402
from fedrepro.training import recorded  # noqa: E402
from fedrepro.training.engine import train  # noqa: E402
from fedrepro.training.examples import Examples  # noqa: E402
from fedrepro.training.minibatches import Task  # noqa: E402
from fedrepro.training.settings import settings_of  # noqa: E402

MODEL = "cnn+channels~6@16+hidden~120@84+padding~valid"
TRAINING = "sgd+augment~crop_flip+batch_size~64+epochs~2+init~fan_in+momentum~0.9"
CLIENTS, EXAMPLES = 10, 5000


class Training:
    """All steps of ten clients, played or not."""

    def __init__(self, device: str, played: bool) -> None:
        rng = np.random.default_rng(0)
        count = CLIENTS * EXAMPLES
        inputs = torch.from_numpy(rng.integers(0, 256, (count, 3 * 32 * 32), dtype=np.uint8))
        labels = torch.from_numpy(rng.integers(0, 10, count))
        self.examples = Examples(inputs.to(device), labels.to(device), 255.0)
        self.network = network_of(parse_token("model", MODEL), (3, 32, 32), 10)
        self.settings = settings_of(parse_token("training", TRAINING))
        rows = np.arange(count).reshape(CLIENTS, -1)
        self.tasks = [Task(own, Rng(0, 0, client)) for client, own in enumerate(rows)]
        self.start = own_starts(self.network, self.settings, [Rng(0, 0, 0)])
        self.kinds = recorded.KINDS if played else ()
        self.bytes = b""

    def __call__(self) -> harness.Timed:
        before, recorded.KINDS = recorded.KINDS, self.kinds
        try:
            found = train(self.network, self.examples, self.tasks, self.settings, self.start)
        finally:
            recorded.KINDS = before
        self.bytes = b"".join(value.tobytes() for value in found.tensors.values())
        steps = int(found.steps.max())
        return harness.Timed(found.seconds, {"milliseconds a step": 1e3 * found.seconds / steps})


def main() -> int:
    given = harness.options(__doc__).parse_args()
    device = device_of("cuda")
    played, asked = Training(device, True), Training(device, False)
    measured = harness.in_turn({"played": played, "asked for": asked}, given.runs)
    if played.bytes != asked.bytes:
        raise FedreproError("a played step has other bytes than one that is asked for")
    ratio = harness.times_faster(measured, "played", "asked for")
    return harness.conclude(
        "graphs",
        given.results,
        {"clients": CLIENTS, "model": MODEL, "training": TRAINING},
        measured,
        [harness.Target("times faster than asked for", ratio, 2.0)],
    )


if __name__ == "__main__":
    harness.main(main)
