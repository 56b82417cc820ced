# One figure or table a job: a change of its records draws it anew, and no other.
# `update`: what was there stays where drawing fails.


rule figure:
    input:
        records=plan.figure_records,
        timelines=plan.figure_timelines,
        definitions=plan.figure_definitions,
        code=plan.drawing_code(),
    output:
        update("figures/{study}/{figure}.svg"),
        update("figures/{study}/{figure}.png"),
        update("figures/{study}/{figure}.vl.json"),
    log:
        "results/logs/{study}/figures/{figure}.log",
    params:
        study=plan.presented,
        timelines=plan.timeline_options,
    shell:
        "scaling-study figure {wildcards.study} {wildcards.figure} {input.records} {params.timelines}"
        " --output figures/{wildcards.study} 2> >(tee {log} >&2)"


rule table:
    input:
        records=plan.table_records,
        definitions=plan.table_definitions,
        code=plan.drawing_code(),
    output:
        update("figures/{study}/{table}.csv"),
    log:
        "results/logs/{study}/tables/{table}.log",
    params:
        study=plan.presented,
    shell:
        "scaling-study table {wildcards.study} {wildcards.table} {input.records}"
        " --output figures/{wildcards.study} 2> >(tee {log} >&2)"
