// SPDX-License-Identifier: Apache-2.0
//
// A ring of cells with replicas (resil_spr_...) that goes on when ranks die: every few steps the cells are kept, here
// and on the next rank (resil_spr_keep). After a death those that are left go back to what all of them have kept, and
// the next rank takes the cells of the dead one over. Prints the sum over all cells, bit for bit: the same with and
// without deaths.
//
// Usage: spr_death STEPS RANK:STEP:PLACE...   these ranks die in these steps, PLACE: kernel, keep, exchange. Where MPI
// has
//        user level failure mitigation (Open MPI from 5.0 on, --with-ft ulfm) they are killed. Elsewhere (PLACE:
//        leaves) they leave in the exchange, and the others know.
#include <mpi.h>
#include <resil.h>
#include <signal.h>
#include <stdlib.h>

#include "check.h"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
#define CAN_DIE 1
#else
#define CAN_DIE 0
#endif

enum { kChunk = 300, kReach = 3, kMostRanks = 8, kCells = kChunk * kMostRanks, kKeepEvery = 3 };

static int rank, size, dead_count, done_steps;
static MPI_Comm alive; /* whoever is left, in the order of MPI_COMM_WORLD */
static int owner_of_chunk[kMostRanks], dead[kMostRanks];
static double all[kCells], u[kCells], next_u[kCells];
static int64_t id[kCells], offset[kCells + 1];
static int neighbour[2 * kReach * kCells], owners[kCells], local, total, cells;
static int set, field_u, field_next, field_id;

static void heat(int count, const int* first, const int* with, const double* from, double* to) {
  for (int i = 0; i < count; i++) {
    double sum = 0;
    for (int k = first[i]; k < first[i + 1]; k++) sum += from[with[k]];
    to[i] = from[i] + 0.05 * (sum - (first[i + 1] - first[i]) * from[i]);
  }
}

static int replica_kernel(void* unused, const struct resil_spr_replicas* of) {
  (void)unused;
  heat(of->count, of->offset, of->neighbour, (const double*)of->field[field_u], (double*)of->field[field_next]);
  return 0;
}

/* Does this rank die here? DIE is a list of rank:step:place, each once. */
static char** death;
static int deaths;
static int dies(int of, int step, const char* place) {
  for (int i = 0; i < deaths; i++) {
    int who, when;
    char where[16];
    CHECK(sscanf(death[i], "%d:%d:%15s", &who, &when, where) == 3);
    if (who == of && when == step && strcmp(where, place) == 0) return 1;
  }
  return 0;
}
static void maybe_die(int step, const char* place) {
  if (!dies(rank, step, place)) return;
  fprintf(stderr, "rank %d dies in step %d (%s)\n", rank, step, place);
  fflush(NULL);
  raise(SIGKILL);
}

/* This rank's cells, those of each chunk in order, then copies of others' within reach. */
static void make_lists(void) {
  int here[kCells], at = 0;
  for (int i = 0; i < cells; i++) here[i] = -1;
  local = 0;
  for (int i = 0; i < cells; i++)
    if (owner_of_chunk[i / kChunk] == rank) here[i] = local, id[local++] = i;
  total = local;
  for (int i = 0; i < local; i++) {
    offset[i] = at;
    for (int d = -kReach; d <= kReach; d++) {
      int j = (int)((id[i] + d + cells) % cells);
      if (d == 0) continue;
      if (here[j] < 0) {
        owners[total - local] = owner_of_chunk[j / kChunk];
        id[total] = j;
        here[j] = total++;
      }
      neighbour[at++] = here[j];
    }
  }
  offset[local] = at;
}

static void make_set(void) {
  int members[kMostRanks], count = 0;
  for (int i = 0; i < size; i++)
    if (!dead[i]) members[count++] = i;
  set = resil_spr_create("ring", members, count);
  field_id = resil_spr_field(set, "id", id, 8, 8, RESIL_SPR_ID);
  field_u = resil_spr_field(set, "u", u, 8, 8, RESIL_SPR_DOUBLE);
  field_next = resil_spr_field(set, "next u", next_u, 8, 8, RESIL_SPR_DOUBLE);
  make_lists();
  resil_spr_select(set, local, total, offset, NULL, neighbour, 0, owners);
}

/* Cells of all ranks, by their ids. Not MPI_SUCCESS: somebody is dead. */
static int gather(void) {
  static double mine[kCells];
  int code;
  for (int i = 0; i < cells; i++) mine[i] = 0;
  for (int i = 0; i < local; i++) mine[id[i]] = u[i];
  if ((code = MPI_Allreduce(mine, all, cells, MPI_DOUBLE, MPI_SUM, alive)) != MPI_SUCCESS) return code; /* 0 + u */
  for (int i = local; i < total; i++) u[i] = all[id[i]];
  return MPI_SUCCESS;
}

/* Those that are left: their communicator, and who is dead. */
static void find_dead(const int* left_for_good) {
  MPI_Comm smaller;
  int count, ranks[kMostRanks], of_world[kMostRanks];
  MPI_Group group, world;
  if (left_for_good) {
    OK(MPI_Comm_split(alive, left_for_good[rank] ? MPI_UNDEFINED : 0, rank, &smaller));
  } else {
#if CAN_DIE
    MPIX_Comm_revoke(alive);
    OK(MPIX_Comm_shrink(alive, &smaller));
#else
    CHECK(!"a failure");
#endif
  }
  if (smaller != MPI_COMM_NULL) {
    OK(MPI_Comm_set_errhandler(smaller, MPI_ERRORS_RETURN));
    OK(MPI_Comm_size(smaller, &count));
    OK(MPI_Comm_group(smaller, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < count; i++) ranks[i] = i;
    OK(MPI_Group_translate_ranks(group, count, ranks, world, of_world));
    for (int i = 0; i < size; i++) dead[i] = 1;
    for (int i = 0; i < count; i++) dead[of_world[i]] = 0;
    MPI_Group_free(&group), MPI_Group_free(&world);
  }
  alive = smaller;
}

/* Cells as they were kept, to their places. */
static void restore(const struct resil_spr_replicas* kept) {
  const double* values = (const double*)kept->field[field_u];
  CHECK(kept->field[field_next] == NULL);
  for (int i = 0; i < kept->count; i++) all[kept->id[i]] = values[i];
}

/* Back to the newest step that all have kept; the cells of the dead go to the next rank. Its number. */
static int recover(void) {
  struct resil_spr_replicas copy;
  int64_t newest = resil_spr_kept(set, INT64_MAX, RESIL_SPR_OWN, &copy), step;
  OK(MPI_Allreduce(&newest, &step, 1, MPI_INT64_T, MPI_MIN, alive));
  CHECK(step >= 0);
  CHECK(resil_spr_kept(set, step, RESIL_SPR_OWN, &copy) == step && copy.rank == rank);
  restore(&copy);
  CHECK(resil_spr_kept(set, step, RESIL_SPR_BEFORE, &copy) == step);
  int took = -1, takers[kMostRanks], least[kMostRanks];
  if (dead[copy.rank]) restore(&copy), took = copy.rank;
  for (int i = 0; i < size; i++) takers[i] = size;
  if (took >= 0) takers[took] = rank;
  OK(MPI_Allreduce(takers, least, size, MPI_INT, MPI_MIN, alive));
  for (int i = 0; i < size; i++) {
    if (!dead[owner_of_chunk[i]]) continue;
    int taker = least[owner_of_chunk[i]];
    CHECK(taker < size); /* else two neighbours have died at once, and there is no copy */
    owner_of_chunk[i] = taker;
  }
  resil_spr_destroy(set);
  make_set();
  for (int i = 0; i < local; i++) u[i] = all[id[i]];
  if (took >= 0) fprintf(stderr, "rank %d: has taken over from rank %d, back to step %d\n", rank, took, (int)step);
  CHECK(resil_spr_keep(set, step, local, RESIL_SPR_BIT(field_u)) == 0);
  dead_count++;
  return (int)step;
}

static int one_step(int step) {
  int first[kCells + 1], code;
  maybe_die(step, "exchange");
  if ((code = gather()) != MPI_SUCCESS) return code;
  resil_spr_begin(set, step, local, total, RESIL_SPR_BIT(field_u));
  maybe_die(step, "kernel");
  for (int i = 0; i <= local; i++) first[i] = (int)offset[i];
  heat(local, first, neighbour, u, next_u);
  CHECK(resil_spr_end(set, RESIL_SPR_BIT(field_next), replica_kernel, NULL, RESIL_POLICY_CONTINUE) == 0);
  memcpy(u, next_u, (size_t)local * sizeof *u);
  if ((step + 1) % kKeepEvery != 0) return MPI_SUCCESS;
  maybe_die(step, "keep");
  resil_spr_keep(set, step + 1, local, RESIL_SPR_BIT(field_u));
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(argc >= 2 && size <= kMostRanks);
  int steps = atoi(argv[1]), gone = 0;
  death = argv + 2;
  deaths = argc - 2;
  cells = size * kChunk;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &alive));
  OK(MPI_Comm_set_errhandler(alive, MPI_ERRORS_RETURN));
  for (int i = 0; i < size; i++) owner_of_chunk[i] = i;
  make_set();
  for (int i = 0; i < local; i++) u[i] = 1.0 / (1 + id[i]);
  resil_spr_keep(set, 0, local, RESIL_SPR_BIT(field_u));
  for (int step = 0; step < steps && !gone;) {
    int leave[kMostRanks], leaves = 0;
    for (int i = 0; i < size; i++) leaves += leave[i] = !dead[i] && dies(i, step, "leaves");
    if (leaves) { /* MPI does not tell: all know */
      find_dead(leave);
      gone = leave[rank];
    } else if (one_step(step) == MPI_SUCCESS) {
      step++, done_steps++;
      continue;
    } else {
      find_dead(NULL);
    }
    if (!gone) step = recover();
    if (leaves) deaths = 0; /* once */
  }
  if (!gone) {
    while (gather() != MPI_SUCCESS) find_dead(NULL), recover();
    uint64_t sum = 0, bits;
    int first = 0;
    for (int i = 0; i < cells; i++) memcpy(&bits, &all[i], 8), sum = sum * 31 + bits;
    OK(MPI_Comm_rank(alive, &first));
    if (first == 0) printf("cells %d sum %016llx\n", cells, (unsigned long long)sum);
    fprintf(stderr, "rank %d: steps %d deaths %d cells %d\n", rank, done_steps, dead_count, local);
    OK(MPI_Barrier(alive));
    if (CAN_DIE && dead_count > 0 && deaths > 0) exit(0); /* Open MPI 5.0.7 may hang in MPI_Finalize after a death */
  }
  resil_spr_destroy(set);
  OK(MPI_Finalize());
  return 0;
}
