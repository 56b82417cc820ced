# Data and measurements. One job is one sweep on one platform; its runs live in the run store, keyed by run id.


rule data:
    output:
        "results/data/{dataset}.json",
        "results/data/{dataset}.bin",
        "results/data/{dataset}.tokenizer.json",
    log:
        "results/logs/data/{dataset}.log",
    priority: 10
    params:
        definition=plan.definition_of_data,
    shell:
        "scaling-study prepare {wildcards.dataset} 2> >(tee {log} >&2)"


# What ranks observed of their synchronisations, from the run store.
rule observed:
    input:
        "results/{study}/{platform}/coordination.parquet",
    output:
        update("results/{study}/{platform}/observed/coordination.parquet"),
    log:
        "results/logs/{study}/{platform}/observed.log",
    shell:
        "scaling-study observed {wildcards.study} coordination --platform {wildcards.platform}"
        " --output {output} 2> >(tee {log} >&2)"


# All cores, so that nothing else runs beside a measurement. `update`: records stay where measuring others fails.
rule measure:
    input:
        data=plan.data_of_sweep,
    output:
        update("results/{study}/{platform}/{sweep}.parquet"),
    log:
        "results/logs/{study}/{platform}/{sweep}.log",
    wildcard_constraints:
        platform="(?!(predict|model)/)[a-z0-9-]+",
    priority: 10  # before predictions, which take no cores from it afterwards
    threads: plan.measuring_threads
    resources:
        local_runs=plan.local_runs,
    params:
        runs=plan.run_ids,
        definitions=plan.definitions,
    shell:
        "scaling-study measure {wildcards.study} {wildcards.sweep} --platform {wildcards.platform}"
        " --output {output} --log {log}"
