#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# An example: sbatch -N 4 -n 256 --time=12:00:00 job.sh ./app ARGUMENTS
# A hang is ended and the job put back into the queue; so is one whose data was damaged, and it keeps off the hosts between
# which that happened. Before the time limit every rank writes down where it is.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=HUP@120
most=2 # times that this job is put back
export RESIL_DIR=$PWD/resil-$SLURM_JOB_ID-run-${SLURM_RESTART_COUNT:-0}

# Back into the queue, without the hosts $1. Slurm ends this script with SIGTERM then; excluding hosts comes after it.
again() {
  [ "${SLURM_RESTART_COUNT:-0}" -lt "$most" ] || return
  trap '' TERM
  scontrol requeue "$SLURM_JOB_ID" || return
  [ -z "$1" ] || for _ in 1 2 3 4 5 6 7 8 9 10; do
    scontrol update JobId="$SLURM_JOB_ID" ExcNodeList="$1" && break
    sleep 1
  done
}

srun --resil=checksum,hang=abort --kill-on-bad-exit=1 "$@"
status=$?
case $status in
  90 | 137) # data differ; srun --mpi=pmi2 makes 137 of it, which a killed job has, too: that one has no host to leave out
    hosts=$(resil report --exclude "$RESIL_DIR")
    if [ "$status" = 90 ] || [ -n "$hosts" ]; then again "$hosts"; fi
    ;;
  92) again "" ;; # a hang
esac
exit $status
