"""PFNM's matching against a literal row-by-row evaluation of its equation (9).

    .venv/bin/fedrepro bench matching

25 clients of 50 hidden units and 784 inputs, whose units are noisy copies of planted ones; sigma2
is 1, five passes. The literal one is the one that the tests compare with. Beside it stands what
parts cost alone: the one matrix product that fedrepro takes, the products that equation (9) needs
if each is taken when it is asked for, and the assignment problems.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402

sys.path.append(str(harness.ROOT / "tests" / "unit"))

import literal_matching as literal  # noqa: E402

from fedrepro.methods.matching.network_arrays_and_tracing import class_shares  # noqa: E402
from fedrepro.methods.matching.pfnm_sequential_matching import Rule, Variances, match_networks  # noqa: E402

AUTHORS_SECONDS = (1.5, 1.9)  # recorded with the authors' code for cases of this size
CLASSES = 10


def problem(clients: int, units: int, inputs: int, seed: int = 0):
    """Networks (weight0, bias0, weight1, bias1), label counts, and the order of the visits."""
    rng = np.random.default_rng(seed)
    scale = np.repeat([0.1, 0.05, 0.3], [inputs, 1, CLASSES])  # as in trained networks
    planted = rng.normal(0.0, scale, (2 * units, len(scale)))
    networks = []
    for _ in range(clients):
        own = planted[rng.choice(len(planted), units, replace=False)]
        own = own + rng.normal(0.0, 0.2 * scale, own.shape)
        weight0, bias0, weight1 = np.split(own, [inputs, inputs + 1], axis=1)
        networks.append((weight0.T.copy(), bias0[:, 0].copy(), weight1, rng.normal(size=CLASSES)))
    counts = rng.integers(1, 100, (clients, CLASSES))
    return networks, counts, np.array([rng.permutation(clients) for _ in range(5)])


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--units", type=int, default=50)
    parser.add_argument("--inputs", type=int, default=784)
    given = parser.parse_args()
    networks, counts, visits = problem(given.clients, given.units, given.inputs)
    found = {}

    def ours() -> dict[str, float]:
        rule = Rule(gamma0=1.0, popularity=1.0, count_cap=10, width_cap=700)
        network, matchings = match_networks(
            networks, class_shares(counts), Variances(1.0, 10.0), rule, [visits]
        )
        found["ours"] = [list(held) for held in matchings[0].assignments]
        return {"units": network[0].shape[1]}

    def written_out() -> dict[str, float]:
        matching, network = literal.match_networks(
            networks, counts, visits, sigma=1.0, sigma0=10.0, gamma=1.0
        )
        found["literal"] = matching.assignments
        return {"units": network[0].shape[1]}

    solver = scipy.optimize.linear_sum_assignment
    with patch.object(scipy.optimize, "linear_sum_assignment", wraps=solver) as recorder:
        ours()
    tables = [call.args[0] for call in recorder.call_args_list]
    contenders = {
        "fedrepro": harness.timed(ours),
        "literal equation (9)": harness.timed(written_out),
        "product of all units alone": harness.timed(lambda: gram(given)),
        "products of equation (9) alone": harness.timed(lambda: products(tables, given)),
        "its assignment problems alone": harness.timed(lambda: assignments(tables, solver)),
    }
    measured = harness.in_turn(contenders, given.runs)
    names = list(contenders)
    same = all(map(np.array_equal, found["ours"], found["literal"]))
    faster = harness.times_faster(measured, names[0], names[1])
    parts = sum(harness.median(measured[name]) for name in (names[2], names[4]))
    return harness.conclude(
        "matching",
        given.results,
        {k: vars(given)[k] for k in ("clients", "units", "inputs", "runs")}
        | {"passes": 5, "sigma2": 1.0},
        measured,
        [
            harness.Target("times faster than the literal equation", faster, 10),
            harness.Target("same assignments (1: all)", float(same), 1),
        ],
        seconds_of_the_authors_code=AUTHORS_SECONDS,
        share_of_its_product_and_solver=round(parts / harness.median(measured[names[0]]), 3),
    )


def gram(given) -> dict[str, float]:
    """The product of all units with each other, from which fedrepro reads every reward."""
    units = np.ones((given.clients * given.units, given.inputs + 1))
    return {"units": len(units @ units.T)}


def products(tables, given) -> dict[str, float]:
    """One product of each assignment's units with its atoms: what equation (9) needs at least."""
    for table in tables:
        columns = max(table.shape[1] - given.units, 1)
        np.empty((len(table), given.inputs + 1)) @ np.empty((given.inputs + 1, columns))
    return {"products": len(tables)}


def assignments(tables, solver) -> dict[str, float]:
    for table in tables:
        solver(table, maximize=True)
    return {"problems": len(tables)}


if __name__ == "__main__":
    harness.main(main)
