# Data and measurements. One job is one sweep on one platform; its runs live in the run store, keyed by run id.


rule data:
    output:
        manifest="results/data/{dataset}.json",
    log:
        "results/logs/data/{dataset}.log",
    shell:
        "scaling-study prepare {wildcards.dataset} 2> >(tee {log} >&2)"


rule measure:
    input:
        data=ancient(plan.data_of_sweep),
    output:
        "results/{study}/{platform}/{sweep}.parquet",
    log:
        "results/logs/{study}/{platform}/{sweep}.log",
    resources:
        local_runs=1,
    params:
        runs=plan.run_ids,
    shell:
        "scaling-study measure {wildcards.study} {wildcards.sweep} --platform {wildcards.platform}"
        " --output {output} --log {log}"
