# All figures and tables in one job, whose processes start once and draw one after another. They are not its outputs:
# Snakemake takes those of a job that fails back, and one figure that cannot be drawn would cost all the others.


rule drawings:
    input:
        records=plan.all_records(),
        others=plan.other_inputs(),
    output:
        touch(DRAWN),
    threads: plan.cores
    params:
        what=plan.drawing_options(),
        again=time.time_ns(),  # figures on disk may come from fresh records, whatever the profile forces
    shell:
        "scaling-study redraw {params.what} --cores {threads} --output figures"
