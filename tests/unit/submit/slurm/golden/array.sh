#!/bin/bash

# Parameters
#SBATCH --account=lab
#SBATCH --array=0-2%3
#SBATCH --constraint='h100&ib'
#SBATCH --cpus-per-task=12
#SBATCH --exclude='n[1-3],n7'
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --job-name=scaling-study-NAME
#SBATCH --mem=0
#SBATCH --no-requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --open-mode=append
#SBATCH --output=FOLDER/jobs/scaling-study-NAME/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --signal=USR2@30
#SBATCH --time=45
#SBATCH --wckey=submitit

# setup
module load cuda
export NCCL_DEBUG=WARN
export TRITON_CACHE_DIR="${TMPDIR:-/tmp}/scaling-study-$SLURM_JOB_ID/triton"
export TORCHINDUCTOR_CACHE_DIR="${TMPDIR:-/tmp}/scaling-study-$SLURM_JOB_ID/inductor"

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output FOLDER/jobs/scaling-study-NAME/%A_%a_%t_log.out --cpu-bind=none --kill-on-bad-exit=1 --wait=30 --cpus-per-task=12 PYTHON -u -m submitit.core._submit FOLDER/jobs/scaling-study-NAME
