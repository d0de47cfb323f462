"""Training loop, losses, optimizers, schedules and callbacks."""

from combutab.core.progress import uninterrupted
from combutab.core.world import unshared
from combutab.training._callbacks import (
    Callback,
    EpochReport,
    FitTasks,
    Learned,
    NetworksBar,
    ProgressBar,
    TimeLimit,
    VerboseLines,
)
from combutab.training._conditions import Conditions, ConditionSampler
from combutab.training._losses import (
    REGRESSION_LOSSES,
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Loss,
    MaskedLoss,
    Pinball,
    best_factors,
    make_regression_loss,
)
from combutab.training._optimizers import (
    PER_STEP,
    SCHEDULES,
    SOLVERS,
    OptimizerConfig,
    RowOptimizer,
    StepRates,
    is_per_step,
    schedule_factor,
)
from combutab.training._steps import (
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    TrainConfig,
)
from combutab.training._trainer import StackFile, Trainable, train, train_lbfgs, train_stack

__all__ = [
    "PER_STEP",
    "REGRESSION_LOSSES",
    "SCHEDULES",
    "SOLVERS",
    "BinaryCrossEntropy",
    "Callback",
    "ConditionSampler",
    "Conditions",
    "CrossEntropy",
    "EpochReport",
    "FitTasks",
    "GaussianNLL",
    "Learned",
    "Loss",
    "MaskedLoss",
    "MemberPlan",
    "MemberResult",
    "NetworksBar",
    "OptimizerConfig",
    "Pinball",
    "ProgressBar",
    "RowOptimizer",
    "RowStream",
    "Rows",
    "StackFile",
    "StepRates",
    "TimeLimit",
    "TrainConfig",
    "Trainable",
    "VerboseLines",
    "best_factors",
    "is_per_step",
    "make_regression_loss",
    "schedule_factor",
    "train",
    "train_lbfgs",
    "train_stack",
    "uninterrupted",
    "unshared",
]
