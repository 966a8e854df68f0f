"""Configs, their defaults, and numbers in text."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import check_estimator

import pipelines
import raydt
from pipelines.config import Config, json_schema, load_config, load_variants
from pipelines.operation import ClusterOptions, Output, dump_yaml, load_yaml
from pipelines.validation import look_at
from raydt import FullyDynamicTreeClassifier
from raydt.encoding.columns import doubt
from raydt.errors import ConfigError
from raydt.estimators.arguments import Parameters
from raydt.estimators.river import RiverClassifier
from raydt.learners import learners, traits_of
from raydt.messages import message
from tests.refusals import refused
from tests.volume import examples

# -- config ----------------------------------------------------------------------------------------------------------
# Configs: how they are read, overrides, paths, hash and schema. The corpus has what is refused in a file.

CONFIGS = Path(__file__).parents[2] / "configs"
SEA = {"source": {"kind": "synthetic", "generator": "sea"}, "learner": {"kind": "fudyadt"}}


def changed(**sections):
    return {**SEA, **sections}


def refusal_of(config, *overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(config, overrides)
    assert caught.value.exit_code == 2
    return caught.value


def names_nearest(error):
    """Return the id of a message, and the name that it suggests."""
    return error.message.id, error.message.parameters["close"]


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1e-7", 1e-7),
            ("1.5E3", 1500.0),
            ("-.inf", float("-inf")),
            ("010", 10),
            ("0x1F", 31),
            ("0o17", 15),
            ("1:30", "1:30"),
            ("2024-01-01", "2024-01-01"),
            ("no", "no"),
            ("true", True),
            ("~", None),
            ("'1'", "1"),
        ],
    )
    def test_scalars_follow_the_core_schema_of_1_2(self, text, value):
        read = load_yaml(text)
        assert read == value
        assert type(read) is type(value)

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False)
            | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
            max_leaves=12,
        )
    )
    def test_what_is_written_reads_back(self, value):
        assert load_yaml(dump_yaml(value)) == value

    @pytest.mark.parametrize("text", ["1e5", "1e-7", "0o7", "010", "no", "1:30", "2024-01-01", "", "~", ".5", "<<"])
    def test_text_that_looks_like_something_else_stays_text(self, text):
        assert load_yaml(dump_yaml({"a": text})) == {"a": text}

    @pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\x0c", "\ufeff"])
    def test_ends_of_lines_within_text_read_back(self, end):
        for text in (end, f"a{end}b", f" {end}{end} a", f"a{end}"):
            value = {text: [text, {"a": text}]}
            assert load_yaml(dump_yaml(value)) == value

    def test_an_alias_is_a_copy(self, tmp_path):
        file = tmp_path / "job.yaml"
        shared = "{resources: {coordinator: &r {num_cpus: 1}, shard: *r}}"
        file.write_text(f"source: {{kind: synthetic, generator: sea}}\nlearner: {{kind: fudyadt}}\ncluster: {shared}")
        one = load_config(file, ["cluster.resources.shard.num_cpus=2"])
        grid = [{"cluster.resources.shard.num_cpus": n} for n in (2, 3)]
        for config, n in zip([one, *load_variants(file, [], grid)], (2, 2, 3), strict=True):
            assert (config.cluster.resources.coordinator.num_cpus, config.cluster.resources.shard.num_cpus) == (1, n)

    def test_a_value_that_is_set_is_a_copy(self):
        value = {"num_cpus": 1}
        keys = [f"cluster.resources.{actor}" for actor in ("coordinator", "shard")]
        (config,) = load_variants(SEA, [], [{keys[0]: value, keys[1]: value, f"{keys[1]}.num_cpus": 2}])
        assert (config.cluster.resources.coordinator.num_cpus, value) == (1, {"num_cpus": 1})


class TestKindOfFiles:
    @pytest.mark.parametrize(
        ("path", "kind"),
        [("a.parquet", "parquet"), ("s3://b/A.CSV.gz", "csv"), (["*.ndjson", "y.jsonl"], "jsonl"), ("a.svm", "libsvm")],
    )
    def test_follows_from_the_end_of_the_path(self, path, kind):
        config = load_config({"source": {"path": path, "label": "y"}, "learner": {"kind": "fudyadt"}})
        assert config.source.kind == kind

    @pytest.mark.parametrize("path", ["folder", "a.txt", ["a.csv", "b.parquet"], [], None, 7, ["a.csv", 7]])
    def test_has_to_be_given_where_it_does_not_follow(self, path):
        said = refusal_of({"source": {"path": path, "label": "y"}, "learner": {"kind": "fudyadt"}})
        assert said.message.id == "configs.missing_choice"

    def test_that_is_given_holds(self):
        config = load_config({"source": {"kind": "csv", "path": "a.parquet"}, "learner": {"kind": "fudyadt"}})
        assert config.source.kind == "csv"


class TestMessages:
    def test_a_value_that_two_types_refuse_says_what_both_take_and_what_the_key_means(self):
        said = str(refusal_of(changed(cluster={"shards": "2"})))
        meaning = ClusterOptions.model_fields["shards"].description
        assert said == f"config: cluster.shards = '2': {message('configs.integer')}, or auto ({meaning})"

    def test_an_integer_beyond_64_bits_is_refused_in_a_mapping_too(self):
        source = {"kind": "synthetic", "generator": "sea", "seed": 2**63}
        with refused("configs.wide_integer", ConfigError, value=2**63) as caught:
            load_config(changed(source=source))
        assert str(caught.value).startswith("config: source.seed: ")

    @pytest.mark.parametrize(
        ("section", "options"),
        [
            *(("learner", one.Options) for one in learners().values()),
            ("cluster", ClusterOptions),
            ("output", Output),
        ],
    )
    def test_a_retired_key_is_refused_by_name_with_what_to_use_unless_it_says_what_is_done_today(
        self, section, options
    ):
        given = {"kind": options.model_fields["kind"].default} if section == "learner" else {}
        job = changed(stream={"model": "incremental", "warmup": 20})
        for key, (today, instead) in options.retired.items():
            said = str(refusal_of({**job, section: {**given, key: "before"}}))
            assert re.search(rf"{section}[.\w]*: {key} .*{re.escape(instead)}$", said)
            for value in today:
                assert load_config({**job, section: {**given, key: value}}) == load_config({**job, section: given})


class TestOverrides:
    def test_values_are_yaml_and_later_ones_win(self):
        config = load_config(SEA, ["learner.epsilon=1e-7", "cluster.shards=3", "cluster.shards=4"])
        assert (config.learner.epsilon, config.cluster.shards) == (1e-7, 4)

    def test_the_config_given_is_not_changed(self):
        given_config = {**SEA, "cluster": {"shards": 1}}
        load_config(given_config, ["cluster.shards=2"])
        assert given_config["cluster"] == {"shards": 1}

    @pytest.mark.parametrize("override", ["cluster.shards", "=3", "cluster..shards=3", "learner.kind.x=1", "a=[1"])
    def test_what_cannot_be_set_names_the_override(self, override):
        assert f"--set {override}" in str(refusal_of(SEA, override))

    def test_null_leaves_out_what_another_model_or_kind_does_not_have(self):
        data = {**SEA, "stream": {"model": "deletion_log", "deletion_log": "log.csv"}}
        assert load_config(data, ["stream.model=incremental", "stream.deletion_log=null"]).stream.model == "incremental"
        with refused("configs.missing_key", ConfigError) as caught:
            load_config(data, ["stream.deletion_log=null"])
        assert "stream.deletion_log: " in str(caught.value)
        data = {**SEA, "learner": {"kind": "gbdt", "max_iter": 5}, "stream": {"model": "incremental", "warmup": 9}}
        settings = [{"learner.kind": kind, "learner.max_iter": None} for kind in ("gbdt", "fudyadt")]
        gbdt, fudyadt = load_variants(data, [], settings)
        assert (gbdt.learner.max_iter, fudyadt.learner.kind) == (100, "fudyadt")

    def test_options_of_what_is_chosen_instead_are_left_out_with_one_warning(self, caplog):
        tree = {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 5, "feature_groups": 8}
        config = changed(learner=tree, stream={"model": "sliding_window", "window": 50, "warmup": 20})
        kinds = [{"learner.kind": kind} for kind in ("gbdt", "forest", "fudyadt")]
        loaded = load_variants(config, ["stream.model=incremental"], kinds)
        assert [one.learner.kind for one in loaded] == ["gbdt", "forest", "fudyadt"]
        assert [getattr(one.learner, "max_depth", None) for one in loaded] == [None, 5, 5]
        assert {one.learner.feature_groups for one in loaded} == {8}
        assert (loaded[2].learner.epsilon, loaded[0].stream.warmup) == (0.2, 20)
        (record,) = caplog.records
        assert record.args[1].parameters == {"keys": "learner.epsilon, learner.max_depth, stream.window"}

    @pytest.mark.parametrize("override", ["learner.epsilon=0.1", "learner.epsilno=0.1"])
    def test_an_option_that_is_set_with_another_learner_is_refused(self, override):
        error = refusal_of(SEA, "learner.kind=best_split", "stream.warmup=20", override)
        assert override.partition("=")[0] in str(error)

    def test_null_stays_where_it_is_a_value_and_misspelt_it_is_refused(self):
        assert load_config(SEA, ["checkpoint.every_seconds=null"]).checkpoint.every_seconds is None
        for error in (refusal_of(SEA, "cluster.shard=null"), refusal_of({**SEA, "cluster": {"shard": None}})):
            assert names_nearest(error) == ("configs.misspelt_key", "'shards'")

    def test_null_leaves_out_what_another_rule_does_not_use(self):
        shipped = Path(__file__).parents[2] / "configs" / "confidence_tree.yaml"
        with pytest.raises(ConfigError, match="ctree"):
            load_config(shipped, ["learner.rule=hoeffding"])
        said = shipped.read_text().partition("--set learner.rule")[2].splitlines()[0]
        found = load_config(shipped, [part.strip() for part in ("learner.rule" + said).split("--set")])
        assert (found.learner.rule, found.learner.delta, found.learner.c) == ("hoeffding", 1e-7, 0.01)
        keys = ("confidence", "c", "delta")
        nulls = load_config(shipped, [f"learner.{key}=null" for key in keys])
        assert nulls.learner == load_config(shipped, ["learner.c=0.01"]).learner
        settings = [
            {"learner.rule": "ctree"},
            {"learner.rule": "corrected", "learner.c": None, "learner.criterion": None},
        ]
        ctree, corrected = load_variants(shipped, [], settings)
        assert (ctree.learner.c, corrected.learner.resolved_criterion) == (0.02, "error")
        with pytest.raises(ConfigError, match=r"learner\.delta = 2: "):
            load_config(shipped, ["learner.rule=hoeffding", "learner.c=null", "learner.delta=2"])


class TestPaths:
    def test_relative_paths_are_relative_to_the_file(self, tmp_path, monkeypatch):
        (tmp_path / "deep").mkdir()
        file = tmp_path / "deep" / "job.yaml"
        file.write_text(
            "source: {kind: csv, path: [../a.csv, 's3://bucket/b.csv', /c.csv], id: k}\nlearner: {kind: fudyadt}\n"
            "stream: {model: deletion_log, deletion_log: d.csv}\ncheckpoint: {path: states}\n"
        )
        monkeypatch.chdir("/")
        config = load_config(file)
        assert config.name == "job"
        assert config.source.path == [f"{tmp_path}/a.csv", "s3://bucket/b.csv", "/c.csv"]
        assert config.stream.deletion_log == f"{tmp_path}/deep/d.csv"
        assert config.checkpoint.path == f"{tmp_path}/deep/states"


class TestHash:
    def test_operation_does_not_enter(self):
        operation = {"cluster": {"shards": 7, "batch_size": 1}, "checkpoint": {"keep": 9}, "output": {"report": False}}
        assert load_config({**SEA, **operation}).model_hash() == load_config(SEA).model_hash()

    @pytest.mark.parametrize("override", ["source.seed=8", "stream.warmup=1", "learner.epsilon=0.01"])
    def test_everything_else_does(self, override):
        config = changed(stream={"model": "incremental"})
        assert load_config(config, [override]).model_hash() != load_config(config).model_hash()

    def test_without_a_stream_the_window_follows_the_rows_but_with_models_by_key_all_rows_stay(self):
        assert load_config(SEA).stream.model == "adaptive_window"
        source = {"kind": "parquet", "path": "t.parquet"}
        assert load_config({**SEA, "source": source}).stream.model == "adaptive_window"
        assert load_config({**SEA, "source": {**source, "key": "k"}}).stream.model == "incremental"
        bounded = {**SEA, "checkpoint": {"max_age": "1h"}}
        assert load_config(bounded).stream.model == "incremental"
        with pytest.raises(ConfigError, match=r"scouts .* keep the last 16,384 rows"):
            load_config({**bounded, "stream": {"model": "adaptive_window"}})

    def test_defaults_written_out_make_no_difference(self):
        assert load_config({**SEA, "stream": {"model": "adaptive_window", "warmup": 0}}).model_hash() == (
            load_config(SEA).model_hash()
        )

    def test_the_former_word_for_fail_is_the_same_policy(self):
        """Of configs and runs of earlier versions; the hash is theirs."""
        former = load_config({**SEA, "stream": {"model": "incremental", "on_error": "error"}})
        assert former.resolved()["stream"]["on_error"] == load_config(SEA).resolved()["stream"]["on_error"] == "fail"
        assert (
            former.model_hash()
            == load_config({**SEA, "stream": {"model": "incremental", "on_error": "skip"}}).model_hash()
        )

    def test_where_the_data_lie_does_not_enter_but_their_name_does(self):
        def of(path):
            return load_config({"source": {"kind": "csv", "path": path}, "learner": {"kind": "fudyadt"}}).model_hash()

        assert of("/here/a.csv") == of("s3://there/a.csv") != of("/here/b.csv")


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "synthetic", "generator": "hyperplane"},
        {"kind": "csv", "path": "a.csv"},
        {"kind": "parquet", "path": "a", "id": "k", "op": "o", "positive": ["x", 1]},
    ],
)
def test_the_resolved_config_reads_back_to_itself(source):
    config = load_config({"source": source, "learner": {"kind": "fudyadt"}})
    again = load_config(load_yaml(config.to_yaml()))
    assert again == config
    assert again.model_hash() == config.model_hash()


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.name)
def test_configs_of_the_repository_are_valid(file):
    assert isinstance(load_config(file), Config)


def test_the_schema_explains_every_key_of_a_job():
    schema = json_schema()
    ours = ("ActorResources", "Resources", "ClusterOptions", "CheckpointOptions", "Output")
    for section in [schema, *(schema["$defs"][name] for name in ours)]:
        unexplained = [key for key, value in section["properties"].items() if not value.get("description")]
        assert not unexplained, section.get("title")


def test_the_schema_knows_every_learner_and_kind():
    schema = json_schema()
    kinds = schema["properties"]["source"]["discriminator"]["mapping"]
    assert {"parquet", "arrow", "csv", "synthetic"} <= kinds.keys()
    options = schema["$defs"]["FuDyADTOptions"]["properties"]
    assert options["epsilon"]["default"] == "auto"
    assert schema["properties"]["learner"]["discriminator"]["mapping"]["fudyadt"].endswith("/FuDyADTOptions")


# -- defaults --------------------------------------------------------------------------------------------------------
# All estimators: scikit-learn's checks, the options and defaults of YAML, bad values.
#
# Adapters for river have the parameters and defaults of their estimator.

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Parameters)]
ADAPTERS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, RiverClassifier)]
#: Parameters that fit the small data of scikit-learn's checks, of the learners that take dense rows alone.
FOR_SMALL_DATA: dict[str, dict[str, Any]] = {
    "confidence_tree": {"grace_period": 20, "c": 0.05},
    "forest": {"n_estimators": 12, "sample_share": 1.0, "max_depth": 8, "min_samples_split": 4},
    "fudyadt": {},
    "gbdt": {"max_iter": 30},
}
#: Options that are fixed by the kind of labels, of which an estimator takes one.
OF_LABELS = {"class_weight", "criterion", "objective", "label_range", "smoothing"}
#: Parameters of an estimator that its adapter does not have.
NOT_FOR_RIVER = {"class_weight", "n_features", "feature_groups", "n_jobs"}
#: Options of the learner that only the adapter has: a call of the estimator is a batch.
FOR_RIVER = {"update_every", "previous_labels"}
#: Defaults of adapters that differ, for streams whose old examples are forgotten.
OF_RIVER = {
    "RiverConfidenceTreeClassifier": {},
    "RiverGradientBoostingClassifier": {"update_every": "auto"},
    "RiverTreeClassifier": {"smoothing": 0.0},
    "RiverForestClassifier": {
        "n_estimators": 10,
        "sample_share": 1.0,
        "max_features": "sqrt",
        "thresholds": 2,
        "max_depth": 15,
        "min_samples_split": 4,
        "rebuild": "lazy",
    },
}


def defaults_of(public: type) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(public).parameters.items()}


def test_estimators_are_found() -> None:
    assert {estimator.kind for estimator in ESTIMATORS} == {
        kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt.")
    }


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_estimator_without_arguments_is_a_learner_without_options(estimator: type[Parameters]) -> None:
    """Options that an estimator fixes are set in both."""
    found = estimator()._options()
    assert found == learners()[estimator.kind].Options.model_validate({"kind": estimator.kind, **estimator._fixed})


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_parameters_are_the_options_with_their_defaults(estimator: type[Parameters]) -> None:
    options, given = estimator()._options(), defaults_of(estimator)
    fields = set(type(options).model_fields) - {"kind", *estimator._fixed}
    assert fields - set(given) <= OF_LABELS
    assert set(given) - fields <= set(estimator.described)
    assert {name: given[name] for name in fields & set(given)} == {
        name: getattr(options, name) for name in fields & set(given)
    }


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_an_adapter_has_the_parameters_and_defaults_of_its_estimator(adapter: type[RiverClassifier]) -> None:
    mine, other = defaults_of(adapter), defaults_of(adapter.estimator)
    assert set(mine) - FOR_RIVER == set(other) - NOT_FOR_RIVER
    own = OF_RIVER[adapter.__name__] | {"previous_labels": 0}
    assert mine == {name: other[name] for name in mine if name in other} | own


@pytest.mark.parametrize("public", [*ESTIMATORS, *ADAPTERS], ids=lambda public: public.__name__)
def test_every_parameter_is_declared_in_the_source(public: type) -> None:
    """Type checkers, editors and the site read the source: they know no parameter that is made at run time."""
    bodies = [ast.parse(inspect.getsource(kind)).body[0] for kind in public.__mro__ if kind.__module__[:6] == "raydt."]
    lines = [line for body in bodies if isinstance(body, ast.ClassDef) for line in body.body]
    declared = {
        line.target.id for line in lines if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    assert {*defaults_of(public)} <= declared


@pytest.mark.parametrize("public", [*ESTIMATORS, *ADAPTERS], ids=lambda public: public.__name__)
def test_every_parameter_is_described(public: type) -> None:
    assert set(re.findall(r"^    (\w+) : .*\n        [A-Z]", str(public.__doc__), re.MULTILINE)) == {
        *defaults_of(public)
    }


def a_bad_parameter(public: type) -> dict[str, float]:
    """The first number among the parameters, below what is allowed."""
    return {next(name for name, value in defaults_of(public).items() if type(value) in (int, float)): -1}


@pytest.mark.parametrize("public", [*ESTIMATORS, *ADAPTERS], ids=lambda public: public.__name__)
def test_a_bad_parameter_is_named_with_its_value(public: Any) -> None:
    bad = a_bad_parameter(public)
    with pytest.raises(ConfigError, match=f"{next(iter(bad))}=-1"):
        public(**bad).learn_one({"a": 1}, True) if public in ADAPTERS else public(**bad).fit([[1], [2]], [0, 1])


#: What scikit-learn checks of estimators with ``sample_weight``.
OF_WEIGHTS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_all_zero_sample_weights_error",
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "estimator",
    [estimator for estimator in ESTIMATORS if estimator.kind in FOR_SMALL_DATA],
    ids=lambda estimator: estimator.__name__,
)
@pytest.mark.filterwarnings(r"ignore:Estimator \w+ does not inherit:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_accepts_it(estimator: Any) -> None:
    model = estimator(**FOR_SMALL_DATA[estimator.kind])
    refused = {} if traits_of(model._options()).reading.weights else dict.fromkeys(OF_WEIGHTS, "refused")
    refused |= {"check_class_weight_classifiers": "a leaf may have rows of a light class only"}
    if estimator.kind == "gbdt":  # as of scikit-learn's own histogram gradient boosting
        refused |= {"check_sample_weight_equivalence_on_dense_data": "bins are made of rows of weight 0, too"}
    if estimator.kind == "confidence_tree":
        refused |= {"check_sample_weight_equivalence_on_dense_data": "what leaves predict by is chosen row by row"}
    done = check_estimator(model, expected_failed_checks=refused)
    assert sum(check["status"] == "passed" for check in done) > 40
    others = {check["check_name"] for check in done if check["status"] != "passed"}
    assert others <= {"check_array_api_input", *refused}


# -- numerals --------------------------------------------------------------------------------------------------------
# Text that looks like numbers or times becomes categories only with a warning: in files of every kind, and frames.

NUMBERS = {
    "decimals": lambda i: str(Decimal(i * 7) / 100),
    "integers": str,
    "exponents": lambda i: f"{i}.5e-3",
    "commas": lambda i: f"{i},25",
    "thousands": lambda i: f"{1000 * i + 999:,}.50",
    "money": lambda i: f"${i}.99",
    "euros": lambda i: f"{i}.99 €",
    "shares": lambda i: f"{i} %",
}
TIMES = {
    "days": lambda i: str(datetime(2024, 1, 1) + timedelta(days=i))[:10],
    "zones": lambda i: f"2024-05-31T12:{i % 60:02}:00Z",
}
NAMES = {
    "words": lambda i: f"w{i}",
    "codes": lambda i: f"A-{i:03}",
    "versions": lambda i: f"{i}.0.1-b",
    "one": lambda i: "x",
}
N = 40


@examples(60)
@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1),
    st.sampled_from(["", "{:+}", "{:,}", "{:E}"]),
)
def test_every_way_to_write_a_number(values: list[Decimal], form: str) -> None:
    texts = [(form or "{}").format(value) for value in values]
    assert doubt(pa.array(texts)), texts


@examples(60)
@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1), min_size=1))
def test_words_are_names(values: list[str]) -> None:
    assert doubt(pa.array(values)) is None


def warnings_of(folder: Path, table: pa.Table, kind: str, **source: object) -> list[str]:
    path = folder / f"data.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        table.to_pandas().to_csv(path, index=False)
    config = {
        "source": {"kind": kind, "path": str(path), **source},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
    }
    if "envelope" in source:
        config["stream"] = {"model": "changelog"}
    return [text for text in look_at(load_config(config))["warnings"] if "looks like" in text or "look like" in text]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("form", [*NUMBERS, *TIMES, *NAMES])
def test_validate_warns(form: str, kind: str, tmp_path: Path) -> None:
    texts = [({**NUMBERS, **TIMES, **NAMES})[form](i) for i in range(N)]
    table = pa.table({"price": texts, "x": np.arange(N) * 1.5, "y": ["a", "b"] * (N // 2)})
    if kind == "csv" and form in ("decimals", "integers", "exponents", "commas", "days", "zones"):
        return  # which have types there, or are refused
    found = warnings_of(tmp_path, table, kind)
    assert len(found) == (form not in NAMES), found
    if found:
        said = message("columns.like_times" if form in TIMES else "columns.like_numbers")
        assert f"column 'price' {said}" in found[0]
        assert warnings_of(tmp_path, table, kind, categorical=["price"]) == []


def test_replay_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"price": [f"{i}.5" for i in range(N)], "y": ["a", "b"] * (N // 2)})
    pq.write_table(table, tmp_path / "data.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "data.parquet")},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 7},
    }
    pipelines.replay(config, tmp_path / "run")
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert f"'price' {message('columns.like_numbers')}" in record.getMessage()


def test_validate_warns_of_debezium_decimals(tmp_path: Path) -> None:
    after = [{"id": i, "price": f"{i}.99", "y": "ab"[i % 2]} for i in range(N)]
    table = pa.table({"before": pa.nulls(N, pa.array(after).type), "after": after, "op": ["c"] * N})
    (warning,) = warnings_of(tmp_path, table, "parquet", envelope="debezium", id="id")
    assert message("columns.like_numbers") in warning


def test_frames_warn() -> None:
    y = np.arange(N) % 2
    for form, make in {**NUMBERS, **TIMES, **NAMES}.items():
        frame = pd.DataFrame({"price": [make(i) for i in range(N)], "x": np.arange(N) * 1.5})
        for X in (frame, pa.Table.from_pandas(frame)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                FullyDynamicTreeClassifier().fit(X, y)
                found = [str(warning.message) for warning in caught if "look like" in str(warning.message)]
                assert len(found) == (form not in NAMES), (form, found)
                assert {warning.filename for warning in caught} <= {__file__}
                caught.clear()
                FullyDynamicTreeClassifier(categorical_features=["price"]).fit(X, y)
                FullyDynamicTreeClassifier().fit(frame.astype({"price": "category"}), y)
                assert not caught, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("given", "variable", "backend"),
    [
        ({}, "", "in_process"),
        ({"shards": "auto", "address": None, "threads": 1}, "", "in_process"),
        ({"shards": 1}, "", "ray"),
        ({"address": "auto"}, "", "ray"),
        ({"metrics_port": 8080}, "", "in_process"),
        ({"resources": {"shard": {"num_cpus": 2}}}, "", "ray"),
        ({}, "10.0.0.1:6379", "ray"),
        ({"backend": "in_process", "shards": 2}, "10.0.0.1:6379", "in_process"),
        ({"backend": "ray"}, "", "ray"),
    ],
)
def test_the_backend_is_this_process_unless_something_says_ray(given, variable, backend, monkeypatch):
    """``auto`` is decided where a config is read: what a run has on record does not change on another machine."""
    monkeypatch.setenv("RAY_ADDRESS", variable)
    config = {"source": {"kind": "synthetic", "generator": "sea", "n": 9}, "learner": {"kind": "fudyadt"}}
    for section in [given, {"backend": "auto", **given}]:
        read = load_config({**config, "cluster": section})
        assert read.cluster.backend == backend
    monkeypatch.setenv("RAY_ADDRESS", "" if variable else "10.0.0.1:6379")
    assert load_config(read.resolved()).cluster.backend == backend
    if not given:
        assert load_config(config, ["cluster.address=auto"]).cluster.backend == "ray"
