// SPDX-License-Identifier: Apache-2.0
//
// Bodies that all pull at each other (a Plummer sphere, leapfrog), shared by the ranks: everybody stands in everybody's
// list, so that one replica a rank covers all (resil_spr_...). Prints energy and momentum, and the sum of the positions
// bit for bit; to standard error what the calls returned.
//
// Usage: spr_nbody BODIES STEPS      FLIP="rank:step:input|output:body:bit" flips a bit of a position after it was
// sent, or
//                                    of an acceleration after it was computed
#include <math.h>
#include <mpi.h>
#include <resil.h>
#include <stdlib.h>

#include "check.h"

typedef double three[3];

static int rank, size, bodies, local, first_body;
static three *x, *v, *a; /* this rank's bodies, then copies of all others */
static double *m, *potential;
static int64_t *id, *offset;
static int *from, *neighbour, *owner;
static int set, field_x, field_m, field_a, field_potential;

static void pull(int begin, int end, const int* first, const int* with, const three* at, const double* mass, three* to,
                 double* energy) {
  for (int i = begin; i < end; i++) {
    double sum[4] = {0};
    for (int k = first[i]; k < first[i + 1]; k++) {
      double d[3], r2 = 1e-4;
      for (int n = 0; n < 3; n++) d[n] = at[with[k]][n] - at[i][n], r2 += d[n] * d[n];
      double near = 1 / sqrt(r2), force = mass[with[k]] * near * near * near;
      for (int n = 0; n < 3; n++) sum[n] += force * d[n];
      sum[3] -= mass[with[k]] * near;
    }
    for (int n = 0; n < 3; n++) to[i][n] = sum[n];
    energy[i] = sum[3];
  }
}

static int replica_kernel(void* unused, const struct resil_spr_replicas* of) {
  (void)unused;
  pull(0, of->count, of->offset, of->neighbour, (const three*)of->field[field_x], (const double*)of->field[field_m],
       (three*)of->field[field_a], (double*)of->field[field_potential]);
  return 0;
}

static void flip(int step, const char* when, three* of) {
  int of_rank, of_step, body, bit;
  char place[16];
  uint64_t bits;
  if (!getenv("FLIP")) return;
  CHECK(sscanf(getenv("FLIP"), "%d:%d:%15[a-z]:%d:%d", &of_rank, &of_step, place, &body, &bit) == 5);
  if (of_rank != rank || of_step != step || strcmp(place, when) != 0) return;
  memcpy(&bits, &of[body][body % 3], 8);
  bits ^= (uint64_t)1 << bit;
  memcpy(&of[body][body % 3], &bits, 8);
}

static int first_of(int of) { return (int)((int64_t)bodies * of / size); }

/* All bodies of all ranks in the order of their ids, the own ones left out, behind these. */
static void gather(void) {
  int *counts = (int*)malloc(sizeof(int) * (size_t)size), *starts = (int*)malloc(sizeof(int) * (size_t)size);
  three* all = (three*)malloc(sizeof(three) * (size_t)bodies);
  for (int i = 0; i < size; i++) starts[i] = 3 * first_of(i), counts[i] = 3 * first_of(i + 1) - starts[i];
  OK(MPI_Allgatherv(x, 3 * local, MPI_DOUBLE, all, counts, starts, MPI_DOUBLE, MPI_COMM_WORLD));
  for (int i = local; i < bodies; i++) memcpy(x[i], all[id[i]], sizeof(three));
  free(all), free(counts), free(starts);
}

static double uniform(uint64_t* state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(*state >> 11) / 9007199254740992.0;
}

/* Aarseth, Henon, Wielen (1974), without the bodies far out. */
static void plummer(void) {
  uint64_t state = 5;
  for (int body = 0; body < bodies; body++) {
    double r, q, z, angle, speed;
    do r = 1 / sqrt(pow(uniform(&state), -2.0 / 3) - 1);
    while (r > 10);
    do q = uniform(&state), z = 0.1 * uniform(&state);
    while (z > q * q * pow(1 - q * q, 3.5));
    speed = q * sqrt(2) * pow(1 + r * r, -0.25);
    three place, velocity;
    z = 2 * uniform(&state) - 1, angle = 2 * M_PI * uniform(&state);
    place[0] = r * sqrt(1 - z * z) * cos(angle), place[1] = r * sqrt(1 - z * z) * sin(angle), place[2] = r * z;
    z = 2 * uniform(&state) - 1, angle = 2 * M_PI * uniform(&state);
    velocity[0] = speed * sqrt(1 - z * z) * cos(angle), velocity[1] = speed * sqrt(1 - z * z) * sin(angle);
    velocity[2] = speed * z;
    int at = body - first_body;
    if (at < 0 || at >= local) continue;
    memcpy(x[at], place, sizeof place), memcpy(v[at], velocity, sizeof velocity);
  }
}

static void allocate(void) {
  size_t n = (size_t)bodies;
  x = (three*)calloc(n, sizeof *x), v = (three*)calloc(n, sizeof *v), a = (three*)calloc(n, sizeof *a);
  m = (double*)calloc(n, sizeof *m), potential = (double*)calloc(n, sizeof *potential);
  id = (int64_t*)calloc(n, sizeof *id), offset = (int64_t*)calloc(n + 1, sizeof *offset);
  from = (int*)calloc(n + 1, sizeof *from), owner = (int*)calloc(n, sizeof *owner);
  neighbour = (int*)calloc(n * n, sizeof *neighbour);
  CHECK(x && v && a && m && potential && id && offset && from && owner && neighbour);
}

static void make_lists(void) {
  int others = local, at = 0;
  int* here = (int*)malloc(sizeof(int) * (size_t)bodies);
  for (int r = 0, i = 0; i < bodies; i++) {
    while (first_of(r + 1) <= i) r++;
    here[i] = r == rank ? i - first_body : others++;
    id[here[i]] = i;
    if (r != rank) owner[here[i] - local] = r;
    m[here[i]] = 1.0 / bodies;
  }
  for (int i = 0; i < local; i++) {
    offset[i] = at, from[i] = at;
    for (int j = 0; j < bodies; j++)
      if (j != first_body + i) neighbour[at++] = here[j];
  }
  offset[local] = at, from[local] = at;
  free(here);
}

static int64_t forces(int step) {
  gather();
  resil_spr_begin(set, step, local, bodies, RESIL_SPR_BIT(field_x) | (step == 0 ? RESIL_SPR_BIT(field_m) : 0));
  flip(step, "input", x);
  for (int i = 0, to; i < local; i = to) {
    to = i + 8 < local ? i + 8 : local;
    pull(i, to, from, neighbour, x, m, a, potential);
    resil_spr_computed(set, RESIL_SPR_BIT(field_a) | RESIL_SPR_BIT(field_potential), i, to - i);
  }
  flip(step, "output", a);
  return resil_spr_end(set, RESIL_SPR_BIT(field_a) | RESIL_SPR_BIT(field_potential), replica_kernel, NULL,
                       RESIL_POLICY_CONTINUE);
}

static void energy(double* sum) {
  double own[5] = {0};
  for (int i = 0; i < local; i++) {
    own[0] += 0.5 * m[i] * (v[i][0] * v[i][0] + v[i][1] * v[i][1] + v[i][2] * v[i][2]);
    own[1] += 0.5 * m[i] * potential[i];
    for (int n = 0; n < 3; n++) own[2 + n] += m[i] * v[i][n];
  }
  OK(MPI_Allreduce(own, sum, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(argc == 3 && atoi(argv[1]) >= size);
  bodies = atoi(argv[1]);
  first_body = first_of(rank);
  local = first_of(rank + 1) - first_body;
  allocate();
  make_lists();
  plummer();
  set = resil_spr_create("bodies", NULL, 0);
  resil_spr_field(set, "id", id, 8, 8, RESIL_SPR_ID);
  field_x = resil_spr_field(set, "x", x, 24, 24, RESIL_SPR_DOUBLE);
  field_m = resil_spr_field(set, "m", m, 8, 8, RESIL_SPR_DOUBLE);
  field_a = resil_spr_field(set, "a", a, 24, 24, RESIL_SPR_DOUBLE);
  field_potential = resil_spr_field(set, "potential", potential, 8, 8, RESIL_SPR_DOUBLE);
  int replicas = resil_spr_select(set, local, bodies, offset, NULL, neighbour, 0, owner); /* the lists stay */
  double before[5], after[5], dt = 0.005;
  int64_t found = forces(0);
  energy(before);
  for (int step = 1; step <= atoi(argv[2]); step++) {
    for (int i = 0; i < local; i++)
      for (int n = 0; n < 3; n++) v[i][n] += 0.5 * dt * a[i][n], x[i][n] += dt * v[i][n];
    found += forces(step);
    for (int i = 0; i < local; i++)
      for (int n = 0; n < 3; n++) v[i][n] += 0.5 * dt * a[i][n];
  }
  energy(after);
  uint64_t sum = 0, bits;
  for (int i = 0; i < local; i++)
    for (int n = 0; n < 3; n++) memcpy(&bits, &x[i][n], 8), sum = sum * 31 + bits;
  printf("rank %d: sum %016llx\n", rank, (unsigned long long)sum);
  if (rank == 0)
    printf("energy %.9f %.9f virial %.6f momentum %.3e %.3e\n", before[0] + before[1], after[0] + after[1],
           -2 * before[0] / before[1], fabs(before[2]) + fabs(before[3]) + fabs(before[4]),
           fabs(after[2] - before[2]) + fabs(after[3] - before[3]) + fabs(after[4] - before[4]));
  fprintf(stderr, "rank %d: set %d replicas %d kernels 0 found %lld rollbacks 0\n", rank, set < 0 ? -1 : 0, replicas,
          (long long)found);
  resil_spr_destroy(set);
  OK(MPI_Finalize());
  return 0;
}
