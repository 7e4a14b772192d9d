"""Knows the algorithm part of CreateTrainingJob: what runs, with which data; and the words both parts share.

Optional fields take null as absent. Fields the vendor may add later are passed over, not refused.
"""

from typing import Annotated

from msgspec import Meta, Struct

ACCESS_METHODS = ("parameter", "env")

Text = Annotated[str, Meta(max_length=4096)]
Command = Annotated[
    str, Meta(max_length=32_000)
]  # one argument of exec holds 128 KiB, a character up to four
ChannelName = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[0-9A-Za-z_][0-9A-Za-z_.-]*$")]
ParameterName = Annotated[str, Meta(min_length=1, max_length=256, pattern="^[^\\s=]+$")]
AccessMethod = Annotated[str, Meta(extra_json_schema={"enum": [*ACCESS_METHODS, ""]})]
EnvironmentName = Annotated[str, Meta(max_length=8192, pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
EnvironmentValue = Annotated[str, Meta(max_length=4096)]
Environments = Annotated[dict[EnvironmentName, EnvironmentValue], Meta(max_length=100)]


class Wire(Struct, omit_defaults=True):
    """A JSON object of the dialect; what is None is left out."""


class I18nDescription(Wire):
    """Describe a parameter in one language."""

    language: Text | None = None
    description: Text | None = None


class ParameterConstraint(Wire):
    """Say what values a parameter takes."""

    type: Text | None = None
    editable: bool | None = None
    required: bool | None = None
    sensitive: bool | None = None
    valid_type: Text | None = None
    valid_range: list[Text] | None = None


class Parameter(Wire):
    """One argument of the job: passed as --name=value."""

    name: ParameterName
    value: Annotated[str, Meta(max_length=8192)] | None = None
    description: Text | None = None
    constraint: ParameterConstraint | None = None
    i18n_description: I18nDescription | None = None


class RewardAttribute(Wire):
    """Name what a search optimises."""

    name: Text | None = None
    mode: Text | None = None
    regex: Text | None = None


class SearchParameter(Wire):
    """Name one dimension of a search."""

    name: Text | None = None
    param_type: Text | None = None
    lower_bound: Text | None = None
    upper_bound: Text | None = None
    discrete_points_num: Text | None = None
    discrete_values: list[Text] | None = None


class AlgoParameter(Wire):
    """One setting of a search algorithm."""

    key: Text | None = None
    value: Text | None = None
    type: Text | None = None


class AlgoConfig(Wire):
    """Choose a search algorithm."""

    name: Text | None = None
    params: list[AlgoParameter] | None = None


class AutoSearch(Wire):
    """Describe a hyper-parameter search."""

    skip_search_params: Text | None = None
    reward_attrs: list[RewardAttribute] | None = None
    search_params: list[SearchParameter] | None = None
    algo_configs: list[AlgoConfig] | None = None


class Policies(Wire):
    """Hold the policies of an algorithm."""

    auto_search: AutoSearch | None = None


class RemoteDataset(Wire):
    """Name a data set; only its obs_url is used."""

    id: Text | None = None
    version_id: Text | None = None
    obs_url: Text | None = None
    service_type: Text | None = None
    name: Text | None = None
    dataset_proportion: int | None = None


class RemoteObs(Wire):
    """Name a place in the object store."""

    obs_url: Text | None = None


class InputRemote(Wire):
    """Say where an input is."""

    dataset: RemoteDataset | None = None
    obs: RemoteObs | None = None


class OutputRemote(Wire):
    """Say where an output goes."""

    obs: RemoteObs | None = None


class RemoteConstraint(Wire):
    """Say what kind of data an input takes."""

    data_type: Text | None = None
    attributes: Text | None = None


class Input(Wire):
    """One input channel."""

    name: ChannelName
    description: Text | None = None
    local_dir: Text | None = None
    access_method: AccessMethod | None = None
    remote: InputRemote | None = None
    remote_constraint: list[RemoteConstraint] | None = None


class Output(Wire):
    """One output channel."""

    name: ChannelName
    description: Text | None = None
    local_dir: Text | None = None
    access_method: AccessMethod | None = None
    remote: OutputRemote | None = None
    mode: Text | None = None
    period: Text | None = None


class Engine(Wire):
    """Choose a prepared environment: engine_id, engine_name with engine_version, or image_url."""

    engine_id: Text | None = None
    engine_name: Text | None = None
    engine_version: Text | None = None
    image_url: Text | None = None
    install_sys_packages: bool | None = None
    image_repo_id: Text | None = None
    v1_compatible: bool | None = None
    run_user: Text | None = None


class PfsPath(Wire):
    """Name a place in a parallel file system."""

    pfs_path: Text | None = None


class LogDir(Wire):
    """Say where visualisation logs go."""

    pfs: PfsPath | None = None


class SummaryJob(Wire):
    """Name a job whose visualisation logs are read."""

    job_id: Text | None = None


class SummaryNfs(Wire):
    """Name a shared directory whose visualisation logs are read."""

    nfs_path: Text | None = None


class SummarySource(Wire):
    """Say where visualisation logs come from."""

    job: SummaryJob | None = None
    nfs: SummaryNfs | None = None


class Summary(Wire):
    """Describe visualisation logs."""

    log_type: Text | None = None
    log_dir: LogDir | None = None
    data_sources: list[SummarySource] | None = None


class Algorithm(Wire):
    """Say what runs: command, or code_dir with boot_file."""

    id: Text | None = None
    name: Text | None = None
    subscription_id: Text | None = None
    item_version_id: Text | None = None
    code_dir: Text | None = None
    boot_file: Text | None = None
    autosearch_config_path: Text | None = None
    autosearch_framework_path: Text | None = None
    command: Command | None = None
    parameters: Annotated[list[Parameter], Meta(max_length=200)] | None = None
    policies: Policies | None = None
    inputs: Annotated[list[Input], Meta(max_length=50)] | None = None
    outputs: Annotated[list[Output], Meta(max_length=50)] | None = None
    engine: Engine | None = None
    local_code_dir: Text | None = None
    working_dir: Text | None = None
    environments: Environments | None = None
    summary: Summary | None = None
