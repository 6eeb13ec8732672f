"""From files of a framework to a scenario and a report of every key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clustersim.apps.importing.deriving import derive_strategy, derive_tokens, drop_open, machine_of, text_of
from clustersim.apps.importing.entries import Contents, ImportOptions, LoggedSteps
from clustersim.apps.importing.imported_models import complete_model, model_of
from clustersim.apps.importing.imported_serving import derive_serving, n_experts, n_nodes
from clustersim.apps.importing.imported_settings import Draft, Key, Setting, in_scenario, read_settings
from clustersim.apps.importing.machines import (
    chosen_variant,
    cluster_of,
    cluster_with,
    clusters_apart,
    join_machines,
    labelled_machines,
    machine_contents,
    shipped_machine,
    take_known_attention,
)
from clustersim.apps.importing.needed import missing_settings, options_for, slips
from clustersim.apps.importing.parts import linked, roots, with_option_files, with_pools
from clustersim.apps.importing.reading import name_of, read_contents, read_raw
from clustersim.apps.importing.recognise import candidates, framework_of, is_own, refuse_foreign
from clustersim.apps.importing.table import JobKind, load_table, machine_table
from clustersim.apps.importing.tracked_runs import read_tracked, tracked_folder
from clustersim.apps.serve.deployment import build_serving
from clustersim.config.build import build
from clustersim.config.load import Scenario, ScenarioText, checked_scenario, example_names
from clustersim.config.machine import hardware_of
from clustersim.config.overriding import Override, apply_overrides, parse_override
from clustersim.config.presets import load_preset
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.config.serving_scenario import ServingScenario, checked_serving, is_serving
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.check import validate_part, value_at
from clustersim.documents.text import Data, parse_document, plain_document
from clustersim.errors import ClustersimError, DomainError, InfeasibleError, Place, ScenarioError
from clustersim.parallel.needs import idle
from clustersim.topology.cluster_wiring import build_mixed_cluster
from clustersim.workloads.reading.model_spec import load_model, model_names

_SECTIONS: Final = {"training": ("training", "strategy"), "serving": ("serving", "requests", "slo")}
"""Sections of a scenario that an import fills in, by the kind of job."""
_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".env", ".conf")
"""Endings of files that others may source or start."""
_ONE_POOL: Final = "a pool of a deployment is simulated as all of it: name the file of the other pool beside this one in clustersim import"
_BY_SET: Final = {"--cluster NAME": "-s cluster.node=NAME", "--nodes ": "-s cluster.nodes=", "--model ": "-s model="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A scenario made of a framework's files."""

    framework: str
    title: str
    files: tuple[str, ...]
    data: dict[str, Data]
    """The scenario as it is written."""
    scenario: Scenario | ServingScenario | None
    """None where the files describe a cluster alone."""
    keys: tuple[Key, ...]
    measured: LoggedSteps | None
    lent: bool = False
    """Whether the cluster is a lent one."""


def import_files(sources: Sequence[str], asked: ImportOptions) -> Imported:
    """Return the scenario of a job, from the files that describe it together."""
    sources, asked = clusters_apart(sources, asked)
    changes = _changes(asked)
    set_ = _set(changes)
    node = text_of(asked.cluster, set_.get("cluster.node"))
    precision = text_of(set_.get("training.precision")) or "bf16"
    scripts = {Path(source).name: read_raw(source) for source in sources if source.endswith(_SCRIPTS)}
    contents = [
        chosen_variant(each, node and shipped_machine(node), asked.nodes, precision)
        for source in sources
        for each in _contents(source, asked, scripts, alone=not linked(source, sources, scripts))
    ]
    given = roots(contents)
    contents = with_pools(with_option_files(given))
    machines = [each for each in contents if each.format == "machine"]
    if len(machines) == len(contents):
        return _imported_cluster(machines, asked)
    jobs = [each for each in contents if each.format != "machine"]
    if all(each.only_measured for each in jobs):
        hint = f"compare it beside a scenario: clustersim compare SCENARIO {jobs[0].file}"
        raise ScenarioError("is a log without the arguments of its job", place=Place(file=jobs[0].file), hint=hint)
    machines = [*labelled_machines(jobs), *machines]
    name = asked.framework or framework_of(jobs)
    table = load_table(name)
    draft = read_settings(table, jobs, model=text_of(asked.model, set_.get("model")))
    join_machines(draft, machines)
    if len(pools := {each.pool for each in jobs if each.pool}) == 1:
        draft.keys.append(Key(key="pool", how="not_modelled", value=pools.pop(), note=_ONE_POOL))
    lent = bool(asked.lent) and draft.get("cluster.node") is None and draft.get("job.accelerator") is None
    if lent:
        asked = replace(asked, overrides=(*asked.lent, *asked.overrides))
        changes = _changes(asked)
    if asked.strict:
        _refuse_unknown(draft, table.file.title)
    # The files of a command's options are read before it, and are named as the user did.
    named = [each for each in given if each.format != "machine"]
    data = _scenario(draft, asked, changes, [*named, *machines], job=table.file.job)
    files = tuple(dict.fromkeys(each.file for each in given))
    # What is set of the model is in it by now, unless it is described in a file of its own.
    elsewhere = isinstance(data["model"], str) and data["model"] not in model_names()
    changes = [each for each in changes if each.path[0] != "model" or elsewhere]
    data, scenario, unused = _checked(data, draft, " and ".join(files), changes)
    return Imported(
        framework=name,
        title=table.file.title,
        files=files,
        data=data,
        scenario=scenario,
        keys=tuple(_with_results(draft, scenario, asked, unused)),
        measured=next((each.measured for each in contents if each.measured), None),
        lent=lent,
    )


def _imported_cluster(machines: Sequence[Contents], asked: ImportOptions) -> Imported:
    """Return the cluster that descriptions of machines give, as the part of a scenario that it is.

    Raises
    ------
    ScenarioError
        When no file tells the accelerators or the nodes, or the cluster cannot be wired.
    """
    draft = Draft()
    join_machines(draft, machines)
    if draft.get("job.nodes") is None:
        draft.derive("job.nodes", 1, "one node is described")
    files = " and ".join(dict.fromkeys(each.file for each in machines))
    given = None if asked.cluster is None else shipped_machine(asked.cluster)
    machine = machine_of(draft, given, asked.nodes)
    if machine.missing:
        raise ScenarioError(f"no file says {'; nor '.join(machine.missing)}", place=Place(file=files))
    data: dict[str, Data] = {"cluster": cluster_with(machine.cluster, draft, machines)}
    changes = [parse_override(text) for text in asked.overrides]
    document = apply_overrides(plain_document(data, files), changes)
    try:
        hardware = hardware_of(validate_part(ClusterSpec, document.data["cluster"], document, ("cluster",)), document)
        build_mixed_cluster(hardware.kinds, hardware.fabric)
    except DomainError as error:
        raise ScenarioError(f"cannot be simulated: {error.message}", hint=error.hint, place=Place(file=files)) from error
    told = {key: each for key, each in draft.settings.items() if key.startswith("cluster.") and each.how in ("derived", "default")}
    keys = [*draft.keys, *(Key(key=key, how=each.how, to=key, value=each.value, note=each.note) for key, each in told.items())]
    if asked.cluster is not None:
        keys.append(Key(key="cluster.node", how="given", to="cluster.node", value=given, note="--cluster"))
    return Imported(
        framework="machine",
        title=machine_table().file.title,
        files=tuple(dict.fromkeys(each.file for each in machines)),
        data=document.data,
        scenario=None,
        keys=tuple(keys),
        measured=None,
    )


def _changes(asked: ImportOptions) -> list[Override]:
    """Return the changes of ``--set``, with the cluster of a file written out."""
    changes = [parse_override(text) for text in asked.overrides]
    written = [apply_overrides(plain_document({}, "--set"), [each]).data if each.path == ("cluster",) else {} for each in changes]
    return [replace(each, value=data.get("cluster", each.value)) for each, data in zip(changes, written, strict=True)]


def _set(changes: Sequence[Override]) -> dict[str, Data]:
    """Return the changes by dotted key, with the parts of a cluster that is set as a whole."""
    found: dict[str, Data] = {}
    for change in changes:
        found[".".join(change.path)] = change.value
        if change.path == ("cluster",) and isinstance(change.value, dict):
            found |= {f"cluster.{key}": value for key, value in change.value.items()}
    return found


def foreign_source(source: str) -> bool:
    """Return whether a path names a file of another framework, rather than a scenario, a shipped name or a run directory."""
    if source in example_names() or not Path(source).is_file():
        return source not in example_names() and tracked_folder(source) is not None
    text = read_raw(source)
    try:
        contents = read_contents(text, source)
    except ScenarioError:
        contents = None
    # An own file is known without the vocabularies of frameworks, which take a second to read.
    if contents is not None and (is_own(contents) or contents.only_measured or candidates([contents])):
        return not is_own(contents)
    refuse_foreign(text, source)
    return False


def _contents(source: str, asked: ImportOptions, sourced: Mapping[str, str], *, alone: bool) -> list[Contents]:
    if (folder := tracked_folder(source)) is not None:
        return read_tracked(folder)
    text, name = read_raw(source), name_of(source)
    try:
        contents = read_contents(text, name, sourced)
    except ScenarioError:
        machine = machine_contents(text, name)
        if machine is not None:
            return [machine]
        refuse_foreign(text, name)
        raise
    if cluster_of(source) is not None:
        raise ScenarioError("is a cluster, not a job", place=Place(file=name), hint=f"name a job before it: clustersim import JOB {name}")
    if asked.framework is None and is_own(contents):
        raise ScenarioError("is a scenario already", place=Place(file=name), hint=f"run it with: clustersim run {name}")
    if not candidates([contents]) and (machine := machine_contents(text, name)) is not None:
        return [machine]
    if asked.framework is None and alone and not candidates([contents]):
        refuse_foreign(text, name)
    return [contents]


def _refuse_unknown(draft: Draft, title: str) -> None:
    unknown = next((key for key in draft.keys if key.how == "unknown"), None)
    if unknown is None:
        return
    number = sum(key.how == "unknown" for key in draft.keys)
    others = f", the first of {number}" if number > 1 else ""
    hint = unknown.note or "leave out --strict to go on without it"
    place = Place(file=unknown.file or "", line=unknown.line)
    raise ScenarioError(f"is no key of {title} that is known{others}", field=unknown.key, hint=hint, place=place)


def _scenario(
    draft: Draft, asked: ImportOptions, changes: Sequence[Override], contents: Sequence[Contents], *, job: JobKind
) -> dict[str, Data]:
    """Return the scenario, without what ``--set`` adds.

    Raises
    ------
    ScenarioError
        Naming all that no file says, each with the option that gives it.
    """
    set_ = _set(changes)
    cluster = text_of(asked.cluster, set_.get("cluster.node"), set_.get("cluster.name"))
    cluster = None if cluster is None else shipped_machine(cluster)
    nodes = asked.nodes or next((value for value in [set_.get("cluster.nodes")] if isinstance(value, int)), None)
    model_given = text_of(asked.model, set_.get("model"))
    for key, value in set_.items():
        if key.startswith(("model.", *(f"{section}." for section in _SECTIONS[job]))):
            draft.settings[key] = Setting(value=value, how="given")
    per_node = set_.get("cluster.accelerators_per_node")
    if isinstance(per_node, int):
        draft.settings["job.ranks_per_node"] = Setting(value=per_node, how="given")
    drop_open(draft)
    complete_model(draft)
    draft.derive("job.file", Path(contents[0].file).stem.removeprefix("model-"), "")
    model, missing = model_of(draft, _model_path(model_given))
    if job == "serving":
        derive_serving(draft, model)
        nodes = nodes or n_nodes(draft, cluster or text_of(draft.get("cluster.node")))
    machines = [each for each in contents if each.format == "machine"]
    machine = machine_of(draft, cluster, nodes)
    missing = [*missing, *(option for option in machine.missing if job == "training" or "--nodes" not in option)]
    if machine.n_ranks is not None and model is not None and job == "training":
        draft.derive("job.node_size", machine.n_ranks // (nodes or _nodes(machine.cluster)), "")
        derive_strategy(draft, n_ranks=machine.n_ranks, n_layers=_n_layers(model), has_experts=n_experts(model) > 1)
    if job == "training":
        derive_tokens(draft)
        if known := text_of(machine.cluster.get("node"), machine.cluster.get("name")):
            take_known_attention(draft, known)
    of_files = " and ".join(dict.fromkeys(each.file for each in contents))
    missing = missing_settings(draft, missing, job)
    if missing:
        for option, key in () if asked.by_option else _BY_SET.items():
            missing = [each.replace(option, key) for each in missing]
        error = ScenarioError("; ".join([f"no file says {'; nor '.join(missing)}", *slips(draft, missing)]), place=Place(file=of_files))
        error.options = options_for(missing)
        raise error
    data: dict[str, Data] = {"version": 1, "name": _name(contents[0].file), "model": model}
    data["cluster"] = cluster_with(machine.cluster, draft, machines)
    for section in _SECTIONS[job]:
        found = {key: each.value for key, each in in_scenario(draft.settings).items() if key.startswith(f"{section}.")}
        if found or section != "slo":
            data[section] = _nested({key.removeprefix(f"{section}."): value for key, value in found.items()})
    return data


def _nodes(cluster: dict[str, Data]) -> int:
    nodes = cluster.get("nodes")
    return nodes if isinstance(nodes, int) else 1


def _model_path(model: str | None) -> str | None:
    """Return a model with its path made absolute: a scenario may be written elsewhere."""
    if model is None or not (model.startswith("hf:") or model.endswith((".yaml", ".yml"))):
        return model
    prefix = "hf:" if model.startswith("hf:") else ""
    return f"{prefix}{Path(model.removeprefix('hf:')).absolute()}"


def _n_layers(model: Data) -> int | None:
    try:
        return load_model(model).model.n_layers
    except ScenarioError:
        return None


def _nested(flat: dict[str, Data]) -> dict[str, Data]:
    data: dict[str, Data] = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        below = data
        for part in above:
            inner = below.setdefault(part, {})
            below = inner if isinstance(inner, dict) else {}
        below[last] = value
    return data


def _name(file: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem).strip("-._")[:80] or "imported"


def _checked(
    data: dict[str, Data], draft: Draft, files: str, changes: Sequence[Override]
) -> tuple[dict[str, Data], Scenario | ServingScenario, Collection[str]]:
    """Return the scenario as written, checked as far as possible without a run, and keys without effect; an error names the key."""
    document, unused = plain_document(data, files), set[str]()
    try:
        read = checked_job(ScenarioText(document=document, text=yaml_text(data), folder=Path()), changes)
        if isinstance(read, ServingScenario):
            build_serving(read)
        else:
            plan = build(read).plan
            unused = {".".join(each.path) for each in idle(plan.model, plan.training, plan.strategy)}
    except InfeasibleError as error:
        # The file is well understood; a run says that this machine cannot do it.
        node = text_of(value_at(data, ["cluster", "node"]), value_at(data, ["cluster", "name"]))
        draft.keys.append(Key(key="cluster", how="derived", to="cluster", value=node, note=f"cannot run there: {error}"))
    except DomainError as error:
        field = error.field if isinstance(error, ScenarioError) else None
        setting = draft.settings.get(field or "")
        place = setting.place if setting is not None and setting.place is not None else Place(file=files)
        raise ScenarioError(f"cannot be simulated: {error.message}", field=field, hint=error.hint, place=place) from error
    except ClustersimError as error:
        raise ScenarioError(f"cannot be simulated: {error}", place=Place(file=files)) from error
    # Read again from its own text, so that it is the scenario that a file of it would be.
    written = apply_overrides(document, changes).data
    text = yaml_text(written)
    return written, checked_job(ScenarioText(document=parse_document(text, files), text=text, folder=Path()), ()), unused


def checked_job(source: ScenarioText, changes: Sequence[Override]) -> Scenario | ServingScenario:
    """Return a checked scenario of training or of serving."""
    return checked_serving(source, changes) if is_serving(source) else checked_scenario(source, changes)


def _with_results(draft: Draft, scenario: Scenario | ServingScenario, asked: ImportOptions, unused: Collection[str]) -> list[Key]:
    """Return the keys of the files, then what was given, derived and left to the framework where that has an effect."""
    overrides = _changes(asked)
    changes = {".".join(each.path): each.value for each in overrides}
    model, cluster = scenario.document.data.get("model"), scenario.document.data.get("cluster")
    keys = list(draft.keys)
    shown = [
        ("model", model, asked.model, "--model"),
        *((f"cluster.{key}", value_at(cluster, key.split(".")), asked.cluster, "--cluster") for key in ("name", "node")),
        ("cluster.nodes", value_at(cluster, ["nodes"]), asked.nodes, "--nodes"),
    ]
    for key, value, given, option in shown:
        if isinstance(value, str | int) and (given or key not in draft.settings) and key not in changes:
            keys.append(Key(key=key, how="given" if given else "derived", to=key, value=value, note=option if given else None))
    for each in overrides:
        key, value = ".".join(each.path), each.text.partition("=")[2].strip('"') if each.path == ("cluster",) else each.value
        keys.append(Key(key=key, how="given", to=key, value=value, note="--set"))
    for key, setting in in_scenario(draft.settings).items():
        own = key not in changes and not (isinstance(model, str) and key.startswith("model"))
        if own and setting.how in ("derived", "default"):
            keys.append(Key(key=key, how=setting.how, to=key, value=setting.value, note=setting.note or None))
    if isinstance(scenario, ServingScenario):
        return keys
    preset = scenario.spec.strategy.preset
    reasons = {(each.key, str(each.data)): each.reason for each in load_preset(preset).settings} if preset else {}
    for key in sorted(scenario.of_preset.difference(unused)):
        value = value_at(scenario.document.data, key.split("."))
        keys.append(Key(key=key, how="default", to=key, value=value, note=reasons.get((key, str(value)))))
    return keys
