"""The training loop of stacks, its losses, optimisers, schedules and callbacks."""

from combutab._interrupts import uninterrupted
from combutab._ranks import unshared
from combutab.training._callbacks import (
    Callback,
    EpochReport,
    ProgressBar,
    TimeLimit,
    VerboseLines,
)
from combutab.training._compiled import CompiledGradients, compilation, compiled
from combutab.training._conditions import Conditions, ConditionSampler
from combutab.training._fit_tasks import FitTasks, Learned
from combutab.training._lbfgs import train_lbfgs
from combutab.training._loop import train_stack
from combutab.training._losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Loss,
    Pinball,
    make_regression_loss,
)
from combutab.training._optimizers import SOLVERS, OptimizerConfig, RowOptimizer, clip_gradients
from combutab.training._records import (
    MemberPlan,
    MemberResult,
    MemberStart,
    Rows,
    RowStream,
    TrainableNetwork,
    TrainConfig,
)
from combutab.training._schedules import PER_STEP, SCHEDULES, is_per_step, schedule_factor
from combutab.training._standing import StackFile

__all__ = [
    "PER_STEP",
    "SCHEDULES",
    "SOLVERS",
    "BinaryCrossEntropy",
    "Callback",
    "CompiledGradients",
    "ConditionSampler",
    "Conditions",
    "CrossEntropy",
    "EpochReport",
    "FitTasks",
    "GaussianNLL",
    "Learned",
    "Loss",
    "MemberPlan",
    "MemberResult",
    "MemberStart",
    "OptimizerConfig",
    "Pinball",
    "ProgressBar",
    "RowOptimizer",
    "RowStream",
    "Rows",
    "StackFile",
    "TimeLimit",
    "TrainConfig",
    "TrainableNetwork",
    "VerboseLines",
    "clip_gradients",
    "compilation",
    "compiled",
    "is_per_step",
    "make_regression_loss",
    "schedule_factor",
    "train_lbfgs",
    "train_stack",
    "uninterrupted",
    "unshared",
]
