# All figures and tables in one job, whose processes start once and draw one after another.


rule drawings:
    input:
        records=plan.all_records(),
        others=plan.other_inputs(),
    output:
        update([*plan.figures(), *plan.tables()]),
    threads: plan.cores
    params:
        what=plan.drawing_options,
    shell:
        "scaling-study redraw {params.what} --cores {threads} --output figures"
