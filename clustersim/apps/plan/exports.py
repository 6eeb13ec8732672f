"""A scenario in the words of a framework, a serving engine or a scheduler, by one name each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from clustersim.apps.plan.flags import FRAMEWORKS, MAX_CONNECTIONS, FrameworkFiles, connections, megatron
from clustersim.apps.plan.serving_flags import SERVERS
from clustersim.apps.serve.deployment import build_serving
from clustersim.config.build import Built, build
from clustersim.config.load import Scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError

PORT: Final = 29500
"""Rendezvous of torchrun (``torch.distributed.run``, PyTorch 2.9)."""
OWN: Final = "pretrain_gpt.py needs the flags of the model, the data and the optimizer besides: {where}"
SLURM: Final = "Slurm 25.05 and torchrun of PyTorch 2.9"
JOBSET: Final = "JobSet 0.10 (jobset.x-k8s.io/v1alpha2) and torchrun of PyTorch 2.9"


def sbatch(built: Built) -> FrameworkFiles:
    """Return a batch script of Slurm."""
    written = megatron(built.plan)
    nodes, per_node = _size(built)
    variable = connections(built.plan.strategy)
    notes = (*_notes(written, SLURM), OWN.format(where="fill in OWN_ARGS"))
    start = f"srun torchrun --nnodes {nodes} --nproc-per-node {per_node} --rdzv-backend c10d --rdzv-endpoint $head:{PORT} pretrain_gpt.py"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={built.scenario.name}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={per_node}",
        "#SBATCH --exclusive",
        *(f"# {note}" for note in notes),
        *([f"export {MAX_CONNECTIONS}={variable}"] if variable else []),
        "OWN_ARGS=()",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        " \\\n  ".join([start, '"${OWN_ARGS[@]}"', *written.text.splitlines()]),
    ]
    return FrameworkFiles(text="\n".join(lines) + "\n", notes=notes)


LONGEST_NAME: Final = 40
"""Characters of a name that leave room in those of pods, of at most 63."""


def jobset(built: Built) -> FrameworkFiles:
    """Return a JobSet of Kubernetes."""
    written = megatron(built.plan)
    nodes, per_node = _size(built)
    name = re.sub(r"[^a-z0-9]+", "-", built.scenario.name.lower())[:LONGEST_NAME].strip("-")
    notes = (*_notes(written, JOBSET), OWN.format(where="add them to args, and name an image"))
    variable = connections(built.plan.strategy)
    # Pods of a JobSet are reached by <jobset>-<job>-<index>-<index of the pod>.<jobset>.
    start = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}", "--rdzv-backend=c10d"]
    start += [f"--rdzv-endpoint={name}-workers-0-0.{name}:{PORT}", "pretrain_gpt.py"]
    environment: list[Data] = [{"name": MAX_CONNECTIONS, "value": str(variable)}] if variable else []
    limits: dict[str, Data] = {"nvidia.com/gpu": per_node}
    container: dict[str, Data] = {
        "name": "trainer",
        "image": "IMAGE",
        **({"env": environment} if environment else {}),
        "command": ["torchrun"],
        "args": [*start, *(word for line in written.text.splitlines() for word in shlex.split(line))],
        "resources": {"limits": limits},
    }
    pods: dict[str, Data] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job: dict[str, Data] = {"spec": {"parallelism": nodes, "completions": nodes, "backoffLimit": 0, "template": pods}}
    data: dict[str, Data] = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": job}]},
    }
    return FrameworkFiles(text="".join(f"# {note}\n" for note in notes) + yaml_text(data), notes=notes)


LAUNCHERS: Final[Mapping[str, Callable[[Built], FrameworkFiles]]] = MappingProxyType({"sbatch": sbatch, "jobset": jobset})
"""Schedulers whose file starts a plan."""


def _size(built: Built) -> tuple[int, int]:
    per_node = built.cluster.node.n_accelerators
    return built.plan.n_ranks // per_node, per_node


def _notes(written: FrameworkFiles, version: str) -> tuple[str, ...]:
    # The variable is exported, and what else the framework needs is told once, by the caller.
    return (f"for {version}", *(note for note in written.notes[1:] if MAX_CONNECTIONS not in note))


TRAINING: Final = (*FRAMEWORKS, *LAUNCHERS)
SERVING: Final = tuple(SERVERS)
WRITTEN: Final = (*TRAINING, *SERVING)
"""Names in whose words a scenario can be written."""


def check_written(name: str, *, serving: bool) -> None:
    """Refuse a name in whose words no job of this kind can be written.

    Raises
    ------
    ScenarioError
        With the names that there are.
    """
    known = SERVING if serving else TRAINING
    if name not in known:
        what = "a deployment" if serving else "a training job"
        hint = f"use {', '.join(known)}" if name in WRITTEN else choices_hint(name, known)
        raise ScenarioError(f"{what} cannot be written as '{name}'", field="--as", hint=hint)


def written(scenario: Scenario | ServingScenario, name: str) -> FrameworkFiles:
    """Return the file of a scenario."""
    check_written(name, serving=isinstance(scenario, ServingScenario))
    if isinstance(scenario, ServingScenario):
        return SERVERS[name](build_serving(scenario))
    built = build(scenario)
    return FRAMEWORKS[name](built.plan) if name in FRAMEWORKS else LAUNCHERS[name](built)
