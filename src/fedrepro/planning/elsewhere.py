"""Data sets whose inputs a method gets in addition to those of its scenario."""

from __future__ import annotations

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.spec import Spec

PUBLIC_INPUTS = "public_inputs"  # the need
DATA = "public_data"  # and the parameter of the method that names the data set


def public_data_of(method: Spec) -> Spec | None:
    """Return the data set whose unlabelled inputs a method has at the server, if it needs one.

    Raises:
        FedreproError: the method does not name one known data set.
    """
    if PUBLIC_INPUTS not in method.component.meta["needs"]:
        return None
    name, known = method[DATA], components("dataset")
    if not isinstance(name, str) or name not in known:
        raise FedreproError(
            f"method '{method.name}': {DATA} '{name}' is not the name of one data set: known are "
            f"{', '.join(sorted(known))}"
        )
    return known[name].spec()
