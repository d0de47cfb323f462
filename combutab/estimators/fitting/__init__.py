"""The way into a fit: data, targets, weights and starts checked, and jobs grouped into stacks.

Used by the estimators, and by model_selection through their public names.
"""

from combutab.estimators.fitting._checkpoints import Checkpoint
from combutab.estimators.fitting._class_weights import (
    check_class_weight,
    check_weights,
    weights_of_classes,
)
from combutab.estimators.fitting._continued import check_settled, settled
from combutab.estimators.fitting._data import (
    Prepared,
    as_numbers,
    can_stratify,
    check_given,
    concatenated,
    encoded_rows,
    split_rows,
    weighted_rows,
)
from combutab.estimators.fitting._folds import Folds, check_bagging, member_folds
from combutab.estimators.fitting._initial import check_initial, initial_states, initial_widths
from combutab.estimators.fitting._jobs import StackWatch, train_jobs
from combutab.estimators.fitting._prefitted import FitHandout, FitOutcome, TrainedFit, take_over
from combutab.estimators.fitting._scorers import GivenOutputs, answering, output_scorer
from combutab.estimators.fitting._shared import train_shared, train_shared_stream
from combutab.estimators.fitting._stacks import (
    Job,
    activation_key,
    first_states,
)
from combutab.estimators.fitting._tasks import epoch_tasks

__all__ = [
    "Checkpoint",
    "FitHandout",
    "FitOutcome",
    "Folds",
    "GivenOutputs",
    "Job",
    "Prepared",
    "StackWatch",
    "TrainedFit",
    "activation_key",
    "answering",
    "as_numbers",
    "can_stratify",
    "check_bagging",
    "check_class_weight",
    "check_given",
    "check_initial",
    "check_settled",
    "check_weights",
    "concatenated",
    "encoded_rows",
    "epoch_tasks",
    "first_states",
    "initial_states",
    "initial_widths",
    "member_folds",
    "output_scorer",
    "settled",
    "split_rows",
    "take_over",
    "train_jobs",
    "train_shared",
    "train_shared_stream",
    "weighted_rows",
    "weights_of_classes",
]
