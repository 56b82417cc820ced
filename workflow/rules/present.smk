# Figures, tables and the paper, from records alone; they print titles and assumptions of the study, hence its digest.
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


if plan.draws_all:

    include: "redraw.smk"


if plan.has_paper:

    rule report:
        input:
            records=plan.paper_records(),
            tables=plan.paper_tables(),
            timelines=plan.report_timelines(),
            figures=plan.report_figures(),
            code=plan.drawing_code(),
        output:
            "results/report.html",
        log:
            "results/logs/report.log",
        params:
            study=plan.presented,
            tables=plan.table_options,
            timelines=plan.report_timeline_options,
        shell:
            "scaling-study report {input.records} {params.tables} {params.timelines} --figures figures"
            " --output {output} 2> >(tee {log} >&2)"

    rule paper:
        input:
            records=plan.paper_records(),
            tables=plan.paper_tables(),
            figures=plan.paper_figures(),
            sources=plan.paper_sources(),
            definitions=plan.paper_definitions(),
            code=plan.drawing_code(),
        output:
            "paper/paper.pdf",
        log:
            "results/logs/paper.log",
        params:
            study=plan.presented,
            tables=plan.table_options,
        shell:
            "scaling-study paper {input.records} {params.tables} --figures figures"
            " --output {output} 2> >(tee {log} >&2)"
