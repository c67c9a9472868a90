"""Every table and figure of the paper, one exhibit a model, so that each is computed by itself.

Rounds end at 1.5 times what the paper printed (the larger number where two tables print one
setting), or where test accuracy reaches the target. `…-rest` holds the cells of a table that take
more hours than there were: their runs are those of the table, so a cell that was computed there
moves by its entry going from one function to the other, and nothing is computed again. findings.md
says what was chosen and why.
"""

from __future__ import annotations

from fedrepro.papers.fedavg.exhibits import cifar10, convolutional, lstm, perceptron
from fedrepro.papers.fedavg.exhibits.common import IID, MNIST, QUICK_CLIENTS, TINY_CLIENTS
from fedrepro.planning.exhibit_settings import PaperData, component, exhibit

EXHIBITS = PaperData(
    paper="fedavg",
    title="Communication-efficient learning of deep networks from decentralized data",
    source="McMahan, Moore, Ramage, Hampson, Agüera y Arcas; AISTATS 2017",
    defaults=exhibit(
        dataset=MNIST,
        partition=IID,
        model=component("mlp", hidden=[200, 200]),
        training=component("sgd", batch_size=10, init="fan_in"),
        sweep={},
        trials=1,
        at={
            "quick": exhibit(dataset=component("digits"), partition=QUICK_CLIENTS, trials=5),
            "tiny": exhibit(dataset=component("digits"), partition=TINY_CLIENTS, trials=2),
        },
    ),
    exhibits={
        "table-1": perceptron.table_1(),
        "table-1-iid-10": perceptron.table_1_iid_10(),
        "table-1-iid-inf": perceptron.table_1_iid_inf(),
        "table-1-shards-10": perceptron.table_1_shards_10(),
        "table-1-shards-inf": perceptron.table_1_shards_inf(),
        "table-1-shards-10-rates-c0": perceptron.rates_in_two_ranges(0.0),
        "table-1-shards-10-rates-c01": perceptron.rates_in_two_ranges(0.1),
        "table-1-shards-10-rates-c02": perceptron.rates_in_two_ranges(0.2),
        "table-1-cnn": convolutional.table_1(),
        "table-1-cnn-centred": convolutional.table_1_centred(),
        "table-1-cnn-one-client": convolutional.table_1_one_client(),
        "table-1-cnn-rest": convolutional.table_1_rest(),
        "table-2-cnn": convolutional.table_2(),
        "table-2-cnn-50": convolutional.table_2_minibatches_of_50(),
        "table-2-cnn-centred": convolutional.table_2_centred(),
        "table-2-cnn-one-epoch": convolutional.table_2_one_epoch(),
        "table-2-cnn-rest": convolutional.table_2_rest(),
        "rates-cnn": convolutional.rates_to_the_end(),
        "rates-cnn-pixels": convolutional.rates_in_two_ranges(),
        "table-2-lstm": lstm.table_2(),
        "table-2-lstm-roles": lstm.table_2_roles(),
        "table-3": cifar10.table_3(),
        "figure-2": convolutional.figure_2(),
        "figure-2-non-iid": convolutional.figure_2_non_iid(),
        "fedsgd-against-fedavg": perceptron.fedsgd_against_fedavg(),
    },
)
