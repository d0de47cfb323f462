"""Public names stay: who wrote a script against them can run it again.

A name that goes, or moves, is a change that users meet: CHANGELOG.md says what to write instead.
"""

import importlib

import pytest

NAMES = """
combutab: ACTIVATIONS CTGAN CombU LAHardSiLU LASiLU LayerAct MLPClassifier MLPRegressor NLReLU
    PELU PLN PLS PackClassifier PackRegressor PrivateSynthesizer ProxyNorm StackedGridSearchCV TVAE
    TabFlow TabFlowImputer TabFlowTables TabMClassifier TabMRegressor __version__ load paper_recipe
combutab.activations: ACTIVATIONS Blend CombU ComplexCombU Derf DyT LAHardSiLU LASiLU LayerAct
    NLReLU PELU PLN PLS PReLU ProxyNorm Rational Snake Swish make_activation
combutab.constructions: ConstructedNetwork compose cos_network exp_network
    expression_network linear_combination lipschitz_network log_network monomial_network
    polynomial_network product sin_network
combutab.datasets: Dataset FORMULAS TableError list_feynman list_openml load_feynman load_openml
    make_flats make_formula parse_formula read_cells read_table split_target
combutab.estimators: BaseMLP FitOutcome FitTask MLPClassifier MLPRegressor PackClassifier
    PackRegressor TabMClassifier TabMRegressor TableModule clone_for_all_rows fit_stacked
    paper_recipe refuse_text validate_parameters
combutab.evaluation: ActivationStats AlignedDatabases AlignedTables CORRUPTIONS Corruption
    Interval METRICS Metric NemenyiResult PredictionScores Robustness Significance
    activation_stats align_tables attribute_inference bootstrap_interval compare_databases
    compare_pairs compare_with_best corrected_interval corrected_resampled_ttest corrupt
    detection detection_parts
    evaluate_held_out evaluate_predictions fidelity find_metric friedman holm interval_words
    mean_ranks membership_inference ml_efficacy near_copies nemenyi p_words
    power_decomposition privacy robustness singling_out summarise summarise_nemenyi
    summarise_pairs t_interval wilcoxon
combutab.generators: CTGAN Constraint Coordinates FixedCombinations Formula Inequality Null OneOf
    PrivateSynthesizer ShortfallError Suggestions Sum TVAE TabFlow TabFlowImputer TabFlowTables
    Unique
    check_conditions find_generators fit_stack patch_ctgan read_constraints suggest_constraints
    write_constraints
combutab.generators.sdv: CTGANSynthesizer TVAESynthesizer TabFlowSynthesizer
combutab.inspection: Attributions PartialDependence PermutationImportance TableMasker
    attributions leaking_columns partial_dependence permutation_importance
combutab.mlflow: load_model log_model save_model
combutab.model_selection: ActivationComparison BASELINES ComparisonError ComparisonPlan
    DEFAULT_ACTIVATIONS DEFAULT_MODELS GUESSES ModelComparison StackedGridSearchCV
    checkpoint_differences compare_activations compare_models count_checkpoint_fits
    plan_comparison run_comparison
    score_classifier score_regressor
    shown_range
combutab.nn: ActivationSpec BlurredCrossEntropy ChainNetwork CodeInputs INITIALISATIONS
    MLPSpec MaskMaker Member NORMALIZATIONS NTK NUMERIC_EMBEDDINGS NetworkSpec
    ROLES RowSpans StackedActivation StackedCascade
    StackedCritic StackedGenerator StackedInputs StackedLinear StackedMLP
    StackedNetwork StackedNorm StackedRowDecoder StackedRowEncoder TabMSpec
    TableNetwork build_activation check_activation check_proxy_norm fill_gradients frozen
    gradient_penalty time_inputs
combutab.plotting: ActivationComparisonDisplay AttributionDisplay LossCurveDisplay PackDisplay
    PartialDependenceDisplay PermutationImportanceDisplay
    plot_comparison plot_critical_difference plot_loss_curve plot_pack plot_power
    plot_robustness plot_schema
combutab.preprocessing: CIRCLE_STEPS QUARTERS
    CategoryColumn ColumnForm ColumnKind EncodedTable ForeignKey IdentifierColumn
    Identifiers IncompleteTable ModeEncoder ModeTable Moments NumberColumn OddColumn
    OddColumnWarning ParquetParts ParquetTable Paths RowGroup RowLayout RowSpan RunningMoments Span
    Table TableEncoder TableSchema TargetError UnlearnedWarning append_cells as_numpy
    as_pandas as_table
    binary_unit calendar_phases category_order check_date_features column_kind distinct_values
    dtype_kind expecting_later_rows
    fill_polars find_forms find_identifiers find_text_form given_categories given_identifiers
    given_numbers infer_task
    is_polars join_bins key_labels may_miss means_missing merge_bins missing_codes occupied
    odd_columns parquet_parts
    plain_labels polars_cells put_cells read_amounts read_keys read_numbers
    read_tables refuse_cells
    refuse_large rows_needed sort_tables split_tables to_ticks
    validate_table
combutab.reports: ComparedTable Finding ModelReport PersonPrivacy RequirementError
    SyntheticEvaluation TablesEvaluation comparison_table evaluate_synthetic render_report
    report_model write_report
combutab.training: BinaryCrossEntropy Callback ConditionSampler Conditions
    CrossEntropy EpochReport FitTasks GaussianNLL Learned Loss MaskedLoss MemberPlan MemberResult
    NetworksBar OptimizerConfig PER_STEP Pinball ProgressBar REGRESSION_LOSSES RowOptimizer
    RowStream Rows SCHEDULES SOLVERS StackFile StepRates TimeLimit TrainConfig Trainable
    VerboseLines best_factors is_per_step make_regression_loss schedule_factor train train_lbfgs
    train_stack uninterrupted unshared
"""


def listed():
    """Package -> its names, of the list above."""
    joined = NAMES.strip().replace("\n    ", " ")
    return {line.split(": ")[0]: line.split(": ")[1].split() for line in joined.splitlines()}


@pytest.mark.parametrize("package", listed())
def test_public_names_are_those_listed(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(listed()[package])
    assert all(hasattr(module, name) for name in module.__all__)
