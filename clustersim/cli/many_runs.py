"""Command lines that ask a question of many runs; what is heavy is imported inside."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.options import JobsOption, JsonOption, SetOption, refuse_given


def sweep(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|STUDY", help="A scenario as for run, or a study: a path or a shipped name.")],
    *,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUES", help="Vary a key: 1,2,4 or 1..8 or 1..64 step 8 or 1..64 times 2. Repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="Leave points out, such as 'strategy.tp * strategy.pp > 64'. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="What an answer must meet, such as 'mfu > 0.3'. Repeatable.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Smallest first; -METRIC: largest first; default -tokens_per_s.")
    ] = None,
    metrics: Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Columns of the table; all for every figure.")] = None,
    set_: SetOption = None,
    jobs: JobsOption = None,
    executor: Annotated[str, typer.Option(help="local, dask (a cluster on this machine), or dask:tcp://host:8786.")] = "local",
    file_format: Annotated[str, typer.Option("--format", help="Of the table: csv, parquet or duckdb.")] = "csv",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder; default runs/sweeps/NAME/HASH.")] = None,
    max_points: Annotated[int, typer.Option(min=1, help="Refuse a sweep of more points.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the points, run nothing.")] = False,
    json: JsonOption = False,
) -> int:
    """Run a scenario for all combinations of some values.

    The same command goes on where it was stopped.
    """
    from clustersim.apps.study.study_file import StudyRequest
    from clustersim.cli.sweep import SweepOptions, sweep_command

    asked = StudyRequest(
        over=tuple(over or ()),
        exclude=tuple(exclude or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        metric=sort,
        metrics=tuple(name.strip() for text in metrics or () for name in text.split(",")),
        most_points=max_points,
        seed=seed,
    )
    options = SweepOptions(executor=executor, jobs=jobs, out=out, file_format=file_format, as_json=json, dry_run=dry_run)
    return sweep_command(source, asked, options)


def runs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that runs were written to.")] = "runs",
    *,
    json: JsonOption = False,
) -> int:
    """List earlier runs, the latest first."""
    from clustersim.cli.runs import runs_command

    return runs_command(folder, as_json=json)


def what_if(
    source: Annotated[
        list[str], typer.Argument(metavar="SCENARIO|FILE...", help="A scenario as for run, a file with cases, records or traces of a job.")
    ],
    *,
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME:KEY=VALUE,...", help="Changes under a name, such as wide:strategy.tp=8. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="What a case must meet, such as 'memory_fraction <= 0.9'. Repeatable.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="What cases are judged by; default tokens_per_s, of serving output_tokens_per_s_per_gpu."),
    ] = None,
    break_even: Annotated[
        str | None, typer.Option(metavar="KEY=LOW..HIGH", help="Where the two best cases are equally good while a key goes so far.")
    ] = None,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW..HIGH", help="A figure to vary; hardware: each rate by 20 % up and down. Repeatable."),
    ] = None,
    method: Annotated[str, typer.Option(help="one (figure at a time), morris or sobol.")] = "one",
    samples: Annotated[int | None, typer.Option(min=2, help="Of morris (8) or sobol (32).")] = None,
    jobs: JobsOption = None,
    set_: SetOption = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the tornado, such as tornado.png.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    json: JsonOption = False,
) -> int:
    """Say which of some changes is best, and what that depends on.

    Also where another one becomes best.
    """
    from clustersim.apps.study.study_file import StudyRequest
    from clustersim.cli.what_if import what_if_command

    asked = StudyRequest(
        cases=tuple(case or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        metric=metric,
        break_even=break_even,
        sensitivity=tuple(sensitivity or ()),
        method=method,
        samples=samples,
        jobs=jobs,
        seed=seed,
    )
    return what_if_command(source, asked, plot=plot, as_json=json)


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")],
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="A shipped node or cluster.")] = None,
    *,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many nodes.")] = None,
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")] = None,
    constraint: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A condition, such as 'memory_fraction <= 0.9'.")] = None,
    most_replays: Annotated[int | None, typer.Option(min=1, metavar="N", help="End the search after so many.")] = None,
    memory_margin: Annotated[str, typer.Option(metavar="SHARE", help="Of the memory, that stays free.")] = "8 %",
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="End the search after so long, such as '30 s'.")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="COUNT", help="A goal: so many tokens, such as 15T.")] = None,
    within: Annotated[str | None, typer.Option(metavar="TIME", help="Of a goal, such as '60 days'.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="Of a goal, such as '12 MUSD'.")] = None,
    power: Annotated[str | None, typer.Option(metavar="POWER", help="Of a goal, such as '5 MW'.")] = None,
    accelerators: Annotated[str, typer.Option(metavar="NODES", help="Of a goal: nodes to choose from, such as dgx-h100,dgx-b200.")] = "",
    max_nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Of a goal.")] = 2048,
    write: Annotated[
        str | None, typer.Option("--write", "--out", "-o", metavar="FILE", help="Write the winner as a scenario, or as --as says.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="FRAMEWORK", help="megatron, torchtitan, deepspeed, sbatch, jobset; with --serving vllm, sglang."),
    ] = None,
    serving: Annotated[bool, typer.Option("--serving", help="Find the fewest GPUs that keep the slo of a serving scenario.")] = False,
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --serving: at most so many GPUs; 64 if left out.")] = None,
    json: JsonOption = False,
) -> int:
    """Find the fastest layout of a model on a cluster.

    Say why no other one is faster; or, with --tokens, find what reaches a goal; or, with --serving, what serves requests as promised.
    """
    if serving:
        from clustersim.cli.plan_serving import plan_serving_command

        given = {"CLUSTER": cluster, "--nodes": nodes, "--constraint": constraint, "--time-limit": time_limit, "--tokens": tokens}
        given |= {"--within": within, "--budget": budget, "--power": power, "--accelerators": accelerators}
        given |= {"--memory-margin": memory_margin != "8 %", "--max-nodes": max_nodes != 2048}
        refuse_given(given, beside="--serving")
        return plan_serving_command(
            model,
            overrides=tuple(set_ or ()),
            only=tuple(only or ()),
            gpus=gpus,
            most_replays=most_replays,
            framework=as_,
            write=write,
            as_json=json,
        )
    from clustersim.cli.plan import PlanOptions, goal_of, plan_command

    refuse_given({"--gpus": gpus}, beside="a layout of training", hint="add --serving")
    goal = None
    if tokens is not None:
        names = accelerators or cluster or ""
        goal = goal_of(tokens, within=within, budget=budget, power=power, nodes=names, most_nodes=max_nodes)
    options = PlanOptions(
        nodes=nodes,
        overrides=tuple(set_ or ()),
        only=tuple(only or ()),
        constraints=tuple(constraint or ()),
        most_replays=most_replays,
        memory_margin=memory_margin,
        time_limit=time_limit,
        write=write,
        framework=as_,
        as_json=json,
        goal=goal,
    )
    return plan_command(model, cluster, options)


def buy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model, such as llama3-70b.")],
    *,
    tokens: Annotated[str, typer.Option(metavar="COUNT", help="How much is trained on, such as 15T.")],
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Nodes to choose from, such as '64 dgx-h100' or '64 dgx-h100 at 2.10 USD/h'. Repeatable."),
    ] = None,
    nic: Annotated[str, typer.Option(metavar="RATES", help="Try each with these adapters, such as 200Gbit/s,400Gbit/s.")] = "",
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")] = None,
    constraint: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A condition, such as 'memory_fraction <= 0.9'.")] = None,
    most_replays: Annotated[int | None, typer.Option(min=1, metavar="N", help="End each search after so many.")] = None,
    memory_margin: Annotated[str, typer.Option(metavar="SHARE", help="Of the memory, that stays free.")] = "8 %",
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw days and cost, such as offers.png.")] = None,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page, such as offers.html.")] = None,
    json: JsonOption = False,
) -> int:
    """Choose among clusters for a training.

    Days, cost and best layout of each, and what the order turns on.
    """
    from clustersim.cli.buy import BuyOptions, buy_command

    options = BuyOptions(
        tokens=tokens,
        options=tuple(option or ()),
        nics=nic,
        overrides=tuple(set_ or ()),
        only=tuple(only or ()),
        constraints=tuple(constraint or ()),
        most_replays=most_replays,
        memory_margin=memory_margin,
        plot=plot,
        page=page,
        as_json=json,
    )
    return buy_command(model, options)


def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")],
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="A shipped node or cluster.")] = None,
    *,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many nodes.")] = None,
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Look at these values, such as tp=4,8.")] = None,
    json: JsonOption = False,
) -> int:
    """Say which family of parallel strategies suits a model.

    Show the best run of each family on a cluster.
    """
    from clustersim.cli.advise import advise_command

    return advise_command(model, cluster, nodes=nodes, overrides=tuple(set_ or ()), only=tuple(only or ()), as_json=json)


def study(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A shipped study, or a path; a list of them if left out.")] = None,
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for tables and plots; default runs/studies/NAME.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run many cases to answer one question, with tables and plots."""
    from clustersim.cli.study import study_command

    return study_command(name, out=out, as_json=json)


def validate(
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE", help="Shipped sources, or paths; all if left out.")] = None,
    *,
    json: JsonOption = False,
    quality: Annotated[str, typer.Option(metavar="A|B", help="Least quality of a row; A: nothing had to be assumed.")] = "B",
    fail_over: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="End with 1 if the mean absolute error exceeds this, such as '8 %'.")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw measured against predicted: a .png or .svg file.")] = None,
    write_residuals: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the error bars that follow from all rows, for a checkout.")
    ] = None,
    cross_validate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Leave each source out, refit, predict it; tables, and a file. Takes long.")
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Predict by what people type alone: model, machine, batch, degrees, recomputation.")
    ] = False,
    serving: Annotated[
        bool, typer.Option("--serving", help="Compare served runs: time to the first token, per token, throughput.")
    ] = False,
    jobs: JobsOption = None,
) -> int:
    """Compare predictions with published measurements."""
    if serving:
        from clustersim.cli.validate_served import validate_served_command

        return validate_served_command(tuple(sources or ()), as_json=json, jobs=jobs, cross_validate=cross_validate)
    from clustersim.cli.validate import ValidateOptions, validate_command

    options = ValidateOptions(
        as_json=json,
        quality=quality,
        fail_over=fail_over,
        plot=plot,
        write_residuals=write_residuals,
        jobs=jobs,
        cross_validate=cross_validate,
        defaults=defaults,
    )
    return validate_command(tuple(sources or ()), options)


def calibrate(
    *,
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="The shipped accelerator that was measured.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Calibration file to write, such as mine.yaml.")],
    base: Annotated[
        str | None, typer.Option(metavar="GENERATION", help="Shipped calibration, or a file, to start from; default: the accelerator's.")
    ] = None,
    gemm: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured matrix products. Repeatable.")] = None,
    attention: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured fused attention. Repeatable.")] = None,
    nccl: Annotated[list[str] | None, typer.Option(metavar="FILE", help="nccl-tests as text or JSON, or a CSV. Repeatable.")] = None,
    trace: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Trace of the PyTorch profiler or of Nsight Systems. Repeatable.")
    ] = None,
    steps: Annotated[list[str] | None, typer.Option(metavar="YAML", help="Whole steps, as published sources. Repeatable.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Shipped node that collectives ran on.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes that collectives ran on, where their files do not say.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(min=1, help="Ranks in each of them.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Algorithm of collectives whose files name none, as NCCL_ALGO had it, such as ring.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device that traces are of, such as a100; default: what they say.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Fit a calibration file to measurements of your own.

    Show errors before and after.
    """
    from clustersim.apps.calibrate.fit_accelerator import CalibrationRequest
    from clustersim.apps.calibrate.nccl_tests import Ranks
    from clustersim.cli.calibrate import calibrate_command

    request = CalibrationRequest(
        accelerator=accelerator,
        base=base,
        gemm=tuple(gemm or ()),
        attention=tuple(attention or ()),
        nccl=tuple(nccl or ()),
        trace=tuple(trace or ()),
        steps=tuple(steps or ()),
        node=node,
        ranks=Ranks(n_nodes=nodes, per_node=ranks_per_node),
        algorithm=algorithm,
        device=device,
    )
    return calibrate_command(request, out=out, as_json=json)
