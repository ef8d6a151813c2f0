// SPDX-License-Identifier: Apache-2.0
//
// Heat in a periodic box, 7-point stencil, slabs of planes: the neighbour lists of a grid, some of whose cells have
// replicas on the next rank (resil_spr_...). Prints the sum of each rank's cells, bit for bit; to standard error what
// the calls returned. Compiles as C and as C++.
//
// Usage: spr SCENE POLICY STEPS      (POLICY as in resil.h, a number)
// FLIP="rank:step:input|output|between:cell:bit[:step again...]" flips one bit: of what the kernel reads, after it was
// sent; of what it has computed; or after the comparison.
#include <mpi.h>
#include <resil.h>
#include <stdlib.h>

#include "check.h"

enum { kSide = 8, kPlane = kSide * kSide, kPlanes = 6, kLocal = kPlanes * kPlane, kTotal = kLocal + 2 * kPlane };

static double u[kTotal], next_u[kTotal], other[2 * kTotal];
static int64_t id[kTotal], offset[kLocal + 1];
static int neighbour[6 * kLocal], owner[2 * kPlane];
static int rank, size, kernel_fails, kernels, rollbacks;
static const char* scene;
static int set, field_u, field_next, field_other, field_id;

/* The one kernel, for particles and replicas alike. */
static void heat(int count, const int* first, const int* with, const double* from, double* to) {
  for (int i = 0; i < count; i++) {
    double sum = 0;
    for (int k = first[i]; k < first[i + 1]; k++) sum += from[with[k]];
    to[i] = from[i] + 0.1 * (sum - (first[i + 1] - first[i]) * from[i]);
  }
}

static int replica_kernel(void* argument, const struct resil_spr_replicas* of) {
  (void)argument;
  ++kernels;
  if (kernel_fails) return 7;
  heat(of->count, of->offset, of->neighbour, (const double*)of->field[field_u], (double*)of->field[field_next]);
  return 0;
}

/* Cells of this rank's planes, then the plane below and the one above, which belong to other ranks. */
static void make_lists(void) {
  int64_t all = (int64_t)size * kLocal;
  for (int i = 0; i < kTotal; i++) {
    int64_t global = (int64_t)rank * kLocal + i;
    if (i >= kLocal + kPlane) global = (int64_t)(rank + 1) * kLocal + i - kLocal - kPlane;
    else if (i >= kLocal) global = (int64_t)rank * kLocal - kPlane + i - kLocal;
    id[i] = (global + all) % all;
    if (i >= kLocal) owner[i - kLocal] = (int)(id[i] / kLocal);
  }
  int at = 0;
  for (int z = 0; z < kPlanes; z++)
    for (int y = 0; y < kSide; y++)
      for (int x = 0; x < kSide; x++) {
        int plane = z * kPlane;
        offset[plane + y * kSide + x] = at;
        neighbour[at++] = plane + y * kSide + (x + 1) % kSide;
        neighbour[at++] = plane + y * kSide + (x + kSide - 1) % kSide;
        neighbour[at++] = plane + (y + 1) % kSide * kSide + x;
        neighbour[at++] = plane + (y + kSide - 1) % kSide * kSide + x;
        neighbour[at++] = (z + 1 < kPlanes ? plane + kPlane : kLocal + kPlane) + y * kSide + x;
        neighbour[at++] = (z > 0 ? plane - kPlane : kLocal) + y * kSide + x;
      }
  offset[kLocal] = at;
}

static void exchange_planes(void) {
  int below = (rank + size - 1) % size, above = (rank + 1) % size;
  OK(MPI_Sendrecv(u, kPlane, MPI_DOUBLE, below, 1, u + kLocal + kPlane, kPlane, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE));
  OK(MPI_Sendrecv(u + kLocal - kPlane, kPlane, MPI_DOUBLE, above, 2, u + kLocal, kPlane, MPI_DOUBLE, below, 2,
                  MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void swap_cells(int one, int other) {
  double value = u[one];
  int64_t number = id[one];
  u[one] = u[other], id[one] = id[other];
  u[other] = value, id[other] = number;
}

static int select_cells(void) { return resil_spr_select(set, kLocal, kTotal, offset, NULL, neighbour, 0, owner); }

/* Where FLIP says. Each flip happens once, also after a rollback. */
static void flip(int step, const char* when, double* cells) {
  static char done[8];
  char text[256], *saved = NULL;
  if (!getenv("FLIP")) return;
  snprintf(text, sizeof text, "%s", getenv("FLIP"));
  int number = 0;
  for (char* one = strtok_r(text, ",", &saved); one; one = strtok_r(NULL, ",", &saved), number++) {
    int of_rank, of_step, cell, bit;
    char place[16];
    CHECK(sscanf(one, "%d:%d:%15[a-z]:%d:%d", &of_rank, &of_step, place, &cell, &bit) == 5);
    if (of_rank != rank || of_step != step || strcmp(place, when) != 0 || done[number]) continue;
    done[number] = 1;
    uint64_t bits;
    memcpy(&bits, &cells[cell], 8);
    bits ^= (uint64_t)1 << bit;
    memcpy(&cells[cell], &bits, 8);
  }
}

static int is(const char* name) { return strcmp(scene, name) == 0; }

#ifdef WITH_HDF5
#include "spr_hdf5.h"
#else
/* A checkpoint of its own: one file a rank, written anew after each step that was right. */
static void checkpoint_name(char* name, size_t bytes) {
  snprintf(name, bytes, "%s/checkpoint-%d", getenv("CHECKPOINTS") ? getenv("CHECKPOINTS") : ".", rank);
}

static void write_checkpoint(int step) {
  char name[512];
  checkpoint_name(name, sizeof name);
  FILE* file = fopen(name, "wb");
  CHECK(file && fwrite(&step, sizeof step, 1, file) == 1 && fwrite(u, sizeof u, 1, file) == 1 && fclose(file) == 0);
}

static int restored_step;
static int restore(void* argument, int64_t step) {
  char name[512];
  checkpoint_name(name, sizeof name);
  FILE* file = fopen(name, "rb");
  CHECK(argument == &restored_step && step >= 0);
  if (!file || fread(&restored_step, sizeof restored_step, 1, file) != 1 || fread(u, sizeof u, 1, file) != 1) return 1;
  fclose(file);
  ++rollbacks;
  return is("rollback_fails");
}
#endif

/* The same without a file: what the last resil_spr_keep has kept. */
static int restore_kept(void* argument, int64_t step) {
  struct resil_spr_replicas kept;
  int64_t of = resil_spr_kept(set, step, RESIL_SPR_OWN, &kept);
  CHECK(argument == &restored_step && of <= step);
  if (of < 0) return 1;
  CHECK(kept.rank == rank && kept.count == kLocal && kept.particles == kLocal && !kept.offset &&
        !kept.field[field_next]);
  for (int i = 0; i < kLocal; i++) CHECK(kept.id[i] == id[i]);
  memcpy(u, kept.field[field_u], kLocal * sizeof *u);
  CHECK(resil_spr_kept(set, step, RESIL_SPR_BEFORE, &kept) == of && kept.rank == (rank + size - 1) % size);
  CHECK(kept.id[0] == (int64_t)kept.rank * kLocal && kept.count == kLocal);
  restored_step = (int)of;
  ++rollbacks;
  return 0;
}

/* The older one remains where a rank cannot: here, because of another step. */
static void keep_cells(int step) {
  CHECK(resil_spr_keep(set, step, kLocal, RESIL_SPR_BIT(field_u)) == (set < 0));
  if (step == 4) CHECK(resil_spr_keep(set, step + rank, kLocal, RESIL_SPR_BIT(field_u)) != 0);
}

/* Around what is no kernel: the cells are compared with what they were. */
static int64_t guarded(int step, int policy) {
  resil_spr_begin(set, step, kLocal, -1, RESIL_SPR_BIT(field_u));
  flip(step, "input", u);
  return resil_spr_end(set, 0, NULL, NULL, policy);
}

static int64_t run_step(int step, int policy) {
  uint64_t named = RESIL_SPR_BIT(field_u);
  int odd = rank == size - 1 && step == 2; /* who does something else, in scenes that are wrong */
  int first[kLocal + 1];
  exchange_planes();
  if (is("moved") && odd) {
    int64_t swapped = id[0];
    memmove(id, id + 1, (kLocal - 1) * sizeof *id);
    id[kLocal - 1] = swapped;
  }
  if (is("fields") && odd) named |= RESIL_SPR_BIT(field_other);
  if (is("fewer_fields") && odd) named = 0;
  if (is("silent") && odd) { /* it goes on without the others */
    for (int i = 0; i <= kLocal; i++) first[i] = (int)offset[i];
    heat(kLocal, first, neighbour, u, next_u);
    return 0;
  }
  if (is("order") && odd) resil_spr_computed(set, RESIL_SPR_BIT(field_next), 0, 1);
  if (is("order") && odd) resil_spr_end(set, RESIL_SPR_BIT(field_next), replica_kernel, NULL, policy);
  resil_spr_begin(set, step + (is("step") && odd), kLocal - (is("count") && odd), kTotal, named);
  if (is("order") && odd) resil_spr_begin(set, step, kLocal, kTotal, named);
  flip(step, "input", u);
  for (int i = 0; i <= kLocal; i++) first[i] = (int)offset[i];
  heat(kLocal, first, neighbour, u, next_u);
  if (is("computed")) {
    if (step < 3) resil_spr_computed(set, RESIL_SPR_BIT(field_next), kLocal / 2, kLocal / 2);
    resil_spr_computed(set, RESIL_SPR_BIT(field_next), 0, kLocal / 2);
    resil_spr_computed(set, RESIL_SPR_BIT(field_next), kLocal / 2 - 1, 1); /* once more */
    if (odd) resil_spr_computed(set, RESIL_SPR_BIT(field_next), kLocal - 1, 2);
  }
  flip(step, "output", next_u);
  kernel_fails = is("kernel_fails") && odd;
  if (is("moves") && odd) swap_cells(3, kPlane + 5); /* once what they were has been sent */
  int64_t found = resil_spr_end(set, RESIL_SPR_BIT(field_next), replica_kernel, NULL, policy);
  if (is("moves") && odd) swap_cells(3, kPlane + 5);
  if (found >= 0) {
    flip(step, "between", next_u);
    memcpy(u, next_u, kLocal * sizeof *u);
  }
  return found;
}

/* What the next rank has of the one before is what that one had: as if it had died. */
static void compare_with_copy(void) {
  static double had[kTotal];
  static int64_t had_id[kTotal];
  struct resil_spr_replicas copy;
  int after = (rank + 1) % size, before = (rank + size - 1) % size, missing = resil_spr_copy(set, &copy), same = 0;
  OK(MPI_Sendrecv(other, kTotal, MPI_DOUBLE, after, 3, had, kTotal, MPI_DOUBLE, before, 3, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE));
  OK(MPI_Sendrecv(id, kTotal, MPI_INT64_T, after, 4, had_id, kTotal, MPI_INT64_T, before, 4, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE));
  static char seen[kLocal];
  for (int i = 0; !missing && i < copy.particles; i++)
    for (int k = 0; k < kTotal; k++)
      if (had_id[k] == copy.id[i] && (k < kLocal || size > 2)) {
        CHECK(memcmp(&had[k], (double*)copy.field[field_u] + i, 8) == 0);
        if (k < kLocal) seen[k] = 1;
        break;
      }
  for (int k = 0; k < kLocal; k++) same += seen[k];
  fprintf(stderr, "rank %d: copy of %d cells of rank %d\n", rank, missing ? -1 : same, missing ? -1 : copy.rank);
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  scene = argv[1];
  int policy = atoi(argv[2]), steps = atoi(argv[3]), two[] = {0, 1}, replicas = 0;
  int64_t found = 0;
  make_lists();
  for (int i = 0; i < kLocal; i++) u[i] = 1.0 / (1 + id[i]);
  if (is("among") && rank > 1) set = -1;
  else set = is("among") ? resil_spr_create("heat", two, 2) : resil_spr_create("heat", NULL, 0);
  field_id = resil_spr_field(set, "id", id, 8, 8, RESIL_SPR_ID);
  field_u = resil_spr_field(set, "u", u, 8, 8, RESIL_SPR_DOUBLE);
  field_next = resil_spr_field(set, "next u", next_u, 8, 8, RESIL_SPR_DOUBLE);
  field_other =
      resil_spr_field(set, is("other_fields") && rank == 0 ? "else" : "other", other, 16, 16, RESIL_SPR_DOUBLE);
  resil_spr_rollback(set, is("kept") ? restore_kept : restore, &restored_step);
  if (is("kept")) keep_cells(0);
  if (!strncmp(scene, "rollback", 8)) write_checkpoint(0);
  for (int step = 0; step < steps; step++) {
    if (is("one_sided") && step == 0)
      for (int i = 0; i < kLocal; i += 3) neighbour[offset[i]] = (int)(i + 2 * kSide) % kLocal;
    if (is("bad_lists") && rank == size - 1) neighbour[10] = step == 1 ? kTotal : 7;
    if (step == 0 || is("bad_lists") || is("computed") || (is("moved") && step == 4)) replicas = select_cells();
    memcpy(other, u, sizeof u);
    if (is("copy")) exchange_planes(), memcpy(other, u, sizeof u);
    if (is("copy") && step == steps - 1) {
      resil_spr_begin(set, step, kLocal, kTotal, RESIL_SPR_BIT(field_u));
      resil_spr_end(set, 0, NULL, NULL, policy);
      break;
    }
    if (is("guard")) found += guarded(step, policy), replicas = select_cells();
    int64_t here = run_step(step, policy);
    if (here < 0) {
      step = restored_step - 1;
      replicas = select_cells();
      continue;
    }
    found += here;
    if (!strncmp(scene, "rollback", 8)) write_checkpoint(step + 1);
    if (is("kept") && step % 2) keep_cells(step + 1);
  }
  if (is("copy")) compare_with_copy();
  double sum = 0;
  for (int i = 0; i < kLocal; i++) sum += u[i];
  uint64_t bits;
  memcpy(&bits, &sum, 8);
  printf("rank %d: sum %016llx\n", rank, (unsigned long long)bits);
  fprintf(stderr, "rank %d: set %d replicas %d kernels %d found %lld rollbacks %d\n", rank, set < 0 ? -1 : 0, replicas,
          kernels, (long long)found, rollbacks);
  resil_spr_destroy(set);
  OK(MPI_Finalize());
  return 0;
}
