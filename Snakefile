# The study as a workflow: sweeps are measured or predicted, records gathered, figures, tables and paper rebuilt.
# Profiles choose where records come from: workflow/profiles/default measures, workflow/profiles/cached only draws.
import os
import sys
import time

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from scaling_study.errors import UserError
from scaling_study.processes import follow_owner_of_environment, own_what_is_started
from scaling_study.workflow import DRAWN, Plan, cancel_timers

min_version("9.20")

follow_owner_of_environment(at_once=True)
own_what_is_started()

try:
    plan = Plan(config)
    if not plan.cached and not {"-n", "--dry-run", "--dryrun"} & set(sys.argv):
        plan.check_budget()
        plan.set_damaged_aside()
    targets = plan.targets()
except UserError as error:
    raise WorkflowError(str(error)) from None

os.environ["SCALING_STUDY_CONFIG"] = str(plan.config.root)  # what the jobs read


wildcard_constraints:
    study="[a-z0-9-]+",
    platform="[a-z0-9-]+",
    sweep="[a-z0-9_]+",
    figure="[a-z0-9-]+",
    table="[a-z0-9-]+",
    dataset="[a-z0-9-]+",
    run="[A-Za-z0-9_.-]+",


onstart:
    try:
        plan.lock()
    except UserError as error:
        raise WorkflowError(str(error)) from None


onsuccess:
    for line in plan.made():
        print(line, file=sys.stderr)
    cancel_timers()


onerror:
    cancel_timers()


rule all:
    default_target: True
    input:
        targets,


if not plan.cached:

    include: "workflow/rules/measure.smk"
    include: "workflow/rules/predict.smk"


include: "workflow/rules/present.smk"
