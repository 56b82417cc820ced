# Predictions by the performance model: records like measured ones, timelines of some runs, and how well it does.


rule predict:
    input:
        model=plan.model_inputs(),
    output:
        update("results/{study}/predict/{sweep}.parquet"),
    log:
        "results/logs/{study}/predict/{sweep}.log",
    params:
        runs=plan.run_ids,
        definitions=plan.definitions,
    shell:
        "scaling-study predict {wildcards.study} {wildcards.sweep} --output {output} 2> >(tee {log} >&2)"


rule timeline:
    input:
        model=plan.model_inputs(),
    output:
        update("results/{study}/predict/timelines/{run}.parquet"),
    log:
        "results/logs/{study}/predict/timelines/{run}.log",
    shell:
        "scaling-study timeline {wildcards.run} --study {wildcards.study} --output {output} 2> >(tee {log} >&2)"


rule validation:
    input:
        model=plan.model_inputs(),
    output:
        update("results/{study}/model/validation.parquet"),
    log:
        "results/logs/{study}/model/validation.log",
    shell:
        "scaling-study calibrate --leave-one-source-out --output {output} > {log} 2> >(tee -a {log} >&2)"


rule fabric:
    input:
        model=plan.model_inputs(),
        printed=plan.printed_table(),
    output:
        update("results/{study}/model/fabric.parquet"),
    log:
        "results/logs/{study}/model/fabric.log",
    params:
        study=plan.presented,
    shell:
        "scaling-study fabric {wildcards.study} coordination --output {output} > {log} 2> >(tee -a {log} >&2)"


rule sensitivity:
    input:
        model=plan.model_inputs(),
    output:
        update("results/{study}/model/sensitivity.parquet"),
    log:
        "results/logs/{study}/model/sensitivity.log",
    params:
        study=plan.presented,
    shell:
        "scaling-study sensitivity {wildcards.study} --output {output} > {log} 2> >(tee -a {log} >&2)"
