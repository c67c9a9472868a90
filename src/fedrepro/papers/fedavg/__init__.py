"""Communication-efficient learning of deep networks from decentralized data.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas; AISTATS 2017. The paper's method FedAvg is in
fedrepro.methods, since other methods build on it.
"""

NAME = "FedAvg"
LINK = "https://arxiv.org/abs/1602.05629"
