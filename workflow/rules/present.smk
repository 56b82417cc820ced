# Figures, tables and the paper, from records alone; they print titles and assumptions of the study, hence its digest.
# `update`: what was there stays where drawing fails.


if plan.draws_all:

    include: "redraw.smk"

else:

    include: "draw.smk"


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
