"""Shared parts of exhibits: data sets, notes, methods, and what differs at small scales."""

from __future__ import annotations

from fedrepro.planning.exhibit_settings import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

MNIST = component("mnist", train=50000, validation=5000)
CIFAR = component("cifar10", validation=5000, features="lite0")
HAM = component("ham10000", features="convnet")
DIGITS = component("digits", validation=1000)

MNIST_SPLIT = text("""
    MNIST has 50,000 training and 5,000 validation examples of its 60,000, and all 10,000 test
    images. The paper tests on 5,000 and does not say which: the first 5,000 of MNIST are harder
    than the last.
""")
CIFAR_SPLIT = text("""
    CIFAR-10 has 45,000 training and 5,000 validation examples of its 50,000, and all 10,000 test
    images.
""")
LITE0 = text("""
    Features of EfficientNet-Lite0 on images of 40×40 pixels stand in for those of VGG-16, of which
    the paper gives neither layer nor input size.
""")
LESIONS = text("""
    Lesions are split before changed copies are made, 1,600, 200 and 200 a class, and the network
    that gives features is trained on 66 % of the training part alone. The paper does neither, so
    that copies of a test photograph may have been trained on.
""")
STOPPING = text("""
    Each client stops by itself when its running training accuracy has not risen for 5 epochs (3
    with networks), after 40 at the latest, as in the authors' code; the text says when it
    converges. early-stopping has the average without.
""")
TUNING = text("""
    Tuning takes 5 epochs at a step size of 0.01 on validation examples of all clients together, the
    same for every method; the authors' code has 0.001 for local models. The text tunes all of a
    logistic model and the last layer of a network.
""")


def search(points: str) -> str:
    return text(f"""
        Radii go up to 4000, and are searched to 0.01 with {points} a surface, along the same
        directions for every radius; the tested side is kept. Radii of ellipsoids go down to a tenth
        of the largest. The numbers are those of the authors' code; the text gives none.
    """)


SEARCH = search("500 points")

# At small scales digits stand in for every data set.
QUICK = exhibit(dataset=DIGITS, training={"epochs": 20, "lr": 0.003}, parameters={"points": 100})
TINY = exhibit(
    dataset=DIGITS,
    training={"epochs": 2, "lr": 0.03},
    parameters={"points": 20, "head_epochs": 2},
    trials=2,
)
SMALL: dict[str, ExhibitData] = {"quick": QUICK, "tiny": TINY}

ON_MNIST = exhibit(notes=[MNIST_SPLIT, STOPPING, TUNING, SEARCH])  # the rest are the defaults
ON_CIFAR = exhibit(dataset=CIFAR, notes=[LITE0, CIFAR_SPLIT, STOPPING, TUNING, SEARCH], at=SMALL)
ON_HAM = exhibit(dataset=HAM, notes=[LESIONS, STOPPING, TUNING, SEARCH], at=SMALL)
# of exhibits that set the three data sets side by side
NOTES_OF_ALL = [LITE0, MNIST_SPLIT, CIFAR_SPLIT, LESIONS, STOPPING, TUNING, SEARCH]
UNTUNED_NOTES = [MNIST_SPLIT, STOPPING, SEARCH]  # nothing is tuned, or not as TUNING says

TWO: Entry = {"label": "J = 2", "partition": {"clients": 2}}
THREE: Entry = {"label": "J = 3", "partition": {"clients": 3}}
FIVE: Entry = {"label": "J = 5"}
NUMBERS_OF_CLIENTS = {"two": TWO, "three": THREE, "five": FIVE}

GLOBAL = component("pooled", "Global", reference=True)
LOCAL = component("local", "Local", spread="clients")
AVERAGED = component("average", "Averaged", weighted=False)
BASELINES = [GLOBAL, LOCAL, AVERAGED]
GEMS = component("gems_convex", "GEMS", space="ellipsoid")
BALLS = component("gems_convex", "GEMS, balls", space="ball")
NEURAL_GEMS = component("gems_neural", "GEMS")


def tuned(method: Entry, label: str, layers: str = "all") -> Entry:
    """Tune a method's model for 5 epochs on 1,000 public images."""
    return with_changes(
        method, label, tune={"examples": 1000, "epochs": 5, "lr": 0.01, "layers": layers}
    )


def tuned_last(method: Entry, label: str) -> Entry:
    """Tune the last layer of a method's model only, as the text says of networks."""
    return tuned(method, label, layers="last")
